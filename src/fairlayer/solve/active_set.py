"""The small quadratic programme inside every Newton step, by a dual active-set method.

Given the Gram matrix H of the statistics and their values b at zero multipliers, find

    min_nu  1/2 nu'H nu - b'nu + price(nu),

the dual of the least-distance problem "move the statistics as little as possible, in the metric of H, so that every row
lies within its bounds".

The method is that of Goldfarb and Idnani (Math. Programming 27, 1983), written on the Gram matrix alone: bring in the
most violated row, drop rows whose multiplier would change sign, stop when no row is violated. It is finite and exact,
needs no full rank, and a failure names the rows in conflict. A family is asked for its worst row, so its pairs are not
listed; at most K - 1 rows are ever active.
"""

from __future__ import annotations

import numpy as np

from fairlayer.binding.exact_sums import UNIT
from fairlayer.compiled import compiled
from fairlayer.solve.families import (
    BOUND,
    FREE,
    MINUS,
    PLUS,
    M,
    P,
    add_pair,
    copy_pair,
    pair_gram,
    pair_value,
    worst_row,
)

SOLVED, CONFLICT, EXHAUSTED = 0, 1, 2

_ROUNDING = 1e6  # times the tolerance: a breach of a row that the active ones imply, too small to be a contradiction
_DEPENDENT = 1e-12  # a row whose squared distance to the span of the active ones is this small a share of its own


@compiled(small=True, borrows=True)
def forward(L, size, x):
    """x <- L^-1 x."""
    for a in range(size):
        total = x[a]
        for b in range(a):
            total -= L[a, b] * x[b]
        x[a] = total / L[a, a]


@compiled(small=True, borrows=True)
def backward(L, size, x):
    """x <- L'^-1 x."""
    for a in range(size - 1, -1, -1):
        total = x[a]
        for b in range(a + 1, size):
            total -= L[b, a] * x[b]
        x[a] = total / L[a, a]


@compiled(small=True, borrows=True)
def _append_factor(L, size, column, corner):
    """Grow the Cholesky factor by one row; `column` holds the new row already solved against L."""
    for a in range(size):
        L[size, a] = column[a]
    L[size, size] = np.sqrt(corner)


@compiled(inner=True, borrows=True, later="None")
def _refactor(L, H, pairs, size, column):
    """Cholesky factor of the active rows' Gram matrix, from scratch (after rows were dropped)."""
    for a in range(size):
        for b in range(a):
            column[b] = pair_gram(H, pairs, a, b)
        forward(L, a, column)
        corner = pair_gram(H, pairs, a, a)
        for b in range(a):
            corner -= column[b] * column[b]
        _append_factor(L, a, column, max(corner, 1e-300))


@compiled(inner=True, borrows=True, later="None")
def _drop_factor(L, size, row):
    """Cholesky factor without one of its rows, by a rotation of every two columns behind it."""
    for a in range(row, size - 1):
        for b in range(a + 2):
            L[a, b] = L[a + 1, b]
    for b in range(row, size - 1):
        length = np.hypot(L[b, b], L[b, b + 1])
        cosine, sine = L[b, b] / length, L[b, b + 1] / length
        for a in range(b, size - 1):
            left, right = L[a, b], L[a, b + 1]
            L[a, b], L[a, b + 1] = cosine * left + sine * right, cosine * right - sine * left
        L[b, b + 1] = 0.0


@compiled(small=True, borrows=True)
def _fill_statistics(H, b, nu, q, size):
    """Statistics q = b - H nu, and the size of the numbers that they are made of; line by line, many at a time."""
    for k in range(b.size):
        q[k], size[k] = b[k], abs(b[k])
    for i in range(b.size):
        if nu[i] != 0.0:
            line, amount = H[i], nu[i]
            for k in range(b.size):
                part = line[k] * amount
                q[k] -= part
                size[k] += abs(part)


@compiled(small=True, borrows=True)
def _enter(rows, q, allowance, ignored, pairs, at):
    """Put the most violated row of all into place `at`: the row's breach, its tolerance, and its family (or -1)."""
    entering, worst, allowed = -1, 1.0, 0.0
    for f in range(rows.family.shape[1]):
        breach = worst_row(rows, q, f, pairs, at + 1)
        own = 0.0
        if pairs[P, at + 1] != 0.0:
            own += allowance[int(pairs[PLUS, at + 1])]
        if pairs[M, at + 1] != 0.0:
            own += allowance[int(pairs[MINUS, at + 1])]
        if breach > max(own, 2.0 * ignored[f]) and breach > worst * own:
            entering, worst, allowed = f, breach / own, own
            copy_pair(pairs, at + 1, at)
    return entering, worst * allowed, allowed


