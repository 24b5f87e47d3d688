"""Sums without rounding: whole numbers in limbs of 32 bits, which add up to the same in any order.

A float64 is a whole number times a power of 2, so it can be added to a long whole number exactly. This is the one place
where sums are taken that a promise rests on: of outputs, targets, weights, files and streams.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from fairlayer.core._native import accumulate, carry, exact_sums

__all__ = ["TINY", "UNIT", "exact_cell_sums", "exact_sums", "whole_cell_sums"]

UNIT = 2.0**-53  # relative rounding error of float64, in which other sums are taken
TINY = 2.0**-1074  # the least float64 above zero


def whole_cell_sums(values: Any, cell: np.ndarray, weight: np.ndarray, size: int) -> list[int]:
    """Cell sums as whole numbers of units: of 2^-1074, or 2^-2148 where there are weights."""
    limbs = np.zeros((size, 136 if len(weight) else 68), dtype=np.int64)  # which any sum of float64 fits into
    accumulate(np.ascontiguousarray(values, dtype=np.float64), cell, weight, limbs)
    carry(limbs)
    low = [int.from_bytes(row.tobytes(), "little") for row in limbs[:, :-1].astype("<u4")]
    top = 32 * (limbs.shape[1] - 1)
    return [whole + (high << top) for whole, high in zip(low, limbs[:, -1].tolist(), strict=True)]


def exact_cell_sums(values: Any, cell: np.ndarray, weight: np.ndarray, size: int) -> list[Fraction]:
    """Cell sums as rational numbers."""
    unit = 2 ** (2148 if len(weight) else 1074)
    return [Fraction(whole, unit) for whole in whole_cell_sums(values, cell, weight, size)]
