"""Compiled passes for discrepancies whose response is smooth: relative entropy, of probabilities or odds, and KL.

What a sample needs of its cell's shift is one factor, exp(s) or exp(-s), taken once per cell: a pass over the samples
has no exponential in it, only a product and a quotient.

    ENTROPY   z a probability                 y = z / (z + (1 - z) e^s), which at s = 0 is z to the bit
    ODDS      z = (1 - p) / p, as exp(-logit) is   y = 1 / (1 + z e^s)
    KL        z an amount                     y = z e^-s

Outputs are rounded to their dtype, but never to the end of the interval that they lie in: a probability of 1 - 1e-9 is
the largest float32 below 1, and has its own slope.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fairlayer.compiled import compiled
from fairlayer.solve.newton import active_memory, shifts, solve_active_in

SQUARED, ENTROPY, ODDS, KL = range(4)
FURTHEST = 340.0  # shifts and logits beyond it count as it: products of two exponentials stay within float64
ENTROPY_REACH = 40.0  # from the probability furthest out: there all are 0 or 1, or all but
KL_REACH = 3.0  # amounts grow by the exponential of a shift that goes too far
_TINY_SINGLE, _TINY = float(np.finfo(np.float32).tiny), float(np.finfo(np.float64).tiny)
_BELOW_SINGLE, _BELOW = float(np.nextafter(np.float32(1), np.float32(0))), float(np.nextafter(1.0, 0.0))


@compiled(inline=True)
def bound_of(side, i):
    """The bound of a sample; side: (n,), or (1,) where all have the same."""
    return side[i] if side.size > 1 else side[0]


@compiled(inline=True)
def weight_of(weight, i):
    """The weight of a sample; weight: (n,), or empty where all are 1."""
    return weight[i] if weight.size > 0 else 1.0


@compiled
def factors(kind, shift):
    """What the shift of each cell is to its samples."""
    of_cell = np.empty(shift.size)
    for c in range(shift.size):
        near = min(max(shift[c], -FURTHEST), FURTHEST)
        of_cell[c] = math.exp(-near) if kind == KL else math.exp(near)
    return of_cell


@compiled(inline=True)
def respond(kind, z, factor):
    """(output before its bounds, slope, sensitivity); the last of odds is that of the logit they stand for."""
    if kind == KL:
        y = z * factor
        slope, sensitivity = y, factor
    elif kind == ENTROPY:
        per = 1.0 / (z + (1.0 - z) * factor)
        y = z * per
        sensitivity = factor * per * per
        slope = y * ((1.0 - z) * factor * per)
    else:
        product = z * factor
        y = 1.0 / (1.0 + product)
        slope = product * y * y
        sensitivity = slope
    return y, slope, sensitivity


@compiled(inline=True)
def inside(kind, y, single):
    """The nearest number of the output's dtype strictly inside the interval of the responses."""
    if single:
        y = max(float(np.float32(y)), _TINY_SINGLE)
        if kind != KL:
            y = min(y, _BELOW_SINGLE)
    else:
        y = max(y, _TINY)
        if kind != KL:
            y = min(y, _BELOW)
    return y


def _kernels(kind: int) -> tuple[Any, Any, Any]:
    """The loops for one kind, a constant to each of them: what is of other kinds is no part of the machine code."""

    @compiled(reorder=True, small=True)
    def stretch(z, start, stop, factor, low, high):
        """Sums of outputs and slopes over samples with the same shift and bounds, and no weights."""
        total, slopes = 0.0, 0.0
        for i in range(start, stop):
            raw, slope, _ = respond(kind, float(z[i]), factor)
            y = min(max(raw, low), high)
            total += y
            slopes += slope if y == raw else 0.0
        return total, slopes

    @compiled(small=True)
    def sums(samples, factor, S, D):
        """Cell sums of outputs and slopes."""
        z, cell, weight, lo, hi, ordered, start, _ = samples
        if ordered.size > 0:
            low, high = float(lo[0]), float(hi[0])
            for c in range(S.size):
                S[c], D[c] = stretch(ordered, start[c], start[c + 1], factor[c], low, high)
            return
        for c in range(S.size):
            S[c] = D[c] = 0.0
        for i in range(z.size):
            c, w = cell[i], weight_of(weight, i)
            raw, slope, _ = respond(kind, float(z[i]), factor[c])
            y = min(max(raw, float(bound_of(lo, i))), float(bound_of(hi, i)))
            S[c] += w * y
            D[c] += w * slope if y == raw else 0.0

    @compiled(small=True)
    def written(samples, factor, single, out, S, D, error):
        """Outputs, rounded, and sums of them, of slopes and of absolute values."""
        rounded = out.dtype.type
        z, cell, weight, lo, hi = samples.z, samples.cell, samples.weight, samples.lo, samples.hi
        for c in range(S.size):
            S[c] = D[c] = error[c] = 0.0
        for i in range(z.size):
            c, w = cell[i], weight_of(weight, i)
            raw, slope, _ = respond(kind, float(z[i]), factor[c])
            raw = inside(kind, raw, single)
            y = min(max(raw, float(bound_of(lo, i))), float(bound_of(hi, i)))
            out[i] = rounded(y)
            S[c] += w * y
            D[c] += w * slope if y == raw else 0.0
            error[c] += w * abs(y)

    @compiled(small=True)
    def derivatives(gradient, z, cell, lo, hi, factor, single, bank, sensitivity):
        """Cell sums of slope times gradient, four banks in turn; and the sensitivity of each sample."""
        for i in range(z.size):
            c = cell[i]
            raw, slope, own = respond(kind, float(z[i]), factor[c])
            raw = inside(kind, raw, single)
            y = min(max(raw, float(bound_of(lo, i))), float(bound_of(hi, i)))
            free = y == raw
            bank[i & 3, c] += slope * gradient[i] if free else 0.0
            sensitivity[i] = own if free else 0.0

    return sums, written, derivatives


