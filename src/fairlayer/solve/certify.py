"""The guarantee: rows of the rounded output, with a bound on every rounding error made in checking them.

A solver's tolerance is no guarantee. The output is rounded to its own dtype first; then its cell sums are taken, and a
row counts as satisfied only if its value plus a bound on the error of this very computation is within the bounds. Rows
are aimed a little inside their bounds from the start, by what rounding is likely to move them, so that one check
suffices as a rule; where it fails, the aim moves further inside by what was missed.
"""

from __future__ import annotations

import numpy as np

from fairlayer.binding.exact_sums import TINY, UNIT
from fairlayer.binding.rows import COEFFICIENT, EACH, KIND, LOWER, RATIO, UPPER, over_parts, parts_in
from fairlayer.compiled import compiled

NEARLY = 5e-7  # of the distance from z: what aiming inside the rows may add to it
_HAIR = 2e-8  # of what lies between two bounds: aiming no further inside than this makes no difference
_NORMAL = 2.0**-1022  # the least float64 that has all its digits


@compiled
def scales(rows, of_cell):
    """(K,) sum over cells of |M| times a number of each: how large the numbers are that a statistic is made of."""
    scale = np.empty(rows.offset.size)
    _fill_scales(rows, over_parts(rows.part, rows.start.size - 1, of_cell), scale)
    return scale


@compiled(small=True, borrows=True)
def _fill_scales(rows, of_part, scale):
    for k in range(scale.size):
        scale[k] = abs(rows.offset[k])
    for p in range(of_part.size):
        for e in range(rows.start[p], rows.start[p + 1]):
            scale[rows.statistic[e]] += abs(rows.value[e]) * of_part[p]


@compiled(small=True, borrows=True)
def tolerance_of(samples, scale, lower, upper):
    """How exactly a solver can hope to meet a statistic: a few roundings of what it is made of and compared with."""
    bound = 0.0
    if np.isfinite(upper):
        bound = abs(upper)
    if np.isfinite(lower):
        bound = max(bound, abs(lower))
    return max(UNIT * ((8.0 + np.sqrt(samples)) * scale + 8.0 * bound), 1e-300)


@compiled(small=True, borrows=True)
def likely_move(unit, scale, tolerance):
    """What rounding the output is likely to move a statistic. unit: relative rounding error of the output's dtype.

    Roundings do not cancel, however many samples there are: those of one cell are moved by the same shift, and what is
    left of it on the grid of the dtype is the same for all outputs between two powers of 2. On average they are three
    quarters of the most.
    """
    return (0.75 * unit + 12.0 * UNIT) * scale + tolerance


@compiled(inline=True)
def memory_size(rows):
    """How much memory the functions below that are given some may need."""
    return 3 * rows.offset.size + 2 * (rows.start.size - 1)


@compiled(small=True, borrows=True)
def newton_tolerance(rows, absolute, count, tolerance, memory):
    """Fill `tolerance`, how exactly the solver can hope to meet each statistic.

    absolute: (G,) cell sums of |y|; count: (G,) samples per cell.
    """
    K, parts = rows.offset.size, rows.start.size - 1
    scale, samples, spare = memory[:K], memory[K : 2 * K], memory[2 * K : 2 * K + parts]
    _fill_scales(rows, parts_in(rows.part, absolute, spare), scale)
    of_part = parts_in(rows.part, count, spare)
    samples[:] = 0.0
    for p in range(of_part.size):
        for e in range(rows.start[p], rows.start[p + 1]):
            samples[rows.statistic[e]] += of_part[p]
    for f in range(rows.family.shape[1]):
        for k in range(rows.first[f], rows.first[f + 1]):
            tolerance[k] = tolerance_of(samples[k], scale[k], rows.family[LOWER, f], rows.family[UPPER, f])


@compiled(small=True, borrows=True)
def room(rows, f, scale):
    """How far a family's bounds can move inside before they meet."""
    if rows.family[KIND, f] == RATIO:  # equal means of this size leave so much
        return 0.1 * (1.0 - rows.family[COEFFICIENT, f]) * scale
    return 0.5 * (rows.family[UPPER, f] - rows.family[LOWER, f])


@compiled(borrows=True)
def first_margins(rows, absolute, unit, tolerance, margins, memory):
    """Fill `margins`, how far inside its bounds each family is aimed: what rounding the output is likely to move it.

    absolute: (G,) cell sums of |y|; unit: relative rounding error of the output's dtype.
    """
    K, parts = rows.offset.size, rows.start.size - 1
    scale = memory[:K]
    _fill_scales(rows, parts_in(rows.part, absolute, memory[K : K + parts]), scale)
    for f in range(margins.size):
        worst, largest = 0.0, 0.0
        for k in range(rows.first[f], rows.first[f + 1]):
            worst = max(worst, likely_move(unit, scale[k], tolerance[k]))
            largest = max(largest, scale[k])
        margin = worst if rows.family[KIND, f] == EACH else 2.0 * worst
        margins[f] = min(margin, 0.25 * room(rows, f, largest))


@compiled(inline=True)
def _width(lower, upper):
    """What lies between two bounds; of rows open on one side, the size of the other."""
    width = upper - lower
    if not np.isfinite(width):
        width = abs(upper) if np.isfinite(upper) else abs(lower)
    return width


@compiled(small=True, borrows=True)
def all_tight(lower, upper, nu, missed):
    """Whether rows, each with a multiplier of its own, that bind are within a hair of their bounds."""
    for k in range(nu.size):
        if nu[k] != 0.0 and -missed[k] > _HAIR * _width(lower[k], upper[k]):
            return False
    return True


