"""Families of rows, as the method sees them: their worst row, their price, and the rows that hold an output in place.

A family is known by the multipliers nu of its statistics, one each: positive where the statistic is pushed down,
negative where it is pushed up. Of a family of differences they add up to zero; its pairs are never listed.
"""

from __future__ import annotations

import numpy as np

from fairlayer.binding.rows import COEFFICIENT, DIFFERENCE, EACH, KIND, LOWER, UPPER
from fairlayer.compiled import compiled

# Single rows taken from families, p * q[plus] - m * q[minus] <= bound, each a column of six numbers: the statistics (0
# where their coefficient is 0), the coefficients, the bound, and whether it is an equality, whose multiplier may have
# any sign.
PLUS, MINUS, P, M, BOUND, FREE = range(6)


@compiled(small=True, borrows=True)
def _set(pairs, at, plus, minus, p, m, bound, free):
    pairs[PLUS, at], pairs[MINUS, at] = plus, minus
    pairs[P, at], pairs[M, at] = p, m
    pairs[BOUND, at], pairs[FREE, at] = bound, 1.0 if free else 0.0


@compiled(small=True, borrows=True)
def copy_pair(pairs, source, target):
    """Put row `source` in the place of row `target`."""
    for part in range(6):
        pairs[part, target] = pairs[part, source]


@compiled(small=True, borrows=True)
def extremes(rows, q, f):
    """The greatest and the least of a family's statistics; -1 where it has none."""
    greatest, least = -1, -1
    for k in range(rows.first[f], rows.first[f + 1]):
        if rows.present[k]:
            if greatest < 0 or q[k] >= q[greatest]:  # so that of equal ones they are not the same
                greatest = k
            if least < 0 or q[k] < q[least]:
                least = k
    return greatest, least


@compiled(small=True, borrows=True)
def worst_row(rows, q, f, pairs, at):
    """Put the most violated row of family f into `pairs`; by how much it is violated, negative where it holds."""
    if rows.family[KIND, f] == EACH:
        k = rows.first[f]
        if not rows.present[k]:
            return -np.inf
        free = rows.family[LOWER, f] == rows.family[UPPER, f]
        above, below = q[k] - rows.family[UPPER, f], rows.family[LOWER, f] - q[k]
        if above >= below:
            _set(pairs, at, k, 0, 1.0, 0.0, rows.family[UPPER, f], free)
            return above
        _set(pairs, at, 0, k, 0.0, 1.0, -rows.family[LOWER, f], free)
        return below
    greatest, least = extremes(rows, q, f)
    if greatest == least:
        return -np.inf
    ratio = rows.family[COEFFICIENT, f]
    _set(pairs, at, greatest, least, ratio, 1.0, rows.family[UPPER, f], ratio == 1.0 and rows.family[UPPER, f] == 0.0)
    return ratio * q[greatest] - q[least] - rows.family[UPPER, f]


@compiled(small=True, borrows=True)
def pair_value(pairs, j, q):
    """Value of row j at statistics q."""
    return pairs[P, j] * q[int(pairs[PLUS, j])] - pairs[M, j] * q[int(pairs[MINUS, j])]


@compiled(small=True, borrows=True)
def pair_gram(H, pairs, i, j):
    """Entry (i, j) of R H R', R the rows over statistics."""
    a, b, c, d = int(pairs[PLUS, i]), int(pairs[MINUS, i]), int(pairs[PLUS, j]), int(pairs[MINUS, j])
    return pairs[P, i] * (pairs[P, j] * H[a, c] - pairs[M, j] * H[a, d]) - pairs[M, i] * (
        pairs[P, j] * H[b, c] - pairs[M, j] * H[b, d]
    )


@compiled(small=True, borrows=True)
def add_pair(nu, pairs, j, amount):
    """nu += amount * R_j."""
    nu[int(pairs[PLUS, j])] += amount * pairs[P, j]
    nu[int(pairs[MINUS, j])] -= amount * pairs[M, j]


@compiled(small=True, borrows=True)
def held_at(rows, f, above, middle):
    """Where a statistic is held whose multiplier is positive (`above`) or negative: what a unit of that costs.

    middle: of the family's range; of ratios, the least. As the multipliers of a family balance, any will do, but the
    nearer to the statistics, the less is lost to rounding.
    """
    if rows.family[KIND, f] == EACH:
        place = rows.family[UPPER, f] if above else rows.family[LOWER, f]
    elif rows.family[KIND, f] == DIFFERENCE:
        place = middle + (0.5 if above else -0.5) * rows.family[UPPER, f]
    else:
        place = (middle + rows.family[UPPER, f]) / rows.family[COEFFICIENT, f] if above else middle
    return place


@compiled(small=True, borrows=True)
def middle_of(rows, q, f):
    """The middle of a family's range; of ratios, the least."""
    middle = 0.0
    if rows.family[KIND, f] != EACH:
        greatest, least = extremes(rows, q, f)
        if greatest >= 0:
            middle = 0.5 * (q[greatest] + q[least]) if rows.family[KIND, f] == DIFFERENCE else q[least]
    return middle


@compiled
def largest_excess(rows, q):
    """By how much the worst row exceeds its bound; negative where all lie within."""
    worst = -np.inf
    pairs = np.zeros((6, 1))
    for f in range(rows.family.shape[1]):
        worst = max(worst, worst_row(rows, q, f, pairs, 0))
    return worst


@compiled
def active_rows(rows, nu):
    """The rows that hold the output where it is: those with a multiplier, and every equality.

    Of a family in which a statistics are pushed down and b pushed up, a + b - 1 rows say all.
    """
    pairs = np.empty((6, nu.size))
    return pairs[:, : list_active_rows(rows, nu, pairs)].copy()


@compiled(inner=True, borrows=True)
def list_active_rows(rows, nu, pairs):
    """The same into pairs, (6, K); how many there are."""
    size = 0
    for f in range(rows.family.shape[1]):
        begin, end = rows.first[f], rows.first[f + 1]
        if rows.family[KIND, f] == EACH:
            free = rows.family[LOWER, f] == rows.family[UPPER, f]
            if rows.present[begin] and (nu[begin] != 0.0 or free):
                if nu[begin] >= 0.0:
                    _set(pairs, size, begin, 0, 1.0, 0.0, rows.family[UPPER, f], free)
                else:
                    _set(pairs, size, 0, begin, 0.0, 1.0, -rows.family[LOWER, f], free)
                size += 1
            continue
        ratio, bound = rows.family[COEFFICIENT, f], rows.family[UPPER, f]
        free = ratio == 1.0 and bound == 0.0
        top, bottom = -1, -1
        for k in range(begin, end):
            if rows.present[k]:
                if top < 0 and (nu[k] > 0.0 or free):
                    top = k
                if bottom < 0 and nu[k] < 0.0:
                    bottom = k
        if top < 0 or (bottom < 0 and not free):
            continue
        for k in range(begin, end):
            if not rows.present[k]:
                continue
            if free:
                if k != top:
                    _set(pairs, size, top, k, 1.0, 1.0, 0.0, True)
                    size += 1
            elif nu[k] > 0.0:
                _set(pairs, size, k, bottom, ratio, 1.0, bound, False)
                size += 1
            elif nu[k] < 0.0 and k != bottom:
                _set(pairs, size, top, k, ratio, 1.0, bound, False)
                size += 1
    return size
