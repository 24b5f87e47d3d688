"""Projections in relative entropy and KL by other means: Clarabel's exponential cone.

    min sum_i w_i d(y_i, z_i)    s.t.    lower <= A y <= upper,  lo <= y <= hi,

y log(y / z) <= t being (-t, y, z) in the cone {(a, b, c): b exp(a / b) <= c}. Nothing of the library is used.
"""

from __future__ import annotations

import clarabel
import numpy as np
from scipy import sparse

from formulas import Problem
from oracle import matrix_form


def project_entropic(problem: Problem, kind: str) -> np.ndarray:
    """The optimum, its cost to about 1e-9. kind: "entropy" or "kl"."""
    z, w, n = problem.z.astype(np.float64), problem.sample_weights(), len(problem.z)
    A, lower, upper = matrix_form(problem)
    lo, hi = problem.box()
    eye, none = sparse.identity(n, format="csr"), sparse.csr_matrix((n, n))
    blocks, limits, cones = [], [], []

    def nonnegative(matrix: np.ndarray, limit: np.ndarray, keep: np.ndarray) -> None:
        """matrix y <= limit."""
        some = sparse.csr_matrix(matrix)[np.flatnonzero(keep)]
        blocks.append(sparse.hstack([some, sparse.csr_matrix((some.shape[0], 2 * n))]))
        limits.append(limit[keep])
        cones.append(clarabel.NonnegativeConeT(int(keep.sum())))

    nonnegative(A, upper, np.isfinite(upper))
    nonnegative(-A, -lower, np.isfinite(lower))
    nonnegative(np.eye(n), hi, np.isfinite(hi))
    nonnegative(-np.eye(n), -lo, np.isfinite(lo))

    def cone(b: sparse.spmatrix, offset: np.ndarray, c: np.ndarray, t: int) -> None:
        """(-t_i, b y + offset, c) in the cone, for every i."""
        parts = [none, none, none]
        parts[t] = eye
        rows = [sparse.hstack(parts), sparse.hstack([-b, none, none]), sparse.csr_matrix((n, 3 * n))]
        stacked = sparse.vstack(rows).tocsr()[np.arange(3 * n).reshape(3, n).T.reshape(-1)]
        blocks.append(stacked)
        limits.append(np.stack([np.zeros(n), offset, c], axis=1).reshape(-1))
        cones.extend([clarabel.ExponentialConeT()] * n)

    cone(eye, np.zeros(n), z, 1)
    if kind == "entropy":
        cone(-eye, np.ones(n), 1.0 - z, 2)
    cost = np.concatenate([np.zeros(n), w, w]) if kind == "entropy" else np.concatenate([-w, w, w])
    if kind == "kl":  # the third block of variables has no part in it
        blocks.append(sparse.hstack([none, none, eye]))
        limits.append(np.zeros(n))
        cones.append(clarabel.ZeroConeT(n))
    program = (
        sparse.csc_matrix((3 * n, 3 * n)),
        cost,
        sparse.vstack(blocks, format="csc"),
        np.concatenate(limits),
        cones,
    )
    for tolerance in (1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8):  # as fine as can be had
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        solution = clarabel.DefaultSolver(*program, settings).solve()
        if str(solution.status) == "Solved":
            return np.array(solution.x)[:n]
    raise ArithmeticError(f"the reference was not found: {solution.status}")
