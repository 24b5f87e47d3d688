"""Dual Newton on cell sums: the whole solver, without a single sample in it.

The dual of the projection is concave in the multipliers nu of the statistics and sees the data only through two sums
per cell: the outputs S_c and the slopes D_c at the current shifts s = M nu. So the method is written in reverse:
`advance` is given (S, D), and answers either with the shifts at which it wants them next, or that it has finished.
Whoever calls it may take the sums in a compiled loop, in tensor operations on any device, or over many machines.

Each step solves the quadratic model exactly (`active_set.solve_small`), then searches along the line only where the
full step overshoots. The dual is piecewise quadratic for the squared discrepancy, so this ends in finitely many steps,
3 to 6 in practice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairlayer.binding.exact_sums import UNIT
from fairlayer.binding.rows import COEFFICIENT, EACH, KIND, LOWER, UPPER, over_parts, parts_in
from fairlayer.compiled import compiled
from fairlayer.solve.active_set import CONFLICT, SOLVED, backward, forward, small_memory, solve_small
from fairlayer.solve.families import (
    FREE,
    MINUS,
    PLUS,
    M,
    P,
    add_pair,
    extremes,
    held_at,
    list_active_rows,
    middle_of,
    pair_gram,
    pair_value,
)
from fairlayer.solve.sides import FEW, family_of, guess_sides, solve_sides

EVALUATE, DONE, INFEASIBLE, STALLED = 0, 1, 2, 3

# A cell all of whose samples rest on a bound has slope zero, and a Newton step on it would be endless. Its slope is
# taken to be `damping` times its weight: less after each full step, more after each cut one.
_LEAST_DAMPING, _FIRST_DAMPING, _MOST_DAMPING = 1e-10, 1e-2, 1.0
_MOST_EVALUATIONS = 1000  # 3 to 6 in practice; what takes more is solved in another way
_NEAR = 1e5  # times the tolerance: slopes are rounding alone, and steps are taken without looking at them
_FAR_APART = 1e4  # of the heaviest cell to the lightest
_WIDE, _DENSE = 16, 4.0  # statistics, and how many of them there are to each that a cell counts towards
_NEGLIGIBLE = 300.0  # times the tolerance: good enough once rounding stops progress

# Places in Search.number: of the line search, and counters.
_ALPHA, _LEFT, _RIGHT, _SLOPE_LEFT, _SLOPE_RIGHT, _SLOPE_START, _RESIDUAL, _BEST, _DAMPING = range(9)
_EVALUATIONS, _STARTED, _IDLE, _HALVINGS = range(9, 13)
REACH = 13  # shift beyond which every sample rests on a bound; infinite without bounds
# The evaluation at which the residual was last halved, what it was then, and how many there may be after it.
_LATEST, _HALVED, PATIENCE = range(21, 24)
NUMBERS = 24  # the rest is the driver's
# Places in Search.statistic: multipliers of the last accepted point, those at which sums are wanted, the direction from
# the one to the other, and how exactly each statistic can be met.
NU, TRIAL, DIRECTION, TOLERANCE = range(4)
# Places in Search.cell: the shifts at which sums are wanted, slopes at the two ends of the bracket; total weight, and
# the least and the most that the sum can be within the bounds; the sums of outputs and slopes as they were taken.
SHIFT, SLOPES_LEFT, SLOPES_RIGHT, WEIGHT, LEAST, MOST, S, D = range(8)
# The driver's: samples, sums of absolute values before any shift, the error of sums.
COUNT, ABSOLUTE, ERROR = range(8, 11)


class Search(NamedTuple):
    """State of the search between two evaluations: few arrays, as each is seven numbers to the compiler.

    What its functions need besides is made once, as whoever makes an array has to count references to all those that
    it is given, which takes longer than a step of the method.
    """

    statistic: np.ndarray  # (5, K); the last is the driver's
    cell: np.ndarray  # (11, G)
    number: np.ndarray  # (NUMBERS,)
    memory: np.ndarray  # (needed_memory,)


@compiled(inline=True)
def needed_memory(rows, G):
    """How much memory a step needs, over G cells."""
    K, parts, F = rows.offset.size, rows.start.size - 1, rows.family.shape[1]
    return (2 * parts + K) + (4 * K + K * K + G) + small_memory(K, F)


@compiled
def statistics(rows, sums):
    """q = M'S - offset, one number per statistic."""
    q = np.empty(rows.offset.size)
    statistics_in(rows, sums, q, np.empty(rows.start.size - 1))
    return q


