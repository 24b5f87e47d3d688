"""Rates of yes in exact arithmetic, and what is asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fairlayer.decisions.units import Units

_DOUBT = 1e-9  # nearer to its limit than this, a rate is compared in rational arithmetic


class Comparison(NamedTuple):
    """Groups whose rates of yes are compared, every two of them."""

    member: np.ndarray  # (cells,) the group of each cell, -1 for none
    limit: Fraction  # the largest difference of two rates, or the least ratio
    ratio: bool = False

    def excess(self, rates: Sequence[Fraction] | Sequence[float]) -> Fraction | float:
        """By how much the limit would have to be wider; not above 0 where rates keep it."""
        highest, lowest = max(rates), min(rates)
        if not self.ratio:
            return highest - lowest - self.limit
        return self.limit - lowest / highest if highest else self.limit - 1

    def wider(self, excess: Fraction) -> Comparison:
        """The comparison with a limit that much wider."""
        wide = max(self.limit - excess, Fraction(0)) if self.ratio else self.limit + excess
        return self._replace(limit=wide)


class GroupRates:
    """The rates of the groups of one comparison, as functions of the yeses of units."""

    def __init__(self, units: Units, member: np.ndarray):
        self.here = np.flatnonzero(member >= 0)
        _, self.group = np.unique(member[self.here], return_inverse=True)
        self.groups = int(self.group.max(initial=-1)) + 1
        self.weight = units.weight[self.here]
        self.total = self.sums(units.size)
        self.exact_total = self.exact_sums(units.size)

    def sums(self, count: np.ndarray) -> np.ndarray:
        """(groups,) the weight of yeses."""
        return np.bincount(self.group, self.weight * count[self.here], self.groups)

    def exact_sums(self, count: np.ndarray) -> list[Fraction]:
        """The weight of yeses of each group, without rounding."""
        return weighted_counts(self.weight, count[self.here], self.group, self.groups)

    def exact(self, count: np.ndarray) -> list[Fraction]:
        """The rate of each group."""
        return [part / whole for part, whole in zip(self.exact_sums(count), self.exact_total, strict=True)]


class Rows:
    """Comparisons over units."""

    def __init__(self, units: Units, comparisons: Sequence[Comparison]):
        """comparisons: in the order of the units' memberships."""
        self.comparisons = list(comparisons)
        self.rates = [GroupRates(units, member) for member in units.member]

    def wider(self, excess: Fraction) -> Rows:
        """The rows with limits that much wider."""
        rows = object.__new__(Rows)
        rows.rates, rows.comparisons = self.rates, [one.wider(excess) for one in self.comparisons]
        return rows

    def hold(self, count: np.ndarray) -> bool:
        """Whether numbers of yeses keep every comparison; in rational arithmetic wherever there is doubt."""
        doubtful = []
        for one, rates in zip(self.comparisons, self.rates, strict=True):
            beyond = float(one.excess((rates.sums(count) / rates.total).tolist()))
            if beyond > _DOUBT:
                return False
            if beyond > -_DOUBT:
                doubtful.append((one, rates))
        return all(one.excess(rates.exact(count)) <= 0 for one, rates in doubtful)

    def excess(self, count: np.ndarray) -> Fraction:
        """By how much the limits would have to be wider for numbers of yeses to keep them."""
        pairs = zip(self.comparisons, self.rates, strict=True)
        return Fraction(max(one.excess(rates.exact(count)) for one, rates in pairs))


def weighted_counts(weight: np.ndarray, count: np.ndarray, index: np.ndarray, size: int) -> list[Fraction]:
    """(size,) sums of weight * count over equal indices, without rounding.

    Weights are taken 20 binary digits at a time, of which float64 adds up 2^33 without rounding.
    """
    total, rest = [Fraction(0)] * size, weight.astype(np.float64)
    exponent = int(np.frexp(rest.max(initial=0.0))[1])
    while rest.any():
        exponent -= 20
        digits = np.floor(np.ldexp(rest, -exponent))
        rest = rest - np.ldexp(digits, exponent)
        unit = Fraction(2) ** exponent
        sums = np.bincount(index, digits * count, size).tolist()
        total = [whole + int(part) * unit for whole, part in zip(total, sums, strict=True)]
    return total
