"""The method in plain NumPy agrees with an interior-point solver, and the library with both, gradients too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from conformance import BOUNDS, CASES, WEIGHTS, assert_close, make_problem
from conformance import reference as optimum
from discrepancies import problem_for
from fairlayer import MeanParity, RatioParity, ResidualMean, project
from fairlayer.core._native import NEARLY
from formulas import Problem
from pairs import pairwise
from reference import Batch, Family, cells_of, certify, pull_back
from reference import project as by_reference

# Of matrices it knows nothing, and of 14 groups it lists 182 rows, which takes it seconds.
GROUPED = [case for case in CASES if "matrix" not in case and "14" not in case and case != "affine"]
KINDS = ("squared", "entropy", "logits", "kl")
SETTINGS = pairwise(GROUPED, [*BOUNDS], [*WEIGHTS], KINDS)


def as_batch(problem: Problem, kind: str = "squared") -> Batch:
    """A problem for the reference: cells are what its statistics tell apart, and every row is a family."""
    weights = problem.sample_weights()
    statistics = list({id(s): s for row in problem.rows for s in (row.plus, row.minus) if s is not None}.values())
    member = np.zeros((len(statistics), len(problem.z)))
    for k, one in enumerate(statistics):
        shares = [f[one.support] for f in one.factors if not np.array_equal(f, weights)]
        member[k, one.support] = np.prod(shares, axis=0) if shares else 1.0
    cell = cells_of(*member)
    first = np.unique(cell, return_index=True)[1]
    at = {id(one): k for k, one in enumerate(statistics)}
    families = []
    for row in problem.rows:
        listed = [at[id(s)] for s in (row.plus, row.minus) if s is not None]
        ratio = np.isinf(row.lower)
        if ratio and listed[0] > listed[1]:
            continue  # a ratio has two rows, and the family lists both
        kind_of_row = "ratio" if ratio else "difference" if len(listed) == 2 else "each"
        limit = row.factor if ratio else row.upper
        families.append(Family(kind_of_row, member[listed][:, first], limit, row.plus.targets is not None))
    lo, hi = problem.box()
    targets = 0.0 if all(row.plus.targets is None for row in problem.rows) else problem.targets
    return Batch(problem.z, cell, families, weights, lo, hi, targets, kind)


@pytest.mark.parametrize(("case", "bounds", "weights", "kind"), SETTINGS)
def test_the_library_is_the_reference(case, bounds, weights, kind):
    """Outputs and gradients, for every pair of settings."""
    problem = problem_for(kind, case, bounds, weights, n=30)
    batch = as_batch(problem, kind)
    answer = by_reference(batch)
    assert answer.holds
    z = torch.tensor(problem.z, requires_grad=True)
    solution = project(z, **problem.arguments(), discrepancy=kind)
    assert_close(solution.value, answer.y, 1e-8 * (1.0 + np.ptp(answer.y)))
    upstream = np.random.default_rng(0).normal(size=len(problem.z))
    solution.value.backward(torch.tensor(upstream))
    gradient = pull_back(batch, answer, upstream)
    assert_close(z.grad, gradient, 1e-6 * (1.0 + np.abs(gradient).max()))


@pytest.mark.parametrize("case", GROUPED)
def test_the_reference_is_the_optimum_of_an_interior_point_solver(case):
    problem = make_problem(case, "per sample", "weighted")
    assert_close(by_reference(as_batch(problem)).y, optimum(case, "per sample", "weighted"), 1e-9 * np.ptp(problem.z))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_long_batch(dtype, weighted):
    """The search begins with the multipliers of a few of its samples, and ends where that of the reference does."""
    rng = np.random.default_rng(1)
    n = 40_000
    sex, race = rng.integers(0, 2, n), rng.integers(0, 3, n)
    z = torch.tensor(rng.normal(0.4 + 0.3 * sex + 0.2 * race, 0.5), dtype=dtype)
    weights = np.exp(rng.normal(size=n)) if weighted else None
    constraints = [MeanParity(0.02, over="sex"), RatioParity(0.95, over="race")]
    solution = project(z, {"sex": sex, "race": race}, constraints, bounds=(0.0, 1.0), weights=weights)
    cell = cells_of(sex, race)
    first = np.unique(cell, return_index=True)[1]
    families = [
        Family("difference", (sex[first] == np.arange(2)[:, None]).astype(float), 0.02),
        Family("ratio", (race[first] == np.arange(3)[:, None]).astype(float), 0.95),
    ]
    raw, w = z.double().numpy(), np.ones(n) if weights is None else weights
    batch = Batch(raw, cell, families, w, 0.0, 1.0)
    assert solution.satisfied
    assert max(certify(batch, solution.value.double().numpy())) <= 0
    answer = by_reference(batch)
    assert answer.holds
    eps = torch.finfo(dtype).eps
    assert_close(solution.value.double(), answer.y, 1e-8 + 2.0 * eps)

    def distance(y):
        return np.sqrt(w @ (y - raw) ** 2)

    nearly = distance(answer.y) * (1.0 + NEARLY) + eps * np.sqrt(w @ raw**2)
    assert solution.optimality_gap == 0.0
    assert distance(solution.value.double().numpy()) <= nearly


def test_as_it_is_read():
    """Two attributes, one compared by differences and one by ratios, and a mean of residuals; in single precision."""
    rng = np.random.default_rng(0)
    n = 50
    sex, race, targets = rng.integers(0, 2, n), rng.integers(0, 3, n), rng.uniform(0.3, 0.5, n)
    z = (rng.random(n) + 0.2 * sex).astype(np.float32)
    cell = cells_of(sex, race)
    first = np.unique(cell, return_index=True)[1]
    families = [
        Family("difference", (sex[first] == np.arange(2)[:, None]).astype(float), 0.01),
        Family("ratio", (race[first] == np.arange(3)[:, None]).astype(float), 0.9),
        Family("each", np.ones((1, len(first))), 0.05, residual=True),
    ]
    batch = Batch(z.astype(np.float64), cell, families, lo=0.0, hi=1.0, targets=targets)
    answer = by_reference(batch, np.float32)
    assert answer.holds
    assert answer.y.dtype == np.float32
    assert max(certify(batch, answer.y)) <= 0
    groups = {"sex": sex, "race": race, "all": np.zeros(n, dtype=int)}
    asked = [MeanParity(0.01, over="sex"), RatioParity(0.9, over="race"), ResidualMean(0.05, over="all")]
    value = project(z, groups, asked, (0.0, 1.0), targets).value
    assert_close(value, answer.y, 1e-6)
    assert max(certify(batch, value)) <= 0
    assert max(certify(replace(batch), z)) > 0
