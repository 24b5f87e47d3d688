"""Gradients of everything that has one: outputs, targets, tolerances, bounds, rows of a matrix."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from fairlayer import Affine, EqualizedResiduals, InputError, MeanParity, ResidualMean, Status, WeightedSquared, project

N = 24
RNG = np.random.default_rng(3)
GROUPS = {"sex": np.arange(N) % 2, "race": RNG.integers(0, 3, N)}
TABLE = torch.tensor(np.stack(list(GROUPS.values()), axis=1))
Z = torch.tensor(RNG.normal(size=N) + GROUPS["sex"] + 0.5 * GROUPS["race"])
WEIGHTS = RNG.uniform(0.5, 2.0, N)
CHECK = {"eps": 1e-7, "atol": 1e-6}


def leaf(values, dtype=torch.float64) -> torch.Tensor:
    return torch.as_tensor(values, dtype=dtype).clone().requires_grad_()


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("constraint", [EqualizedResiduals, ResidualMean])
def test_targets(constraint, weights):
    def value(z, targets):
        constraints = constraint(0.05)
        return project(z, GROUPS, constraints, (-1.0, 1.5), targets, weights=weights).value

    arguments = leaf(Z), leaf(0.3 * RNG.normal(size=N))
    assert gradcheck(value, arguments, **CHECK)
    assert gradgradcheck(value, arguments, **CHECK, fast_mode=True)


@pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
def test_tolerances(bounds):
    def value(z, tight, loose):
        constraints = [MeanParity(tight, over="sex"), MeanParity(loose, over="race")]
        return project(z, GROUPS, constraints, bounds).value

    arguments = leaf(Z), leaf(0.05), leaf(0.1)
    assert gradcheck(value, arguments, **CHECK)
    assert gradgradcheck(value, arguments, **CHECK, fast_mode=True)


@pytest.mark.parametrize("shape", [(), (N,)])
def test_bounds(shape):
    def value(z, lo, hi):
        return project(z, GROUPS, MeanParity(0.05), (lo, hi)).value

    arguments = leaf(Z), leaf(np.full(shape, -0.2)), leaf(np.full(shape, 0.9))
    assert gradcheck(value, arguments, **CHECK)
    assert gradgradcheck(value, arguments, **CHECK, fast_mode=True)


def test_second_derivatives_with_weights_of_two_kinds():
    """Of samples, and of their changes: the Jacobian is not symmetric."""
    costs = WeightedSquared(torch.tensor(RNG.uniform(0.5, 2.0, N)))

    def value(z, tolerance, hi):
        return project(z, GROUPS, MeanParity(tolerance), (0.0, hi), weights=WEIGHTS, discrepancy=costs).value

    assert gradgradcheck(value, (leaf(Z), leaf(0.05), leaf(0.9)), **CHECK)


def test_one_bound_of_two():
    def value(z, hi):
        return project(z, GROUPS, MeanParity(0.05), (0.0, hi)).value

    assert gradcheck(value, (leaf(Z), leaf(0.9)), **CHECK)


@pytest.mark.parametrize("batch", [False, True])
def test_rows_of_a_matrix(batch):
    A = RNG.normal(size=(3, N))

    def value(z, lower, upper):
        return project(z, None, Affine(A, lower, upper), (-1.5, 1.5)).value

    shape = (2, 3) if batch else (3,)
    z = torch.stack([Z, -Z]) if batch else Z
    if batch:
        A = np.stack([A, A[::-1]])
    assert gradcheck(value, (leaf(z), leaf(np.full(shape, -0.5)), leaf(np.full(shape, 0.5))), **CHECK)


def test_everything_at_once():
    def value(z, targets, tolerance, lo):
        constraints = [MeanParity(tolerance, over="race"), ResidualMean(2 * tolerance, over="sex")]
        return project(z, GROUPS, constraints, (lo, None), targets, weights=WEIGHTS).value

    assert gradcheck(value, (leaf(Z), leaf(0.3 * RNG.normal(size=N)), leaf(0.05), leaf(-0.3)), **CHECK)


def test_gradients_accumulate():
    z = leaf(Z)
    for _ in range(3):
        project(z, TABLE, MeanParity(0.05)).value.square().sum().backward()
    once = leaf(Z)
    project(once, TABLE, MeanParity(0.05)).value.square().sum().backward()
    assert torch.allclose(z.grad, 3 * once.grad)


def test_two_uses_of_one_output():
    z, other = leaf(Z), leaf(Z)
    y = project(z, TABLE, MeanParity(0.05)).value
    (y.sin().sum() + y.square().sum()).backward()
    y = project(other, TABLE, MeanParity(0.05)).value
    y.backward(y.detach().cos() + 2 * y.detach())
    assert torch.allclose(z.grad, other.grad)


def test_the_graph_can_be_kept():
    z = leaf(Z)
    y = project(z, TABLE, MeanParity(0.05)).value
    first = torch.autograd.grad(y.sum(), z, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(y.sum(), z)[0])


def test_upstream_gradients_of_any_layout():
    z, other = leaf(Z), leaf(Z)
    upstream = torch.randn(N, 2, dtype=torch.float64, generator=torch.manual_seed(0))
    project(z, TABLE, MeanParity(0.05)).value.backward(upstream[:, 1])
    project(other, TABLE, MeanParity(0.05)).value.backward(upstream[:, 1].contiguous())
    assert torch.equal(z.grad, other.grad)
    project(leaf(Z), TABLE, MeanParity(0.05)).value.sum().backward()  # an expanded scalar, of stride 0


def test_gradients_through_views():
    wide = torch.randn(N, 2, dtype=torch.float64, generator=torch.manual_seed(1)).requires_grad_()
    project(wide[:, :1], TABLE, MeanParity(0.05)).value.square().sum().backward()
    assert wide.grad[:, 0].any()
    assert not wide.grad[:, 1].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_gradients_have_the_dtype_of_the_input(dtype):
    z, exact = leaf(Z, dtype), leaf(Z)
    project(z, TABLE, MeanParity(0.05), (0.0, 1.0)).value.sum().backward()
    project(exact, TABLE, MeanParity(0.05), (0.0, 1.0)).value.sum().backward()
    assert z.grad.dtype == dtype
    assert (z.grad.double() - exact.grad).abs().max() < 40 * torch.finfo(dtype).eps


def test_samples_at_a_bound_pass_no_gradient():
    z = leaf(2 * Z)
    y = project(z, TABLE, MeanParity(0.05), (0.0, 1.0)).value
    y.backward(torch.randn(N, dtype=torch.float64, generator=torch.manual_seed(2)))
    held = (y == 0) | (y == 1)
    assert 0 < held.sum() < N
    assert not z.grad[held].any()
    assert z.grad[~held].all()


def test_where_no_row_binds_the_gradient_is_that_of_clamp():
    z, plain = leaf(Z), leaf(Z)
    upstream = torch.randn(N, dtype=torch.float64, generator=torch.manual_seed(2))
    project(z, TABLE, MeanParity(100.0), (0.0, 1.0)).value.backward(upstream)
    plain.clamp(0.0, 1.0).backward(upstream)
    assert torch.equal(z.grad, plain.grad)


def test_redundant_rows():
    """All pairs of many groups, each stated twice: more active rows than directions."""
    groups = {"a": np.arange(N) % 6, "b": np.arange(N) % 6}

    def value(z):
        return project(z, groups, [MeanParity(0.01), MeanParity(0.01)]).value

    assert gradcheck(value, leaf(Z), **CHECK)


def test_the_relaxed_answer_has_a_gradient():
    """Two groups whose targets lie as far above the box as the third's below: only the third's answer is unique."""
    groups, targets = np.arange(N) % 3, np.where(np.arange(N) % 3 == 0, 0.5, 2.0)

    def value(z):
        return project(z, {"a": groups}, ResidualMean(0.1), (0.0, 1.0), targets, infeasible="relax").value

    z = leaf(Z)
    y = value(z)
    y.backward(torch.randn(N, dtype=torch.float64, generator=torch.manual_seed(4)))
    assert (1 - y[groups > 0]).abs().max() < 1e-8
    assert z.grad.isfinite().all()
    assert (z.grad[groups == 0] != 0).any()


EQUAL = torch.tensor([0.1, 0.5, 0.5, 0.1, 0.3, 0.3], dtype=torch.float64)  # with the same mean in both halves


def test_equalities_that_already_hold():
    """Their rows hold the output, whether or not they had to move it."""

    def parity(z):
        return project(z, [0, 0, 1, 1, 0, 1], MeanParity(0.0)).value

    def total(z, limit):
        return project(z, None, [Affine(np.ones((1, 6)), limit, limit), Affine(np.eye(6), 0.0)]).value

    def tolerance(z, at):
        return project(z, [0, 0, 1, 1, 0, 1], MeanParity(at)).value

    assert gradcheck(parity, leaf(EQUAL), **CHECK)
    assert gradcheck(total, (leaf(EQUAL), leaf(EQUAL.sum()[None])), **CHECK)
    at = leaf(0.0)
    tolerance(EQUAL, at)[0].backward()
    assert at.grad == 0  # more room changes nothing, and less there is not

    z = torch.softmax(torch.tensor([0.1, 0.5, -0.3, 0.2], dtype=torch.float64), 0)
    J = torch.autograd.functional.jacobian(lambda z: project(z, None, Affine(np.ones((1, 4)), 1.0, 1.0)).value, z)
    assert torch.allclose(J, torch.eye(4, dtype=torch.float64) - 0.25)


CONTRADICTION = {"groups": [0, 0, 1, 1, 0, 1], "bounds": (0.0, 1.0), "infeasible": "relax"}
BEYOND = torch.tensor([2.0, 2.0, 0.5, 0.5, 2.0, 0.5], dtype=torch.float64)


def test_relaxed_outputs_have_gradients_of_z():
    def value(z):
        return project(z, constraints=ResidualMean(0.1), targets=BEYOND, **CONTRADICTION).value

    assert gradcheck(value, leaf(torch.linspace(0.1, 0.9, 6)), **CHECK)


@pytest.mark.parametrize("wanted", ["tolerance", "targets", "bounds"])
def test_relaxed_outputs_have_no_other_gradients(wanted):
    """The excess depends on these too, so what is known of the rows alone would be wrong."""
    tolerance, targets, arguments = 0.1, BEYOND, dict(CONTRADICTION)
    if wanted == "tolerance":
        tolerance = leaf(0.1)
    elif wanted == "targets":
        targets = leaf(BEYOND)
    else:
        arguments["bounds"] = (0.0, leaf(1.0))
    with pytest.raises(InputError, match="a gradient with respect to z alone"):
        project(EQUAL, constraints=ResidualMean(tolerance), targets=targets, **arguments)
    with torch.no_grad():
        solution = project(EQUAL, constraints=ResidualMean(tolerance), targets=targets, **arguments)
    assert solution.status is Status.RELAXED


def test_a_graph_is_freed_with_its_output():
    """Without the garbage collector: nothing in it refers back to the output."""
    gc.disable()
    try:
        y = project(leaf(Z), TABLE, MeanParity(0.05)).value
        output, graph = weakref.ref(y), weakref.ref(y.grad_fn)
        del y
        assert output() is None
        assert graph() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", ["groups", "matrix", "batch"])
def test_outputs_that_were_overwritten(kind):
    """In place, before the backward pass: the gradient is that of the call, or is refused."""
    constraint = MeanParity(0.05) if kind == "groups" else Affine(np.ones((1, N)), -0.5, 0.5)
    gradients = []
    for overwritten in (False, True):
        raw = leaf(torch.stack([Z, -Z]) if kind == "batch" else Z)
        z = raw * 2.0
        y = project(z, TABLE if kind == "groups" else None, constraint, (0.0, 1.0)).value
        if overwritten:
            z.mul_(0.5)
        try:
            (y * y).sum().backward()
            gradients.append(raw.grad)
        except RuntimeError as error:
            refusal = str(error)
    assert len(gradients) == 2 or "in-place operation" in refusal
    assert torch.equal(gradients[0], gradients[-1])


def test_inference_tensors():
    """Whether they were overwritten cannot be told: gradients of what else wants one are right, or refused."""
    with torch.inference_mode():
        z = Z * 1.0
    tolerance, usual = leaf(0.1), leaf(0.1)
    project(Z, TABLE, MeanParity(usual)).value.square().sum().backward()
    try:
        project(z, TABLE, MeanParity(tolerance)).value.square().sum().backward()
        refusal = ""
    except RuntimeError as error:
        refusal = str(error)
    assert "inference tensor" in refusal or torch.equal(tolerance.grad, usual.grad)
