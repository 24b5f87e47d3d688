"""Section 4 of the paper, as properties of the layer: Lipschitz, piecewise affine, a projector that forgets normals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conformance import BOUNDS, BY_ROW, CASES, make_problem, rounding, solve
from fairlayer import project
from formulas import Problem
from oracle import matrix_form

every_case_by_row = pytest.mark.parametrize("case", BY_ROW)


def jacobian(problem: Problem) -> np.ndarray:
    return torch.autograd.functional.jacobian(
        lambda z: project(z, **problem.arguments()).value, torch.tensor(problem.z)
    ).numpy()


def active_rows(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a multiplier, and the bounds they rest on."""
    solution = solve(problem)
    mu = solution.multipliers.numpy()
    A, lower, upper = matrix_form(problem)
    return A[mu != 0], np.where(mu > 0, upper, lower)[mu != 0]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_never_grows_and_suppresses_normals(case, bounds):
    """Theorem 4.1 with the Euclidean discrepancy: outputs are never further apart than inputs. Corollary 4.2: the
    spectral norm of the Jacobian is at most 1. Theorem 4.4: no gradient moves the outputs across an active row."""
    problem = make_problem(case, bounds)
    rng = np.random.default_rng(0)
    for size in (1e-3, 0.1, 3.0):
        other = Problem(**{**problem.arguments(), "z": problem.z + size * rng.standard_normal(len(problem.z))})
        moved = np.linalg.norm(solve(problem).value - solve(other).value)
        assert moved <= np.linalg.norm(problem.z - other.z) * (1 + 1e-9) + 1e-10
    small = make_problem(case, bounds, n=24)
    J = jacobian(small)
    assert np.linalg.norm(J, 2) <= 1 + 1e-9
    if case in BY_ROW:
        A, _ = active_rows(small)
        assert len(A)
        assert np.abs(A @ J).max() < 1e-9 * np.abs(A).max()


@every_case_by_row
def test_the_jacobian_is_an_orthogonal_projector(case):
    """Theorem 4.4: symmetric, every eigenvalue 0 or 1, as many zeros as independent active rows."""
    problem = make_problem(case, n=24)
    J = jacobian(problem)
    A, _ = active_rows(problem)
    assert np.abs(J - J.T).max() < 1e-10
    eigenvalues = np.linalg.eigvalsh(J)
    assert np.minimum(np.abs(eigenvalues), np.abs(eigenvalues - 1)).max() < 1e-9
    assert (eigenvalues < 0.5).sum() == np.linalg.matrix_rank(A) > 0


@every_case_by_row
def test_is_affine_on_a_region(case):
    """Theorem 4.3: g(z) = P z + c, with P and c from the active rows alone; linear between points of one region."""
    problem = make_problem(case)
    A, b = active_rows(problem)
    pseudo = A.T @ np.linalg.pinv(A @ A.T, rcond=1e-11)
    expected = problem.z - pseudo @ (A @ problem.z - b)
    y = solve(problem).value.numpy()
    assert np.abs(y - expected).max() < 1e-9

    direction = 1e-4 * np.random.default_rng(1).standard_normal(len(y))
    ends = [
        solve(Problem(**{**problem.arguments(), "z": problem.z + step * direction})).value.numpy() for step in (-1, 1)
    ]
    assert np.abs(0.5 * (ends[0] + ends[1]) - y).max() < 1e-9
    assert np.abs(ends[1] - ends[0]).max() > 1e3 * rounding(problem, torch.float64)
