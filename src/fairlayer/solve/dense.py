"""Every bound a row: the last resort for small batches on which the search over cell sums does not end.

With nearly every sample at a bound the dual is all kinks, and a search along lines may creep from one to the next. Then
bounds are taken for what they are, n more rows, and the dual active-set method solves the whole quadratic programme in
one go. That costs n^3, but it always ends, and what it finds is exact.
"""

from __future__ import annotations

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box
from fairlayer.binding.exact_sums import UNIT
from fairlayer.binding.rows import EACH, Rows, dense
from fairlayer.binding.system import System
from fairlayer.solve.active_set import SOLVED, solve_small

MOST_SAMPLES = 600


def dense_multipliers(z: np.ndarray, system: System, rows: Rows, box: Box) -> np.ndarray | None:
    """Multipliers of the statistics; None where there are none, or too many samples."""
    n, K = len(z), len(rows.offset)
    if n > MOST_SAMPLES:
        return None
    weight = system.weights if len(system.weights) else np.ones(n)
    M = dense(rows)[as_numpy(system.cell)]  # (n, K)
    H, b, tolerance = np.zeros((K + n, K + n)), np.empty(K + n), np.empty(K + n)
    H[:K, :K] = (M * weight[:, None]).T @ M
    H[:K, K:] = np.where(weight > 0, M.T, 0.0)
    H[K:, :K] = H[:K, K:].T
    H[range(K, K + n), range(K, K + n)] = 1.0 / np.where(weight > 0, weight, 1.0)
    b[:K] = (weight * z) @ M - rows.offset
    b[K:] = z
    lo, hi = (np.broadcast_to(side.astype(np.float64), n) for side in (box.lo, box.hi))
    y = np.clip(z, lo, hi)
    tolerance[:K] = 64 * UNIT * ((weight * np.abs(y)) @ np.abs(M) + np.abs(rows.offset)) + 1e-300
    tolerance[K:] = 64 * UNIT * np.abs(y) + 1e-300
    every = Rows(
        np.zeros(1, dtype=np.int64),
        np.zeros(0, dtype=np.int64),
        np.zeros(0),
        np.zeros(K + n),
        np.concatenate([rows.present, np.ones(n, dtype=bool)]),
        np.concatenate([rows.first, K + 1 + np.arange(n)]),
        np.concatenate([rows.family, np.stack([np.full(n, EACH), np.ones(n), lo, hi])], axis=1),
    )
    nu = np.zeros(K + n)
    return nu[:K] if solve_small(H, b, every, tolerance, nu) == SOLVED else None
