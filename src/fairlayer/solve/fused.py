"""The CPU path: every pass over the samples is a compiled loop, and the whole solve is one call.

A pass takes about a nanosecond per sample: sums go to four banks in turn, so that samples of the same cell need not
wait for each other.
"""

from __future__ import annotations

import numpy as np

from fairlayer.cells import UNIT, exact_sums
from fairlayer.compiled import compiled
from fairlayer.solve.certify import aimed, first_margins, shortfalls, widen_margins
from fairlayer.solve.newton import DONE, EVALUATE, advance, new_search, restart, solve_active, statistics

MOST_REPAIRS = 12


@compiled
def _bound(bounds, i):
    return bounds[i] if bounds.size > 1 else bounds[0]


@compiled
def _sums(z, cell, weight, lo, hi, shift, S, D):
    """Cell sums of outputs and slopes at the given shifts; nothing is written per sample."""
    n, G = z.size, S.size
    bank = np.zeros((4, G, 2))
    plain = weight.size == 0 and lo.size == 1 and hi.size == 1
    whole = n - n % 4 if plain else 0
    low, high = float(lo[0]), float(hi[0])
    for i in range(0, whole, 4):
        for k in range(4):
            c = cell[i + k]
            raw = z[i + k] - shift[c]
            y = min(max(raw, low), high)
            bank[k, c, 0] += y
            bank[k, c, 1] += 1.0 if y == raw else 0.0
    for i in range(whole, n):
        c = cell[i]
        w = weight[i] if weight.size > 0 else 1.0
        raw = z[i] - shift[c]
        y = min(max(raw, float(_bound(lo, i))), float(_bound(hi, i)))
        bank[i & 3, c, 0] += w * y
        bank[i & 3, c, 1] += w if y == raw else 0.0
    for c in range(G):
        S[c] = (bank[0, c, 0] + bank[1, c, 0]) + (bank[2, c, 0] + bank[3, c, 0])
        D[c] = (bank[0, c, 1] + bank[1, c, 1]) + (bank[2, c, 1] + bank[3, c, 1])


@compiled
def _emit(z, cell, weight, lo, hi, shift, out, S, D):
    """Write the output in its own dtype; cell sums of what was written and of the slopes; return its magnitude."""
    n, G = z.size, S.size
    bank = np.zeros((4, G, 2))
    largest = np.zeros(4, dtype=out.dtype)
    plain = weight.size == 0 and lo.size == 1 and hi.size == 1
    whole = n - n % 4 if plain else 0
    low, high = lo[0], hi[0]
    for i in range(0, whole, 4):
        for k in range(4):
            c = cell[i + k]
            out[i + k] = z[i + k] - shift[c]
            raw = out[i + k]
            y = min(max(raw, low), high)
            out[i + k] = y
            largest[k] = max(largest[k], abs(y))
            bank[k, c, 0] += y
            bank[k, c, 1] += 1.0 if y == raw else 0.0
    for i in range(whole, n):
        c = cell[i]
        w = weight[i] if weight.size > 0 else 1.0
        out[i] = z[i] - shift[c]
        raw = out[i]
        y = min(max(raw, _bound(lo, i)), _bound(hi, i))
        out[i] = y
        largest[0] = max(largest[0], abs(y))
        bank[i & 3, c, 0] += w * y
        bank[i & 3, c, 1] += w if y == raw else 0.0
    for c in range(G):
        S[c] = (bank[0, c, 0] + bank[1, c, 0]) + (bank[2, c, 0] + bank[3, c, 0])
        D[c] = (bank[0, c, 1] + bank[1, c, 1]) + (bank[2, c, 1] + bank[3, c, 1])
    return float(largest.max())


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
def _check(rows, out, cell, weight, cell_count, cell_weight, magnitude, S):
    """Shortfalls of the rows: from plain sums where their error bound suffices, from exact ones otherwise."""
    error = (0.25 * cell_count + 4.0) * UNIT * magnitude * cell_weight
    missed = shortfalls(rows, S, error)
    if missed.size and missed.max() > 0.0:
        exact_sums(out, cell, weight, S, error)
        missed = shortfalls(rows, S, error)
    return missed


@compiled
def solve_fused(z, cell, weight, cell_count, cell_weight, lo, hi, least, most, reach, unit, rows, out):
    """Project z into `out`; the rest of a `Result` is returned.

    least, most: extremes of each cell sum; unit: relative rounding error of out's dtype.
    """
    G, K = rows.M.shape
    S, D = np.zeros(G), np.zeros(G)
    search = new_search(rows.plus.size, K, G)
    magnitude = _emit(z, cell, weight, lo, hi, search.shift, out, S, D)
    missed = _check(rows, out, cell, weight, cell_count, cell_weight, magnitude, S)
    outcome = DONE
    if missed.size and missed.max() > 0.0:
        tolerance = newton_tolerance(rows, cell_weight, magnitude, z.size)
        margins = first_margins(rows, cell_weight, magnitude, unit, tolerance)
        for _ in range(MOST_REPAIRS):
            aim = aimed(rows, margins)
            outcome = EVALUATE
            while outcome == EVALUATE:
                _sums(z, cell, weight, lo, hi, search.shift, S, D)
                outcome = advance(aim, search, S, D, cell_weight, least, most, reach, tolerance)
            if outcome != DONE:
                break
            magnitude = _emit(z, cell, weight, lo, hi, search.shift, out, S, D)
            missed = _check(rows, out, cell, weight, cell_count, cell_weight, magnitude, S)
            if missed.max() <= 0.0 or not widen_margins(rows, margins, missed):
                break
            restart(search)
    active = search.active[: search.count[0]].copy()
    return outcome, search.trial, active, search.shift, D, missed, statistics(rows, S)


@compiled
def pull_back(gradient, z, cell, weight, lo, hi, shift, slopes, rows, active, out):
    """Vector-Jacobian product of the projection, into `out`.

    With A the active rows and D the slopes, it is rho_z (g - A'v), v = (A D A')^+ A D g: one pass for the cell sums
    of D g, one small solve, one pass to write. Returns v, the gradient with respect to the active rows' bounds, and
    A'v per cell.
    """
    n, G = z.size, shift.size
    bank = np.zeros((4, G))
    for i in range(n):
        c = cell[i]
        out[i] = z[i] - shift[c]
        raw = out[i]
        inside = raw >= _bound(lo, i) and raw <= _bound(hi, i)
        out[i] = gradient[i] if inside else 0.0
        bank[i & 3, c] += out[i]
    sums = (bank[0] + bank[1]) + (bank[2] + bank[3])
    v, correction = solve_active(rows, active, slopes, sums)
    for i in range(n):
        c = cell[i]
        raw = z[i] - shift[c]
        inside = raw >= _bound(lo, i) and raw <= _bound(hi, i)
        if inside:
            w = weight[i] if weight.size > 0 else 1.0
            out[i] -= w * correction[c]
    return v, correction
