"""Outputs and gradients to measure errors by, independent of fairlayer.

Clarabel solves the problem in float64; from its multipliers a few Newton steps on the rows that bind
bring the answer to rounding error. The answer is then checked against the optimality conditions, so it
need not be trusted: a reference that is not optimal raises.
"""

from dataclasses import dataclass

import clarabel
import numpy as np
from scipy import sparse

BINDING = 1e-8  # a row whose multiplier moves no output by more than this does not bind
OPTIMAL = 1e-11


@dataclass(frozen=True)
class Reference:
    """The projection of z and the gradient of weights @ y with respect to z."""

    y: np.ndarray
    gradient: np.ndarray


def solve(
    z: np.ndarray,  # (n,)
    A: np.ndarray,  # (k, n) rows, |A y| <= tolerance
    weights: np.ndarray,  # (n,)
    tolerance: float,
    box: tuple[float, float] | None,
) -> Reference:
    """Project and differentiate to near float64 rounding."""
    z, A, weights = (array.astype(np.float64) for array in (z, A, weights))
    multipliers = _clarabel_multipliers(z, A, tolerance, box)
    binding = np.abs(multipliers) * np.abs(A).max(axis=1) > BINDING
    A_binding, sign = A[binding], np.sign(multipliers[binding])
    binding_multipliers = multipliers[binding]
    for _ in range(20):
        y, free = _respond(z - binding_multipliers @ A_binding, box)
        residual = A_binding @ y - sign * tolerance
        if np.abs(residual).max(initial=0.0) < 1e-15:
            break
        binding_multipliers = binding_multipliers + np.linalg.solve((A_binding * free) @ A_binding.T, residual)
    y, free = _respond(z - binding_multipliers @ A_binding, box)
    feasible = np.abs(A @ y).max() <= tolerance + OPTIMAL
    at_limits = np.abs(A_binding @ y - sign * tolerance).max(initial=0.0) <= OPTIMAL
    if not (feasible and at_limits and (sign * binding_multipliers > 0).all()):  # pushing the right way: then optimal
        raise ArithmeticError(f"the reference for n={len(z)}, k={len(A)}, box={box} is not optimal")
    loss = weights * free
    share = np.linalg.solve((A_binding * free) @ A_binding.T, A_binding @ loss)
    return Reference(y, loss - free * (share @ A_binding))


def _respond(shifted: np.ndarray, box: tuple[float, float] | None) -> tuple[np.ndarray, np.ndarray]:
    """The nearest point of the box, and which outputs are strictly inside it."""
    if box is None:
        return shifted, np.ones_like(shifted)
    return shifted.clip(*box), ((shifted > box[0]) & (shifted < box[1])).astype(np.float64)


def _clarabel_multipliers(
    z: np.ndarray, A: np.ndarray, tolerance: float, box: tuple[float, float] | None
) -> np.ndarray:
    """Solve with Clarabel; (k,) multipliers of the rows, positive where the upper side binds."""
    k, n = A.shape
    # Brought to length 1, the rows are of the size of the box's; with entries of 1/n the solver stops early.
    scale = 1.0 / np.linalg.norm(A, axis=1)
    scaled, limit = scale[:, None] * A, scale * tolerance
    blocks, limits = [sparse.csc_matrix(scaled), sparse.csc_matrix(-scaled)], [limit, limit]
    if box is not None:
        blocks += [sparse.identity(n), -sparse.identity(n)]
        limits += [np.full(n, box[1]), np.full(n, -box[0])]
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
