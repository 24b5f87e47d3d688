"""A table that comes in chunks is projected as if it were one batch."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest

from exact import exact_dot
from fairlayer import EqualizedResiduals, InfeasibleError, MeanParity, Status, project
from fairlayer.binding.block_sums import ABSOLUTE, OUTPUT, BlockSums
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.system import bind
from fairlayer.solve.files import ChunkPasses, certify_chunks, project_passes


def table(n, seed, kind="uniform"):
    random = np.random.default_rng(seed)
    groups = {"sex": random.choice(["f", "m"], n, p=[0.3, 0.7]), "race": random.choice(["a", "b", "c", "d"], n)}
    z = random.random(n) * 0.6 + 0.3 * (groups["sex"] == "m") + 0.1 * (groups["race"] == "a")
    if kind == "decisions":
        z = (z > 0.5).astype(float)
    if kind == "far out":
        z = 50.0 * (z - 0.5)
    return z, groups


def in_chunks(z, cell, size=997):
    cell = np.asarray(cell, dtype=np.int32)
    return lambda: ((z[i : i + size], cell[i : i + size]) for i in range(0, len(z), size))


def solve(chunks, system, bounds):
    return project_passes(ChunkPasses(chunks, len(system.weight)), system, bounds)


def response(z, cell, shifts):
    return np.clip(z - shifts.shift[cell], shifts.lo, shifts.hi)


@pytest.mark.parametrize("kind", ["uniform", "decisions", "far out"])
@pytest.mark.parametrize("tolerance", [1e-6, 0.02, 5.0])
@pytest.mark.parametrize("bounds", [(0.0, 1.0), None, (None, 0.8)])
def test_agrees_with_project(kind, tolerance, bounds):
    z, groups = table(20_000, 0, kind)
    rules = ConstraintSet([MeanParity(tolerance)])
    system = bind(rules, len(z), groups=groups)
    shifts = solve(in_chunks(z, system.cell), system, bounds)
    y = response(z, system.cell, shifts)
    whole = project(z, groups, rules, bounds)
    assert shifts.facts.status is whole.status is Status.OPTIMAL
    assert np.abs(y - whole.value).max() < 1e-9
    assert shifts.change.changed == np.count_nonzero(y != z)
    assert shifts.change.largest == pytest.approx(np.abs(y - z).max())
    limit = Fraction(tolerance)
    for labels in groups.values():
        means = [exact_dot(y[labels == label]) / int((labels == label).sum()) for label in np.unique(labels)]
        assert max(means) - min(means) <= limit
    if bounds == (0.0, 1.0):
        assert y.min() >= 0
        assert y.max() <= 1
    assert certify_chunks(in_chunks(y, system.cell), system).status is Status.OPTIMAL


def test_what_breaks_a_row_is_found():
    z, groups = table(5_000, 1)
    system = bind(ConstraintSet([MeanParity(0.02)]), len(z), groups=groups)
    facts = certify_chunks(in_chunks(z, system.cell), system)
    assert facts.missed.max() > 0
    expected = z[groups["sex"] == "f"].mean() - z[groups["sex"] == "m"].mean()
    assert facts.gaps[0] == pytest.approx(expected)


def test_residuals():
    z, groups = table(5_000, 2)
    targets = np.random.default_rng(0).random(5_000)
    rules = ConstraintSet([EqualizedResiduals(0.01)])
    system = bind(rules, len(z), groups=groups, targets=targets)
    shifts = solve(in_chunks(z, system.cell), system, None)
    assert np.abs(response(z, system.cell, shifts) - project(z, groups, rules, targets=targets).value).max() < 1e-9


def test_contradictions_are_named():
    z, groups = table(1_000, 3)
    targets = np.where(groups["sex"] == "f", 0.0, 5.0)
    system = bind(ConstraintSet([EqualizedResiduals(0.01, over="sex")]), len(z), groups=groups, targets=targets)
    with pytest.raises(InfeasibleError, match="equalized residuals, sex: f - m"):
        solve(in_chunks(z, system.cell), system, (0.0, 1.0))


def test_equal_means_are_reached_as_nearly_as_floats_allow():
    z, groups = table(1_000, 4)
    system = bind(ConstraintSet([MeanParity(0.0)]), len(z), groups=groups)
    shifts = solve(in_chunks(z, system.cell), system, None)
    assert shifts.facts.status is Status.ROUNDED
    assert np.abs(shifts.facts.gaps).max() < 1e-14


@pytest.mark.parametrize("seed", range(3))
def test_the_same_to_the_bit_however_a_table_is_divided(seed):
    z, groups = table(5_000, 5)
    z[:3] = 1e12, -3e-17, 5e-324
    system = bind(ConstraintSet([MeanParity(0.02)]), len(z), groups=groups)
    whole = solve(in_chunks(z, system.cell, len(z)), system, (None, 1.0))
    random = np.random.default_rng(seed)
    order = random.permutation(len(z))
    found = solve(in_chunks(z[order], system.cell[order], int(random.integers(1, 999))), system, (None, 1.0))
    assert found.shift.tobytes() == whole.shift.tobytes()
    assert found.facts.gaps.tobytes() == whole.facts.gaps.tobytes()
    assert found.change == whole.change


def test_sums_of_blocks_travel_and_add_up():
    z, groups = table(2_000, 6, "far out")
    cell, shift = bind(ConstraintSet([MeanParity(0.02)]), len(z), groups=groups).cell, np.linspace(-1.0, 1.0, 9)
    whole, total = BlockSums(9, absolute=True), BlockSums(9, absolute=True)
    whole.add(z, cell, shift, -2.0, 3.0)
    for some in np.array_split(np.random.default_rng(0).permutation(len(z)), 7):
        part = BlockSums(9, absolute=True)
        part.add(z[some], cell[some], shift, -2.0, 3.0)
        total.merge(pickle.loads(pickle.dumps(part)))
    y = np.clip(z - shift[cell], -2.0, 3.0)
    for place, values in ((OUTPUT, y), (ABSOLUTE, np.abs(y))):
        expected = [float(exact_dot(values[cell == c])) if (cell == c).any() else 0.0 for c in range(9)]
        assert total.sums(place)[0].tolist() == whole.sums(place)[0].tolist() == expected
    assert total.rows.tolist() == np.bincount(cell, minlength=9).tolist()
    assert total.free.tolist() == np.bincount(cell, (y > -2.0) & (y < 3.0), 9).tolist()
    assert (total.low, total.high, total.changed) == (z.min(), z.max(), np.count_nonzero(y != z))
    halves = total.regrouped(np.arange(9) // 5, 2)
    assert halves.sums(OUTPUT)[0].tolist() == [float(exact_dot(y[cell < 5])), float(exact_dot(y[cell >= 5]))]
