"""The CPU path: every pass over the samples is a compiled loop, and the whole solve is one call.

Where all samples have the same weight and bounds, as a rule, the outputs are first laid out cell by cell: then a pass
is a plain sum over a stretch of memory, many samples at a time. Loops have no branches, as which samples rest on a
bound cannot be predicted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairlayer.binding.cells import UNIT, exact_sums
from fairlayer.compiled import compiled
from fairlayer.solve.certify import aimed, all_hold, first_margins, shortfalls, widen_margins
from fairlayer.solve.dense import dense_multipliers
from fairlayer.solve.newton import DONE, EVALUATE, advance, new_search, place_at, restart, solve_active, statistics

MOST_REPAIRS = 12
MOST_SUM = 1e300  # of |z|: the rest of float64's range is left to differences and error bounds


@compiled
def largest_magnitude(z):
    """The largest absolute value; infinite or NaN where a value is.

    Without its sign bit a float orders as the integer of the same bits, and integers are compared many at a time.
    """
    if z.itemsize == 4:
        narrow = np.zeros(1, dtype=np.int32)
        for bits in z.view(np.int32):
            narrow[0] = max(narrow[0], bits & np.int32(0x7FFFFFFF))
        return float(narrow.view(np.float32)[0])
    wide = np.zeros(1, dtype=np.int64)
    for bits in z.view(np.int64):
        wide[0] = max(wide[0], bits & np.int64(0x7FFFFFFFFFFFFFFF))
    return wide.view(np.float64)[0]


@compiled
def _bound(side, i):
    return side[i] if side.size > 1 else side[0]


@compiled
def _weight(weight, i):
    return weight[i] if weight.size > 0 else 1.0


class Samples(NamedTuple):
    """The samples of a batch; also laid out cell by cell where all have the same weight and bounds."""

    z: np.ndarray  # (n,)
    cell: np.ndarray  # (n,)
    weight: np.ndarray  # (n,), or empty where all are 1
    lo: np.ndarray  # (n,) or (1,)
    hi: np.ndarray  # (n,) or (1,)
    ordered: np.ndarray  # (n,) z cell by cell, or empty
    start: np.ndarray  # (G + 1,) where each cell starts


@compiled
def gather(z, cell, weight, lo, hi, count):
    """Samples of which `count` are in each cell."""
    start = np.zeros(count.size + 1, dtype=np.int64)
    if weight.size > 0 or lo.size > 1 or hi.size > 1:
        return Samples(z, cell, weight, lo, hi, np.empty(0, dtype=z.dtype), start)
    for c in range(count.size):
        start[c + 1] = start[c] + int(count[c])
    place = start.copy()
    ordered = np.empty(z.size, dtype=z.dtype)
    for i in range(z.size):
        c = cell[i]
        ordered[place[c]] = z[i]
        place[c] += 1
    return Samples(z, cell, weight, lo, hi, ordered, start)


@compiled(reorder=True)
def _stretch(z, start, stop, shift, low, high):
    """Sum of outputs and slopes over a stretch of samples with the same shift."""
    total, inside = 0.0, 0
    for i in range(start, stop):
        raw = z[i] - shift
        y = min(max(raw, low), high)
        total += y
        inside += 1 if y == raw else 0
    return total, float(inside)


@compiled(reorder=True)
def _rounded_stretch(z, start, stop, shift, low, high):
    """The same, each output rounded to z's dtype as it will be written."""
    rounded = z.dtype.type
    total, inside = 0.0, 0
    for i in range(start, stop):
        raw = rounded(z[i] - shift)
        y = min(max(raw, low), high)
        total += y
        inside += 1 if y == raw else 0
    return total, float(inside)


@compiled
def take_sums(samples, shift, S, D):
    """Cell sums of outputs and slopes at the given shifts; nothing is written per sample."""
    lo, hi = samples.lo, samples.hi
    if samples.ordered.size > 0:
        start = samples.start
        for c in range(S.size):
            S[c], D[c] = _stretch(samples.ordered, start[c], start[c + 1], shift[c], float(lo[0]), float(hi[0]))
        return
    S[:] = 0.0
    D[:] = 0.0
    for i in range(samples.z.size):
        c, w = samples.cell[i], _weight(samples.weight, i)
        raw = samples.z[i] - shift[c]
        y = min(max(raw, float(_bound(lo, i))), float(_bound(hi, i)))
        S[c] += w * y
        D[c] += w if y == raw else 0.0


@compiled
def emit(samples, shift, out, S, D):
    """Write the output in its own dtype; cell sums of what was written, and of the slopes."""
    z, cell, lo, hi, start = samples.z, samples.cell, samples.lo, samples.hi, samples.start
    rounded = out.dtype.type
    if samples.ordered.size > 0 and z.itemsize == out.itemsize:
        low, high = lo[0], hi[0]
        for i in range(z.size):
            raw = rounded(z[i] - shift[cell[i]])
            out[i] = min(max(raw, low), high)
        for c in range(S.size):
            S[c], D[c] = _rounded_stretch(samples.ordered, start[c], start[c + 1], shift[c], low, high)
        return
    S[:] = 0.0
    D[:] = 0.0
    for i in range(z.size):
        c, w = cell[i], _weight(samples.weight, i)
        raw = rounded(z[i] - shift[c])
        y = min(max(raw, _bound(lo, i)), _bound(hi, i))
        out[i] = y
        S[c] += w * y
        D[c] += w if y == raw else 0.0


