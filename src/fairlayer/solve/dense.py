"""Every bound a row: the last resort for small batches on which the search over cell sums does not end.

With nearly every sample at a bound the dual is all kinks, and a search along lines may creep from one to the next. Then
bounds are taken for what they are, n more rows, and the dual active-set method solves the whole quadratic programme in
one go. That costs n^3, but it always ends, and what it finds is exact.
"""

from __future__ import annotations

import numpy as np

from fairlayer.compiled import compiled
from fairlayer.solve.active_set import SOLVED, solve_small
from fairlayer.solve.newton import gram

MOST_SAMPLES = 600


@compiled
def dense_multipliers(samples, cell_weight, rows, tolerance, mu):
    """Multipliers of the rows, into `mu`; False where there are none, or too many samples."""
    n, K, m = samples.z.size, rows.M.shape[1], rows.plus.size
    if n > MOST_SAMPLES:
        return False
    H, b = np.zeros((K + n, K + n)), np.zeros(K + n)
    H[:K, :K] = gram(rows.M, cell_weight)
    plus, minus = np.empty(m + n, dtype=np.int64), np.full(m + n, -1, dtype=np.int64)
    lower, upper = np.empty(m + n), np.empty(m + n)
    for j in range(m):
        plus[j], minus[j], lower[j], upper[j] = rows.plus[j], rows.minus[j], rows.lower[j], rows.upper[j]
    for k in range(K):
        b[k] = -rows.offset[k]
    for i in range(n):
        c = samples.cell[i]
        w = samples.weight[i] if samples.weight.size > 0 else 1.0
        at, low, high = K + i, samples.lo[i if samples.lo.size > 1 else 0], samples.hi[i if samples.hi.size > 1 else 0]
        plus[m + i], lower[m + i], upper[m + i] = at, low, high
        b[at] = samples.z[i]
        H[at, at] = 1.0 / w if w > 0.0 else 1.0
        for k in range(K):
            b[k] += rows.M[c, k] * w * samples.z[i]
            if w > 0.0:
                H[k, at] = H[at, k] = rows.M[c, k]
    both = np.empty(m + n)
    active = np.zeros(min(m, K) + n + 1, dtype=np.int64)
    outcome, _, _ = solve_small(H, b, plus, minus, lower, upper, tolerance, both, active)
    for j in range(m):
        mu[j] = both[j]
    return outcome == SOLVED
