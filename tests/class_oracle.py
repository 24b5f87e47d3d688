"""Fair class probabilities by other means: Clarabel's exponential cone or quadratic programme, and rational arithmetic.

    min sum_ij w_i d(y_ij, z_ij)    s.t.    |A y_j| <= tolerance for every class j,  y_i on the simplex.

Nothing of the library is used.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import clarabel
import numpy as np
from scipy import sparse


def pair_rows(masks: list[list[np.ndarray]], weights: np.ndarray) -> np.ndarray:
    """A: the difference of means of every two groups of each family, both with samples. masks: of the samples."""
    means = [[mask * weights / (mask * weights).sum() for mask in family if mask.any()] for family in masks]
    return np.array([a - b for family in means for a, b in combinations(family, 2)])


def nearest(z: np.ndarray, A: np.ndarray, tolerance: float, weights: np.ndarray, kind: str) -> np.ndarray:
    """The optimum, y of shape (n, d). kind: "entropy" or "squared"."""
    n, d = z.shape
    N, w = n * d, np.repeat(weights, d)
    eye = sparse.identity(N, format="csr")
    rows = sparse.kron(sparse.csr_matrix(A), sparse.identity(d), format="csr")
    sums = sparse.kron(sparse.identity(n), np.ones((1, d)), format="csr")
    blocks, limits = [sums, rows, -rows, -eye], [np.ones(n), *[np.full(len(A) * d, tolerance)] * 2, np.zeros(N)]
    cones = [clarabel.ZeroConeT(n), clarabel.NonnegativeConeT(2 * len(A) * d + N)]
    P, cost = sparse.diags(w, format="csc"), -w * z.reshape(-1)
    if kind == "entropy":
        none = sparse.csr_matrix((N, N))
        blocks = [sparse.hstack([block, sparse.csr_matrix((block.shape[0], N))]) for block in blocks]
        cone = sparse.vstack([sparse.hstack([none, eye]), sparse.hstack([-eye, none]), sparse.csr_matrix((N, 2 * N))])
        blocks.append(cone.tocsr()[np.arange(3 * N).reshape(3, N).T.reshape(-1)])
        limits.append(np.stack([np.zeros(N), np.zeros(N), z.reshape(-1)], axis=1).reshape(-1))
        cones += [clarabel.ExponentialConeT()] * N
        P, cost = sparse.csc_matrix((2 * N, 2 * N)), np.concatenate([np.zeros(N), w])
    program = P, cost, sparse.vstack(blocks, format="csc"), np.concatenate(limits), cones
    for step, fine in product((0.99, 0.9, 0.8), (1e-12, 1e-11, 1e-10, 1e-9)):  # as fine as can be had
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_step_fraction = step
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = fine
        settings.reduced_tol_gap_abs = settings.reduced_tol_gap_rel = settings.reduced_tol_feas = 1e-9
        solution = clarabel.DefaultSolver(*program, settings).solve()
        if str(solution.status) in ("Solved", "AlmostSolved"):
            return np.array(solution.x)[:N].reshape(n, d)
    raise ArithmeticError(f"the reference was not found: {solution.status}")


def cost(y: np.ndarray, z: np.ndarray, weights: np.ndarray, kind: str) -> float:
    """What the projection minimises, at y."""
    y = np.maximum(y, 1e-300) if kind == "entropy" else y
    each = y * np.log(y / z) if kind == "entropy" else 0.5 * (y - z) ** 2
    return float(weights @ each.sum(axis=1))


def largest_gap(y: np.ndarray, masks: list[list[np.ndarray]], weights: np.ndarray | None = None) -> Fraction:
    """The largest difference of two group means in any class, in rational arithmetic."""
    w = [Fraction(1)] * len(y) if weights is None else [Fraction(float(one)) for one in weights]
    largest = Fraction(0)
    for family in masks:
        for j in range(y.shape[1]):
            means = []
            for mask in family:
                here = np.flatnonzero(mask)
                if len(here):
                    total = sum(w[i] for i in here)
                    means.append(sum(w[i] * Fraction(float(y[i, j])) for i in here) / total)
            if len(means) > 1:
                largest = max(largest, max(means) - min(means))
    return largest
