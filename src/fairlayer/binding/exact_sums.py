"""Sums without rounding: whole numbers in limbs of 32 bits, which add up in any order.

A float64 is a whole number times a power of 2, so it can be added to a long whole number exactly. This is the one place
where sums are taken that a promise rests on: of outputs, targets, weights, files and streams.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from fairlayer.compiled import compiled, same_bits

UNIT = 2.0**-53  # relative rounding error of float64, in which other sums are taken
TINY = 2.0**-1074  # the least float64 above zero
LIMBS = 68  # of a sum of float64, in units of 2^-1074
PRODUCT_LIMBS = 136  # of a sum of products of two, in units of 2^-2148
_LOW = np.int64(0xFFFFFFFF)
_HALF = np.int64((1 << 27) - 1)


@compiled(small=True)
def add_whole(limbs, place, mantissa, negative):
    """limbs += mantissa * 2^place, mantissa below 2^54."""
    at, by = place >> 5, place & 31
    low = (mantissa & _LOW) << by
    high = ((mantissa >> 32) << by) + (low >> 32)
    if negative:
        limbs[at] -= low & _LOW
        limbs[at + 1] -= high & _LOW
        limbs[at + 2] -= high >> 32
    else:
        limbs[at] += low & _LOW
        limbs[at + 1] += high & _LOW
        limbs[at + 2] += high >> 32


@compiled(inline=True)
def whole_of(bits):
    """Place and whole number of a float64: it is mantissa * 2^(place - 1074), apart from its sign."""
    place = (bits >> 52) & 0x7FF
    mantissa = bits & 0xFFFFFFFFFFFFF
    if place > 0:
        return place - 1, mantissa | (np.int64(1) << 52)
    return np.int64(0), mantissa


@compiled
def accumulate(values, cell, weight, limbs):
    """Add values, times their weights where there are any, to the sums of their cells.

    limbs: (G, LIMBS), or (G, PRODUCT_LIMBS) with weights. A limb has room for 2^31 values.
    """
    if weight.size == 0:
        for i in range(values.size):
            bits = same_bits(values[i])
            place, mantissa = whole_of(bits)
            add_whole(limbs[cell[i]], place, mantissa, bits < 0)
        return
    for i in range(values.size):
        bits, factor = same_bits(values[i]), same_bits(weight[i])
        place, a = whole_of(bits)
        other, b = whole_of(factor)
        place += other
        negative = (bits < 0) != (factor < 0)
        sums = limbs[cell[i]]
        add_whole(sums, place, (a & _HALF) * (b & _HALF), negative)
        add_whole(sums, place + 27, (a & _HALF) * (b >> 27), negative)
        add_whole(sums, place + 27, (a >> 27) * (b & _HALF), negative)
        add_whole(sums, place + 54, (a >> 27) * (b >> 27), negative)


@compiled(inner=True)
def rounded(limbs, unit):
    """A sum as two floats, the second what the first leaves over. unit: the power of 2 that the limbs count."""
    whole = limbs.copy()
    size = whole.size
    negative = False
    for attempt in range(2):
        carry = np.int64(0)
        for k in range(size):
            total = whole[k] + carry
            whole[k] = total & _LOW
            carry = total >> 32
        if carry >= 0 or attempt == 1:
            break
        negative = True
        for k in range(size):  # a negative sum: its opposite has the same digits
            whole[k] = -limbs[k]
    high, low = 0.0, 0.0
    for k in range(size - 1, -1, -1):
        if whole[k] != 0:
            part = math.ldexp(float(whole[k]), 32 * k + unit)
            total = high + part
            back = total - high
            low += (high - (total - back)) + (part - back)
            high = total
    if negative:
        return -high, -low
    return high, low


@compiled
def round_sums(limbs, S, error):
    """Sums as floats, each rounded once, and a bound on what that leaves out."""
    unit = -1074 if limbs.shape[1] == LIMBS else -2148
    for c in range(S.size):
        high, low = rounded(limbs[c], unit)
        S[c] = high + low
        error[c] = UNIT * abs(S[c]) + (TINY if unit < -1074 else 0.0)


@compiled
def carry(limbs):
    """Bring every limb but the last below 2^32, so that 2^31 others may be added; limbs: (m, any number)."""
    for j in range(limbs.shape[0]):
        over = np.int64(0)
        for k in range(limbs.shape[1] - 1):
            total = limbs[j, k] + over
            limbs[j, k] = total & _LOW
            over = total >> 32
        limbs[j, limbs.shape[1] - 1] += over


@compiled
def exact_sums(values, cell, weight, S, error):
    """Cell sums of float64 values, rounded once; `error` bounds what that rounding leaves out."""
    limbs = np.zeros((S.size, LIMBS if weight.size == 0 else PRODUCT_LIMBS), dtype=np.int64)
    accumulate(values, cell, weight, limbs)
    round_sums(limbs, S, error)


def whole_numbers(limbs: np.ndarray) -> list[int]:
    """Each sum as a whole number of its units, 2^-1074 or, of products, 2^-2148."""
    carried = limbs.copy()
    carry(carried)
    top = 32 * (limbs.shape[1] - 1)
    low = [int.from_bytes(row.tobytes(), "little") for row in carried[:, :-1].astype("<u4")]
    return [whole + (high << top) for whole, high in zip(low, carried[:, -1].tolist(), strict=True)]


def fractions(limbs: np.ndarray) -> list[Fraction]:
    """Each sum as a rational number."""
    unit = 2 ** (1074 if limbs.shape[1] == LIMBS else 2148)
    return [Fraction(whole, unit) for whole in whole_numbers(limbs)]


def cell_limbs(values: Any, cell: np.ndarray, weight: np.ndarray, size: int) -> np.ndarray:
    """Cell sums without rounding."""
    limbs = np.zeros((size, LIMBS if len(weight) == 0 else PRODUCT_LIMBS), dtype=np.int64)
    accumulate(np.ascontiguousarray(values, dtype=np.float64), cell, weight, limbs)
    return limbs


def exact_cell_sums(values: Any, cell: np.ndarray, weight: np.ndarray, size: int) -> list[Fraction]:
    """Cell sums as rational numbers."""
    return fractions(cell_limbs(values, cell, weight, size))
