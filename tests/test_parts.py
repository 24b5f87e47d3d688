"""Many attributes: cells that are made of parts mean the same as cells that are parts of their own."""

from fractions import Fraction

import numpy as np
import pytest
import torch

import fairlayer.asked
from fairlayer import EqualizedOdds, EqualizedResiduals, InfeasibleError, MeanParity, RatioParity, project
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.rows import dense
from fairlayer.binding.system import System, bind
from fairlayer.solve.certify import shortfalls
from fairlayer.solve.newton import proves_contradiction, shifts, statistics

CONSTRAINTS = {
    "parity": [MeanParity(0.01)],
    "ratio": [RatioParity(0.95)],
    "odds and pairs": [EqualizedOdds(0.02), MeanParity(0.03, over=[(0, 11), (3, 4), 7])],
    "residuals": [EqualizedResiduals(0.01), MeanParity(0.5)],
}


def batch(n: int = 1500, attributes: int = 12, values: int = 3, seed: int = 0):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, values, (n, attributes))
    z = np.clip(rng.uniform(0.05, 0.95, n) + 0.1 * groups[:, 0] - 0.08 * groups[:, -1], 0.01, 0.99)
    return groups, z, rng.integers(0, 2, n), rng.uniform(0.5, 2.0, n)


def both(rules, weights=None, **shape) -> tuple[System, System]:
    """Constraints bound in parts, and without."""
    groups, z, targets, weighed = batch(**shape)
    data = {"groups": groups, "targets": targets, "weights": weighed if weights else None}
    return tuple(bind(ConstraintSet(rules), len(z), **data, in_parts=in_parts) for in_parts in (True, False))


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("rules", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_rows_in_parts_are_the_same_rows(rules, weights):
    parts, plain = both(rules, weights)
    assert parts.rows.part.shape == (len(parts.rows.part), len(parts.weight))
    assert len(parts.rows.part) > 1
    assert plain.rows.part.size == 0
    assert parts.view.names == plain.view.names
    assert (parts.rows.present == plain.rows.present).all()
    assert np.array_equal(dense(parts.rows)[parts.cell], dense(plain.rows)[plain.cell])
    assert np.allclose(parts.rows.offset, plain.rows.offset, rtol=1e-13, atol=0)
    flat = parts.flat()
    assert flat.rows.part.size == 0
    assert np.array_equal(dense(flat.rows), dense(parts.rows))
    assert np.array_equal(flat.view.plan.membership, parts.view.plan.membership)
    for own, other in zip(flat.view.plan.families, plain.view.plan.families, strict=True):
        assert np.array_equal(own.member[flat.cell], other.member[plain.cell])
    for of_cell in (parts.samples, np.sqrt(parts.samples)):
        assert np.array_equal(parts.view.plan.totals(of_cell), flat.view.plan.totals(of_cell))


def test_more_attributes_than_codes_can_number():
    parts, plain = both([MeanParity(0.01)], n=400, attributes=80, values=2)
    assert len(parts.rows.part) == 10
    assert np.array_equal(dense(parts.rows)[parts.cell], dense(plain.rows)[plain.cell])


def test_labels_that_the_first_samples_lack_are_met():
    groups, z, _, _ = batch()
    groups[700:, 5] += 500
    groups[900:, 6] -= 10**12
    rules = ConstraintSet([MeanParity(0.01)])
    parts, plain = (bind(rules, len(z), groups=groups, in_parts=in_parts) for in_parts in (True, False))
    assert parts.rows.part.size
    assert parts.view.names == plain.view.names
    assert np.array_equal(dense(parts.rows)[parts.cell], dense(plain.rows)[plain.cell])


@pytest.mark.parametrize("rules", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_numbers_over_parts_are_those_over_cells(rules):
    rows = both(rules)[0].rows
    rng, M = np.random.default_rng(1), dense(rows)
    nu, sums = rng.standard_normal(M.shape[1]), rng.standard_normal(len(M))
    shift = np.empty(len(M))
    shifts(rows, nu, shift)
    assert np.allclose(shift, M @ nu, rtol=1e-12, atol=1e-15)
    assert np.allclose(statistics(rows, sums), M.T @ sums - rows.offset, rtol=1e-12, atol=1e-14)
    for least, most in ((sums, sums + 0.1), (-np.ones(len(M)), np.ones(len(M)))):
        assert proves_contradiction(rows, nu, least, most) == proves_contradiction(rows.flat(), nu, least, most)


@pytest.mark.parametrize("seed", range(5))
def test_what_may_be_missed_is_bounded_over_parts(seed):
    # Sums that cancel within their parts: what is left of them is made of roundings.
    rows = both([MeanParity(0.01)], seed=seed)[0].rows
    rng = np.random.default_rng(seed)
    S = rng.standard_normal(len(rows.part[0])) * 10.0 ** rng.integers(0, 14, len(rows.part[0]))
    S[1::2] = -S[: len(S) - 1 : 2] + rng.standard_normal(len(S) // 2)
    error, missed = np.abs(S) * 2.0**-54, np.empty(len(rows.kind))
    shortfalls(rows, S, error, missed)
    flat, cells = rows.flat(), np.repeat(np.arange(len(S)), np.diff(rows.flat().start))
    count = np.round(1.0 / flat.value).astype(np.int64)
    q = [Fraction(0)] * len(rows.offset)
    for k, c, total in zip(flat.statistic.tolist(), cells.tolist(), count.tolist(), strict=True):
        q[k] += Fraction(float(S[c])) / total
    for f in range(len(missed)):
        own = q[rows.first[f] : rows.first[f + 1]]
        exact = max(own) - min(own) - Fraction(float(rows.upper[f]))
        assert exact <= Fraction(float(missed[f]))
        assert float(missed[f]) - float(exact) < 1e-13 * np.abs(S).sum()


def projected(dtype, rules, in_parts, monkeypatch, weights=False, **options):
    """The solution of a batch and the gradient of its output, in parts or without."""
    groups, z, targets, weighed = batch()

    def bound(*given, **named):
        return bind(*given, **{**named, "in_parts": named.get("in_parts", False) and in_parts})

    monkeypatch.setattr(fairlayer.asked, "bind", bound)
    raw = torch.tensor(z, dtype=dtype, requires_grad=True)
    solution = project(
        raw, groups, rules, targets=targets, weights=weighed if weights else None, bounds=(0.0, 1.0), **options
    )
    solution.value.sin().sum().backward()
    return solution, raw.grad


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("path", ["compiled", "tensor"])
@pytest.mark.parametrize("rules", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_outputs_and_gradients_are_those_without_parts(rules, path, weights, monkeypatch):
    parts, gradient = projected(torch.float64, rules, True, monkeypatch, weights, path=path)
    plain, expected = projected(torch.float64, rules, False, monkeypatch, weights, path=path)
    assert parts.status is plain.status
    assert torch.allclose(parts.value, plain.value, rtol=0, atol=1e-12)
    assert torch.allclose(gradient, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("discrepancy", ["kl", "entropy"])
def test_other_discrepancies_are_those_without_parts(discrepancy, monkeypatch):
    parts, gradient = projected(torch.float64, CONSTRAINTS["parity"], True, monkeypatch, discrepancy=discrepancy)
    plain, expected = projected(torch.float64, CONSTRAINTS["parity"], False, monkeypatch, discrepancy=discrepancy)
    assert parts.status is plain.status
    assert torch.allclose(parts.value, plain.value, rtol=0, atol=1e-9)
    assert torch.allclose(gradient, expected, rtol=0, atol=1e-7)


def test_equal_means_are_searched_for_all_the_same(monkeypatch):
    parts, _ = projected(torch.float32, [MeanParity(0.0)], True, monkeypatch)
    plain, _ = projected(torch.float32, [MeanParity(0.0)], False, monkeypatch)
    assert parts.status is plain.status
    assert torch.allclose(parts.value, plain.value, rtol=0, atol=1e-5)


def test_contradictions_are_named_and_relaxed_all_the_same():
    z = torch.linspace(0, 1, 1500, dtype=torch.float64)
    groups, targets = batch()[0], (torch.arange(1500) % 3 == 0).double() * 50.0
    groups[:, 0] = targets.numpy() > 0
    for in_parts in (True, False):
        system = bind(
            ConstraintSet([EqualizedResiduals(0.01)]), 1500, groups=groups, targets=targets, in_parts=in_parts
        )
        assert bool(system.rows.part.size) is in_parts
    with pytest.raises(InfeasibleError, match="0"):
        project(z, groups, EqualizedResiduals(0.01), targets=targets, bounds=(0.0, 1.0))
    relaxed = project(z, groups, EqualizedResiduals(0.01), targets=targets, bounds=(0.0, 1.0), infeasible="relax")
    assert float(relaxed.excess) > 40.0