@compiled(small=True, borrows=True)
def statistics_in(rows, sums, q, memory):
    """The same into q, in memory that is given."""
    for k in range(q.size):
        q[k] = -rows.offset[k]
    of_part = parts_in(rows.part, sums, memory[: rows.start.size - 1])
    for p in range(of_part.size):
        for e in range(rows.start[p], rows.start[p + 1]):
            q[rows.statistic[e]] += rows.value[e] * of_part[p]


@compiled(small=True, borrows=True)
def _part_shifts(rows, nu, shift):
    for p in range(shift.size):
        total = 0.0
        for e in range(rows.start[p], rows.start[p + 1]):
            total += rows.value[e] * nu[rows.statistic[e]]
        shift[p] = total


@compiled(borrows=True)
def shifts(rows, nu, shift):
    """shift = M nu, one number per cell."""
    if rows.part.size == 0:
        _part_shifts(rows, nu, shift)
    else:
        _shifts_over_parts(rows, nu, shift)


@compiled(inner=True, later="None")
def _shifts_over_parts(rows, nu, shift):
    """The same of cells that are made of parts."""
    own = np.empty(rows.start.size - 1)
    _part_shifts(rows, nu, own)
    for c in range(shift.size):
        shift[c] = own[rows.part[0, c]]
    for j in range(1, rows.part.shape[0]):
        for c in range(shift.size):
            shift[c] += own[rows.part[j, c]]


@compiled(inner=True)
def gram(rows, slopes):
    """H = M' diag(slopes) M."""
    K = rows.offset.size
    H = np.empty((K, K))
    _fill_gram(rows, slopes, np.zeros(K), H)
    return H


@compiled(small=True, borrows=True)
def _fill_gram(rows, slopes, line, H):
    """The same into H. line: (K,) zeros, and so again at the end."""
    if rows.part.size == 0:
        _fill_plain_gram(rows, slopes, line, H)
    else:
        _fill_gram_of_parts(rows, slopes, H)


@compiled(inner=True, later="None")
def _fill_gram_of_parts(rows, slopes, H):
    """The same of cells that are made of parts.

    Half of H is added up part by part: half of what a part has by itself, and, over its cells, what the parts have that
    come after it. So a cell is met once for every entry, not for every two.
    """
    K, parts, several = rows.offset.size, rows.start.size - 1, rows.part.shape[0]
    statistic, value, of_part = rows.statistic.view(np.uint64), rows.value, over_parts(rows.part, parts, slopes)
    lines = np.zeros((parts, K))
    for p in range(parts):
        for e in range(rows.start[p], rows.start[p + 1]):
            lines[p, statistic[e]] = 0.5 * of_part[p] * value[e]
    for j in range(several):
        for i in range(j + 1, several):
            for c in range(slopes.size):
                own, other, slope = lines[rows.part[j, c]], rows.part[i, c], slopes[c]
                for e in range(rows.start[other], rows.start[other + 1]):
                    own[statistic[e]] += slope * value[e]
    H[:] = 0.0
    for p in range(parts):
        for e in range(rows.start[p], rows.start[p + 1]):
            total, own = H[statistic[e]], lines[p]
            for k in range(K):
                total[k] += value[e] * own[k]
    for k in range(K):
        for i in range(k + 1):
            both = H[k, i] + H[i, k]
            H[k, i] = both
            H[i, k] = both


