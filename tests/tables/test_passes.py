"""A table that is projected in passes gives what one batch in memory gives."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from exact import exact_dot
from fairlayer import EqualizedResiduals, InfeasibleError, MeanParity, Status, project
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.system import bind
from fairlayer.tables.passes import TablePasses, certify_passes, project_passes
from fairlayer.tables.table import LocalTable, connect

pytest.importorskip("duckdb", reason="needs fairlayer[files]")


def sample(n, seed, kind="uniform"):
    random = np.random.default_rng(seed)
    groups = {"sex": random.choice(["f", "m"], n, p=[0.3, 0.7]), "race": random.choice(["a", "b", "c", "d"], n)}
    z = random.random(n) * 0.6 + 0.3 * (groups["sex"] == "m") + 0.1 * (groups["race"] == "a")
    if kind == "decisions":
        z = (z > 0.5).astype(float)
    if kind == "far out":
        z = 50.0 * (z - 0.5)
    return z, groups


@pytest.fixture
def passes():
    """Passes over arrays, as a table of which the codes are the cells."""
    with connect() as connection:
        connection.execute("SET threads = 2")

        def over(z, cell):
            connection.register("arrays", pd.DataFrame({"z": z, "code": cell}))
            table = LocalTable(connection, "arrays", "arrays")
            found = TablePasses(table)
            return found.grouped(found.code, int(cell.max()) + 1)

        yield over


def response(z, cell, shifts):
    return np.clip(z - shifts.shift[cell], shifts.lo, shifts.hi)


@pytest.mark.parametrize("i", range(3))
@pytest.mark.parametrize("j", range(3))
def test_agrees_with_project(i, j, passes):
    kind, tolerance = ["uniform", "decisions", "far out"][i], [1e-6, 0.02, 5.0][j]
    bounds = [(0.0, 1.0), None, (None, 0.8)][(i + j) % 3]  # every pair of two of the three occurs
    z, groups = sample(5_000, 0, kind)
    rules = ConstraintSet([MeanParity(tolerance)])
    system = bind(rules, len(z), groups=groups)
    over = passes(z, system.cell)
    shifts = project_passes(over, system, bounds)
    y = response(z, system.cell, shifts)
    whole = project(z, groups, rules, bounds)
    assert shifts.status is whole.status is Status.OPTIMAL
    assert np.abs(y - whole.value).max() < 1e-9
    change = over.change(shifts)
    assert change.changed == np.count_nonzero(y != z)
    assert change.largest == np.abs(y - z).max()
    assert change.total == pytest.approx(np.abs(y - z).sum(), rel=1e-12)
    for labels in groups.values():
        means = [exact_dot(y[labels == label]) / int((labels == label).sum()) for label in np.unique(labels)]
        assert max(means) - min(means) <= Fraction(tolerance)
    if bounds == (0.0, 1.0):
        assert 0 <= y.min() <= y.max() <= 1
    assert certify_passes(passes(y, system.cell), system).status is Status.OPTIMAL


def test_what_breaks_a_row_is_found(passes):
    z, groups = sample(5_000, 1)
    system = bind(ConstraintSet([MeanParity(0.02)]), len(z), groups=groups)
    facts = certify_passes(passes(z, system.cell), system)
    assert facts.missed.max() > 0
    assert facts.gaps[0] == pytest.approx(z[groups["sex"] == "f"].mean() - z[groups["sex"] == "m"].mean())


def test_contradictions_are_named(passes):
    z, groups = sample(1_000, 3)
    targets = np.where(groups["sex"] == "f", 0.0, 5.0)
    system = bind(ConstraintSet([EqualizedResiduals(0.01, over="sex")]), len(z), groups=groups, targets=targets)
    with pytest.raises(InfeasibleError, match="equalized residuals, sex: f - m"):
        project_passes(passes(z, system.cell), system, (0.0, 1.0))


def test_equal_means_are_reached_as_nearly_as_floats_allow(passes):
    z, groups = sample(1_000, 4)
    system = bind(ConstraintSet([MeanParity(0.0)]), len(z), groups=groups)
    shifts = project_passes(passes(z, system.cell), system)
    assert shifts.status is Status.ROUNDED
    assert np.abs(shifts.gaps).max() < 1e-14


def test_a_gap_that_only_exact_sums_tell_from_its_tolerance(passes):
    z = np.arange(100) * 37 % 100 / 100
    groups = {"g": np.array(list("ab" * 50))}
    gap = (exact_dot(z[1::2]) - exact_dot(z[::2])) / 50
    assert -1e-17 < gap - Fraction(0.01) < 0
    for tolerance, kept in ((0.01, True), (0.01 - 4e-18, False)):
        system = bind(ConstraintSet([MeanParity(tolerance)]), len(z), groups=groups)
        assert (certify_passes(passes(z, system.cell), system).status is Status.OPTIMAL) is kept
        if kept:
            shifts = project_passes(passes(z, system.cell), system)
            assert shifts.status is Status.OPTIMAL
            assert not shifts.shift.any()


@pytest.mark.parametrize("seed", range(3))
def test_the_same_to_the_bit_in_whatever_order_rows_come(seed, passes):
    z, groups = sample(5_000, 5)
    z[:3] = 1e12, -3e-17, 5e-324
    system = bind(ConstraintSet([MeanParity(0.02)]), len(z), groups=groups)
    first, order = passes(z, system.cell), np.random.default_rng(seed).permutation(len(z))
    whole = project_passes(first, system, (None, 1.0))
    change = first.change(whole)
    again = passes(z[order], system.cell[order])
    found = project_passes(again, system, (None, 1.0))
    assert found.shift.tobytes() == whole.shift.tobytes()
    assert found.gaps.tobytes() == whole.gaps.tobytes()
    assert again.change(found) == change


@pytest.mark.parametrize(("kind", "scale"), [("uniform", 1.0), ("far out", 1e200), ("far out", 1e-200)])
def test_sums_are_exact_within_what_they_say(kind, scale, passes):
    z, groups = sample(2_000, 6, kind)
    z *= scale
    cell = bind(ConstraintSet([MeanParity(0.02)]), len(z), groups=groups).cell
    shift = scale * np.linspace(-1.0, 1.0, 8)
    found = passes(z, cell).sums(shift, -2.0 * scale, 3.0 * scale)
    y = np.clip(z - shift[cell], -2.0 * scale, 3.0 * scale)
    for c in range(8):
        exact = exact_dot(y[cell == c])
        assert abs(Fraction(found.outputs[c]) - exact) <= Fraction(found.error[c])
        assert found.error[c] <= 1e-15 * np.abs(y[cell == c]).sum()
        assert found.absolute[c] >= np.abs(y[cell == c]).sum()
    assert found.free.tolist() == np.bincount(cell, y == z - shift[cell], 8).tolist()
