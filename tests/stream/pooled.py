"""What an auditor computes from the outputs alone: gaps of everything emitted so far, without any rounding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np

_UNIT = 1 << 1074  # every float is a whole number of parts of 1 this small


def _whole(value: float) -> int:
    numerator, denominator = float(value).as_integer_ratio()
    return numerator * (_UNIT // denominator)


def _columns(groups: Any) -> Mapping[Any, Any]:
    """Columns by name, of these or of an (n, k) array."""
    return groups if isinstance(groups, Mapping) else dict(enumerate(np.asarray(groups).T))


class Pool:
    """Sums and counts by attribute and label."""

    def __init__(self) -> None:
        self.samples = 0
        self._groups: dict[Any, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))

    def add(self, emitted: Any, groups: Any) -> None:
        """One batch as it was emitted."""
        values = [_whole(value) for value in emitted]
        self.samples += len(values)
        for name, column in _columns(groups).items():
            for label, value in zip(column, values, strict=True):
                group = self._groups[name][label]
                group[0] += 1
                group[1] += value

    def largest_gap(self) -> Fraction:
        """Between any two groups of one attribute."""
        means = [[Fraction(total, count) for count, total in groups.values()] for groups in self._groups.values()]
        return max((max(one) - min(one) for one in means), default=Fraction(0)) / _UNIT

    def keeps(self, tolerance: float) -> bool:
        """Whether no gap is above the tolerance, exactly."""
        most = _whole(tolerance)
        return all(
            total * other - other_total * count <= most * count * other
            for groups in self._groups.values()
            for (count, total), (other, other_total) in permutations(groups.values(), 2)
        )


class ClassPool:
    """Outputs (n, d), class by class."""

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
        return all(pool.keeps(tolerance) for pool in self.pools)


class RatePool:
    """Decisions by attribute and label, and how many steps broke the promise.

    For any two groups a and b of one attribute, with P yeses in N decisions that fall into L combinations of labels:

        |P_a / N_a - P_b / N_b| <= tolerance + L_a / (2 N_a) + L_b / (2 N_b),
        or  P_b / N_b + L_b / (2 N_b) >= ratio (P_a / N_a - L_a / (2 N_a))  where a ratio is promised.
    """

    def __init__(
        self,
        tolerance: float = 0.0,
        ratio: float = 1.0,
        threshold: float = 0.5,
        over: Any = None,  # the attribute that is promised; None for all
    ) -> None:
        # As one condition: ratio (P_a - L_a / 2) / N_a - (P_b + L_b / 2) / N_b <= tolerance.
        self.tolerance, self.ratio = Fraction(tolerance), Fraction(ratio)
        self.threshold = threshold
        self.over = over
        self.samples = 0
        self.broken = 0
        self.beyond = False  # whether more than the tolerance was ever needed
        self._groups: dict[Any, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        self._cells: dict[Any, dict[Any, set[Any]]] = defaultdict(lambda: defaultdict(set))

    def add(self, emitted: Any, groups: Any) -> None:
        """One batch as it was emitted, decision by decision."""
        columns = _columns(groups)
        for i, score in enumerate(np.asarray(emitted).reshape(-1).tolist()):
            labels = {name: column[i] for name, column in columns.items()}
            self.samples += 1
            for name, label in labels.items():
                self._groups[name][label][0] += 1
                self._groups[name][label][1] += score >= self.threshold
                self._cells[name][label].add(tuple(labels.values()))
            pairs = [pair for name in labels if self.over in (None, name) for pair in self._pairs(name, labels[name])]
            self.broken += not all(self._holds(*pair) for pair in pairs)

    def _pairs(self, name: Any, changed: Any) -> Iterator[tuple[int, ...]]:
        """The group that has changed with every other, both ways."""
        groups = {label: (n, yes, len(self._cells[name][label])) for label, (n, yes) in self._groups[name].items()}
        mine = groups.pop(changed)
        for other in groups.values():
            yield (*mine, *other)
            yield (*other, *mine)

    def _holds(self, n_a: int, yes_a: int, cells_a: int, n_b: int, yes_b: int, cells_b: int) -> bool:
        (p, q), (r, s) = (each.as_integer_ratio() for each in (self.tolerance, self.ratio))
        self.beyond |= q * (r * yes_a * n_b - s * yes_b * n_a) > p * s * n_a * n_b
        return q * (r * (2 * yes_a - cells_a) * n_b - s * (2 * yes_b + cells_b) * n_a) <= 2 * p * s * n_a * n_b

    def count(self, name: Any, label: Any) -> tuple[int, Fraction]:
        """How many decisions there are of a group, and its rate of yes."""
        n, yes = self._groups[name][label]
        return n, Fraction(yes, n)

    def largest_gap(self) -> Fraction:
        """Between any two groups of one attribute."""
        rates = [[Fraction(yes, n) for n, yes in groups.values()] for groups in self._groups.values()]
        return max((max(one) - min(one) for one in rates), default=Fraction(0))

    def keeps(self, _: float | None = None) -> bool:
        """Whether no step broke the promise."""
        return self.broken == 0