@compiled(small=True, borrows=True)
def _fill_plain_gram(rows, slopes, line, H):
    """The same of cells that are parts of their own."""
    K, G = rows.offset.size, slopes.size
    for k in range(K):
        for i in range(K):
            H[k, i] = 0.0
    # Where cells count towards many of the statistics, whole lines are added: many numbers at a time.
    by_line = K >= _WIDE and _DENSE * rows.statistic.size >= K * G
    for c in range(G):
        if slopes[c] == 0.0:
            continue
        begin, end = rows.start[c], rows.start[c + 1]
        if by_line:
            for a in range(begin, end):
                line[rows.statistic[a]] += rows.value[a]
        for a in range(begin, end):
            weighted = rows.value[a] * slopes[c]
            k = rows.statistic[a]
            if by_line:
                own = H[k]
                for i in range(K):
                    own[i] += weighted * line[i]
            else:
                for b in range(begin, a + 1):
                    H[k, rows.statistic[b]] += weighted * rows.value[b]
        if by_line:
            for a in range(begin, end):
                line[rows.statistic[a]] = 0.0
    for k in range(K):  # entries of a cell need not stand in the order of the statistics
        for i in range(k):
            total = H[k, i] if by_line else H[i, k] + H[k, i]
            H[i, k] = total
            H[k, i] = total


@compiled(small=True, borrows=True)
def _slope(rows, search, q, ahead):
    """Slope of the negated dual along the direction, ahead of the trial point or behind it.

    The two differ where a multiplier is zero: there its price has a kink.
    """
    total = 0.0
    for f in range(rows.family.shape[1]):
        middle = middle_of(rows, q, f)
        for k in range(rows.first[f], rows.first[f + 1]):
            d = search.statistic[DIRECTION, k]
            if d != 0.0:
                nu = search.statistic[TRIAL, k]
                above = nu > 0.0 or (nu == 0.0 and (d > 0.0) == ahead)
                total += d * (held_at(rows, f, above, middle) - q[k])
    return total


@compiled(small=True, borrows=True)
def _residual(rows, search, q):
    """Largest breach of a row, or of complementarity between a row and its multiplier, over its tolerance."""
    worst, tolerance = 0.0, search.statistic[TOLERANCE]
    for f in range(rows.family.shape[1]):
        begin, end = rows.first[f], rows.first[f + 1]
        if rows.family[KIND, f] == EACH:
            if rows.present[begin]:
                nu = search.statistic[TRIAL, begin]
                above, below = q[begin] - rows.family[UPPER, f], rows.family[LOWER, f] - q[begin]
                breach = abs(above) if nu > 0.0 else abs(below) if nu < 0.0 else max(above, below)
                worst = max(worst, breach / tolerance[begin])
            continue
        greatest, least = extremes(rows, q, f)
        if greatest != least:
            allowed = tolerance[greatest] + tolerance[least]
            worst = max(worst, (rows.family[COEFFICIENT, f] * q[greatest] - q[least] - rows.family[UPPER, f]) / allowed)
        for k in range(begin, end):  # who is pushed down must be the greatest, who is pushed up the least
            nu = search.statistic[TRIAL, k]
            if nu > 0.0:
                breach = rows.family[UPPER, f] + q[least] - rows.family[COEFFICIENT, f] * q[k]
                worst = max(worst, breach / (tolerance[k] + tolerance[least]))
            elif nu < 0.0:
                breach = rows.family[UPPER, f] + q[k] - rows.family[COEFFICIENT, f] * q[greatest]
                worst = max(worst, breach / (tolerance[k] + tolerance[greatest]))
    return worst


