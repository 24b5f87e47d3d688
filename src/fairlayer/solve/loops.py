"""The CPU path: every pass over the samples is a compiled loop, and the whole solve is one call.

Where all samples have the same weight and bounds, as a rule, the outputs are first laid out cell by cell: then a pass
is a plain sum over a stretch of memory, many samples at a time. Loops have no branches, as which samples rest on a
bound cannot be predicted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairlayer.binding.exact_sums import TINY, UNIT, exact_sums
from fairlayer.binding.rows import Rows
from fairlayer.compiled import compiled, same_bits
from fairlayer.solve.certify import is_tight
from fairlayer.solve.driver import EXACT, FINISHED, MEASURE, MISSED, OUTCOME, SUMS, new_solve, next_request
from fairlayer.solve.newton import ABSOLUTE, DONE, ERROR, PATIENCE, SHIFT, TRIAL, D, S, statistics_in
from fairlayer.solve.smooth import (
    KL,
    SQUARED,
    bound_of,
    correct,
    extent,
    smooth_pull_back,
    smooth_sums,
    smooth_write,
    weight_of,
)

NOT_FINITE, TOO_LARGE, OUTSIDE = 8, 9, 10  # ends of a solve before its start
_FEW = 4  # samples of a cell, on average
BLOCK = 256  # samples that are taken at a time, where something of their cells is looked up
MOST_SUM = 1e300  # of |z|: the rest of float64's range is left to differences and error bounds


@compiled(inner=True, borrows=True)
def largest_magnitude(z):
    """The largest absolute value; infinite or NaN where a value is.

    Without its sign bit a float orders as the integer of the same bits, and integers are compared many at a time.
    """
    most = same_bits(z.dtype.type(0))
    for i in range(z.size):
        most = max(most, same_bits(abs(z[i])))
    return np.float64(same_bits(most))


@compiled(inline=True)
def _look_up(of_cell, cell, first, of_sample):
    """What the cells of a block of samples have, sample by sample: loops over what is looked up first have no gaps."""
    at = cell[first : first + BLOCK]
    for i in range(at.size):
        of_sample[i] = of_cell[np.uint32(at[i])]


class Samples(NamedTuple):
    """The samples of a batch; also laid out cell by cell where all have the same weight and bounds."""

    z: np.ndarray  # (n,)
    cell: np.ndarray  # (n,)
    weight: np.ndarray  # (n,), or empty where all are 1
    lo: np.ndarray  # (n,) or (1,)
    hi: np.ndarray  # (n,) or (1,)
    ordered: np.ndarray  # (n,) z cell by cell, or empty
    start: np.ndarray  # (G + 1,) where each cell starts
    single: bool  # outputs are rounded to float32, whatever the dtype of z


@compiled(inner=True)
def gather(z, cell, weight, lo, hi, count, single):
    """Samples of which `count` are in each cell. Cells of few samples each are not worth laying out."""
    start = np.zeros(count.size + 1, dtype=np.int64)
    if weight.size > 0 or lo.size > 1 or hi.size > 1 or _FEW * count.size > z.size:
        return Samples(z, cell, weight, lo, hi, np.empty(0, dtype=z.dtype), start, single)
    for c in range(count.size):
        start[c + 1] = start[c] + int(count[c])
    # Every other sample from the end of its cell: those that go the same way wait for each other.
    up, down = start.astype(np.uint64), start[1:].astype(np.uint64)
    ordered = np.empty(z.size, dtype=z.dtype)
    for i in range(0, z.size - 1, 2):
        c, d = np.uint32(cell[i]), np.uint32(cell[i + 1])
        first, second = up[c], down[d] - np.uint64(1)
        up[c], down[d] = first + np.uint64(1), second
        ordered[first] = z[i]
        ordered[second] = z[i + 1]
    if z.size % 2 == 1:
        ordered[up[np.uint32(cell[z.size - 1])]] = z[z.size - 1]
    return Samples(z, cell, weight, lo, hi, ordered, start, single)


@compiled(inner=True, later="None")
def _range_scattered(samples, low, high, least_most):
    """The least and the most that each cell's sum can be, of bounds of their own within two."""
    least, most = least_most[0], least_most[1]
    for c in range(least.size):
        least[c] = most[c] = 0.0
    for i in range(samples.z.size):
        w = weight_of(samples.weight, i)
        if w > 0.0:  # what has no weight adds nothing, even where its bound is infinite
            least[samples.cell[i]] += w * max(float(bound_of(samples.lo, i)), low)
            most[samples.cell[i]] += w * min(float(bound_of(samples.hi, i)), high)


