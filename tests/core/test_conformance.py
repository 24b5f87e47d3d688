"""Every constraint with every kind of bounds, weighted and not, in every dtype: every pair of these settings."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from conformance import (
    ACCURACY,
    BOUNDS,
    CASES,
    DTYPES,
    WEIGHTS,
    assert_close,
    make_problem,
    name_of,
    permuted,
    reference,
    rounding,
    solve,
)
from fairlayer import project
from judge import assert_true_status
from pairs import pairwise

SETTINGS = pairwise([*CASES], [*BOUNDS], [*WEIGHTS], DTYPES)
every_pair = pytest.mark.parametrize(("case", "bounds", "weights", "dtype"), SETTINGS, ids=name_of)
IN_FLOAT64 = pairwise([*CASES], [*BOUNDS], [*WEIGHTS])
every_pair_in_float64 = pytest.mark.parametrize(("case", "bounds", "weights"), IN_FLOAT64)


def test_every_pair_of_settings_occurs():
    settings = [*CASES], [*BOUNDS], [*WEIGHTS], DTYPES
    for (a, first), (b, second) in combinations(enumerate(settings), 2):
        assert {(row[a], row[b]) for row in SETTINGS} == {(x, y) for x in first for y in second}
    assert len(SETTINGS) < 1.2 * len(CASES) * len(BOUNDS)


@every_pair
def test_is_feasible_and_optimal(case, bounds, weights, dtype):
    problem = make_problem(case, bounds, weights, dtype)
    solution = solve(problem, dtype)
    assert solution.value.dtype == dtype
    assert solution.satisfied
    assert_true_status(solution, problem)
    assert np.abs(np.asarray(solution.multipliers)).max() > 0, "the case should need a change"
    assert_close(solution.value, reference(case, bounds, weights, dtype), ACCURACY[dtype] * np.ptp(problem.z))


@every_pair
def test_is_idempotent_and_permutation_invariant(case, bounds, weights, dtype):
    problem = make_problem(case, bounds, weights, dtype)
    few = 8 * rounding(problem, dtype) + 1e-11
    once = solve(problem, dtype).value
    again = type(problem)(**{**problem.arguments(), "z": once.double().numpy()})
    assert_close(solve(again, dtype).value, once.double(), few)
    order = np.random.default_rng(0).permutation(len(problem.z))
    assert_close(solve(permuted(problem, order), dtype).value, once.double()[order], few)


@every_pair_in_float64
def test_derivatives(case, bounds, weights):
    """The first and the second are those of finite differences."""
    problem = make_problem(case, bounds, weights, n=20)

    def function(z):
        return project(z, **problem.arguments()).value

    z = torch.tensor(problem.z, requires_grad=True)
    assert torch.autograd.gradcheck(function, z, eps=1e-6, atol=3e-6)
    assert torch.autograd.gradgradcheck(function, z, eps=1e-7, atol=1e-6, fast_mode=True)
