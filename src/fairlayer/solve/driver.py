"""The solve, once for all who take sums: aim, ask for sums, write, certify, widen.

A pass over the samples is asked for, not made: whoever holds the samples (compiled loops, tensors on a device, a file)
answers four requests, filling rows of `search.cell`, and calls `next_request` after each until it is FINISHED; from
Python, which takes records of arrays apart and puts them together, by way of `begin` and `proceed`.

    MEASURE   sums S of the outputs as they are (within their bounds), of their slopes D and ABSOLUTE values
    SUMS      sums S of the outputs and D of the slopes at the SHIFT
    WRITE     write the output at the SHIFT, in its own dtype; sums S of what was written, a bound on their ERROR, and D
    EXACT     the sums S of what was written again, exactly, and their ERROR
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairlayer.binding.exact_sums import TINY, UNIT
from fairlayer.binding.rows import LOWER, UPPER, Rows
from fairlayer.compiled import compiled
from fairlayer.solve.certify import (
    all_hold,
    first_margins,
    in_doubt,
    memory_size,
    newton_tolerance,
    shortfalls_in,
    widen_margins,
)
from fairlayer.solve.newton import (
    ABSOLUTE,
    COUNT,
    DONE,
    ERROR,
    EVALUATE,
    LEAST,
    MOST,
    NUMBERS,
    PATIENCE,
    REACH,
    TOLERANCE,
    TRIAL,
    WEIGHT,
    S,
    Search,
    advance,
    needed_memory,
    place_at,
    restart,
)

FINISHED, MEASURE, SUMS, WRITE, EXACT = 0, 1, 2, 3, 4
MOST_REPAIRS = 12
_PATIENCE = 40  # evaluations without progress, after which a problem is solved in another way
_EAGER = 2  # repairs after which the aim moves inside by more than was missed, and everywhere

# Places in Search.number, behind those of the search.
_REQUEST, _REPAIRS, OUTCOME, _LAST, _LEAST_MISSED, _UNIT, _FORCED = range(14, 21)
_BEST = 4  # place in Search.statistic: multipliers of the output that missed its rows least
MARGIN, MISSED = 0, 1  # places in Solve.family


class Solve(NamedTuple):
    """A solve under way."""

    rows: Rows
    aim: np.ndarray  # (4, F) the families of the rows, their bounds moved inside
    family: np.ndarray  # (2, F) by how much they are, and by how much the output written last may miss each
    search: Search


@compiled(inner=True)
def new_solve(rows, count, weight, least, most, reach, start, unit):
    """A solve that asks for its first pass.

    count, weight: (G,) samples of each cell, and its weight, times the usual slope of a sample; least, most: (G,) what
    its sum can be within the bounds; reach: how far a shift may go at once, as beyond it every sample rests on a bound;
    start: multipliers to begin with, or empty for none, and for
    outputs to be left as they are where they all but satisfy the rows; unit: relative
    rounding error of the output's dtype, 0 where the output may exceed the rows by its rounding.
    """
    K = rows.offset.size
    cell = np.zeros((11, count.size))
    for c in range(count.size):
        cell[COUNT, c], cell[WEIGHT, c], cell[LEAST, c], cell[MOST, c] = count[c], weight[c], least[c], most[c]
    number = np.zeros(NUMBERS)
    number[REACH], number[_UNIT] = reach, unit
    number[PATIENCE] = _PATIENCE
    number[_REQUEST], number[OUTCOME], number[_LEAST_MISSED] = MEASURE, DONE, np.inf
    memory = np.empty(max(needed_memory(rows, count.size), memory_size(rows)))
    search = Search(np.zeros((5, K)), cell, number, memory)
    if start.size > 0:
        number[_FORCED] = 1.0
        place_at(rows, search, start)
    return Solve(rows, rows.family.copy(), np.zeros((2, rows.family.shape[1])), search)


@compiled(small=True, borrows=True)
def _aim(solve):
    for f in range(solve.aim.shape[1]):
        solve.aim[UPPER, f] = solve.rows.family[UPPER, f] - solve.family[MARGIN, f]
        solve.aim[LOWER, f] = solve.rows.family[LOWER, f] + solve.family[MARGIN, f]


@compiled(inline=True)
def _search(solve):
    """One step of the method: ask for sums again, or have the output written."""
    rows = solve.rows
    aim = Rows(rows.start, rows.statistic, rows.value, rows.offset, rows.present, rows.first, solve.aim, rows.part)
    outcome = advance(aim, solve.search)
    number, request = solve.search.number, SUMS
    if outcome != EVALUATE:
        request = WRITE if outcome == DONE else FINISHED
        if outcome != DONE and number[_REPAIRS] > 0.0:  # what was written before is the best there is
            outcome, request, number[_LAST] = DONE, WRITE, 1.0
            place_at(rows, solve.search, solve.search.statistic[_BEST])
        number[OUTCOME] = outcome
    return request


@compiled(inner=True, borrows=True, later="int")
def _repair(solve):
    """What to do about an output that was written and may miss rows."""
    number, statistic, missed = solve.search.number, solve.search.statistic, solve.family[MISSED]
    request, worst = FINISHED, -np.inf
    for f in range(missed.size):
        worst = max(worst, missed[f])
    if worst < number[_LEAST_MISSED]:
        number[_LEAST_MISSED] = worst
        for k in range(statistic.shape[1]):
            statistic[_BEST, k] = statistic[TRIAL, k]
    eager = number[_REPAIRS] >= _EAGER
    if number[_REPAIRS] < MOST_REPAIRS and widen_margins(
        solve.rows, solve.family[MARGIN], missed, statistic[TOLERANCE], eager
    ):
        number[_REPAIRS] += 1
        _aim(solve)
        restart(solve.search)
        request = SUMS
    elif worst > number[_LEAST_MISSED]:
        number[_LAST] = 1.0
        place_at(solve.rows, solve.search, statistic[_BEST])
        request = WRITE
    return request


@compiled(inner=True, borrows=True)
def next_request(solve):
    """Take the answer to the last request; return the next, or FINISHED."""
    rows, (statistic, cell, number, memory) = solve.rows, solve.search
    request, searches = int(number[_REQUEST]), number[_REQUEST] == SUMS
    if request == MEASURE:
        # Without a shift nothing is rounded: these are the sums of the output itself, should it need no change.
        newton_tolerance(rows, cell[ABSOLUTE], cell[COUNT], statistic[TOLERANCE], memory)
        for c in range(cell.shape[1]):
            cell[ERROR, c] = (cell[COUNT, c] + 4.0) * UNIT * cell[ABSOLUTE, c] + cell[COUNT, c] * TINY
    if not searches:
        shortfalls_in(rows, cell[S], cell[ERROR], solve.family[MISSED], memory)
    if request == MEASURE:
        placed = False
        for k in range(statistic.shape[1]):
            placed = placed or statistic[TRIAL, k] != 0.0
        near = number[_FORCED] == 0.0
        for f in range(rows.family.shape[1]):
            allowed = 0.0
            for k in range(rows.first[f], rows.first[f + 1]):
                allowed = max(allowed, 16.0 * statistic[TOLERANCE, k])
            near = near and solve.family[MISSED, f] <= allowed
        if near:  # it holds, or misses its rows by so little that only rational arithmetic can tell
            number[_LAST] = 1.0
            for k in range(statistic.shape[1]):
                statistic[_BEST, k] = 0.0
            place_at(rows, solve.search, statistic[_BEST])
            request = WRITE
        else:
            first_margins(rows, cell[ABSOLUTE], number[_UNIT], statistic[TOLERANCE], solve.family[MARGIN], memory)
            _aim(solve)
            request, searches = SUMS, not placed
    elif not searches:
        written, request = request, FINISHED
        if not all_hold(solve.family[MISSED]):
            if written == WRITE and in_doubt(rows, cell[S], solve.family[MISSED]):
                request = EXACT
            elif number[_UNIT] != 0.0 and number[_LAST] == 0.0:
                request = _repair(solve)
    if searches:
        request = _search(solve)
    number[_REQUEST] = request
    return request


@compiled
def begin(rows, count, weight, least, most, reach, start, unit):
    """`new_solve`, from Python."""
    return new_solve(rows, count, weight, least, most, reach, start, unit)


@compiled
def proceed(solve):
    """`next_request`, from Python."""
    return next_request(solve)