@compiled(inline=True)
def small_memory(K, F):
    """How much memory the method needs for K statistics in F families."""
    return (K + 1) * (K + 1) + 6 * (K + 3) + 6 * (K + 1) + F


@compiled(inner=True, borrows=True)
def solve_small(H, b, rows, tolerance, nu, memory):
    """Fill `nu`, the multipliers of the statistics; return SOLVED, CONFLICT or EXHAUSTED.

    tolerance: of each statistic; memory: `small_memory` of it. On CONFLICT, `nu` is the direction of the contradiction:
    its support are the statistics that cannot be where their rows want them.
    """
    K, F = b.size, rows.family.shape[1]
    memory[: small_memory(K, F)] = 0.0
    L, rest = memory[: (K + 1) * (K + 1)].reshape(K + 1, K + 1), memory[(K + 1) * (K + 1) :]
    pairs, rest = rest[: 6 * (K + 3)].reshape(6, K + 3), rest[6 * (K + 3) :]
    work, ignored = rest[: 6 * (K + 1)].reshape(6, K + 1), rest[6 * (K + 1) : 6 * (K + 1) + F]
    # ignored: breaches of rows that the active ones imply, off by rounding alone.
    multiplier, step, column, q, allowance, spare = work[0], work[1], work[2], work[3], work[4], work[5]
    size, dropped = 0, False
    for k in range(K):
        nu[k] = 0.0
        q[k], allowance[k] = b[k], tolerance[k]  # which grows with what the statistics are made of

    for _ in range(20 * (K + 10)):
        entering, worst, allowed = _enter(rows, q, allowance, ignored, pairs, size)
        if entering < 0:
            break
        own = pair_gram(H, pairs, size, size)
        entering_multiplier = 0.0
        while True:
            # The change of the active multipliers that keeps their rows in place while the new one grows.
            for a in range(size):
                step[a] = pair_gram(H, pairs, size, a)
            forward(L, size, step)
            distance = own
            for a in range(size):
                distance -= step[a] * step[a]
            independent = size < K and distance > _DEPENDENT * own
            for a in range(size):
                column[a] = step[a]
            backward(L, size, step)

            blocking, shortest = -1, np.inf
            for a in range(size):
                if step[a] > 1e-14 and pairs[FREE, a] == 0.0 and multiplier[a] / step[a] < shortest:
                    blocking, shortest = a, multiplier[a] / step[a]
            full = np.inf
            if independent:
                full = max(pair_value(pairs, size, q) - pairs[BOUND, size], 0.0) / distance
            length = min(shortest, full)
            if length == np.inf and entering_multiplier == 0.0 and worst <= _ROUNDING * allowed:
                ignored[entering] = worst
                break
            if length == np.inf:
                for k in range(K):
                    nu[k] = 0.0
                add_pair(nu, pairs, size, 1.0)
                for a in range(size):
                    add_pair(nu, pairs, a, -step[a])
                return CONFLICT

            for a in range(size):
                multiplier[a] -= length * step[a]
                add_pair(nu, pairs, a, -length * step[a])
            entering_multiplier += length
            add_pair(nu, pairs, size, length)
            _fill_statistics(H, b, nu, q, allowance)
            for k in range(K):
                allowance[k] = max(tolerance[k], 8.0 * UNIT * allowance[k])

            if full <= shortest:
                multiplier[size] = entering_multiplier
                _append_factor(L, size, column, distance)
                size += 1
                break
            for a in range(blocking, size):  # the entering row moves up as well
                copy_pair(pairs, a + 1, a)
                if a < size - 1:
                    multiplier[a] = multiplier[a + 1]
            _drop_factor(L, size, blocking)
            size -= 1
            dropped = True
    else:
        return EXHAUSTED
    if dropped:
        _refactor(L, H, pairs, size, spare)

    # With the active rows known, their multipliers solve one linear system: more accurate than the sum of steps.
    for k in range(K):
        nu[k] = 0.0
    for a in range(size):
        step[a] = pair_value(pairs, a, b) - pairs[BOUND, a]
    forward(L, size, step)
    backward(L, size, step)
    for a in range(size):
        add_pair(nu, pairs, a, step[a])
    return SOLVED
