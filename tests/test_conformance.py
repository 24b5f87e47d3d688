"""Every constraint, with every kind of bounds, weighted and not, in every dtype, on every path."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conformance import (
    ACCURACY,
    BOUNDS,
    CASES,
    VARIANTS,
    WEIGHTS,
    assert_close,
    assert_holds,
    make_problem,
    permuted,
    reference,
    rounding,
    solve,
    variant_name,
)
from fairlayer import project

pytestmark = [
    pytest.mark.parametrize("case", CASES),
    pytest.mark.parametrize("bounds", BOUNDS),
    pytest.mark.parametrize("weights", WEIGHTS),
]
every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=variant_name)


@every_variant
def test_is_feasible_and_optimal(case, bounds, weights, variant):
    problem = make_problem(case, bounds, weights, variant[0])
    solution = solve(problem, *variant)
    assert solution.value.dtype == variant[0]
    assert_holds(problem, solution)
    assert np.abs(np.asarray(solution.multipliers)).max() > 0, "the case should need a change"
    optimum = reference(case, bounds, weights, variant[0])
    assert_close(solution.value, optimum, ACCURACY[variant[0]] * np.ptp(problem.z))


@every_variant
def test_is_idempotent(case, bounds, weights, variant):
    problem = make_problem(case, bounds, weights, variant[0])
    once = solve(problem, *variant).value
    twice = solve(type(problem)(**{**problem.arguments(), "z": once.double().numpy()}), *variant).value
    assert_close(twice, once.double(), 8 * rounding(problem, variant[0]) + 1e-11)


@every_variant
def test_is_permutation_invariant(case, bounds, weights, variant):
    problem = make_problem(case, bounds, weights, variant[0])
    order = np.random.default_rng(0).permutation(len(problem.z))
    straight = solve(problem, *variant).value.double()
    mixed = solve(permuted(problem, order), *variant).value
    assert_close(mixed, straight[order], 8 * rounding(problem, variant[0]) + 1e-11)


def _as_function(problem, path):
    return lambda z: project(z, **problem.arguments(), path=path).value


@pytest.mark.parametrize("path", ["compiled", "tensor"])
def test_gradient(case, bounds, weights, path):
    problem = make_problem(case, bounds, weights, n=20)
    z = torch.tensor(problem.z, requires_grad=True)
    assert torch.autograd.gradcheck(_as_function(problem, path), z, eps=1e-7, atol=1e-6)


def test_gradients_of_both_paths_agree(case, bounds, weights):
    problem = make_problem(case, bounds, weights)
    upstream = torch.tensor(np.random.default_rng(1).normal(size=len(problem.z)))
    gradients = []
    for path in ("compiled", "tensor"):
        z = torch.tensor(problem.z, requires_grad=True)
        gradients += torch.autograd.grad(_as_function(problem, path)(z), z, upstream)
    assert_close(*gradients, 1e-10)


def test_double_backward(case, bounds, weights):
    problem = make_problem(case, bounds, weights, n=20)
    z = torch.tensor(problem.z, requires_grad=True)
    assert torch.autograd.gradgradcheck(_as_function(problem, "auto"), z, eps=1e-7, atol=1e-6, fast_mode=True)
