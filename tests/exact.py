"""Rational arithmetic on floats: every float is an integer times a power of two, so sums and products are exact."""

from __future__ import annotations

from fractions import Fraction

import numpy as np


def exact_dot(*factors: np.ndarray) -> Fraction:
    """The sum of the products of float64 arrays, without any rounding."""
    if any(len(factor) == 0 for factor in factors):
        return Fraction(0)
    parts = [np.frexp(np.asarray(factor, dtype=np.float64)) for factor in factors]
    exponent = sum(part[1].astype(np.int64) - 53 for part in parts)
    mantissas = [(part[0] * 2.0**53).astype(np.int64) for part in parts]
    lowest = int(exponent.min())
    if len(mantissas) == 1:
        total = sum(_integer_sum(mantissas[0][exponent == e]) << int(e - lowest) for e in np.unique(exponent))
    else:
        product = np.prod([mantissa.astype(object) for mantissa in mantissas], axis=0)
        total = sum(p << int(e - lowest) for p, e in zip(product, exponent, strict=True))
    return Fraction(int(total)) * Fraction(2) ** lowest


def _integer_sum(values: np.ndarray) -> int:
    """The sum of int64 below 2^53 in size, in halves that cannot overflow."""
    high = values >> 27
    return (int(high.sum()) << 27) + int((values - (high << 27)).sum())