@compiled(inner=True)
def start_solve(kind, samples, rows, count, cell_weight, start, unit):
    """A solve of these samples."""
    lo, hi, low, high = samples.lo, samples.hi, np.inf, -np.inf
    for i in range(lo.size):
        low = min(low, float(lo[i]))
    for i in range(hi.size):
        high = max(high, float(hi[i]))
    if kind != SQUARED:  # what a response cannot be, a bound need not forbid
        low = max(low, 0.0)
        high = high if kind == KL else min(high, 1.0)
    least_most = _ranges(cell_weight, low, high)
    if lo.size > 1 or hi.size > 1:
        _range_scattered(samples, low, high, least_most)
    largest, found, fits = largest_magnitude(samples.z), np.empty(2), True
    if kind != SQUARED:
        fits = extent(kind, samples.z, found)
    else:
        found[0], found[1] = 2.0 * max(max(largest - low, high + largest), 0.0), 1.0
    solve = _start(rows, count, cell_weight, least_most, largest, found, fits, start, unit)
    if kind != SQUARED:
        solve.search.number[PATIENCE] = np.inf  # there is no other way
    return solve


@compiled(inner=True)
def _ranges(weight, low, high):
    """(2, G) the least and the most that each cell's sum can be between two bounds."""
    least_most = np.zeros((2, weight.size))
    for c in range(weight.size):
        if weight[c] > 0.0:
            least_most[0, c], least_most[1, c] = weight[c] * low, weight[c] * high
    return least_most


@compiled(inner=True)
def _start(rows, count, weight, least_most, largest, found, fits, start, unit):
    """A solve, or why there is none. found: how far a shift may go at once, and the mean slope before any."""
    total, slope = 0.0, found[1]
    for c in range(weight.size):
        total += weight[c]
    solve = new_solve(rows, count, slope * weight, least_most[0], least_most[1], found[0], start, unit)
    number = solve.search.number
    if not np.isfinite(largest):
        number[OUTCOME] = NOT_FINITE
    elif not fits:
        number[OUTCOME] = OUTSIDE
    elif not largest * max(total, 1.0) <= MOST_SUM:
        number[OUTCOME] = TOO_LARGE
    return solve


@compiled(reorder=True, small=True, borrows=True)
def _stretch(z, start, stop, shift, low, high):
    """Sum of outputs and slopes over a stretch of samples with the same shift."""
    total, inside, some = 0.0, 0, z[start:stop]
    for i in range(some.size):
        raw = some[i] - shift
        y = min(max(raw, low), high)
        total += y
        inside += 1 if y == raw else 0
    return total, float(inside)


@compiled(reorder=True, small=True, borrows=True)
def _rounded_stretch(z, start, stop, shift, low, high):
    """The same, each output rounded to z's dtype as it will be written; and the sum of absolute values."""
    rounded = z.dtype.type
    total, absolute, inside, some = 0.0, 0.0, 0, z[start:stop]
    for i in range(some.size):
        raw = rounded(some[i] - shift)
        y = min(max(raw, low), high)
        total += y
        absolute += abs(y)
        inside += 1 if y == raw else 0
    return total, absolute, float(inside)


@compiled(reorder=True, small=True, borrows=True)
def _measured_stretch(z, start, stop, low, high):
    """Without a shift: sums of outputs, absolute values and slopes."""
    total, absolute, inside, some = 0.0, 0.0, 0, z[start:stop]
    for i in range(some.size):
        raw = float(some[i])
        y = min(max(raw, low), high)
        total += y
        absolute += abs(y)
        inside += 1 if y == raw else 0
    return total, absolute, float(inside)


