"""The projection at a price: rows may be exceeded, and every unit of the largest excess costs `price`.

    min_{y, e}  1/2 sum_i w_i (y_i - z_i)^2 + price e  subject to  lower - e <= rows(y) <= upper + e,  lo <= y <= hi.

Its multipliers are those of the projection onto rows widened by e, and add up to the price: a cap on them. Their sum
falls as e grows, and does so piecewise linearly, so Newton's method on that one number finds e in a few solves, each
of which starts from the multipliers of the last.
"""

from __future__ import annotations

import numpy as np

from fairlayer.binding.rows import Rows
from fairlayer.compiled import compiled
from fairlayer.solve.active_set import forward, row_gram, row_value
from fairlayer.solve.fused import emit, gather, newton_tolerance, take_sums
from fairlayer.solve.newton import DONE, EVALUATE, advance, factor_rows, gram, new_search, restart, statistics

_MOST_SOLVES = 120


@compiled
def largest_excess(rows, q):
    """By how much the worst row passes its bound; negative where all lie within."""
    worst = -np.inf
    for j in range(rows.plus.size):
        value = row_value(q, rows.plus, rows.minus, j)
        worst = max(worst, value - rows.upper[j], rows.lower[j] - value)
    return worst


@compiled
def least_excess_possible(rows):
    """The excess at which the narrowest row has become an equality; 0 where every row is open to one side."""
    half = np.inf
    for j in range(rows.plus.size):
        half = min(half, 0.5 * (rows.upper[j] - rows.lower[j]))
    return -half if np.isfinite(half) else 0.0


@compiled
def _decline(rows, search, D):
    """How fast the sum of the multipliers falls as the rows are widened: sigma' (A D A')^+ sigma, A the active rows."""
    L, used = factor_rows(gram(rows.M, D), rows, search.active[: search.tally[0]])
    x = np.zeros(used.size)
    for a in range(used.size):
        x[a] = np.sign(search.trial[used[a]])
    forward(L, used.size, x)
    return np.sum(x**2)


@compiled
def _first_guess(rows, q, D, excess, price):
    """The excess if the worst row alone gives way, which it does at the rate of its own Gram entry."""
    H = gram(rows.M, D)
    for j in range(rows.plus.size):
        value = row_value(q, rows.plus, rows.minus, j)
        if value - rows.upper[j] == excess or rows.lower[j] - value == excess:
            return excess - price * row_gram(H, rows.plus, rows.minus, j, j)
    return excess


@compiled
def _solve_widened(samples, cell_weight, least, most, reach, tolerance, rows, excess, search, S, D):
    """Project onto the rows widened by `excess`, from where `search` stands."""
    aim = Rows(rows.M, rows.offset, rows.plus, rows.minus, rows.lower - excess, rows.upper + excess)
    restart(search)
    outcome = EVALUATE
    while outcome == EVALUATE:
        take_sums(samples, search.shift, S, D)
        outcome = advance(aim, search, S, D, cell_weight, least, most, reach, tolerance)
    return outcome == DONE


@compiled
def solve_capped(z, cell, weight, cell_weight, lo, hi, least, most, reach, magnitude, rows, price, out):
    """Write the output; return (pinned, multipliers, active rows, shifts, slopes, statistics of what was written).

    pinned: whether the price is so high that the narrowest row became an equality, and a higher one changes nothing.
    Arguments as in `fused.solve_fused`.
    """
    G, K = rows.M.shape
    S, D = np.zeros(G), np.zeros(G)
    search = new_search(rows.plus.size, K, G)
    samples = gather(z, cell, weight, lo, hi, cell_weight)
    take_sums(samples, search.shift, S, D)
    q = statistics(rows, S)
    tolerance = newton_tolerance(rows, cell_weight, magnitude, z.size)
    above = largest_excess(rows, q) if rows.plus.size else 0.0
    bottom = least_excess_possible(rows) if rows.plus.size else 0.0
    floor = bottom + 16.0 * tolerance  # an equality proper would leave the multipliers of dependent rows undetermined
    pinned = False
    if price > 0.0 and above > floor:
        below, found, tried_floor = floor, False, False
        excess = _first_guess(rows, q, D, above, price)
        for _ in range(_MOST_SOLVES):
            if excess <= floor and not tried_floor:
                excess, tried_floor = floor, True
            elif not (below < excess < above):
                excess = 0.5 * (below + above)
            step = np.inf
            solved = False
            for _ in range(2):  # from the multipliers of the last solve, and where that fails from none
                solved = _solve_widened(samples, cell_weight, least, most, reach, tolerance, rows, excess, search, S, D)
                if solved:
                    break
                search = new_search(rows.plus.size, K, G)
            if solved:
                total, rate = np.sum(np.abs(search.trial)), _decline(rows, search, D)
                pinned = excess == floor and total <= price
                found = pinned or abs(total - price) <= 1e-12 * price
                if total > price:
                    below = excess
                else:
                    above = excess
                if rate > 0.0:
                    step = (total - price) / rate
            else:  # too narrow for the bounds: the rows can only be met from some excess on
                below = excess
            if found or above - below <= 4.0 * tolerance:
                break
            excess += step
        if not found:  # the sum of the multipliers jumps here, or rounding hides where it crosses the price
            search = new_search(rows.plus.size, K, G)
            _solve_widened(samples, cell_weight, least, most, reach, tolerance, rows, above, search, S, D)
    emit(samples, search.shift, out, S, D)
    active = search.active[: search.tally[0]].copy()
    return pinned, search.trial, active, search.shift, D, statistics(rows, S)
