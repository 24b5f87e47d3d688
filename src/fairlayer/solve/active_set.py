"""The small quadratic programme inside every Newton step, by a dual active-set method.

Given the Gram matrix H of the statistics and their values b at zero multipliers, find

    min_mu  1/2 nu'H nu - b'nu + sum_j (upper_j mu_j^+ - lower_j mu_j^-),    nu = R'mu,

where row j of R is e_plus - e_minus (or e_plus alone where `minus` is -1). It is the dual of the least-distance
problem "move the statistics as little as possible, in the metric of H, so that every row lies within its bounds".

The method is that of Goldfarb and Idnani (Math. Programming 27, 1983), written on the Gram matrix alone: bring in
the most violated row, drop rows whose multiplier would change sign, stop when no row is violated. It is finite and
exact, needs no full rank (all pairs of many groups are fine), and a failure names the rows in conflict.
"""

from __future__ import annotations

import numpy as np

from fairlayer.compiled import compiled

SOLVED, CONFLICT, EXHAUSTED = 0, 1, 2

_ROUNDING = 1e6  # times the tolerance: a breach of a row that the active ones imply, too small to be a contradiction
_DEPENDENT = 1e-12  # a row whose squared distance to the span of the active ones is this small a share of its own


@compiled
def row_value(statistics, plus, minus, j):
    """Value of row j: one statistic, or the difference of two."""
    value = statistics[plus[j]]
    if minus[j] >= 0:
        value -= statistics[minus[j]]
    return value


@compiled
def row_gram(H, plus, minus, i, j):
    """Entry (i, j) of R H R'."""
    value = H[plus[i], plus[j]]
    if minus[j] >= 0:
        value -= H[plus[i], minus[j]]
    if minus[i] >= 0:
        value -= H[minus[i], plus[j]]
        if minus[j] >= 0:
            value += H[minus[i], minus[j]]
    return value


@compiled
def add_row(nu, plus, minus, j, amount):
    """nu += amount * R_j."""
    nu[plus[j]] += amount
    if minus[j] >= 0:
        nu[minus[j]] -= amount


@compiled
def _append_factor(L, size, column, corner):
    """Grow the Cholesky factor by one row; `column` holds the new row already solved against L."""
    for a in range(size):
        L[size, a] = column[a]
    L[size, size] = np.sqrt(corner)


@compiled
def forward(L, size, x):
    """x <- L^-1 x."""
    for a in range(size):
        total = x[a]
        for b in range(a):
            total -= L[a, b] * x[b]
        x[a] = total / L[a, a]


@compiled
def backward(L, size, x):
    """x <- L'^-1 x."""
    for a in range(size - 1, -1, -1):
        total = x[a]
        for b in range(a + 1, size):
            total -= L[b, a] * x[b]
        x[a] = total / L[a, a]


@compiled
def _refactor(L, H, plus, minus, active, size):
    """Cholesky factor of the active rows' Gram matrix, from scratch (after a row was dropped)."""
    column = np.empty(max(size, 1))
    for a in range(size):
        for b in range(a):
            column[b] = row_gram(H, plus, minus, active[a], active[b])
        forward(L, a, column)
        corner = row_gram(H, plus, minus, active[a], active[a])
        for b in range(a):
            corner -= column[b] * column[b]
        _append_factor(L, a, column, max(corner, 1e-300))


@compiled
def solve_small(H, b, plus, minus, lower, upper, tolerance, mu, active):
    """Fill `mu` and `active`; return (outcome, number of active rows, the row that could not be satisfied or -1).

    On CONFLICT, `mu` is the direction of the contradiction: its support are the rows that cannot hold together.
    """
    K, m = H.shape[0], plus.size
    most = min(K, m)
    L = np.zeros((most + 1, most + 1))
    nu = np.zeros(K)
    q = b.copy()
    multiplier = np.zeros(most + 1)  # |mu| of the active rows
    sign = np.zeros(most + 1)
    step = np.zeros(most + 1)
    is_active = np.zeros(m, dtype=np.bool_)  # or implied by the active rows, and off by rounding alone
    size = 0
    mu[:] = 0.0

    for _ in range(20 * (m + 10)):
        # The most violated row.
        entering, worst, entering_sign = -1, tolerance, 1.0
        for j in range(m):
            if is_active[j]:
                continue
            value = row_value(q, plus, minus, j)
            if value - upper[j] > worst:
                entering, worst, entering_sign = j, value - upper[j], 1.0
            if lower[j] - value > worst:
                entering, worst, entering_sign = j, lower[j] - value, -1.0
        if entering < 0:
            break

        own = row_gram(H, plus, minus, entering, entering)
        entering_multiplier = 0.0
        while True:
            # The change of the active multipliers that keeps their rows in place while the new one grows.
            for a in range(size):
                step[a] = entering_sign * row_gram(H, plus, minus, entering, active[a])
            forward(L, size, step)
            distance = own
            for a in range(size):
                distance -= step[a] * step[a]
            independent = size < most and distance > _DEPENDENT * own
            column = step[:size].copy()
            backward(L, size, step)
            for a in range(size):
                step[a] *= sign[a]

            blocking, shortest = -1, np.inf
            for a in range(size):
                if step[a] > 1e-14 and lower[active[a]] < upper[active[a]] and multiplier[a] / step[a] < shortest:
                    blocking, shortest = a, multiplier[a] / step[a]
            full = np.inf
            if independent:
                value = row_value(q, plus, minus, entering)
                excess = value - upper[entering] if entering_sign > 0 else lower[entering] - value
                full = max(excess, 0.0) / distance
            length = min(shortest, full)
            if length == np.inf and entering_multiplier == 0.0 and worst <= _ROUNDING * tolerance:
                is_active[entering] = True
                break
            if length == np.inf:
                mu[:] = 0.0
                mu[entering] = entering_sign
                for a in range(size):
                    mu[active[a]] = -sign[a] * step[a]
                return CONFLICT, size, entering

            for a in range(size):
                multiplier[a] -= length * step[a]
                add_row(nu, plus, minus, active[a], -length * step[a] * sign[a])
            entering_multiplier += length
            add_row(nu, plus, minus, entering, length * entering_sign)
            for k in range(K):
                total = b[k]
                for i in range(K):
                    total -= H[k, i] * nu[i]
                q[k] = total

            if full <= shortest:
                active[size] = entering
                sign[size] = entering_sign
                multiplier[size] = entering_multiplier
                _append_factor(L, size, entering_sign * column, distance)
                is_active[entering] = True
                size += 1
                break
            is_active[active[blocking]] = False
            for a in range(blocking, size - 1):
                active[a] = active[a + 1]
                sign[a] = sign[a + 1]
                multiplier[a] = multiplier[a + 1]
            size -= 1
            _refactor(L, H, plus, minus, active, size)
    else:
        return EXHAUSTED, size, -1

    # With the active rows known, their multipliers solve one linear system: more accurate than the sum of steps.
    for a in range(size):
        j = active[a]
        step[a] = row_value(b, plus, minus, j) - (upper[j] if sign[a] > 0 else lower[j])
    forward(L, size, step)
    backward(L, size, step)
    for a in range(size):
        mu[active[a]] = step[a]
    return SOLVED, size, -1
