"""The CPU path: every pass over the samples is a compiled loop, and the whole solve is one call.

A pass takes about a nanosecond per sample. Sums go to four banks in turn, so that samples of the same cell need not
wait for each other; loops have no branches, as which samples rest on a bound cannot be predicted.
"""

from __future__ import annotations

import numpy as np

from fairlayer.cells import UNIT, exact_sums
from fairlayer.compiled import compiled
from fairlayer.solve.certify import aimed, all_hold, first_margins, shortfalls, widen_margins
from fairlayer.solve.newton import DONE, EVALUATE, advance, new_search, restart, solve_active, statistics

MOST_REPAIRS = 12


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
def _collect(bank, S, D):
    for c in range(S.size):
        S[c] = (bank[0, c, 0] + bank[1, c, 0]) + (bank[2, c, 0] + bank[3, c, 0])
        D[c] = (bank[0, c, 1] + bank[1, c, 1]) + (bank[2, c, 1] + bank[3, c, 1])


@compiled
def _is_plain(weight, lo, hi):
    """Whether all samples have the same weight and bounds, as the unrolled loops assume."""
    return weight.size == 0 and lo.size == 1 and hi.size == 1


@compiled
def _bound(side, i):
    return side[i] if side.size > 1 else side[0]


@compiled
def _weight(weight, i):
    return weight[i] if weight.size > 0 else 1.0


@compiled
def _sums(z, cell, weight, lo, hi, shift, S, D):
    """Cell sums of outputs and slopes at the given shifts; nothing is written per sample."""
    n = z.size
    bank = np.zeros((4, S.size, 2))
    whole = n - n % 4 if _is_plain(weight, lo, hi) else 0
    low, high = float(lo[0]), float(hi[0])
    for i in range(0, whole, 4):
        for k in range(4):
            c = cell[i + k]
            raw = z[i + k] - shift[c]
            y = min(max(raw, low), high)
            bank[k, c, 0] += y
            bank[k, c, 1] += 1.0 if y == raw else 0.0
    for i in range(whole, n):
        c, w = cell[i], _weight(weight, i)
        raw = z[i] - shift[c]
        y = min(max(raw, float(_bound(lo, i))), float(_bound(hi, i)))
        bank[i & 3, c, 0] += w * y
        bank[i & 3, c, 1] += w if y == raw else 0.0
    _collect(bank, S, D)


@compiled
def _emit(z, cell, weight, lo, hi, shift, out, S, D):
    """Write the output in its own dtype; cell sums of what was written, and of the slopes."""
    n = z.size
    rounded = out.dtype.type
    bank = np.zeros((4, S.size, 2))
    whole = n - n % 4 if _is_plain(weight, lo, hi) else 0
    low, high = lo[0], hi[0]
    for i in range(0, whole, 4):
        for k in range(4):
            c = cell[i + k]
            raw = rounded(z[i + k] - shift[c])
            y = min(max(raw, low), high)
            out[i + k] = y
            bank[k, c, 0] += y
            bank[k, c, 1] += 1.0 if y == raw else 0.0
    for i in range(whole, n):
        c, w = cell[i], _weight(weight, i)
        raw = rounded(z[i] - shift[c])
        y = min(max(raw, _bound(lo, i)), _bound(hi, i))
        out[i] = y
        bank[i & 3, c, 0] += w * y
        bank[i & 3, c, 1] += w if y == raw else 0.0
    _collect(bank, S, D)


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
        error[c] = (0.25 * cell_count[c] + 4.0) * UNIT * magnitude * cell_weight[c]
    missed = shortfalls(rows, S, error)
    if out.size > 0 and not all_hold(missed):
        exact_sums(out, cell, weight, S, error)
        missed = shortfalls(rows, S, error)
    return missed


@compiled
def solve_fused(z, cell, weight, cell_count, cell_weight, lo, hi, least, most, reach, magnitude, unit, rows, out):
    """Project z into `out`; the rest of a `Result` is returned.

    least, most: extremes of each cell sum; magnitude: largest absolute value of z clipped to the bounds, or more;
    unit: relative rounding error of out's dtype.
    """
    G, K = rows.M.shape
    S, D = np.zeros(G), np.zeros(G)
    search = new_search(rows.plus.size, K, G)
    # Without a shift nothing is rounded: these are the sums of the output itself, should it need no change.
    _sums(z, cell, weight, lo, hi, search.shift, S, D)
    missed = _check(rows, out[:0], cell, weight, cell_count, cell_weight, magnitude, S)
    tolerance = newton_tolerance(rows, cell_weight, magnitude, z.size)
    margins = first_margins(rows, cell_weight, magnitude, unit, tolerance)
    aim = rows if all_hold(missed) else aimed(rows, margins)
    outcome = DONE
    for _ in range(MOST_REPAIRS):
        outcome = DONE if missed.size == 0 else advance(aim, search, S, D, cell_weight, least, most, reach, tolerance)
        while outcome == EVALUATE:
            _sums(z, cell, weight, lo, hi, search.shift, S, D)
            outcome = advance(aim, search, S, D, cell_weight, least, most, reach, tolerance)
        if outcome != DONE:
            break
        _emit(z, cell, weight, lo, hi, search.shift, out, S, D)
        missed = _check(rows, out, cell, weight, cell_count, cell_weight, largest_magnitude(out), S)
        if all_hold(missed) or not widen_margins(rows, margins, missed):
            break
        aim = aimed(rows, margins)
        restart(search)
        _sums(z, cell, weight, lo, hi, search.shift, S, D)
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
    bank = np.zeros((4, shift.size))
    plain = _is_plain(weight, lo, hi)
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
