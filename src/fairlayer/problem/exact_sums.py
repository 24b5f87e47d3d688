"""Sums without rounding: whole numbers in limbs of 32 bits, which add up to the same in any order.

A float64 is a whole number times a power of 2, so it can be added to a long whole number exactly. This is the one place
where sums are taken that a promise rests on: of outputs, targets, weights, files and streams.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from fairlayer.core._native import accumulate, carry, exact_sums, round_sums

__all__ = ["accumulate", "carry", "cell_limbs", "exact_cell_sums", "exact_sums", "fractions", "round_sums"]

UNIT = 2.0**-53  # relative rounding error of float64, in which other sums are taken
TINY = 2.0**-1074  # the least float64 above zero
LIMBS = 68  # of a sum of float64, in units of 2^-1074
PRODUCT_LIMBS = 136  # of a sum of products of two, in units of 2^-2148


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
