"""The projection at a price: rows may be exceeded, and every unit of the largest excess costs `price`.

    min_{y, e}  1/2 sum_i w_i (y_i - z_i)^2 + price e  subject to  lower - e <= rows(y) <= upper + e,  lo <= y <= hi.

Its multipliers are those of the projection onto rows widened by e, and add up to the price: a cap on them. Their sum
falls as e grows, and does so piecewise linearly, so Newton's method on that one number finds e in a few solves, each
of which starts from the multipliers of the last.
"""

from __future__ import annotations

import numpy as np

from fairlayer.binding.exact_sums import UNIT
from fairlayer.binding.rows import EACH, KIND, LOWER, UPPER, Rows
from fairlayer.compiled import compiled
from fairlayer.solve.active_set import forward
from fairlayer.solve.driver import DONE, FINISHED, MEASURE, OUTCOME, SUMS, next_request
from fairlayer.solve.families import active_rows, largest_excess, pair_gram, worst_row
from fairlayer.solve.loops import BLOCK, gather, measure, start_solve, take_sums, write
from fairlayer.solve.newton import ABSOLUTE, PATIENCE, SHIFT, TRIAL, D, S, factor_rows, gram, statistics
from fairlayer.solve.smooth import SQUARED

_MOST_SOLVES = 120


@compiled(inline=True)
def _least_excess_possible(rows):
    """The excess at which the narrowest family has become an equality; 0 where every row is open to one side."""
    half = np.inf
    for f in range(rows.family.shape[1]):
        half = min(half, 0.5 * (rows.family[UPPER, f] - rows.family[LOWER, f]))
    return -half if np.isfinite(half) else 0.0


@compiled(inline=True)
def _total(rows, nu):
    """The sum of the multipliers of the rows: of a family, what is carried from one statistic to another."""
    total = 0.0
    for f in range(rows.family.shape[1]):
        for k in range(rows.first[f], rows.first[f + 1]):
            total += abs(nu[k]) if rows.family[KIND, f] == EACH else max(-nu[k], 0.0)
    return total


@compiled(inner=True)
def _decline(rows, nu, slopes):
    """How fast the sum of the multipliers falls as the rows are widened: 1'(A D A')^+ 1, A the active rows."""
    L, used = factor_rows(gram(rows, slopes), active_rows(rows, nu))
    x = np.ones(used.size)
    forward(L, used.size, x)
    return np.sum(x**2)


@compiled(inner=True)
def _first_guess(rows, q, slopes, excess, price):
    """The excess if the worst row alone gives way, which it does at the rate of its own Gram entry."""
    H, pairs, guess = gram(rows, slopes), np.zeros((6, 1)), excess
    for f in range(rows.family.shape[1]):
        if worst_row(rows, q, f, pairs, 0) == excess:
            guess = excess - price * pair_gram(H, pairs, 0, 0)
    return guess


@compiled(inline=True)
def _widened(rows, excess):
    family = rows.family.copy()
    for f in range(family.shape[1]):
        family[LOWER, f] -= excess
        family[UPPER, f] += excess
    return Rows(rows.start, rows.statistic, rows.value, rows.offset, rows.present, rows.first, family, rows.part)


@compiled
def _project(samples, rows, count, weight, start):
    """The projection onto rows, but for its writing: (whether it was found, multipliers, shifts, slopes)."""
    solve = start_solve(SQUARED, samples, rows, count, weight, start, UNIT)
    solve.search.number[PATIENCE] = np.inf  # there is no other way
    of_cell, request = solve.search.cell, MEASURE
    while request in (SUMS, MEASURE):
        if request == SUMS:
            take_sums(SQUARED, samples, of_cell[SHIFT], of_cell[S], of_cell[D])
        else:
            measure(SQUARED, samples, of_cell[S], of_cell[D], of_cell[ABSOLUTE])
        request = next_request(solve)
    found = request != FINISHED and solve.search.number[OUTCOME] == DONE
    return found, solve.search.statistic[TRIAL], of_cell[SHIFT], of_cell[D]


@compiled
def solve_priced(z, cell, weight, count, cell_weight, lo, hi, rows, price, out):
    """Write the output; return (pinned, multipliers of statistics, shifts, slopes, statistics of what was written).

    pinned: whether the price is so high that the narrowest family became an equality, and a higher one changes nothing.
    Arguments as in `loops.solve_loops`.
    """
    G, K = count.size, rows.offset.size
    sums, slopes, shift, nu = np.zeros(G), np.zeros(G), np.zeros(G), np.zeros(K)
    samples = gather(z, cell, weight, lo, hi, count, False)
    take_sums(SQUARED, samples, shift, sums, slopes)
    q = statistics(rows, sums)
    scale = 0.0
    for k in range(K):
        scale = max(scale, abs(q[k]), abs(rows.offset[k]))
    tolerance = 64.0 * UNIT * scale
    above = largest_excess(rows, q) if rows.family.shape[1] else 0.0
    bottom = _least_excess_possible(rows) if rows.family.shape[1] else 0.0
    floor = bottom + 16.0 * tolerance  # an equality proper would leave the multipliers of dependent rows undetermined
    pinned = False
    if price > 0.0 and above > floor:
        below, found, tried_floor = floor, False, False
        excess = _first_guess(rows, q, slopes, above, price)
        for _ in range(_MOST_SOLVES):
            if excess <= floor and not tried_floor:
                excess, tried_floor = floor, True
            elif not (below < excess < above):
                excess = 0.5 * (below + above)
            step = np.inf
            # From the multipliers of the last solve, and where that fails from none.
            wide = _widened(rows, excess)
            solved, nu, shift, slopes = _project(samples, wide, count, cell_weight, nu)
            if not solved:
                solved, nu, shift, slopes = _project(samples, wide, count, cell_weight, np.zeros(K))
            if solved:
                total, rate = _total(rows, nu), _decline(wide, nu, slopes)
                pinned = excess == floor and total <= price
                found = pinned or abs(total - price) <= 1e-12 * price
                if total > price:
                    below = excess
                else:
                    above = excess
                if rate > 0.0:
                    step = (total - price) / rate
            else:  # too narrow for the bounds: the rows can only be met from some excess on
                below, nu = excess, np.zeros(K)
            if found or above - below <= 4.0 * tolerance:
                break
            excess += step
        if not found:  # the sum of the multipliers jumps here, or rounding hides where it crosses the price
            _, nu, shift, slopes = _project(samples, _widened(rows, above), count, cell_weight, np.zeros(K))
    error = np.empty(G)
    write(SQUARED, samples, shift, out, sums, slopes, error, np.empty(BLOCK))
    return pinned, nu, shift, slopes, statistics(rows, sums)