@compiled(later="bool")
def proves_contradiction(rows, nu, least, most):
    """Whether multipliers prove that no output within its bounds satisfies the rows (Farkas).

    `least` and `most` are the smallest and largest value each cell sum can take.
    """
    total, size = 0.0, 0.0
    for f in range(rows.family.shape[1]):
        for k in range(rows.first[f], rows.first[f + 1]):
            if nu[k] != 0.0:
                cost = (held_at(rows, f, nu[k] > 0.0, 0.0) + rows.offset[k]) * nu[k]
                total -= cost
                size += abs(cost) + abs(rows.offset[k] * nu[k])
    push, effort = np.zeros(rows.start.size - 1), np.zeros(rows.start.size - 1)
    for p in range(push.size):
        for e in range(rows.start[p], rows.start[p + 1]):
            part = rows.value[e] * nu[rows.statistic[e]]
            push[p] += part
            effort[p] += abs(part)
    for c in range(least.size):
        if rows.part.size == 0:
            s, reference = push[c], effort[c]
        else:
            s, reference = 0.0, 0.0
            for j in range(rows.part.shape[0]):
                s += push[rows.part[j, c]]
                reference += effort[rows.part[j, c]]
        if abs(s) > 1e-12 * reference:
            extreme = s * least[c] if s > 0.0 else s * most[c]
            total += extreme
            size += abs(extreme)
    return total > 1e-10 * size


@compiled(small=True, borrows=True)
def _place(rows, search, alpha):
    """Move the trial point to nu + alpha * direction, and the shifts with it."""
    search.number[_ALPHA] = alpha
    nu, trial, direction = search.statistic[NU], search.statistic[TRIAL], search.statistic[DIRECTION]
    for k in range(nu.size):
        trial[k] = nu[k] + alpha * direction[k]
        # A multiplier that the direction takes to zero must arrive there, not next to it.
        if alpha == 1.0 and abs(trial[k]) <= 1e-15 * abs(nu[k]):
            trial[k] = 0.0
    shifts(rows, trial, search.cell[SHIFT])


@compiled(inline=True)
def _far_apart(weight):
    """Whether cells differ in weight by decades."""
    least, most = np.inf, 0.0
    for c in range(weight.size):
        if weight[c] > 0.0:
            least, most = min(least, weight[c]), max(most, weight[c])
    return most > _FAR_APART * least


@compiled(inner=True)
def _left_over(H, b, rows, search, nu):
    """By how much multipliers miss the optimum of the quadratic model: the residual that it would have there."""
    q = b.copy()
    for k in range(b.size):
        search.statistic[TRIAL, k] = nu[k]
        for i in range(b.size):
            q[k] -= H[k, i] * nu[i]
    return _residual(rows, search, q)


@compiled(inner=True, later="int")
def _aim_again(H, b, rows, search, tolerance, outcome, target):
    """Where weights differ by decades, the active-set method compares the light with the heavy, whose differences lose
    their digits: it may be far off, or see a conflict where there is none. Guesses of sides do not compare them, and
    are taken where they are nearer.
    """
    found, first = target.copy(), np.zeros(b.size)
    for k in range(b.size):
        first[k] = found[k] if outcome == SOLVED else 0.0
    if guess_sides(H, b, rows, tolerance, first, target) and (
        outcome != SOLVED or _left_over(H, b, rows, search, target) < 0.5 * _left_over(H, b, rows, search, found)
    ):
        return SOLVED
    for k in range(b.size):
        target[k] = found[k]
    return outcome


@compiled(inline=True)
def _aim(H, b, rows, search, tolerance, target, memory):
    """The optimum of the quadratic model."""
    if b.size > FEW and guess_sides(H, b, rows, tolerance, search.statistic[NU], target):
        return SOLVED
    outcome = solve_small(H, b, rows, tolerance, target, memory)
    if b.size <= FEW and (outcome == CONFLICT or (outcome == SOLVED and _far_apart(search.cell[WEIGHT]))):
        outcome = _aim_again(H, b, rows, search, tolerance, outcome, target)
    return outcome