@compiled(borrows=True)
def is_tight(rows, nu, missed):
    """The same of families. Where it does not hold, aiming inside the rows may have cost more than rounding does."""
    for f in range(missed.size):
        if -missed[f] > _HAIR * _width(rows.family[LOWER, f], rows.family[UPPER, f]):
            for k in range(rows.first[f], rows.first[f + 1]):
                if nu[k] != 0.0:
                    return False
    return True


@compiled(inline=True)
def _add(high, low, at, part):
    """high + low += part, in twice the precision."""
    total = high[at] + part
    back = total - high[at]
    low[at] += (high[at] - (total - back)) + (part - back)
    high[at] = total


@compiled(inner=True, later="None")
def _add_up_parts(rows, S, error, high, off):
    """Sums over the cells of each part, and bounds on their errors."""
    parts = rows.start.size - 1
    high[:] = 0.0
    off[:] = 0.0
    low, size = np.zeros(parts), np.zeros(parts)
    for j in range(rows.part.shape[0]):
        for c in range(S.size):
            p = rows.part[j, c]
            _add(high, low, p, S[c])
            size[p] += abs(S[c])
            off[p] += error[c]
    for p in range(parts):  # what is left of the sum is rounded less than its terms are, the sum itself once
        high[p] += low[p]
        off[p] = (off[p] + UNIT * (size[p] + 2.0 * abs(high[p]))) * (1.0 + 1e-9)


@compiled(small=True, borrows=True)
def _bounded_statistics(rows, S, error, high, doubt, memory):
    """Into `high` q = M'S - offset in twice the precision, and into `doubt` a bound on its error.

    error: of each cell sum.
    """
    K, parts = rows.offset.size, rows.start.size - 1
    low = memory[:K]
    for k in range(K):
        high[k], low[k] = -rows.offset[k], 0.0
        doubt[k] = UNIT * abs(rows.offset[k])
    sums, off = S, error
    if rows.part.size > 0:
        sums, off = memory[K : K + parts], memory[K + parts : K + 2 * parts]
        _add_up_parts(rows, S, error, sums, off)
    for p in range(sums.size):
        for e in range(rows.start[p], rows.start[p + 1]):
            k = rows.statistic[e]
            size = max(abs(rows.value[e]), _NORMAL)
            _add(high, low, k, rows.value[e] * sums[p])
            # The entry of M is rounded twice, and so is the product; what is left of the sum, hardly at all.
            doubt[k] += size * (off[p] + 4.0 * UNIT * abs(sums[p]))
            if sums[p] != 0.0:  # what a product has below the range of floats is lost
                doubt[k] += 16.0 * TINY
    for k in range(K):
        high[k] += low[k]
        doubt[k] = (doubt[k] + 2.0 * UNIT * abs(high[k])) * (1.0 + 1e-9)


@compiled
def shortfalls(rows, S, error, missed):
    """Fill `missed`: by how much some row of each family may be, at most; zero or less where all certainly hold.

    S: cell sums of the rounded output; error: bound on the error of each.
    """
    shortfalls_in(rows, S, error, missed, np.empty(memory_size(rows)))


@compiled(small=True, borrows=True)
def shortfalls_in(rows, S, error, missed, memory):
    """The same, in memory that is given."""
    K = rows.offset.size
    q, doubt = memory[:K], memory[K : 2 * K]
    _bounded_statistics(rows, S, error, q, doubt, memory[2 * K :])
    for f in range(missed.size):
        begin, end = rows.first[f], rows.first[f + 1]
        if rows.family[KIND, f] == EACH:
            beyond = max(q[begin] - rows.family[UPPER, f], rows.family[LOWER, f] - q[begin]) + doubt[begin]
            missed[f] = beyond + UNIT * abs(q[begin]) if rows.present[begin] else -np.inf
            continue
        greatest, least, found, ratio = -np.inf, np.inf, 0, rows.family[COEFFICIENT, f]
        for k in range(begin, end):
            if rows.present[k]:
                found += 1
                greatest = max(greatest, ratio * q[k] + doubt[k])
                least = min(least, q[k] - doubt[k])
        if found < 2:
            missed[f] = -np.inf
        else:
            missed[f] = greatest - least - rows.family[UPPER, f] + 2.0 * UNIT * (abs(greatest) + abs(least))


@compiled(inner=True, later="bool")
def in_doubt(rows, S, missed):
    """Whether every row that may be missed may also hold, were the sums known without error.

    missed: as `shortfalls` gave it, with the error that the sums have.
    """
    surely = np.empty(missed.size)
    shortfalls(rows, S, np.zeros(S.size), surely)
    for f in range(missed.size):
        if missed[f] > 0.0 and surely[f] > missed[f] - surely[f]:
            return False
    return True


@compiled(inline=True)
def all_hold(missed):
    """Whether no row may be missed. What is no number is not known to hold."""
    for f in range(missed.size):
        if not missed[f] <= 0.0:
            return False
    return True


@compiled(borrows=True)
def widen_margins(rows, margins, missed, tolerance, eager):
    """Aim further inside where a row was missed; False where no room is left. eager: everywhere, and by more."""
    changed = False
    for f in range(missed.size):
        if missed[f] > 0.0 or eager:
            finest, largest = 0.0, 0.0
            for k in range(rows.first[f], rows.first[f + 1]):
                finest = max(finest, tolerance[k])
                largest = max(largest, tolerance[k] / UNIT)
            beyond = max(missed[f], 0.0)
            wider = margins[f] + 1.05 * beyond + finest
            if eager:
                wider = max(wider, 2.0 * margins[f] + 1.5 * beyond)
            wider = min(wider, room(rows, f, largest))
            changed = changed or wider > margins[f]
            margins[f] = wider
    return changed
