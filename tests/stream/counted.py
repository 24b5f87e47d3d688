"""What an auditor counts: the rates of yes after every single decision, in whole numbers, from the scores alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np


class RatePool:
    """Decisions by attribute and label, and how many steps broke the promise.

    For any two groups a and b of one attribute, with P yeses in N decisions that fall into L combinations of labels:

        |P_a / N_a - P_b / N_b| <= tolerance + L_a / (2 N_a) + L_b / (2 N_b),
        or  P_b / N_b + L_b / (2 N_b) >= ratio (P_a / N_a - L_a / (2 N_a))  where a ratio is promised.
    """

    def __init__(
        self,
        tolerance: float | None = None,
        ratio: float | None = None,
        threshold: float = 0.5,
        over: Any = None,  # the attribute that is promised; None for all
    ) -> None:
        self.tolerance = None if tolerance is None else Fraction(tolerance)
        self.ratio = None if ratio is None else Fraction(ratio)
        self.threshold = Fraction(threshold)
        self.over = over
        self.samples = 0
        self.yes = 0
        self.broken = 0
        self.nearest = Fraction(-1)  # the largest share of what is allowed beyond the tolerance that was used
        self._groups: dict[Any, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        self._cells: dict[Any, dict[Any, set[Any]]] = defaultdict(lambda: defaultdict(set))

    def add(self, emitted: Any, groups: Any) -> None:
        """One batch as it was emitted, decision by decision. groups: columns by name, or an (n, k) array."""
        columns: Mapping[Any, Any] = groups if isinstance(groups, Mapping) else dict(enumerate(np.asarray(groups).T))
        for i, score in enumerate(np.asarray(emitted).reshape(-1).tolist()):
            yes = int(Fraction(score) >= self.threshold)
            labels = {name: column[i] for name, column in columns.items()}
            self.samples += 1
            self.yes += yes
            for name, label in labels.items():
                self._groups[name][label][0] += 1
                self._groups[name][label][1] += yes
                self._cells[name][label].add(tuple(labels.values()))
            self.broken += not all(
                self._holds(name, label) for name, label in labels.items() if self.over in (None, name)
            )

    def _holds(self, name: Any, changed: Any) -> bool:
        """Between the group that has changed and all others."""
        return all(
            self._pair(name, changed, other) and self._pair(name, other, changed)
            for other in self._groups[name]
            if other != changed
        )

    def _pair(self, name: Any, a: Any, b: Any) -> bool:
        (n_a, yes_a), (n_b, yes_b) = self._groups[name][a], self._groups[name][b]
        cells_a, cells_b = len(self._cells[name][a]), len(self._cells[name][b])
        upper, lower = Fraction(2 * yes_a - cells_a, 2 * n_a), Fraction(2 * yes_b + cells_b, 2 * n_b)
        if self.ratio is not None:
            return lower >= self.ratio * upper
        assert self.tolerance is not None
        allowed = Fraction(cells_a, 2 * n_a) + Fraction(cells_b, 2 * n_b)
        self.nearest = max(self.nearest, (Fraction(yes_a, n_a) - Fraction(yes_b, n_b) - self.tolerance) / allowed)
        return upper - lower <= self.tolerance

    def rate(self, name: Any, label: Any) -> Fraction:
        """Of yes."""
        return Fraction(self._groups[name][label][1], self._groups[name][label][0])

    def largest_gap(self) -> Fraction:
        """Between any two groups of one attribute."""
        spread = [[self.rate(name, label) for label in groups] for name, groups in self._groups.items()]
        return max((max(rates) - min(rates) for rates in spread), default=Fraction(0))

    def keeps(self, _: float | None = None) -> bool:
        """Whether no step broke the promise."""
        return self.broken == 0
