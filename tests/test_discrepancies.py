"""Other discrepancies take the same road: optimality, certificate, gradient, for every constraint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from conformance import CASES, assert_close, assert_holds, make_problem, reference
from discrepancies import BinaryEntropy, Scaled
from fairlayer import FairLayer, InputError, project
from formulas import Problem, plain
from oracle import matrix_form

BOUNDS = ("no bounds", "box", "per sample")
KINDS = {"scaled": Scaled(), "binary entropy": BinaryEntropy()}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_case = pytest.mark.parametrize("case", CASES)
every_bound = pytest.mark.parametrize("bounds", BOUNDS)
every_weight = pytest.mark.parametrize("weights", ["unweighted", "weighted"])


def problem_for(
    kind: str,
    case: str,
    bounds: str = "no bounds",
    weights: str = "unweighted",
    *,
    n: int = 60,
    dtype: torch.dtype = torch.float64,
) -> Problem:
    """A problem of the conformance suite, its outputs probabilities where they must be."""
    problem = make_problem(case, bounds, weights, dtype, n)
    if kind != "binary entropy":
        return problem
    return replace(problem, z=plain(torch.sigmoid(4.0 * torch.tensor(problem.z) - 2.0).to(dtype)))


@every_kind
@every_case
@every_bound
@every_weight
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_is_feasible_and_optimal(kind, case, bounds, weights, dtype):
    """Rows hold exactly; multipliers prove the optimum: the output is the response to them, and they push where rows
    bind."""
    discrepancy, problem = KINDS[kind], problem_for(kind, case, bounds, weights, dtype=dtype)
    z = torch.tensor(problem.z, dtype=dtype)
    solution = project(z, **problem.arguments(), discrepancy=discrepancy)
    assert_holds(problem, solution)
    mu = plain(solution.multipliers)
    assert np.abs(mu).max() > 0, "the case should need a change"
    A, lower, upper = matrix_form(problem)
    slack = {torch.float64: 1e-9, torch.float32: 1e-4}[dtype]
    s = torch.tensor((mu @ A) / problem.sample_weights())
    lo, hi = (torch.tensor(side) for side in problem.box())
    assert_close(solution.value, discrepancy.response(z.double(), s, lo, hi), slack)
    values = A @ plain(solution.value)
    assert np.abs((values - upper)[mu > 0]).max(initial=0.0) < slack
    assert np.abs((values - lower)[mu < 0]).max(initial=0.0) < slack


@every_case
@every_bound
@every_weight
def test_a_scaled_one_has_the_same_optimum(case, bounds, weights):
    problem = make_problem(case, bounds, weights)
    scaled = project(torch.tensor(problem.z), **problem.arguments(), discrepancy=Scaled())
    squared = project(torch.tensor(problem.z), **problem.arguments())
    assert_close(scaled.value, reference(case, bounds, weights), 1e-9 * np.ptp(problem.z))
    assert_close(scaled.value, squared.value, 1e-10 * np.ptp(problem.z))


@pytest.mark.parametrize("case", ["mean parity", "residual mean", "affine", "soft membership", "made up"])
@every_bound
@every_weight
def test_entropy_against_a_general_solver(case, bounds, weights):
    discrepancy, problem = KINDS["binary entropy"], problem_for("binary entropy", case, bounds, weights, n=20)
    solution = project(torch.tensor(problem.z), **problem.arguments(), discrepancy=discrepancy)
    A, lower, upper = matrix_form(problem)
    lo, hi = problem.box()
    z, w = problem.z, problem.sample_weights()

    def objective(y):
        return w @ plain(discrepancy.value(torch.tensor(y), torch.tensor(z)))

    above, below = np.isfinite(upper), np.isfinite(lower)
    rows, limit = np.concatenate([A[above], -A[below]]), np.concatenate([upper[above], -lower[below]])
    answer = minimize(
        objective,
        np.full(20, 0.5),
        jac=lambda y: w * (np.log(y / (1 - y)) - np.log(z / (1 - z))),
        bounds=list(zip(np.maximum(lo, 1e-9), np.minimum(hi, 1 - 1e-9), strict=True)),
        constraints={"type": "ineq", "fun": lambda y: limit - rows @ y, "jac": lambda y: -rows},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    assert (limit - rows @ answer.x).min() > -1e-9, "the judge must be feasible itself"
    y = plain(solution.value)
    assert objective(y) <= objective(answer.x) + 1e-9
    assert np.abs(y - answer.x).max() < 1e-4


@every_kind
@every_case
@every_bound
@every_weight
def test_gradient(kind, case, bounds, weights):
    problem = problem_for(kind, case, bounds, weights, n=20)
    z = torch.tensor(problem.z, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda z: project(z, **problem.arguments(), discrepancy=KINDS[kind]).value, z, eps=1e-7, atol=1e-5
    )


def test_gradients_of_tolerances_and_targets():
    problem = problem_for("binary entropy", "residual mean", n=20)
    targets = torch.tensor(problem.targets, requires_grad=True)
    tolerance = torch.tensor(0.03, dtype=torch.float64, requires_grad=True)

    def function(targets, tolerance):
        constraint = type(problem.constraints[0])(tolerance)
        data = {**problem.arguments(), "targets": targets, "constraints": constraint}
        return project(torch.tensor(problem.z), **data, discrepancy=BinaryEntropy()).value

    assert torch.autograd.gradcheck(function, (targets, tolerance), eps=1e-7, atol=1e-5)


def test_second_derivatives_are_refused_where_there_are_none():
    problem = problem_for("binary entropy", "mean parity", n=20)
    z = torch.tensor(problem.z, requires_grad=True)
    y = project(z, **problem.arguments(), discrepancy=BinaryEntropy()).value
    with pytest.raises(RuntimeError, match="binary entropy"):
        torch.autograd.grad(y.square().sum(), z, create_graph=True)


def test_compiled_loops_are_for_the_squared_one():
    problem = problem_for("scaled", "mean parity")
    with pytest.raises(InputError, match="compiled"):
        project(torch.tensor(problem.z), **problem.arguments(), discrepancy=Scaled(), path="compiled")


def test_a_layer_of_another_discrepancy():
    problem = problem_for("binary entropy", "mean parity")
    layer = FairLayer(problem.constraints, discrepancy=BinaryEntropy())
    z = torch.tensor(problem.z)
    expected = project(z, **problem.arguments(), discrepancy=BinaryEntropy()).value
    assert torch.equal(layer(z, problem.groups), expected)
