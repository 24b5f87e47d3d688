"""Every discrepancy takes the same road: optimality, certificate and gradient, for every pair of settings."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from conformance import BY_ROW, CASES, WEIGHTS, assert_close, assert_holds, make_problem, name_of, reference
from discrepancies import BUILT_IN, KINDS, Odds, Scaled, kind_of, problem_for
from fairlayer import (
    FairLayer,
    InfeasibleError,
    InputError,
    MeanParity,
    RateParity,
    ResidualMean,
    WeightedSquared,
    project,
)
from fairlayer.core.discrepancies import Entropy, Squared
from formulas import Problem, plain
from oracle import matrix_form, project_reference
from pairs import pairwise
from reference import DISCREPANCIES

BOUNDS = ("no bounds", "box", "per sample")
DTYPES = (torch.float64, torch.float32)


def own_in_float64(kind, *settings):
    return kind in BUILT_IN or torch.float32 not in settings


@pytest.mark.parametrize(
    ("kind", "case", "bounds", "weights", "dtype"),
    pairwise(KINDS, BY_ROW, BOUNDS, [*WEIGHTS], DTYPES, allowed=own_in_float64),
    ids=name_of,
)
def test_is_feasible_and_optimal(kind, case, bounds, weights, dtype):
    """Rows hold exactly; multipliers prove the optimum: the output is the response to them, and they push where rows
    bind."""
    problem = problem_for(kind, case, bounds, weights, dtype=dtype)
    z = torch.tensor(problem.z, dtype=dtype)
    solution = project(z, **problem.arguments(), discrepancy=kind_of(kind))
    assert_holds(problem, solution)
    mu = plain(solution.multipliers)
    assert np.abs(mu).max() > 0, "the case should need a change"
    A, lower, upper = matrix_form(problem)
    slack = {torch.float64: 1e-9, torch.float32: 1e-4}[dtype]
    assert_close(solution.value, response(kind, problem, (mu @ A) / problem.sample_weights()), slack)
    values = A @ plain(solution.value)
    assert np.abs((values - upper)[mu > 0]).max(initial=0.0) < slack
    assert np.abs((values - lower)[mu < 0]).max(initial=0.0) < slack


def response(kind: str, problem: Problem, s: np.ndarray) -> np.ndarray:
    """What the samples answer to their shifts."""
    if kind in BUILT_IN:
        return DISCREPANCIES[kind].response(problem.z, s).clip(*problem.box())
    z, s, lo, hi = (torch.tensor(values) for values in (problem.z, s, *problem.box()))
    return kind_of(kind).response(z, s, lo, hi).numpy()


@pytest.mark.parametrize(("case", "bounds", "weights"), pairwise([*CASES], BOUNDS, [*WEIGHTS]))
def test_scaled_and_weighted_squares_against_another_solver(case, bounds, weights):
    problem = make_problem(case, bounds, weights)
    curved, near = kind_of("weighted squared"), 1e-9 * np.ptp(problem.z)
    squared = reference(case, bounds, weights)
    bent = project_reference(problem, plain(curved.curvature))
    for discrepancy, optimum in ((Scaled(), squared), (WeightedSquared(3.0), squared), (curved, bent)):
        value = project(torch.tensor(problem.z), **problem.arguments(), discrepancy=discrepancy).value
        assert_close(value, optimum, near)


@pytest.mark.parametrize(
    ("kind", "case", "bounds", "weights"), pairwise(KINDS, [*CASES], BOUNDS, [*WEIGHTS]), ids=name_of
)
def test_gradient(kind, case, bounds, weights):
    problem = problem_for(kind, case, bounds, weights, n=20)
    z = torch.tensor(problem.z, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda z: project(z, **problem.arguments(), discrepancy=kind_of(kind, 20)).value,
        z,
        eps=1e-7,
        atol=1e-5,
        rtol=1e-3,
        fast_mode=True,
    )


@pytest.mark.parametrize("kind", BUILT_IN)
def test_gradients_of_tolerances_targets_and_bounds(kind):
    problem = problem_for(kind, "residual mean", n=20)
    targets = torch.tensor(problem.targets, requires_grad=True)
    tolerance = torch.tensor(0.03, dtype=torch.float64, requires_grad=True)
    high = torch.tensor(0.62, dtype=torch.float64, requires_grad=True)

    def function(targets, tolerance, high):
        constraint = type(problem.constraints[0])(tolerance)
        data = {**problem.arguments(), "targets": targets, "constraints": constraint, "bounds": (None, high)}
        return project(torch.tensor(problem.z), **data, discrepancy=kind).value

    assert torch.autograd.gradcheck(function, (targets, tolerance, high), eps=1e-7, atol=1e-5)


def test_second_derivatives_are_refused_where_there_are_none():
    problem = problem_for("entropy", "mean parity", n=20)
    z = torch.tensor(problem.z, requires_grad=True)
    y = project(z, **problem.arguments(), discrepancy="entropy").value
    with pytest.raises(RuntimeError, match="entropy"):
        torch.autograd.grad(y.square().sum(), z, create_graph=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_of_another_discrepancy(kind):
    problem = problem_for(kind, "mean parity")
    layer = FairLayer(problem.constraints, discrepancy=kind_of(kind))
    z = torch.tensor(problem.z)
    expected = project(z, **problem.arguments(), discrepancy=kind_of(kind)).value
    assert torch.equal(layer(z, problem.groups), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["entropy", "logits"])
def test_probabilities_are_strictly_inside_and_none_is_dead(kind, dtype):
    """Logits as far out as the dtype goes: no output is 0 or 1, and every one of them has a gradient."""
    rng = np.random.default_rng(0)
    logits = torch.tensor(np.concatenate([rng.normal(0, 1, 40), [-18.0, 18.0, -30.0, 30.0]]), dtype=dtype)
    z = logits if kind == "logits" else torch.sigmoid(logits).clamp(torch.finfo(dtype).tiny, 1 - torch.finfo(dtype).eps)
    z.requires_grad_()
    y = project(z, torch.arange(44) % 2, [MeanParity(0.01)], discrepancy=kind).value
    assert bool(((y > 0) & (y < 1)).all())
    (gradient,) = torch.autograd.grad(y.double() @ torch.linspace(1.0, 2.0, 44, dtype=torch.float64), z)
    reached = 17 if dtype == torch.float16 else 100  # the smallest numbers of half precision end at logits of 17
    assert bool((gradient != 0)[logits.abs() <= reached].all())


@pytest.mark.parametrize(("kind", "small"), [("logits", -40.0), ("entropy", 1e-17), ("kl", 1e-17)])
def test_equal_means_leave_no_output_at_zero(kind, small):
    usual = 0.0 if kind == "logits" else 0.5
    z = np.array([usual, usual, small, usual])
    solution = project(z, [0, 1, 1, 0], MeanParity(0.0), discrepancy=kind)
    y = solution.value
    assert (y > 0.0).all()
    assert solution.satisfied == (Fraction(y[0]) + Fraction(y[3]) == Fraction(y[1]) + Fraction(y[2]))
    assert np.abs(solution.gaps).max() <= 1e-15


def test_logits_keep_what_probabilities_lose():
    """Near 1 single precision has no digits left: two samples 10 apart in logits are the same probability."""
    logits = torch.tensor([20.0, 30.0, 0.0, -1.0, 0.5, 1.0])
    groups = [0, 1, 0, 1, 0, 1]
    y = project(logits.double() - 20.0, groups, [MeanParity(0.01)], discrepancy="logits")
    assert y.satisfied
    shifted = project(logits, groups, [ResidualMean(0.001)], targets=np.full(6, 1e-6), discrepancy="logits")
    assert shifted.satisfied
    assert shifted.value[1] > shifted.value[0], "the one further out stays ahead"


@pytest.mark.parametrize("kind", ["entropy", "kl", "logits"])
def test_what_satisfies_the_rows_is_left_as_it_is(kind):
    """To the bit; of logits, whose sigmoid is worked out here and there, to the last bit but one."""
    z = torch.tensor([0.3, 0.7, 0.3, 0.7], dtype=torch.float64) / 3
    y = project(z, [0, 0, 1, 1], [MeanParity(0.1)], discrepancy=kind).value
    expected, apart = (torch.sigmoid(z), 2**-52) if kind == "logits" else (z, 0.0)
    assert torch.allclose(y, expected, rtol=apart, atol=0.0)


@pytest.mark.parametrize(
    ("z", "options", "message"),
    [
        ([0.2, 1.0], {"discrepancy": "entropy"}, r"z\[1\] is 1.0.*strictly between 0 and 1.*logits"),
        ([0.0, 0.5], {"discrepancy": "entropy"}, r"z\[0\] is 0.0"),
        ([0.2, -1.0], {"discrepancy": "kl"}, r"z\[1\] is -1.0.*softplus"),
        ([0.2, float("nan")], {"discrepancy": "kl"}, r"z\[1\] is nan"),
        ([0.2, float("inf")], {"discrepancy": "logits"}, r"z\[1\] is inf"),
        ([0.2, 0.3], {"discrepancy": "entropy", "bounds": (1.0, 2.0)}, "bounds 1 to 2 cannot be met"),
        ([0.2, 0.3], {"discrepancy": "kl", "bounds": (None, 0.0)}, "cannot be met"),
    ],
)
def test_what_is_refused(z, options, message):
    with pytest.raises(InputError, match=message):
        project(torch.tensor(z, dtype=torch.float64), [0, 1], [MeanParity(0.1)], **options)


@pytest.mark.parametrize("curvature", [0.0, [1.0, -1.0], [[1.0]], "much", []])
def test_a_curvature_that_is_none(curvature):
    with pytest.raises(InputError, match="curvature"):
        WeightedSquared(curvature)


def test_a_curvature_of_another_batch():
    with pytest.raises(InputError, match="curvature has 3 entries for 2 outputs"):
        project([0.2, 0.9], [0, 1], [MeanParity(0.1)], discrepancy=WeightedSquared([1.0, 2.0, 3.0]))


def test_a_large_curvature_is_moved_less():
    z = np.array([0.2, 0.4, 0.9, 0.9])
    value = project(z, [0, 0, 1, 1], [MeanParity(0.0)], discrepancy=WeightedSquared([1.0, 1.0, 1.0, 9.0])).value
    moved = np.abs(value - z)
    assert np.isclose(moved[2], 9.0 * moved[3])


@pytest.mark.parametrize("kind", ["entropy", "logits", "kl"])
def test_rows_that_no_output_can_meet(kind):
    """Means beyond what probabilities can be; below 0 of amounts."""
    target = -1.0 if kind == "kl" else 2.0
    data = {"targets": np.full(4, target), "discrepancy": kind}
    z = torch.tensor([0.2, 0.4, 0.6, 0.8], dtype=torch.float64)
    with pytest.raises(InfeasibleError) as error:
        project(z, [0, 0, 1, 1], [ResidualMean(0.1)], **data)
    assert np.allclose(error.value.excess, 0.9, atol=1e-6)
    least = project(z, [0, 0, 1, 1], [ResidualMean(0.1)], **data, infeasible="relax")
    assert np.isclose(least.excess, 0.9, atol=1e-3)


def test_theorem_4_1_in_relative_entropy():
    """With h(y) = y log y + (1 - y) log(1 - y), 4-strongly convex, logits are the z of the theorem: the layer is
    1/4-Lipschitz in them, whatever the rows and bounds."""
    rng = np.random.default_rng(0)
    for case in CASES:
        for bounds in BOUNDS:
            problem = problem_for("logits", case, bounds)
            z = torch.tensor(problem.z)
            near, far = (z + scale * torch.tensor(rng.normal(size=len(z))) for scale in (1e-3, 1.0))
            y, *others = (project(one, **problem.arguments(), discrepancy="logits").value for one in (z, near, far))
            for other, moved in zip(others, (near, far), strict=True):
                assert (other - y).norm() <= 0.25 * (moved - z).norm() + 1e-9


def test_a_users_own_is_the_one_of_the_library():
    """Written down again it gives the same outputs; with shifts that count half, twice the multipliers."""

    class Halved(Odds):
        factor = 0.5
        strong_convexity = 8.0

    z, groups = np.array([0.1, 0.2, 0.8, 0.9]), [0, 0, 1, 1]
    library, own, halved = (
        project(z, groups, [MeanParity(0.1)], discrepancy=kind) for kind in ("entropy", Odds(), Halved())
    )
    assert_close(own.value, library.value, 1e-9)
    assert_close(halved.value, library.value, 1e-9)
    assert np.allclose(own.multipliers, library.multipliers)
    assert np.allclose(halved.multipliers, 2 * np.asarray(library.multipliers))


class Renamed(Scaled):
    name = "squared"


class OwnEntropy(Scaled):
    name = "entropy"


class Subclass(Squared):
    pass


@pytest.mark.parametrize("own", [Subclass(), Renamed()])
def test_a_name_makes_none_of_the_librarys(own):
    """Nor does a subclass: each is solved by its own response, whatever it is called."""
    z, groups = np.array([0.1, 0.2, 0.8, 0.9]), [0, 0, 1, 1]
    found = project(z, groups, [MeanParity(0.1)], discrepancy=own)
    assert_close(found.value, project(z, groups, [MeanParity(0.1)]).value, 1e-9)
    factor = getattr(own, "factor", 1.0)
    assert np.allclose(found.multipliers, factor * project(z, groups, [MeanParity(0.1)]).multipliers)
    with pytest.raises(InputError, match="does not go with decisions"):
        project(z, groups, [RateParity(0.1)], discrepancy=own)


@pytest.mark.parametrize("own", [OwnEntropy(), type("Subclass", (Entropy,), {})()])
def test_classes_are_not_projected_by_one_that_is_never_called(own):
    z = np.array([[0.3, 0.7], [0.6, 0.4]])
    with pytest.raises(InputError, match="does not go with simplex=True"):
        project(z, [0, 1], [MeanParity(0.1)], discrepancy=own, simplex=True)
