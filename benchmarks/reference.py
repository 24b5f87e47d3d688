"""Outputs and gradients to measure errors by, independent of fairlayer.

Clarabel solves the problem in float64; from its multipliers a few Newton steps on the rows that bind
bring the answer to rounding error. The answer is then checked against the optimality conditions, so it
need not be trusted: a reference that is not optimal raises.
"""

from dataclasses import dataclass

import clarabel
import numpy as np
from scipy import sparse

from problems import Case, Problem, rows

BINDING = 1e-8  # a row whose multiplier moves no output by more than this does not bind
OPTIMAL = 1e-11


@dataclass(frozen=True)
class Reference:
    """The projection of z and the gradient of weights @ y with respect to z."""

    y: np.ndarray
    gradient: np.ndarray


def solve(problem: Problem, case: Case) -> Reference:
    """Project and differentiate to near float64 rounding."""
    z = problem.z.astype(np.float64)
    A = rows(problem.groups)
    multipliers = _clarabel_multipliers(z, A, case)
    binding = np.abs(multipliers) * np.abs(A).max(axis=1) > BINDING
    A_binding, sign = A[binding], np.sign(multipliers[binding])
    binding_multipliers = multipliers[binding]
    for _ in range(20):
        y, free = _respond(z - binding_multipliers @ A_binding, case)
        residual = A_binding @ y - sign * case.tolerance
        if np.abs(residual).max(initial=0.0) < 1e-15:
            break
        binding_multipliers = binding_multipliers + np.linalg.solve((A_binding * free) @ A_binding.T, residual)
    y, free = _respond(z - binding_multipliers @ A_binding, case)
    _check(A, y, case, sign * binding_multipliers, A_binding @ y - sign * case.tolerance)

    weights = problem.weights * free
    share = np.linalg.solve((A_binding * free) @ A_binding.T, A_binding @ weights)
    return Reference(y, weights - free * (share @ A_binding))


def _respond(shifted: np.ndarray, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """The nearest point of the box, and which outputs are strictly inside it."""
    if not case.box:
        return shifted, np.ones_like(shifted)
    return shifted.clip(0.0, 1.0), ((shifted > 0.0) & (shifted < 1.0)).astype(np.float64)


def _clarabel_multipliers(z: np.ndarray, A: np.ndarray, case: Case) -> np.ndarray:
    """Solve with Clarabel; (k,) multipliers of the gaps, positive where the upper side binds."""
    n, k = case.n, case.k
    # Multiplied by sqrt(n), the rows are of the size of the box's: without it the solver stops early.
    scale = np.sqrt(n)
    blocks = [sparse.csc_matrix(scale * A), sparse.csc_matrix(-scale * A)]
    limits = [np.full(2 * k, scale * case.tolerance)]
    if case.box:
        blocks += [sparse.identity(n), -sparse.identity(n)]
        limits += [np.ones(n), np.zeros(n)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    limits = np.concatenate(limits)
    solver = clarabel.DefaultSolver(
        sparse.identity(n, format="csc"),
        -z,
        sparse.vstack(blocks, format="csc"),
        limits,
        [clarabel.NonnegativeConeT(len(limits))],
        settings,
    )
    dual = np.array(solver.solve().z)
    return scale * (dual[:k] - dual[k : 2 * k])


def _check(A: np.ndarray, y: np.ndarray, case: Case, pressure: np.ndarray, residual: np.ndarray) -> None:
    """Feasible, binding rows at their limits, multipliers pushing the right way: then y is optimal."""
    feasible = np.abs(A @ y).max() <= case.tolerance + OPTIMAL
    if not (feasible and np.abs(residual).max(initial=0.0) <= OPTIMAL and (pressure > 0).all()):
        raise ArithmeticError(f"the reference for n={case.n}, k={case.k}, box={case.box} is not optimal")
