"""The guarantee: rows of the rounded output, with a bound on every rounding error made in checking them.

A solver's tolerance is no guarantee. The output is rounded to its own dtype first; then its cell sums are taken, and a
row counts as satisfied only if its value plus a bound on the error of this very computation is within the bounds. Rows
are aimed a little inside their bounds from the start, by the most that rounding can move them, so that one check
suffices as a rule; where it fails, the aim moves further inside by what was missed.
"""

from __future__ import annotations

import numpy as np

from fairlayer.binding.cells import UNIT
from fairlayer.binding.rows import Rows
from fairlayer.compiled import compiled
from fairlayer.solve.active_set import row_value
from fairlayer.solve.newton import statistics


@compiled
def first_margins(rows, weight, magnitude, unit, tolerance):
    """How far inside its bounds each row is aimed: the most that rounding the output can move it.

    magnitude: largest absolute output; unit: relative rounding error of the output's dtype.
    """
    G, K = rows.M.shape
    statistic = np.zeros(K)
    for c in range(G):
        for k in range(K):
            statistic[k] += abs(rows.M[c, k]) * weight[c]
    margins = np.empty(rows.plus.size)
    for j in range(margins.size):
        spread = statistic[rows.plus[j]]
        if rows.minus[j] >= 0:
            spread += statistic[rows.minus[j]]
        margin = spread * magnitude * (unit + 16.0 * UNIT) + 4.0 * tolerance
        margins[j] = min(margin, 0.125 * (rows.upper[j] - rows.lower[j]))
    return margins


@compiled
def shortfalls(rows, S, error):
    """By how much each row may be missed, at most; zero or less where it certainly holds.

    S: cell sums of the rounded output; error: bound on the error of each.
    """
    G, K = rows.M.shape
    q = statistics(rows, S)
    doubt = np.empty(K)
    for k in range(K):
        doubt[k] = (G + 4.0) * UNIT * abs(rows.offset[k])
    for c in range(G):
        for k in range(K):
            doubt[k] += abs(rows.M[c, k]) * (error[c] + (2.0 * G + 8.0) * UNIT * abs(S[c]))
    missed = np.empty(rows.plus.size)
    for j in range(missed.size):
        value = row_value(q, rows.plus, rows.minus, j)
        doubts = doubt[rows.plus[j]] + UNIT * abs(value)
        if rows.minus[j] >= 0:
            doubts += doubt[rows.minus[j]]
        missed[j] = max(value - rows.upper[j], rows.lower[j] - value) + doubts
    return missed


@compiled
def all_hold(missed):
    """Whether no row may be missed. What is no number is not known to hold."""
    for j in range(missed.size):
        if not missed[j] <= 0.0:
            return False
    return True


@compiled
def widen_margins(rows, margins, missed):
    """Aim further inside where a row was missed; False where no room is left."""
    changed = False
    for j in range(missed.size):
        if missed[j] > 0.0:
            middle = 0.5 * (rows.upper[j] - rows.lower[j])
            wider = min(2.0 * margins[j] + 1.5 * missed[j], middle)
            changed = changed or wider > margins[j]
            margins[j] = wider
    return changed


@compiled
def aimed(rows, margins):
    """The rows with bounds moved inside by the margins."""
    return Rows(rows.M, rows.offset, rows.plus, rows.minus, rows.lower + margins, rows.upper - margins)