@compiled(small=True, borrows=True)
def _next_direction(rows, search, q, memory):
    """Accept the trial point; aim at the optimum of the quadratic model there."""
    K, G = q.size, search.cell.shape[1]
    target, b, precision, line = memory[:K], memory[K : 2 * K], memory[2 * K : 3 * K], memory[3 * K : 4 * K]
    H, slopes = memory[4 * K : 4 * K + K * K].reshape(K, K), memory[4 * K + K * K : 4 * K + K * K + G]
    rest = memory[4 * K + K * K + G :]
    line[:] = 0.0
    number, cell, tolerance = search.number, search.cell, search.statistic[TOLERANCE]
    nu, trial, direction = search.statistic[NU], search.statistic[TRIAL], search.statistic[DIRECTION]
    if number[_STARTED] == 0:
        number[_STARTED] = 1
        number[_BEST] = np.inf
        number[_LATEST], number[_HALVED] = number[_EVALUATIONS], np.inf
        number[_DAMPING] = _FIRST_DAMPING
    elif number[_ALPHA] == 1.0:
        number[_DAMPING] = max(0.01 * number[_DAMPING], _LEAST_DAMPING)
    else:
        number[_DAMPING] = min(10.0 * number[_DAMPING], _MOST_DAMPING)
    for k in range(K):
        nu[k] = trial[k]
    while True:
        for c in range(G):
            slopes[c] = max(cell[D, c], number[_DAMPING] * cell[WEIGHT, c])
            if number[_HALVINGS] > 0:
                # The bottom of the line is a kink: slopes differ on its two sides, and the larger is the safe one.
                slopes[c] = max(slopes[c], cell[SLOPES_LEFT, c], cell[SLOPES_RIGHT, c])
        _fill_gram(rows, slopes, line, H)
        for k in range(K):
            b[k] = q[k]
            for i in range(K):
                if nu[i] != 0.0:
                    b[k] += H[k, i] * nu[i]
            precision[k] = max(tolerance[k], 1e-15 * abs(b[k]))
        outcome = _aim(H, b, rows, search, precision, target, rest)
        if outcome == CONFLICT:
            for k in range(K):
                trial[k] = target[k]
            return INFEASIBLE
        for k in range(K):
            direction[k] = target[k] - nu[k]
            trial[k] = nu[k]
        number[_SLOPE_START] = _slope(rows, search, q, True)
        # So near the end the slope is rounding alone, and the step is still right.
        if outcome == SOLVED and (number[_SLOPE_START] < 0.0 or number[_RESIDUAL] <= _NEAR):
            break
        if number[_DAMPING] == _MOST_DAMPING:
            return DONE if number[_RESIDUAL] <= _NEGLIGIBLE else STALLED
        number[_DAMPING] = min(100.0 * number[_DAMPING], _MOST_DAMPING)
    number[_HALVINGS] = 0
    number[_LEFT] = 0.0
    number[_RIGHT] = np.inf
    number[_SLOPE_LEFT] = number[_SLOPE_START]
    for c in range(G):
        cell[SLOPES_LEFT, c] = 0.0
        cell[SLOPES_RIGHT, c] = 0.0
    shifts(rows, nu, slopes)  # where it comes from
    _place(rows, search, 1.0)
    # Shifts past the point where every sample rests on a bound teach nothing: start the search this side of it.
    if np.isfinite(number[REACH]):
        moved, alpha = 0.0, 1.0
        for c in range(G):
            moved = max(moved, abs(cell[SHIFT, c]))
            change = abs(cell[SHIFT, c] - slopes[c])
            if change > number[REACH]:
                alpha = min(alpha, number[REACH] / change)
        if moved > number[REACH] and alpha < 1.0:
            _place(rows, search, alpha)
    return EVALUATE


