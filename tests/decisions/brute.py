"""Rate parity by trying every pattern of decisions, in rational arithmetic: shares nothing with the library."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np


def rates(yes: np.ndarray, groups: np.ndarray, weights: np.ndarray | None = None) -> list[Fraction]:
    """The rate of yes in every group, exactly."""
    own = [Fraction(1)] * len(yes) if weights is None else [Fraction(float(w)) for w in weights]
    found = []
    for label in sorted(set(groups.tolist())):
        here = [i for i in range(len(yes)) if groups[i] == label]
        found.append(sum((own[i] for i in here if yes[i]), Fraction(0)) / sum(own[i] for i in here))
    return found


def keeps(each: list[Fraction], tolerance: float | None, ratio: float | None) -> bool:
    """Whether rates differ by no more than a tolerance, or have at least a ratio."""
    if ratio is not None:
        return min(each) >= Fraction(ratio) * max(each)
    return max(each) - min(each) <= Fraction(tolerance)


def least_cost(
    z: np.ndarray,
    columns: list[np.ndarray],
    rules: list[tuple[float | None, float | None]],  # tolerance or ratio for each column
    threshold: float = 0.5,
    weights: np.ndarray | None = None,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> float:
    """The least sum of squared changes; infinite where no pattern will do."""
    low = np.nextafter(np.asarray(threshold, dtype=z.dtype), np.asarray(-np.inf, dtype=z.dtype))
    up = np.clip(z.astype(float), *bounds)
    up, down = np.where(up >= threshold, up, threshold), np.where(up >= threshold, float(low), up)
    w = np.ones(len(z)) if weights is None else weights
    cost_yes = np.where(up <= bounds[1], w * (up - z) ** 2, np.inf)
    cost_no = np.where(down >= bounds[0], w * (down - z) ** 2, np.inf)
    best = np.inf
    for pattern in product([False, True], repeat=len(z)):
        yes = np.array(pattern)
        cost = float(np.where(yes, cost_yes, cost_no).sum())
        if cost < best and all(
            keeps(rates(yes, column, weights), *rule) for column, rule in zip(columns, rules, strict=True)
        ):
            best = cost
    return best


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
