"""What an auditor computes: the gaps of everything emitted so far, in rational arithmetic, from the outputs alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np


class Pool:
    """Sums and counts by attribute and label."""

    def __init__(self) -> None:
        self.samples = 0
        self._groups: dict[Any, dict[Any, list[Any]]] = defaultdict(lambda: defaultdict(lambda: [0, Fraction(0)]))

    def add(self, emitted: Any, groups: Any) -> None:
        """One batch as it was emitted. groups: columns by name, or an (n, k) array."""
        columns: Mapping[Any, Any] = groups if isinstance(groups, Mapping) else dict(enumerate(np.asarray(groups).T))
        values = [Fraction(float(value)) for value in emitted]
        self.samples += len(values)
        for name, column in columns.items():
            for label, value in zip(column, values, strict=True):
                group = self._groups[name][label]
                group[0] += 1
                group[1] += value

    def largest_gap(self) -> Fraction:
        """Between any two groups of one attribute."""
        largest = Fraction(0)
        for groups in self._groups.values():
            means = [total / count for count, total in groups.values()]
            largest = max(largest, max(means) - min(means))
        return largest

    def keeps(self, tolerance: float) -> bool:
        """Whether no gap is above the tolerance, exactly."""
        return self.largest_gap() <= Fraction(tolerance)


class ClassPool:
    """The same of outputs (n, d), class by class."""

    def __init__(self) -> None:
        self.pools: list[Pool] = []

    @property
    def samples(self) -> int:
        """How many there are."""
        return self.pools[0].samples if self.pools else 0

    def add(self, emitted: Any, groups: Any) -> None:
        """One batch as it was emitted."""
        self.pools = self.pools or [Pool() for _ in range(emitted.shape[1])]
        for pool, column in zip(self.pools, emitted.T, strict=True):
            pool.add(column, groups)

    def largest_gap(self) -> Fraction:
        """Of any class."""
        return max(pool.largest_gap() for pool in self.pools)

    def keeps(self, tolerance: float) -> bool:
        """Whether no gap of any class is above the tolerance, exactly."""
        return self.largest_gap() <= Fraction(tolerance)