@compiled(small=True, borrows=True)
def advance(rows, search):
    """Take the sums at the shifts; return EVALUATE (wanting them at the new shifts) or an end.

    On INFEASIBLE, the trial point is the contradiction.
    """
    number, cell, tolerance, memory = search.number, search.cell, search.statistic[TOLERANCE], search.memory
    parts, K = rows.start.size - 1, rows.offset.size
    # Of each part, the sum and the size of the numbers it is made of.
    total, size, q = memory[:parts], memory[parts : 2 * parts], memory[2 * parts : 2 * parts + K]
    total[:] = 0.0
    size[:] = 0.0
    for j in range(max(rows.part.shape[0], 1)):
        for c in range(cell.shape[1]):
            p = np.uint32(c) if rows.part.size == 0 else rows.part[j, c]
            total[p] += cell[S, c]
            # Outputs may have grown, or be small differences of large numbers.
            size[p] = max(size[p], abs(cell[S, c]) + cell[D, c] * abs(cell[SHIFT, c]))
    for k in range(q.size):
        q[k] = -rows.offset[k]
    for p in range(total.size):
        for e in range(rows.start[p], rows.start[p + 1]):
            k = rows.statistic[e]
            q[k] += rows.value[e] * total[p]
            tolerance[k] = max(tolerance[k], 8.0 * UNIT * abs(rows.value[e]) * size[p])
    number[_EVALUATIONS] += 1
    residual = _residual(rows, search, q)
    number[_RESIDUAL] = residual
    outcome = EVALUATE
    if residual <= 1.0:
        outcome = DONE
    elif number[_STARTED] != 0:
        # The best that rounding allows: full steps no longer reduce a residual that is already negligible.
        if residual >= 0.5 * number[_BEST]:
            number[_IDLE] += 1
        number[_BEST] = min(number[_BEST], residual)
        if residual < 0.5 * number[_HALVED]:
            number[_HALVED], number[_LATEST] = residual, number[_EVALUATIONS]
        if number[_IDLE] > 3 and residual <= _NEGLIGIBLE:
            outcome = DONE
        elif number[_EVALUATIONS] > 4 and proves_contradiction(rows, search.statistic[TRIAL], cell[LEAST], cell[MOST]):
            outcome = INFEASIBLE
        elif number[_EVALUATIONS] > min(number[_LATEST] + number[PATIENCE], _MOST_EVALUATIONS):
            outcome = STALLED
    if outcome == EVALUATE:
        share = -1.0
        if number[_STARTED] != 0 and residual > _NEAR and number[_SLOPE_START] < 0.0:
            share = _cut(rows, search, q)
        if share < 0.0:
            outcome = _next_direction(rows, search, q, memory[2 * parts + K :])
        elif number[_RIGHT] - number[_LEFT] <= 1e-15 * number[_RIGHT]:
            outcome = STALLED
        else:
            _place(rows, search, number[_LEFT] + share * (number[_RIGHT] - number[_LEFT]))
    return outcome


@compiled(inner=True, borrows=True, later="float")
def _cut(rows, search, q):
    """Where in the bracket to look next, as a share of it, if the step was too long; -1 if it was not.

    Along the line the negated dual is convex: its slope tells on which side of the bottom the trial lies.
    """
    number, cell = search.number, search.cell
    slope, alpha, start = _slope(rows, search, q, False), number[_ALPHA], -number[_SLOPE_START]
    if slope > 0.0 and not (alpha == 1.0 and slope <= 0.25 * start and number[_EVALUATIONS] < 30):
        number[_RIGHT], number[_SLOPE_RIGHT] = alpha, slope
        end = SLOPES_RIGHT
    elif slope < -0.25 * start and alpha < (1.0 - 1e-3) * number[_RIGHT] < np.inf:
        number[_LEFT], number[_SLOPE_LEFT] = alpha, slope
        end = SLOPES_LEFT
    else:
        return -1.0
    for c in range(cell.shape[1]):
        cell[end, c] = cell[D, c]
    number[_HALVINGS] += 1
    drop = number[_SLOPE_RIGHT] - number[_SLOPE_LEFT]
    share = -number[_SLOPE_LEFT] / drop if drop > 0.0 else 0.5
    if number[_HALVINGS] % 2 == 0:  # every other time by half: a secant may creep past a kink
        share = 0.5
    return min(max(share, 0.01), 0.99)


