"""Sums over many ranks that are the same to the bit however samples are spread over them.

A window is a long whole number, in limbs of 32 bits, that counts units of 2^bottom. Every value is cut off below that
unit, by itself, and added without rounding: so a sum depends on which values there are, not on where or in what order.
With the bottom far below the largest value, what is cut off is nothing beside the rounding of the sum to float64.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fairlayer.binding.exact_sums import UNIT, add_whole, rounded, whole_of
from fairlayer.compiled import compiled

WIDTH = 12  # limbs of a window, the uppermost of which is left to carries
DEPTH = 330  # bits from the largest value down to the bottom
_LAST_PLACE = 32 * (WIDTH - 3) + 31  # of a value's lowest bit, for its highest to be within the window
BLOCK = 1 << 14  # values whose parts add up exactly


def bottom_below(largest: float) -> int:
    """The bottom of a window whose values are at most `largest`."""
    return (math.frexp(largest)[1] if largest > 0.0 else 0) - DEPTH


@compiled(small=True)
def add_value(limbs, value, bottom):
    """Add a float to a window. One that is too large for it is left out: who knows the largest chooses the window."""
    bits = np.float64(value).view(np.int64)
    place, mantissa = whole_of(bits)
    at = place - 1074 - bottom
    if at < 0:
        mantissa >>= min(-at, 63)
        at = np.int64(0)
    if mantissa != 0 and at <= _LAST_PLACE:
        add_whole(limbs, at, mantissa, bits < 0)


def splitters(largest: float, bottom: int) -> tuple[float, float]:
    """Two numbers that take the upper bits of values up to `largest` off, so that these add up exactly as floats.

    (value + first) - first is the value rounded to 38 bits below the largest, and so is what is left with the second 40
    bits further down. Sums of BLOCK such parts are exact. What still is left, nothing as a rule, goes to the window.
    """
    exponent = math.frexp(largest)[1]
    if not largest > 0.0 or exponent - 78 < bottom + 56 or exponent > 900:  # values may be cut off below the bottom
        return 2.0**1000, 2.0**1000  # takes nothing off
    return math.ldexp(1.5, exponent - 38 + 52), math.ldexp(1.5, exponent - 78 + 52)


@compiled(inline=True)
def put(bank, c, limbs, value, split, bottom):
    """Add a value to the parts of a cell, bank: (2, G); what they cannot take, to its window. split: two splitters."""
    first, second = split
    high = (value + first) - first
    left = value - high
    low = (left + second) - second
    bank[0, c] += high
    bank[1, c] += low
    if left != low:
        add_value(limbs[c], left - low, bottom)


@compiled
def empty_bank(bank, limbs, bottom):
    """Add the parts of all cells to their windows, and begin anew."""
    for c in range(bank.shape[1]):
        for k in range(2):
            add_value(limbs[c], bank[k, c], bottom)
            bank[k, c] = 0.0


@compiled
def window_sums(limbs, bottoms, sums):
    """Windows, (m, G, WIDTH), as floats, (m, G), each rounded once; the bottom is another for each of m."""
    for k in range(limbs.shape[0]):
        for j in range(limbs.shape[1]):
            high, low = rounded(limbs[k, j], bottoms[k])
            sums[k, j] = high + low


def sum_errors(sums: np.ndarray, count: np.ndarray, bottom: int) -> np.ndarray:
    """A bound on what rounding and cutting off left out of sums of `count` values."""
    return UNIT * np.abs(sums) + count * math.ldexp(1.0, max(bottom, -1074))


def add_tensor(values: Tensor, cell: Tensor, size: int, bottom: int) -> Tensor:
    """(size, WIDTH) windows of the cells, in tensor operations, on any device; float64 values."""
    bits = values.contiguous().view(torch.int64)
    exponent = (bits >> 52) & 0x7FF
    fraction = bits & 0xFFFFFFFFFFFFF
    mantissa = torch.where(exponent > 0, fraction | (1 << 52), fraction)
    at = (exponent - 1).clamp(min=0) - 1074 - bottom
    mantissa = mantissa >> (-at).clamp(0, 63)
    mantissa = torch.where(at <= _LAST_PLACE, mantissa, torch.zeros_like(mantissa))
    at = at.clamp(0, _LAST_PLACE)
    by = at & 31
    low = (mantissa & 0xFFFFFFFF) << by
    high = ((mantissa >> 32) << by) + (low >> 32)
    sign = torch.where(bits < 0, -1, 1)
    limbs = torch.zeros(size * WIDTH, dtype=torch.int64, device=values.device)
    first = cell * WIDTH + (at >> 5)
    for k, part in enumerate((low & 0xFFFFFFFF, high & 0xFFFFFFFF, high >> 32)):
        limbs.index_add_(0, first + k, sign * part)
    return limbs.reshape(size, WIDTH)
