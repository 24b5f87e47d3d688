"""Any convex discrepancy or set by a general solver: it agrees with the library's own where both can be had."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conformance import CASES, assert_close
from discrepancies import problem_for
from fairlayer import Conic, FairLayer, InfeasibleError, InputError, MeanParity, ResidualMean, Status, project

cvxpy = pytest.importorskip("cvxpy")
pytest.importorskip("cvxpylayers")

OBJECTIVES = {
    "squared": lambda w: lambda y, z: 0.5 * cvxpy.sum(cvxpy.multiply(w, cvxpy.square(y - z))),
    "kl": lambda w: lambda y, z: cvxpy.sum(cvxpy.multiply(w, cvxpy.kl_div(y, z))),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("bounds", ["no bounds", "per sample"])
@pytest.mark.parametrize("kind", OBJECTIVES)
def test_agrees_with_the_librarys_own(case, bounds, kind):
    problem = problem_for(kind, case, bounds, "weighted", n=16)
    z = torch.tensor(problem.z, requires_grad=True)
    conic = project(z, **problem.arguments(), discrepancy=Conic(OBJECTIVES[kind](problem.sample_weights())))
    own = project(z, **problem.arguments(), discrepancy=kind)
    assert conic.status is Status.APPROXIMATE
    assert not conic.satisfied
    assert np.isnan(np.asarray(conic.multipliers)).all()
    assert_close(conic.value, own.value, 1e-4)
    assert_close(conic.gaps, own.gaps, 1e-4)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_gradient(kind):
    problem = problem_for(kind, "mean parity", "box", n=12)
    upstream, gradients = torch.linspace(-1.0, 2.0, 12, dtype=torch.float64), []
    for discrepancy in (kind, Conic(OBJECTIVES[kind](np.ones(12)))):
        z = torch.tensor(problem.z, requires_grad=True)
        y = FairLayer(problem.constraints, problem.bounds, discrepancy)(z, problem.groups)
        gradients += torch.autograd.grad(y, z, upstream)
    assert_close(*gradients, 1e-3)


def test_a_discrepancy_and_a_set_of_ones_own():
    """As few changes as possible, and outputs that keep their order."""
    z = np.array([0.1, 0.2, 0.3, 0.7, 0.8, 0.9])
    groups = [0, 0, 0, 1, 1, 1]
    few = project(z, groups, [MeanParity(0.3)], discrepancy=Conic(lambda y, z: cvxpy.norm1(y - z)))
    assert np.isclose(np.abs(few.value - z).sum(), 0.9, atol=1e-5)
    ordered = Conic(lambda y, z: cvxpy.norm_inf(y - z), also=lambda y, z: [cvxpy.diff(y) >= 0.02])
    value = project(z, groups, [MeanParity(0.3)], discrepancy=ordered).value
    assert (np.diff(value) >= 0.02 - 1e-6).all()


def test_what_is_refused():
    z, groups, squares = torch.tensor([0.1, 0.9], dtype=torch.float64), [0, 1], Conic(OBJECTIVES["squared"](1.0))
    tolerance = torch.tensor(0.1, requires_grad=True)
    with pytest.raises(InputError, match="gradients of z alone"):
        project(z, groups, [MeanParity(tolerance)], discrepancy=squares)
    with pytest.raises(InputError, match="relax"):
        project(z, groups, [MeanParity(0.1)], discrepancy=squares, infeasible="relax")
    with pytest.raises(InputError, match="convex"):
        project(z, groups, [MeanParity(0.1)], discrepancy=Conic(lambda y, z: -cvxpy.sum_squares(y)))
    with pytest.raises(InputError, match="functions of y and z"):
        Conic(3)
    with pytest.raises(InputError, match=r"z\[1\] is nan"):
        project([0.1, float("nan")], groups, [MeanParity(0.1)], discrepancy=squares)
    with pytest.raises(InfeasibleError, match="residual mean"):
        project(z, groups, [ResidualMean(0.1)], (0, 1), targets=[2.0, 2.0], discrepancy=squares)