@compiled(inner=True, later="None")
def _measure_scattered(samples, S, D, absolute):
    """The same as `measure`, by weight, of samples in any order with bounds of their own."""
    for c in range(S.size):
        S[c] = D[c] = absolute[c] = 0.0
    for i in range(samples.z.size):
        c, w = samples.cell[i], weight_of(samples.weight, i)
        raw = float(samples.z[i])
        y = min(max(raw, float(bound_of(samples.lo, i))), float(bound_of(samples.hi, i)))
        S[c] += w * y
        D[c] += w if y == raw else 0.0
        absolute[c] += w * abs(y)


@compiled(small=True, borrows=True)
def measure(kind, samples, S, D, absolute):
    """Cell sums of the outputs as they are, of slopes and absolute values."""
    if kind != SQUARED:  # whose outputs are positive
        absolute[:] = 0.0
        smooth_sums(kind, samples, absolute, S, D)
        for c in range(S.size):
            absolute[c] = S[c]
    elif samples.ordered.size > 0:
        start, low, high = samples.start, float(samples.lo[0]), float(samples.hi[0])
        for c in range(S.size):
            S[c], absolute[c], D[c] = _measured_stretch(samples.ordered, start[c], start[c + 1], low, high)
    else:
        _measure_scattered(samples, S, D, absolute)


@compiled(inner=True, later="None")
def _take_scattered(samples, shift, S, D):
    """The same as `take_sums`, by weight, of samples in any order with bounds of their own."""
    for c in range(S.size):
        S[c] = D[c] = 0.0
    for i in range(samples.z.size):
        c, w = samples.cell[i], weight_of(samples.weight, i)
        raw = samples.z[i] - shift[c]
        y = min(max(raw, float(bound_of(samples.lo, i))), float(bound_of(samples.hi, i)))
        S[c] += w * y
        D[c] += w if y == raw else 0.0


@compiled(small=True, borrows=True)
def take_sums(kind, samples, shift, S, D):
    """Cell sums of outputs and slopes at the given shifts; nothing is written per sample."""
    if kind != SQUARED:
        smooth_sums(kind, samples, shift, S, D)
    elif samples.ordered.size > 0:
        start, low, high = samples.start, float(samples.lo[0]), float(samples.hi[0])
        for c in range(S.size):
            S[c], D[c] = _stretch(samples.ordered, start[c], start[c + 1], shift[c], low, high)
    else:
        _take_scattered(samples, shift, S, D)


@compiled(inner=True, later="None")
def _write_scattered(samples, shift, out, S, D, error):
    """The same as `write`, by weight, of samples in any order with bounds of their own."""
    rounded = out.dtype.type
    for c in range(S.size):
        S[c] = D[c] = error[c] = 0.0
    for i in range(samples.z.size):
        c, w = samples.cell[i], weight_of(samples.weight, i)
        raw = rounded(samples.z[i] - shift[c])
        if samples.single:
            raw = rounded(np.float32(raw))
        y = min(max(raw, bound_of(samples.lo, i)), bound_of(samples.hi, i))
        out[i] = y
        S[c] += w * y
        D[c] += w if y == raw else 0.0
        error[c] += w * abs(y)


@compiled(small=True, borrows=True)
def write(kind, samples, shift, out, S, D, error, of_sample):
    """Write the output in its own dtype; cell sums of what was written, with an error bound, and of the slopes.

    of_sample: memory for a block of samples.
    """
    if kind != SQUARED:
        smooth_write(kind, samples, shift, out, S, D, error)
    elif samples.ordered.size > 0 and not samples.single:
        z, cell, start, rounded = samples.z, samples.cell, samples.start, out.dtype.type
        low, high = samples.lo[0], samples.hi[0]
        for first in range(0, z.size, BLOCK):
            some, target = z[first : first + BLOCK], out[first : first + BLOCK]
            _look_up(shift, cell, first, of_sample)
            for i in range(some.size):
                raw = rounded(some[i] - of_sample[i])
                target[i] = min(max(raw, low), high)
        for c in range(S.size):
            S[c], error[c], D[c] = _rounded_stretch(samples.ordered, start[c], start[c + 1], shift[c], low, high)
    else:
        _write_scattered(samples, shift, out, S, D, error)
    n = out.size
    for c in range(S.size):
        error[c] = UNIT * (n + 8.0) * error[c] + n * TINY