_entropy_sums, _entropy_written, _entropy_derivatives = _kernels(ENTROPY)
_odds_sums, _odds_written, _odds_derivatives = _kernels(ODDS)
_kl_sums, _kl_written, _kl_derivatives = _kernels(KL)


@compiled(inner=True, later="None")
def smooth_sums(kind, samples, shift, S, D):
    """Cell sums of outputs and slopes at the shifts."""
    factor = factors(kind, shift)
    if kind == ENTROPY:
        _entropy_sums(samples, factor, S, D)
    elif kind == ODDS:
        _odds_sums(samples, factor, S, D)
    else:
        _kl_sums(samples, factor, S, D)


@compiled(inner=True, later="None")
def smooth_write(kind, samples, shift, out, S, D, absolute):
    """Write the output in its own dtype; cell sums of what was written, of slopes and of absolute values."""
    factor, single = factors(kind, shift), samples.single or out.itemsize == 4
    if kind == ENTROPY:
        _entropy_written(samples, factor, single, out, S, D, absolute)
    elif kind == ODDS:
        _odds_written(samples, factor, single, out, S, D, absolute)
    else:
        _kl_written(samples, factor, single, out, S, D, absolute)


@compiled(inner=True)
def correct(rows, nu, slopes, bank):
    """(G,) what the active rows take from the gradient of each cell. bank: (4, G) sums of slopes times gradients."""
    correction, v = np.empty(slopes.size), np.empty(nu.size)
    _correct(rows, nu, slopes, bank, correction, v, np.empty(active_memory(rows)))
    return correction


@compiled(inner=True, borrows=True)
def _correct(rows, nu, slopes, bank, correction, v, memory):
    """The same, in memory that is given."""
    for c in range(slopes.size):
        correction[c] = (bank[0, c] + bank[1, c]) + (bank[2, c] + bank[3, c])
    solve_active_in(rows, nu, slopes, correction, v, memory)
    shifts(rows, v, correction)


@compiled(inner=True, later="None")
def smooth_pull_back(kind, gradient, z, cell, weight, lo, hi, shift, slopes, rows, nu, single, out):
    """Vector-Jacobian product of the projection, into `out`: see `loops.pull_back`."""
    factor, bank, sensitivity = factors(kind, shift), np.zeros((4, shift.size)), np.empty(z.size)
    single = single or out.itemsize == 4
    if kind == ENTROPY:
        _entropy_derivatives(gradient, z, cell, lo, hi, factor, single, bank, sensitivity)
    elif kind == ODDS:
        _odds_derivatives(gradient, z, cell, lo, hi, factor, single, bank, sensitivity)
    else:
        _kl_derivatives(gradient, z, cell, lo, hi, factor, single, bank, sensitivity)
    rounded, correction = out.dtype.type, correct(rows, nu, slopes, bank)
    for i in range(z.size):
        out[i] = rounded(sensitivity[i] * (gradient[i] - weight_of(weight, i) * correction[cell[i]]))


@compiled(inner=True, later="None")
def _respond_all(kind, z, cell, shift, out):
    """Every output at the shift of its cell, strictly inside the interval of the responses."""
    factor = factors(kind, shift)
    for i in range(z.size):
        raw, _, _ = respond(kind, float(z[i]), factor[cell[i]])
        out[i] = inside(kind, raw, False)


@compiled
def shifted(kind, z, cell, shift):
    """Every output moved by the shift of its cell, in float64, strictly inside the interval of the responses."""
    out = np.empty(z.size)
    if kind == SQUARED:
        for i in range(z.size):
            out[i] = z[i] - shift[cell[i]]
    else:
        _respond_all(kind, z, cell, shift, out)
    return out


@compiled(inner=True, later="bool")
def extent(kind, z, found):
    """Whether every z lies where this kind takes it; found: how far a shift may go at once, mean slope before any."""
    least, greatest, slopes = np.inf, -np.inf, 0.0
    found[0], found[1] = np.inf, 1.0
    for one in z:
        least = min(least, float(one))
        greatest = max(greatest, float(one))
        slopes += respond(kind, float(one), 1.0)[1]
    if not (least > 0.0 and (greatest < 1.0 or kind != ENTROPY)):
        return False
    reach = KL_REACH
    if kind == ENTROPY:
        reach = ENTROPY_REACH + max(-math.log(least), -math.log(1.0 - greatest))
    elif kind == ODDS:
        reach = ENTROPY_REACH + max(abs(math.log(least)), abs(math.log(greatest)))
    found[0], found[1] = reach, slopes / z.size
    return True
