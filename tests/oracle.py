"""The projection by other means: an interior-point solver, then a polish of its answer, then a check of both.

    min 1/2 sum_i w_i (y_i - z_i)^2    s.t.    lower <= A y <= upper,  lo <= y <= hi.

Clarabel finds which rows and bounds bind; given these, the optimum solves a linear system. The answer is checked
against the optimality conditions, so that it need not be trusted: one that fails them raises `ArithmeticError`.
"""

from __future__ import annotations

import clarabel
import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from formulas import Problem

OPTIMAL = 1e-11  # largest breach of an optimality condition, relative to the spread of the inputs


def matrix_form(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows as (A, lower, upper)."""
    n = len(problem.z)
    read = [row.coefficients(n) for row in problem.rows]
    A = np.array([c for c, _ in read]).reshape(-1, n)
    constant = np.array([constant for _, constant in read])
    lower, upper = (np.array([getattr(row, side) for row in problem.rows]) for side in ("lower", "upper"))
    return A, lower + constant, upper + constant


def least_widening(problem: Problem) -> float:
    """The smallest uniform widening of the rows that some output within the bounds satisfies, sample by sample."""
    A, lower, upper = matrix_form(problem)
    n = A.shape[1]
    rows, limits = np.concatenate([A, -A]), np.concatenate([upper, -lower])
    stated = np.isfinite(limits)
    answer = linprog(
        [*np.zeros(n), 1.0],
        A_ub=np.c_[rows, -np.ones(len(rows))][stated],
        b_ub=limits[stated],
        bounds=[*zip(*problem.box(), strict=True), (0.0, None)],
    )
    return float(answer.x[-1])


def project_reference(problem: Problem, curvature: np.ndarray | float = 1.0) -> np.ndarray:
    """The optimum, to about 1e-11 of the spread of z. curvature: (n,) what it costs to move each, times its weight."""
    z, w = problem.z.astype(np.float64), problem.sample_weights() * curvature
    A, lower, upper = matrix_form(problem)
    lo, hi = problem.box()
    # Centre and scale, so that tolerances mean the same whatever the units.
    centre = 0.5 * (z.min() + z.max())
    spread = max(np.ptp(z), 1e-300)
    shift = A.sum(axis=1) * centre
    y = _solve(
        (z - centre) / spread,
        w,
        A,
        (lower - shift) / spread,
        (upper - shift) / spread,
        (lo - centre) / spread,
        (hi - centre) / spread,
    )
    return centre + spread * y


def _solve(z, w, A, lower, upper, lo, hi):
    mu = _interior_point(z, w, A, lower, upper, lo, hi)
    size = np.abs(mu)[:, None] * np.abs(A) / w
    binding = size.max(axis=1, initial=0.0) > 1e-8
    binding |= lower == upper
    active, sign = A[binding], np.where(mu[binding] > 0, 1.0, -1.0)
    bound = np.where(sign > 0, upper[binding], lower[binding])
    reduced = mu[binding]
    for _ in range(30):
        raw = z - (reduced @ active) / w
        y = raw.clip(lo, hi)
        residual = active @ y - bound
        if np.abs(residual).max(initial=0.0) < 1e-14:
            break
        free = ((raw > lo) & (raw < hi)) / w
        reduced = reduced + np.linalg.lstsq((active * free) @ active.T, residual, rcond=1e-13)[0]
    y = (z - (reduced @ active) / w).clip(lo, hi)
    missed = max(
        (A @ y - upper).max(initial=0.0),
        (lower - A @ y).max(initial=0.0),
        np.abs(active @ y - bound).max(initial=0.0),
    )
    wrong = (-sign * reduced * np.abs(active).max(axis=1, initial=0.0))[(lower < upper)[binding]].max(initial=0.0)
    if missed > OPTIMAL or wrong > OPTIMAL:
        raise ArithmeticError(f"the reference is not optimal: rows missed by {missed:.1e}, multipliers by {wrong:.1e}")
    return y


def _interior_point(z, w, A, lower, upper, lo, hi) -> np.ndarray:
    """Multipliers of the rows, positive where the upper side binds."""
    n = len(z)
    scale = 1.0 / np.maximum(np.linalg.norm(A, axis=1), 1e-300)  # rows of one length, as those of the box are
    scaled = sparse.csc_matrix(A * scale[:, None])
    equal = lower == upper
    above, below = np.isfinite(upper) & ~equal, np.isfinite(lower) & ~equal
    top, bottom = np.isfinite(hi), np.isfinite(lo)
    eye = sparse.identity(n, format="csc")
    blocks = [scaled[equal], scaled[above], -scaled[below], eye[top], -eye[bottom]]
    limits = [(upper * scale)[equal], (upper * scale)[above], -(lower * scale)[below], hi[top], -lo[bottom]]
    limit = np.concatenate(limits)
    cones = [clarabel.ZeroConeT(int(equal.sum())), clarabel.NonnegativeConeT(len(limit) - int(equal.sum()))]
    matrices = sparse.diags(w, format="csc"), -w * z, sparse.vstack(blocks, format="csc")
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    for precision in (1e-12, 1e-10):  # it may give up on the first right at its start
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = precision
        answer = clarabel.DefaultSolver(*matrices, limit, cones, settings).solve()
        if answer.status == clarabel.SolverStatus.Solved:
            break
    dual = np.array(answer.z)
    mu = np.zeros(len(A))
    ends = np.cumsum([equal.sum(), above.sum(), below.sum()])
    mu[equal] += dual[: ends[0]]
    mu[above] += dual[ends[0] : ends[1]]
    mu[below] -= dual[ends[1] : ends[2]]
    return mu * scale