@compiled(inner=True, later="None")
def _add_exactly(out, cell, weight, S, error):
    """Exact sums of an output in any dtype."""
    exact_sums(out.astype(np.float64), cell, weight, S, error)


def solve_loops(
    kind: int,
    z: np.ndarray,
    cell: np.ndarray,
    weight: np.ndarray,
    count: np.ndarray,
    cell_weight: np.ndarray,
    lo: np.ndarray,
    hi: np.ndarray,
    rows: Rows,
    start: np.ndarray,
    unit: float,
    single: bool,
    out: np.ndarray,
) -> tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, bool]:
    """Project z into `out`; (outcome, multipliers of statistics, shifts, slopes, missed, statistics, |y| by cell, and
    whether rows that bind are tight, of certify.py).

    kind: the discrepancy, of smooth.py; weight: (n,), or empty where all are 1; count, cell_weight: (G,) samples and
    weight per cell; lo, hi: (n,) or (1,);
    start: (K,) multipliers to begin with, or empty; unit: as in `driver.begin`; single: round to float32 in any case.
    """
    G, K, F = len(cell_weight), len(rows.offset), rows.family.shape[1]
    ends = np.empty(3 * G + 2 * K + F + 1)  # one array, as every one that compiled code returns takes its time
    outcome = _solve_apart(kind, z, cell, weight, count, cell_weight, lo, hi, start, unit, single, out, ends, *rows)
    a, b, c, d, e = K, K + G, K + 2 * G, K + 2 * G + F, 2 * K + 2 * G + F
    return outcome, ends[:a], ends[a:b], ends[b:c], ends[c:d], ends[d:e], ends[e:-1], ends[-1] != 0.0


@compiled
def _solve_apart(
    kind, z, cell, weight, count, cell_weight, lo, hi, nu, unit, single, out, ends,
    start, statistic, value, offset, present, first, family, part,
):  # fmt: skip
    """`solve_into`, from Python, where rows come array by array: to look a record over takes a microsecond."""
    rows = Rows(start, statistic, value, offset, present, first, family, part)
    return solve_into(kind, z, cell, weight, count, cell_weight, lo, hi, rows, nu, unit, single, out, ends)


@compiled(inner=True)
def solve_into(kind, z, cell, weight, count, cell_weight, lo, hi, rows, start, unit, single, out, ends):
    """The same; all but the outcome goes into `ends`, (3 G + 2 K + F + 1,), one after the other."""
    samples = gather(z, cell, weight, lo, hi, count, single)
    solve = start_solve(kind, samples, rows, count, cell_weight, start, unit)
    of_cell, of_sample = solve.search.cell, np.empty(BLOCK)
    request = MEASURE if solve.search.number[OUTCOME] == DONE else FINISHED
    while request != FINISHED:
        if request == SUMS:
            take_sums(kind, samples, of_cell[SHIFT], of_cell[S], of_cell[D])
        elif request == MEASURE:
            measure(kind, samples, of_cell[S], of_cell[D], of_cell[ABSOLUTE])
        elif request == EXACT:
            _add_exactly(out, cell, weight, of_cell[S], of_cell[ERROR])
        else:
            write(kind, samples, of_cell[SHIFT], out, of_cell[S], of_cell[D], of_cell[ERROR], of_sample)
        request = next_request(solve)
    _put_ends(solve, ends)
    return int(solve.search.number[OUTCOME])


