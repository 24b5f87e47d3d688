"""Every discrepancy takes the same road: optimality, certificate, gradient, for every constraint, on every path."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from conformance import BY_ROW, CASES, assert_close, assert_holds, make_problem, reference
from discrepancies import COMPILED, KINDS, PATHS, Scaled, kind_of, problem_for
from entropy_oracle import project_entropic
from fairlayer import FairLayer, InfeasibleError, InputError, MeanParity, ResidualMean, WeightedSquared, project
from fairlayer.solve.discrepancy import Entropy, GeneralizedKL
from formulas import plain
from oracle import matrix_form, project_reference

BOUNDS = ("no bounds", "box", "per sample")
every_path = pytest.mark.parametrize(("kind", "path"), PATHS)
VARIANTS = [(*one, torch.float64) for one in PATHS] + [(*one, torch.float32) for one in PATHS if one[0] in COMPILED]
every_case = pytest.mark.parametrize("case", CASES)
every_case_by_row = pytest.mark.parametrize("case", BY_ROW)
every_bound = pytest.mark.parametrize("bounds", BOUNDS)
every_weight = pytest.mark.parametrize("weights", ["unweighted", "weighted"])


@pytest.mark.parametrize(("kind", "path", "dtype"), VARIANTS)
@every_case_by_row
@every_bound
@every_weight
def test_is_feasible_and_optimal(kind, path, case, bounds, weights, dtype):
    """Rows hold exactly; multipliers prove the optimum: the output is the response to them, and they push where rows
    bind."""
    discrepancy, problem = KINDS[kind], problem_for(kind, case, bounds, weights, dtype=dtype)
    z = torch.tensor(problem.z, dtype=dtype)
    solution = project(z, **problem.arguments(), discrepancy=discrepancy, path=path)
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
    squared = reference(case, bounds, weights)
    for discrepancy in (Scaled(), WeightedSquared(3.0)):
        value = project(torch.tensor(problem.z), **problem.arguments(), discrepancy=discrepancy).value
        assert_close(value, squared, 1e-9 * np.ptp(problem.z))


@every_case
@every_bound
@every_weight
def test_a_curvature_of_each_output_against_another_solver(case, bounds, weights):
    problem, discrepancy = make_problem(case, bounds, weights), kind_of("weighted squared")
    value = project(torch.tensor(problem.z), **problem.arguments(), discrepancy=discrepancy).value
    optimum = project_reference(problem, plain(discrepancy.curvature))
    assert_close(value, optimum, 1e-9 * np.ptp(problem.z))


@pytest.mark.parametrize("kind", ["entropy", "kl", "logits"])
@every_case
@every_bound
@every_weight
def test_against_the_exponential_cone(kind, case, bounds, weights):
    problem = problem_for(kind, case, bounds, weights, n=24)
    value = project(torch.tensor(problem.z), **problem.arguments(), discrepancy=kind).value
    if kind == "logits":  # relative entropy to the probabilities that they stand for
        kind, problem = "entropy", replace(problem, z=plain(torch.sigmoid(torch.tensor(problem.z))))
    optimum, w = project_entropic(problem, kind), problem.sample_weights()
    z, discrepancy = torch.tensor(problem.z), COMPILED[kind]
    cost, least = (w @ plain(discrepancy.value(torch.tensor(y), z)) for y in (plain(value), optimum))
    assert cost <= least + 1e-7
    assert np.abs(plain(value) - optimum).max() < 1e-4  # twice as many digits of the cost as of the output


@every_path
@every_case
@every_bound
@every_weight
def test_gradient(kind, path, case, bounds, weights):
    problem = problem_for(kind, case, bounds, weights, n=20)
    z = torch.tensor(problem.z, requires_grad=True)
    discrepancy = kind_of(kind, 20)
    assert torch.autograd.gradcheck(
        lambda z: project(z, **problem.arguments(), discrepancy=discrepancy, path=path).value,
        z,
        eps=1e-7,
        atol=1e-5,
        rtol=1e-3,
        fast_mode=True,
    )


@pytest.mark.parametrize("kind", COMPILED)
@pytest.mark.parametrize("path", ["compiled", "tensor"])
def test_gradients_of_tolerances_targets_and_bounds(kind, path):
    problem = problem_for(kind, "residual mean", n=20)
    targets = torch.tensor(problem.targets, requires_grad=True)
    tolerance = torch.tensor(0.03, dtype=torch.float64, requires_grad=True)
    high = torch.tensor(0.62, dtype=torch.float64, requires_grad=True)

    def function(targets, tolerance, high):
        constraint = type(problem.constraints[0])(tolerance)
        data = {**problem.arguments(), "targets": targets, "constraints": constraint, "bounds": (None, high)}
        return project(torch.tensor(problem.z), **data, discrepancy=kind, path=path).value

    assert torch.autograd.gradcheck(function, (targets, tolerance, high), eps=1e-7, atol=1e-5)


def test_second_derivatives_are_refused_where_there_are_none():
    problem = problem_for("entropy", "mean parity", n=20)
    z = torch.tensor(problem.z, requires_grad=True)
    y = project(z, **problem.arguments(), discrepancy="entropy").value
    with pytest.raises(RuntimeError, match="entropy"):
        torch.autograd.grad(y.square().sum(), z, create_graph=True)


def test_compiled_loops_are_for_those_of_the_library():
    problem = problem_for("scaled", "mean parity")
    with pytest.raises(InputError, match="compiled"):
        project(torch.tensor(problem.z), **problem.arguments(), discrepancy=Scaled(), path="compiled")


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_of_another_discrepancy(kind):
    problem = problem_for(kind, "mean parity")
    layer = FairLayer(problem.constraints, discrepancy=KINDS[kind])
    z = torch.tensor(problem.z)
    expected = project(z, **problem.arguments(), discrepancy=KINDS[kind]).value
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
    alive = gradient != 0
    if dtype == torch.float16:  # whose smallest numbers end at logits of 17
        alive = alive | (logits.abs() > 17)
    assert bool(alive.all())


@pytest.mark.parametrize("path", ["compiled", "tensor"])
@pytest.mark.parametrize(("kind", "small"), [("logits", -40.0), ("entropy", 1e-17), ("kl", 1e-17)])
def test_means_that_agree_to_the_last_digit_leave_nobody_at_zero(kind, small, path):
    usual = 0.0 if kind == "logits" else 0.5
    z = np.array([usual, usual, small, usual])
    solution = project(z, [0, 1, 1, 0], MeanParity(0.0), discrepancy=kind, path=path)
    assert solution.satisfied
    assert (solution.value > 0.0).all()


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
@pytest.mark.parametrize("path", ["compiled", "tensor"])
def test_what_satisfies_the_rows_is_left_as_it_is(kind, path):
    z = torch.tensor([0.3, 0.7, 0.3, 0.7], dtype=torch.float64) / 3
    y = project(z, [0, 0, 1, 1], [MeanParity(0.1)], discrepancy=kind, path=path).value
    if kind == "logits":  # the last bit of torch's own sigmoid depends on the processor
        assert torch.allclose(y, torch.sigmoid(z), rtol=2**-52, atol=0.0)
    else:
        assert torch.equal(y, z)


@pytest.mark.parametrize("path", ["compiled", "tensor"])
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
def test_what_is_refused(path, z, options, message):
    with pytest.raises(InputError, match=message):
        project(torch.tensor(z, dtype=torch.float64), [0, 1], [MeanParity(0.1)], path=path, **options)


@pytest.mark.parametrize("curvature", [0.0, [1.0, -1.0], [[1.0]], "much", []])
def test_a_curvature_that_is_none(curvature):
    with pytest.raises(InputError, match="curvature"):
        WeightedSquared(curvature)


def test_a_curvature_of_another_batch():
    with pytest.raises(InputError, match="curvature has 3 entries for 2 outputs"):
        project([0.2, 0.9], [0, 1], [MeanParity(0.1)], discrepancy=WeightedSquared([1.0, 2.0, 3.0]))


def test_a_large_curvature_is_dear_to_move():
    z = np.array([0.2, 0.4, 0.9, 0.9])
    value = project(z, [0, 0, 1, 1], [MeanParity(0.0)], discrepancy=WeightedSquared([1.0, 1.0, 1.0, 9.0])).value
    moved = np.abs(value - z)
    assert np.isclose(moved[2], 9.0 * moved[3])


@pytest.mark.parametrize("kind", ["entropy", "logits", "kl"])
@pytest.mark.parametrize("path", ["compiled", "tensor"])
def test_rows_that_no_output_can_meet(kind, path):
    """Means beyond what probabilities can be; below 0 of amounts."""
    target = -1.0 if kind == "kl" else 2.0
    data = {"targets": np.full(4, target), "discrepancy": kind, "path": path}
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


def test_names_and_objects_are_the_same():
    z, groups = np.array([0.1, 0.2, 0.8, 0.9]), [0, 0, 1, 1]
    for name, made in (("entropy", Entropy()), ("kl", GeneralizedKL())):
        by_name, by_object = (project(z, groups, [MeanParity(0.1)], discrepancy=one).value for one in (name, made))
        assert (by_name == by_object).all()


def test_a_subclass_may_respond_in_another_way():
    """It is not taken for what the compiled loops know."""

    class Halved(Entropy):
        name = "halved"

        def response(self, z, s, lo, hi):
            return super().response(z, s / 2, lo, hi)

        def slope(self, z, s, lo, hi):
            return super().slope(z, s / 2, lo, hi) / 2

        def sensitivity(self, z, s, lo, hi):
            return super().sensitivity(z, s / 2, lo, hi)

    z, groups = np.array([0.1, 0.2, 0.8, 0.9]), [0, 0, 1, 1]
    one, other = (project(z, groups, [MeanParity(0.1)], discrepancy=kind) for kind in ("entropy", Halved()))
    assert_close(one.value, other.value, 1e-9)
    assert np.allclose(2 * np.asarray(one.multipliers), other.multipliers)
