"""Rate parity by trying every pattern of decisions, in rational arithmetic: shares nothing with the library."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import numpy as np

RULES = [(t, None) for t in (0.0, 0.1, 0.25, 0.3, 0.5)] + [(None, r) for r in (0.5, 0.8, 0.9, 1.0)]
FORMS = ("plain", "given one class", "given each class", "weights", "weights, given one class")


def rates(
    yes: np.ndarray, groups: np.ndarray, weights: np.ndarray | None = None, among: np.ndarray | None = None
) -> list[Fraction]:
    """The rate of yes in every group, exactly; among: which samples count, where not all do."""
    own = [Fraction(1)] * len(yes) if weights is None else [Fraction(float(w)) for w in weights]
    counted = [i for i in range(len(yes)) if among is None or among[i]]
    found = []
    for label in sorted(set(groups[counted].tolist())):
        here = [i for i in counted if groups[i] == label]
        found.append(sum((own[i] for i in here if yes[i]), Fraction(0)) / sum(own[i] for i in here))
    return found


def keeps(each: list[Fraction], tolerance: float | None, ratio: float | None) -> bool:
    """Whether rates differ by no more than a tolerance, or have at least a ratio."""
    if ratio is not None:
        return not each or min(each) >= Fraction(ratio) * max(each)
    return not each or max(each) - min(each) <= Fraction(tolerance)


def least_cost(
    z: np.ndarray,
    columns: list[np.ndarray],
    rules: list[tuple[float | None, float | None]],  # tolerance or ratio for each column
    threshold: float = 0.5,
    weights: np.ndarray | None = None,
    bounds: tuple[float, float] = (-np.inf, np.inf),
    among: list[np.ndarray | None] | None = None,  # for each column, which samples count; None for all
) -> float:
    """The least sum of squared changes; infinite where no pattern will do."""
    low = np.nextafter(np.asarray(threshold, dtype=z.dtype), np.asarray(-np.inf, dtype=z.dtype))
    up = np.clip(z.astype(float), *bounds)
    up, down = np.where(up >= threshold, up, threshold), np.where(up >= threshold, float(low), up)
    w = np.ones(len(z)) if weights is None else weights
    cost_yes = np.where(up <= bounds[1], w * (up - z) ** 2, np.inf)
    cost_no = np.where(down >= bounds[0], w * (down - z) ** 2, np.inf)
    patterns = np.array(list(product([False, True], repeat=len(z))))
    costs = np.where(patterns, cost_yes, cost_no).sum(axis=1)
    counted = [None] * len(columns) if among is None else among
    for at in np.argsort(costs, kind="stable"):  # the cheapest that keeps every rule
        if not np.isfinite(costs[at]):
            break
        if all(
            keeps(rates(patterns[at], column, weights, own), *rule)
            for column, rule, own in zip(columns, rules, counted, strict=True)
        ):
            return float(costs[at])
    return np.inf


def least_cost_of_counts(
    z: np.ndarray, groups: np.ndarray, tolerance: float | None, ratio: float | None, threshold: float = 0.5
) -> float:
    """The same for one attribute, by trying every number of yeses of every group: quicker, for many cases."""
    low = np.nextafter(threshold, -np.inf)
    sizes, tables = [], []
    for label in sorted(set(groups.tolist())):
        own = np.sort(z[groups == label])[::-1]
        to_yes, to_no = np.maximum(threshold - own, 0.0) ** 2, np.where(own >= threshold, (own - low) ** 2, 0.0)
        sizes.append(len(own))
        tables.append([to_yes[:k].sum() + to_no[k:].sum() for k in range(len(own) + 1)])
    best = np.inf
    for counts in product(*(range(n + 1) for n in sizes)):
        if keeps([Fraction(k, n) for k, n in zip(counts, sizes, strict=True)], tolerance, ratio):
            best = min(best, float(sum(table[k] for table, k in zip(tables, counts, strict=True))))
    return best


class Overlapping(NamedTuple):
    """A batch of a few samples with two or three attributes, each with a rule of its own."""

    z: np.ndarray
    groups: dict[str, np.ndarray]
    rules: list[tuple[float | None, float | None]]  # tolerance or ratio for each attribute
    weights: np.ndarray | None
    targets: np.ndarray | None
    given: Any  # the class of the target within which rates are compared: None, 1 or "each"

    def wrong(self, value: np.ndarray, proved: float) -> str:
        """What is wrong with an answer whose cost is said to exceed the least by at most `proved`; empty if nothing."""
        columns, rules, among = [], [], []
        classes = {None: [None], 1: [1], "each": [0, 1]}[self.given]
        for column, rule in zip(self.groups.values(), self.rules, strict=True):
            for label in classes:
                columns.append(column)
                rules.append(rule)
                among.append(None if label is None else self.targets == label)
        yes = value >= 0.5
        for column, rule, own in zip(columns, rules, among, strict=True):
            if not keeps(rates(yes, column, self.weights, own), *rule):
                return f"breaks {rule}"
        weights = 1.0 if self.weights is None else self.weights
        spent = float((weights * (value - self.z) ** 2).sum())
        least = least_cost(self.z, columns, rules, weights=self.weights, among=among)
        slack = 1e-7 * least + 1e-14
        if spent < least - slack:
            return f"costs {spent}, less than the least, {least}"
        return f"costs {spent}, the least is {least}" if spent > least + proved + slack else ""


def overlapping(rng: np.random.Generator, n: int, form: str) -> Overlapping:
    """A random one of n samples; half of them with many ties."""
    z = np.round(rng.random(n), int(rng.choice([1, 9])))
    count = int(rng.integers(2, 4))
    columns = [np.concatenate([[0, 1], rng.integers(0, 2 + (j == 0), n - 2)]) for j in range(count)]
    rules = [RULES[int(rng.integers(0, len(RULES)))] for _ in columns]
    weights = rng.uniform(0.5, 3.0, n) if "weights" in form else None
    given = 1 if "one class" in form else "each" if "each class" in form else None
    targets = None if given is None else rng.integers(0, 2, n)
    return Overlapping(z, dict(zip("abc", columns, strict=False)), rules, weights, targets, given)