@compiled(small=True, borrows=True)
def _put_ends(solve, ends):
    """All that is known at the end of a solve, in the order of `solve_loops`."""
    of_cell = solve.search.cell
    at = _put(solve.search.statistic[TRIAL], ends, 0)
    at = _put(of_cell[SHIFT], ends, at)
    at = _put(of_cell[D], ends, at)
    at = _put(solve.family[MISSED], ends, at)
    end = at + solve.rows.offset.size
    statistics_in(solve.rows, of_cell[S], ends[at:end], solve.search.memory)
    at = _put(of_cell[ABSOLUTE], ends, end)
    ends[at] = is_tight(solve.rows, solve.search.statistic[TRIAL], solve.family[MISSED])


@compiled(small=True, borrows=True)
def _put(found, ends, at):
    """Copy numbers to their place; where the next ones belong."""
    for k in range(found.size):
        ends[at + k] = found[k]
    return at + found.size


@compiled(inner=True, later="None")
def _pull_back_scattered(gradient, z, cell, weight, lo, hi, shift, slopes, rows, nu, out):
    """The same as `pull_back`, by weight, with bounds of their own."""
    rounded, zero = out.dtype.type, out.dtype.type(0)
    bank, free = np.zeros((4, shift.size)), np.empty(z.size, dtype=np.bool_)
    for i in range(z.size):
        c = cell[i]
        raw = rounded(z[i] - shift[c])
        free[i] = min(max(raw, bound_of(lo, i)), bound_of(hi, i)) == raw
        bank[i & 3, c] += gradient[i] if free[i] else zero
    correction = correct(rows, nu, slopes, bank)
    for i in range(z.size):
        g = rounded(gradient[i] - weight_of(weight, i) * correction[cell[i]])
        out[i] = g if free[i] else zero


@compiled
def pull_back(
    kind, gradient, z, cell, weight, lo, hi, nu, shift, slopes, single, out,
    start, statistic, value, offset, present, first, family, part,
):  # fmt: skip
    """Vector-Jacobian product of the projection, into `out`. Rows come array by array, as above.

    With A the active rows and D the slopes, it is rho_z (g - A'v), v = (A D A')^+ A D g: one pass for the cell sums of
    D g, one small solve, one pass to write. Which samples rest on a bound is decided in their own dtype, as it was when
    the output was written. single: outputs were rounded to float32 in any case.
    """
    rows = Rows(start, statistic, value, offset, present, first, family, part)
    if kind != SQUARED:
        smooth_pull_back(kind, gradient, z, cell, weight, lo, hi, shift, slopes, rows, nu, single, out)
        return
    if weight.size > 0 or lo.size > 1 or hi.size > 1:
        _pull_back_scattered(gradient, z, cell, weight, lo, hi, shift, slopes, rows, nu, out)
        return
    n = z.size
    rounded, zero, low, high = out.dtype.type, out.dtype.type(0), lo[0], hi[0]
    bank = np.zeros((4, shift.size))  # four in turn, so that samples of one cell need not wait for each other
    of_sample, free, inside = np.empty(BLOCK), np.empty(BLOCK), np.empty(n, dtype=np.uint8)
    for at_sample in range(0, n, BLOCK):
        some, given = z[at_sample : at_sample + BLOCK], gradient[at_sample : at_sample + BLOCK]
        at, moves = cell[at_sample : at_sample + BLOCK], inside[at_sample : at_sample + BLOCK]
        _look_up(shift, cell, at_sample, of_sample)
        for i in range(some.size):
            raw = rounded(some[i] - of_sample[i])
            y = min(max(raw, low), high)
            moves[i] = 1 if y == raw else 0
            free[i] = given[i] if y == raw else zero
        whole = some.size - some.size % 4
        for i in range(0, whole, 4):
            for k in range(4):
                bank[k, np.uint32(at[i + k])] += free[i + k]
        for i in range(whole, some.size):
            bank[0, np.uint32(at[i])] += free[i]
    correction = correct(rows, nu, slopes, bank)
    for at_sample in range(0, n, BLOCK):
        given, target = gradient[at_sample : at_sample + BLOCK], out[at_sample : at_sample + BLOCK]
        moves = inside[at_sample : at_sample + BLOCK]
        _look_up(correction, cell, at_sample, of_sample)
        for i in range(given.size):
            g = rounded(given[i] - of_sample[i])
            target[i] = g if moves[i] else zero