@compiled
def newton_tolerance(rows, weight, magnitude, n):
    """How exactly the solver can hope to meet the rows: a few roundings of the largest number it adds up."""
    G, K = rows.M.shape
    largest = magnitude
    for k in range(K):
        total = 0.0
        for c in range(G):
            total += abs(rows.M[c, k]) * weight[c]
        largest = max(largest, magnitude * total, abs(rows.offset[k]))
    for j in range(rows.plus.size):
        if np.isfinite(rows.upper[j]):
            largest = max(largest, abs(rows.upper[j]))
        if np.isfinite(rows.lower[j]):
            largest = max(largest, abs(rows.lower[j]))
    return (1e-14 + UNIT * np.sqrt(n)) * largest


@compiled
def reach_and_magnitude(smallest, largest, low, high):
    """The shift at which all samples rest on a bound (infinite without bounds), and a bound on the clipped outputs."""
    magnitude = max(abs(min(max(smallest, low), high)), abs(min(max(largest, low), high)))
    if low > -np.inf and high < np.inf:
        return 2.0 * max(largest - low, high - smallest, 0.0), magnitude
    return np.inf, magnitude


@compiled
def _check(rows, out, cell, weight, cell_count, cell_weight, magnitude, S):
    """Shortfalls of the rows: from plain sums where their error bound suffices, from exact ones otherwise."""
    error = np.empty(S.size)
    for c in range(S.size):
        error[c] = (cell_count[c] + 4.0) * UNIT * magnitude * cell_weight[c]
    missed = shortfalls(rows, S, error)
    if out.size > 0 and not all_hold(missed):
        exact_sums(out, cell, weight, S, error)
        missed = shortfalls(rows, S, error)
    return missed


@compiled
def solve_fused(z, cell, weight, cell_count, cell_weight, lo, hi, least, most, reach, magnitude, unit, rows, out):
    """Project z into `out`; the rest of a `Result` is returned.

    least, most: extremes of each cell sum; magnitude: largest absolute value of z clipped to the bounds, or more;
    unit: relative rounding error of out's dtype, or 0 where the output may pass the rows by its rounding.
    """
    G, K = rows.M.shape
    S, D = np.zeros(G), np.zeros(G)
    search = new_search(rows.plus.size, K, G)
    samples = gather(z, cell, weight, lo, hi, cell_count)
    # Without a shift nothing is rounded: these are the sums of the output itself, should it need no change.
    take_sums(samples, search.shift, S, D)
    missed = _check(rows, out[:0], cell, weight, cell_count, cell_weight, magnitude, S)
    # z - shift is rounded where z is large, however narrow the box that it is then clipped to.
    tolerance = newton_tolerance(rows, cell_weight, max(magnitude, 0.1 * largest_magnitude(z)), z.size)
    margins = first_margins(rows, cell_weight, magnitude, unit, tolerance)
    aim = rows if all_hold(missed) else aimed(rows, margins)
    outcome = DONE
    for _ in range(MOST_REPAIRS):
        outcome = DONE if missed.size == 0 else advance(aim, search, S, D, cell_weight, least, most, reach, tolerance)
        while outcome == EVALUATE:
            take_sums(samples, search.shift, S, D)
            outcome = advance(aim, search, S, D, cell_weight, least, most, reach, tolerance)
        if outcome != DONE:
            if not dense_multipliers(samples, cell_weight, aim, tolerance, search.direction):
                break
            outcome = DONE
            place_at(aim, search, search.direction.copy())
        emit(samples, search.shift, out, S, D)
        missed = _check(rows, out, cell, weight, cell_count, cell_weight, largest_magnitude(out), S)
        if unit == 0.0 or all_hold(missed) or not widen_margins(rows, margins, missed):
            break
        aim = aimed(rows, margins)
        restart(search)
        take_sums(samples, search.shift, S, D)
    active = search.active[: search.tally[0]].copy()
    return outcome, search.trial, active, search.shift, D, missed, statistics(rows, S)


@compiled
def pull_back(gradient, z, cell, weight, lo, hi, shift, slopes, rows, active, out):
    """Vector-Jacobian product of the projection, into `out`.

    With A the active rows and D the slopes, it is rho_z (g - A'v), v = (A D A')^+ A D g: one pass for the cell sums of
    D g, one small solve, one pass to write. Which samples rest on a bound is decided in their own dtype, as it was when
    the output was written.
    """
    n = z.size
    rounded, zero = out.dtype.type, out.dtype.type(0)
    bank = np.zeros((4, shift.size))  # four in turn, so that samples of one cell need not wait for each other
    plain = weight.size == 0 and lo.size == 1 and hi.size == 1
    low, high = lo[0], hi[0]
    whole = n - n % 4 if plain else 0
    for i in range(0, whole, 4):
        for k in range(4):
            c, g = cell[i + k], gradient[i + k]
            raw = rounded(z[i + k] - shift[c])
            y = min(max(raw, low), high)
            bank[k, c] += g if y == raw else zero
    for i in range(whole, n):
        c, g = cell[i], gradient[i]
        raw = rounded(z[i] - shift[c])
        y = min(max(raw, _bound(lo, i)), _bound(hi, i))
        bank[i & 3, c] += g if y == raw else zero
    correction = solve_active(rows, active, slopes, (bank[0] + bank[1]) + (bank[2] + bank[3]))
    if plain:
        for i in range(n):
            c = cell[i]
            raw = rounded(z[i] - shift[c])
            y = min(max(raw, low), high)
            g = rounded(gradient[i] - correction[c])
            out[i] = g if y == raw else zero
    else:
        for i in range(n):
            c = cell[i]
            raw = rounded(z[i] - shift[c])
            y = min(max(raw, _bound(lo, i)), _bound(hi, i))
            g = rounded(gradient[i] - _weight(weight, i) * correction[c])
            out[i] = g if y == raw else zero