@compiled(small=True, borrows=True)
def place_at(rows, search, nu):
    """Put the search at given multipliers, found elsewhere."""
    for k in range(nu.size):
        search.statistic[NU, k] = nu[k]
        search.statistic[DIRECTION, k] = 0.0
    _place(rows, search, 1.0)


@compiled(inline=True)
def restart(search):
    """Go on from the multipliers reached, after the rows' bounds were moved."""
    for place in range(_EVALUATIONS, _HALVINGS + 1):
        search.number[place] = 0.0


@compiled(inner=True, borrows=True)
def factor_rows(H, pairs, active, L, used):
    """Cholesky factor of the Gram matrix of the first rows, leaving out those that depend on others.

    Fills L, of zeros, and which rows remain; how many these are.
    """
    filled = 0
    for j in range(active):
        own = pair_gram(H, pairs, j, j)
        rest = own
        for b in range(filled):
            total = pair_gram(H, pairs, j, used[b])
            for e in range(b):
                total -= L[filled, e] * L[b, e]
            L[filled, b] = total / L[b, b]
            rest -= L[filled, b] * L[filled, b]
        if own > 0.0 and rest > 1e-12 * own:
            L[filled, filled] = np.sqrt(rest)
            used[filled] = j
            filled += 1
    return filled


@compiled(inner=True, later="bool")
def _solve_many(H, rows, pairs, active, q, v):
    """The same as `solve_active`, for many statistics by their sides; False where that does not go."""
    side = np.zeros(v.size, dtype=np.int64)
    for j in range(active):
        if pairs[P, j] != 0.0:
            side[int(pairs[PLUS, j])] = 1
        if pairs[M, j] != 0.0:
            side[int(pairs[MINUS, j])] = -1
    return solve_sides(H, rows, family_of(rows), side, q, v, np.zeros(rows.family.shape[1]))


@compiled
def solve_active(rows, nu, slopes, sums):
    """Multipliers v, one per statistic, with A D A' v = A sums over the active rows A, and zero elsewhere."""
    v = np.empty(rows.offset.size)
    solve_active_in(rows, nu, slopes, sums, v, np.empty(active_memory(rows)))
    return v


@compiled(inline=True)
def active_memory(rows):
    """How much memory `solve_active_in` needs."""
    K = rows.offset.size
    return 10 * K + 2 * K * K + rows.start.size - 1


@compiled(inner=True, borrows=True)
def solve_active_in(rows, nu, slopes, sums, v, memory):
    """The same into v, in memory that is given."""
    K, parts = rows.offset.size, rows.start.size - 1
    q, x, line, used = memory[:K], memory[K : 2 * K], memory[2 * K : 3 * K], memory[3 * K : 4 * K].view(np.int64)
    pairs, rest = memory[4 * K : 10 * K].reshape(6, K), memory[10 * K :]
    H, L, spare = rest[: K * K].reshape(K, K), rest[K * K : 2 * K * K].reshape(K, K), rest[2 * K * K :]
    for k in range(K):
        v[k] = q[k] = line[k] = 0.0
    of_part = parts_in(rows.part, sums, spare[:parts])
    for p in range(parts):
        for e in range(rows.start[p], rows.start[p + 1]):
            q[rows.statistic[e]] += rows.value[e] * of_part[p]
    active = list_active_rows(rows, nu, pairs)
    if active == 0:
        return
    _fill_gram(rows, slopes, line, H)
    some_free = False
    for j in range(active):
        some_free = some_free or pairs[FREE, j] != 0.0
    if K > FEW and not some_free:
        if _solve_many(H, rows, pairs, active, q, v):
            return
        for k in range(K):
            v[k] = 0.0
    L[:] = 0.0
    size = factor_rows(H, pairs, active, L, used)
    for a in range(size):
        x[a] = pair_value(pairs, used[a], q)
    forward(L, size, x)
    backward(L, size, x)
    for a in range(size):
        add_pair(v, pairs, used[a], x[a])
