"""Constraints checked in rational arithmetic, apart from the code that enforces them.

Every float is an integer times a power of two, so sums and means of floats are exact fractions. Tolerances and bounds
are the floats they are written as.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np


def total(values: Any) -> Fraction:
    """The sum of floats, without rounding."""
    mantissa, exponent = np.frexp(np.asarray(values, dtype=np.float64).reshape(-1))
    whole = (mantissa * 2.0**53).astype(np.int64)
    parts = (sum(whole[exponent == e].tolist()) * Fraction(2) ** (int(e) - 53) for e in np.unique(exponent))
    return sum(parts, Fraction(0))


def mean(values: Any) -> Fraction:
    """The mean of floats, without rounding."""
    return total(values) / len(values)


def largest_gap(values: Any, groups: Mapping[str, Any]) -> Fraction:
    """The largest difference of means between two groups of one attribute; what `MeanParity` bounds."""
    differences = [
        abs(a - b)
        for labels in groups.values()
        for (_, a), (_, b) in combinations([(label, mean(part)) for label, part in _parts(values, labels)], 2)
    ]
    return max(differences, default=Fraction(0))


def residual_means(values: Any, targets: Any, groups: Mapping[str, Any]) -> dict[tuple[str, Any], Fraction]:
    """Mean of value - target in every group of every attribute; what `ResidualMean` bounds."""
    flat, wanted = _flat(values), _flat(targets)
    return {
        (name, label): (total(part) - total(want)) / len(part)
        for name, labels in groups.items()
        for (label, part), (_, want) in zip(_parts(flat, labels), _parts(wanted, labels), strict=True)
    }


def largest_excess(A: Any, values: Any, lower: Any = -np.inf, upper: Any = np.inf) -> list[Fraction]:
    """By how much A y passes its bounds at most, negative within, for every case; what `Affine` bounds.

    A: (m, n). values: (n,), or (B, n) for B cases. lower, upper: numbers, (m,) or (B, m).
    """
    Y, y_exponent = _integers(np.atleast_2d(np.asarray(values, dtype=np.float64)))
    M, m_exponent = _integers(np.asarray(A, dtype=np.float64))
    products = Y @ M.T  # of Python's integers, which never overflow
    unit = Fraction(2) ** (y_exponent + m_exponent)
    low, high = (np.broadcast_to(np.asarray(side, dtype=np.float64), products.shape) for side in (lower, upper))
    return [
        max(
            side
            for product, least, most in zip(*case, strict=True)
            for side in _excesses(product * unit, float(least), float(most))
        )
        for case in zip(products, low, high, strict=True)
    ]


def _excesses(value: Fraction, least: float, most: float) -> Iterator[Fraction]:
    if np.isfinite(most):
        yield value - Fraction(most)
    if np.isfinite(least):
        yield Fraction(least) - value


def _integers(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Floats as Python's integers times one power of two."""
    mantissa, exponent = np.frexp(values)
    lowest = int(exponent.min())
    whole = (mantissa * 2.0**53).astype(np.int64).astype(object)
    return whole * 2 ** (exponent - lowest).astype(object), lowest - 53


def within(values: Any, bounds: tuple[float | None, float | None]) -> bool:
    """Whether every value lies in its bounds; comparing floats is exact."""
    flat = _flat(values)
    low, high = bounds
    return bool((low is None or (flat >= low).all()) and (high is None or (flat <= high).all()))


def _flat(values: Any) -> np.ndarray:
    return np.asarray(values, dtype=np.float64).reshape(-1)


def _parts(values: Any, labels: Any) -> Iterator[tuple[Any, np.ndarray]]:
    """The values of each group."""
    flat, column = _flat(values), np.asarray(labels).reshape(-1)
    return ((label, flat[column == label]) for label in np.unique(column).tolist())
