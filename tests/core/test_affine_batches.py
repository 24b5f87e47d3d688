"""Batches of independent affine problems in one call, against the same problems one by one."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from fairlayer import Affine, Status, project

B, N, M = 40, 9, 4
INFINITY = float("inf")


def draw(seed, **given):
    rng = np.random.default_rng(seed)
    A, z = rng.normal(size=(B, M, N)), rng.normal(size=(B, N))
    return rng, A, z, {"lower": -0.1, "upper": 0.1, "bounds": (-1.0, 1.0), "weights": None} | given


def plain(_rng, A, z):
    return A, z, {}


def one_sided(rng, A, z):
    return A, z, {"lower": None, "upper": rng.normal(size=(B, M)), "bounds": (-0.5, None)}


def no_box(_rng, A, z):
    return A, z, {"bounds": None}


def box_of_each_output(rng, A, z):
    lo = rng.uniform(-2.0, -0.2, N)
    return A, z, {"bounds": (lo, lo + 2.0)}


def weighted(rng, A, z):
    return A, z, {"weights": rng.uniform(0.1, 10.0, N)}


def weights_far_apart(rng, A, z):
    return A, z, {"weights": 10.0 ** rng.uniform(-5.0, 5.0, N), "bounds": None}


def one_matrix(rng, A, z):
    return A[0], z, {"lower": rng.normal(size=(B, M)) - 2.0, "upper": INFINITY}


def dependent_rows(_rng, A, z):
    A[:, 3] = A[:, 0] + A[:, 1]
    return A, z, {}


def few_free_outputs(_rng, A, z):
    return A, 4.0 * z, {"bounds": (-0.6, 0.6)}


def some_hold_as_they_are(_rng, A, z):
    return A, z * np.where(np.arange(B) % 2, 0.01, 1.0)[:, None], {"lower": -0.5, "upper": 0.5}


def far_away(_rng, A, z):
    return A, 100.0 * z, {"bounds": (-200.0, 200.0)}


CASES = [
    *(plain, one_sided, no_box, box_of_each_output, weighted, weights_far_apart, one_matrix),
    *(dependent_rows, few_free_outputs, some_hold_as_they_are, far_away),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_a_batch_is_its_problems(case, dtype):
    """Outputs, multipliers, gradients and second derivatives; and rows hold in rational arithmetic."""
    rng, A, z, usual = draw(7)
    A, z, given = case(rng, A, z)
    given = usual | given
    whole = Affine(A, given["lower"], given["upper"])
    loss = torch.tensor(rng.normal(size=(B, N)), dtype=dtype)

    def solve(z, constraint, loss):
        leaf, direction = torch.tensor(z, dtype=dtype, requires_grad=True), loss.clone().requires_grad_()
        solution = project(leaf, None, constraint, given["bounds"], weights=given["weights"])
        (first,) = torch.autograd.grad(solution.value, leaf, direction, create_graph=True)
        (second,) = torch.autograd.grad(first, direction, loss)
        return solution, first.detach(), second

    together, *derivatives = solve(z, whole, loss)
    assert together.satisfied
    size = float(np.abs(z).max())
    near = {"rtol": 0.0, "atol": size * (4e-6 if dtype == torch.float32 else 1e-12)}
    y = together.value.detach().double().numpy()
    for b in range(B):
        constraint = whole.problem(b)
        alone, *expected = solve(z[b], constraint, loss[b])
        assert alone.satisfied
        assert together.rows == alone.rows
        torch.testing.assert_close(together.value[b], alone.value, **near)
        torch.testing.assert_close(together.gaps[b], alone.gaps, **near)
        if case is not dependent_rows:  # whose multipliers are not unique
            torch.testing.assert_close(together.multipliers[b], alone.multipliers, rtol=1e-5, atol=1e-4 * size)
        for derivative, other in zip(derivatives, expected, strict=True):
            few = 1e-5 if dtype == torch.float32 else 1e-9
            torch.testing.assert_close(derivative[b], other, rtol=1e-4, atol=few)
        for row, low, high in zip(constraint.A, constraint.lower, constraint.upper, strict=True):
            value = sum(Fraction(a) * Fraction(x) for a, x in zip(row.tolist(), y[b].tolist(), strict=True))
            assert low <= value <= high


def test_a_solution_says_of_the_whole_batch_what_holds():
    solution = project(np.array([[0.0, 1.0], [2.0, 3.0]]), None, Affine(np.ones((1, 2)), 1.0, 1.0))
    assert solution.holds
    assert solution.missed.shape == (2, len(solution.parts[0].missed))
    assert np.allclose(solution.statistics, 1.0)


def test_equalities_are_met():
    rng, A, z, _ = draw(3)
    want = rng.normal(size=(B, M))
    solution = project(torch.tensor(z), None, Affine(A, want, want))
    assert np.abs(np.einsum("bkn,bn->bk", A, solution.value) - want).max() < 1e-13


def test_who_needs_a_closer_look_gets_it_alone():
    """One problem of a batch that contradicts itself is relaxed, and the others are as they would be without it."""
    _, A, z, _ = draw(5)
    lower, upper = np.full((B, M), -0.1), np.full((B, M), 0.1)
    lower[3], upper[3] = 90.0, 91.0
    solution = project(z, None, Affine(A, lower, upper), (-1.0, 1.0), infeasible="relax")
    others = np.arange(B) != 3
    assert solution.status is Status.RELAXED
    assert solution.excess > 80.0
    expected = project(z[others], None, Affine(A[others], -0.1, 0.1), (-1.0, 1.0))
    assert (solution.value[others] == expected.value).all()
    assert (solution.multipliers[others] == expected.multipliers).all()


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e301])
def test_what_cannot_be_added_up_is_refused(number):
    _, A, z, _ = draw(6)
    z[2, 4] = number
    with pytest.raises(ValueError, match=r"z\[4\]|too large"):
        project(z, None, Affine(A, -0.1, 0.1), (-1.0, 1.0))
