"""Parts of a problem that can be solved one by one, as numbers of yeses of their units, and rates in exact arithmetic.

Decisions, too, see a batch only through sums. A *unit* is a set of samples that every comparison treats alike. The
cheapest way to k yeses within it is to turn the decisions that cost least. So a unit of n samples has n slopes, what
one yes more costs, in ascending order, and a table of n + 1 costs, which is convex and 0 at the present number. Samples
of different weight are in different units: a heavy one cannot stand in for a light one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fairlayer.core._native import cost_tables
from fairlayer.problem.exact_sums import exact_cell_sums

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


def split(
    comparisons: Sequence[Comparison],
    change: np.ndarray,  # (n,) the cost of turning a decision, above 0; infinite where that is impossible
    yes: np.ndarray,  # (n,) decisions as they are
    cell: np.ndarray,  # (n,)
    weights: np.ndarray | None = None,  # (n,) where they differ; samples without weight are left alone
) -> Iterator[Part]:
    """The parts of a problem: comparisons that share no cell do not depend on each other."""
    table = np.stack([one.member for one in comparisons])
    left = list(range(len(comparisons)))
    while left:
        linked = [left.pop(0)]
        seen = table[linked[0]] >= 0
        while more := [f for f in left if (seen & (table[f] >= 0)).any()]:
            linked += more
            left = [f for f in left if f not in more]
            seen = seen | (table[more] >= 0).any(axis=0)
        linked.sort()
        member, pattern = np.unique(table[linked][:, seen], axis=1, return_inverse=True)
        of_cell = np.full(table.shape[1], -1, dtype=np.int64)
        of_cell[seen] = pattern.reshape(-1)
        yield Part(linked, [comparisons[f] for f in linked], of_cell, member, change, yes, of_cell[cell], weights)


class Part:
    """Comparisons that depend on each other, units of the samples compared, and what numbers of yeses cost."""

    def __init__(
        self,
        position: list[int],  # of the comparisons, in the list of all
        comparisons: list[Comparison],
        of_cell: np.ndarray,  # (cells,) patterns of cells that all comparisons treat alike; -1 for none
        member: np.ndarray,  # (F, patterns) the group of each pattern in each comparison, -1 for none
        change: np.ndarray,
        yes: np.ndarray,
        pattern: np.ndarray,  # (n,) of each sample
        weights: np.ndarray | None,
    ):
        self.position, self.comparisons, self.of_cell = position, comparisons, of_cell
        here = np.flatnonzero(pattern >= 0 if weights is None else (pattern >= 0) & (weights > 0))
        unit, count, signed = pattern[here], member.shape[1], np.where(yes[here], -change[here], change[here])
        self.patterns, self.pattern, self.weight = count, np.arange(count), np.ones(count)
        self.weighted = weights is not None
        if weights is not None:
            signed = signed * weights[here]
            heavy, which = np.unique(weights[here], return_inverse=True)
            pairs, unit = np.unique(unit * len(heavy) + which, return_inverse=True)
            self.pattern, which = np.divmod(pairs, len(heavy))
            self.weight, count = heavy[which], len(pairs)
        # Samples unit by unit, the last yes before the first no. Of equal ones those that come first get the yes.
        order = np.lexsort((signed, unit))
        self.order, self.slope = here[order], signed[order]
        self.size, self.now, forced, barred = (
            np.bincount(unit[mask], minlength=count).astype(np.int64)
            for mask in (slice(None), yes[here], signed == -np.inf, signed == np.inf)
        )
        self.low, self.high = forced, self.size - barred  # the fewest and the most yeses that are possible
        self.start = np.concatenate([[0], np.cumsum(self.size)])
        self.table_start = self.start + np.arange(count + 1)  # where each table of costs begins
        # (F, units) the groups that somebody is in, numbered from comparison to comparison; -1 for none.
        self.group = np.full((len(comparisons), count), -1)
        self.begin = [0]
        for own, of_pattern in zip(self.group, member, strict=True):
            groups, own[:] = np.unique(of_pattern[self.pattern], return_inverse=True)
            own[:] = np.where(groups[own] >= 0, own - (groups[0] < 0) + self.begin[-1], -1)
            self.begin.append(self.begin[-1] + int((groups >= 0).sum()))
        self._index = self.group.ravel() + 1
        self.total = self.sums(self.size)

    @cached_property
    def cost(self) -> np.ndarray:
        """(N + units,) the tables, one after the other."""
        return cost_tables(self.start, self.slope, self.now)

    def cost_of(self, count: np.ndarray) -> float:
        """What numbers of yeses cost together."""
        return float(self.cost[self.table_start[:-1] + count].sum())

    def sums(self, count: np.ndarray) -> np.ndarray:
        """(groups,) the weight of yeses in each group."""
        each = np.broadcast_to(self.weight * count, self.group.shape)
        return np.bincount(self._index, each.ravel(), self.begin[-1] + 1)[1:]

    def of_comparisons(self, of_group: np.ndarray) -> list[np.ndarray]:
        """Numbers of all groups, comparison by comparison."""
        return np.split(of_group, self.begin[1:-1])

    def wider(self, excess: Fraction) -> Part:
        """The part with limits that much wider."""
        part = copy(self)
        part.comparisons = [one.wider(excess) for one in self.comparisons]
        return part

    def hold(self, count: np.ndarray) -> bool:
        """Whether numbers of yeses keep every comparison; in rational arithmetic wherever there is doubt."""
        rates = self.of_comparisons(self.sums(count) / self.total)
        beyond = [one.excess(each.tolist()) for one, each in zip(self.comparisons, rates, strict=True)]
        return max(beyond) <= -_DOUBT or (max(beyond) <= _DOUBT and self.excess(count) <= 0)

    def excess(self, count: np.ndarray) -> Fraction:
        """By how much the limits would have to be wider for numbers of yeses to keep them."""
        weights, ends = self.weight if self.weighted else None, zip(self.begin, self.begin[1:], strict=False)
        found = [
            one.excess(
                [
                    rate
                    for rate in exact_rates(group - begin, end - begin, count, self.size, weights)
                    if rate is not None
                ]
            )
            for one, group, (begin, end) in zip(self.comparisons, self.group, ends, strict=True)
        ]
        return Fraction(max(found))

    def decide(self, decided: np.ndarray, count: np.ndarray) -> None:
        """Write the decisions of all samples, given the number of yeses of each unit."""
        rank = np.arange(len(self.order)) - np.repeat(self.start[:-1], self.size)
        decided[self.order] = rank < np.repeat(count, self.size)

    def ties(self, scores: np.ndarray, count: np.ndarray) -> int:
        """People whose decision differs from that of somebody in their unit with the same score."""
        between = np.flatnonzero((count > 0) & (count < self.size))
        units = np.split(scores[self.order], self.start[1:-1])
        ends = [(units[u], units[u][count[u]], units[u][count[u] - 1]) for u in between.tolist()]
        return sum(int((own == first_no).sum()) for own, first_no, last_yes in ends if first_no == last_yes)

    def thresholds(self, scores: np.ndarray, count: np.ndarray) -> np.ndarray:
        """(patterns,) from which score on a pattern says yes: half way between its last yes and its first no.

        Infinite where a pattern says no, or yes, to all; NaN where nothing of it is turned. With weights, the yeses
        whose weight is nearest to the best.
        """
        found, sample_pattern = np.full(self.patterns, np.nan), np.repeat(self.pattern, self.size)
        weight = np.repeat(self.weight, self.size)
        wanted = np.bincount(self.pattern, self.weight * count, self.patterns)
        for p in np.unique(self.pattern[count != self.now]).tolist():
            own = np.flatnonzero(sample_pattern == p)
            own = own[np.argsort(-scores[self.order[own]], kind="stable")]
            mass = np.concatenate([[0.0], np.cumsum(weight[own])])
            k, ranked = int(np.abs(mass - wanted[p]).argmin()), scores[self.order[own]]
            if 0 < k < len(own):
                found[p] = ranked[k] + 0.5 * (ranked[k - 1] - ranked[k])
            else:
                found[p] = -np.inf if k else np.inf
        return found


def exact_rates(
    group: np.ndarray, groups: int, yes: np.ndarray, size: np.ndarray, weights: np.ndarray | None
) -> list[Fraction | None]:
    """The rate of yes in each group, without rounding; None where nobody is in it.

    group: (U,) of each unit, below 0 for none; yes, size: (U,) samples of it; weights: (U,) of each, None for 1.
    """
    here = group >= 0
    own = group[here].astype(np.int32)
    if weights is None:
        part, whole = (np.bincount(own, each[here], groups).astype(int).tolist() for each in (yes, size))
    else:
        part, whole = (exact_cell_sums(each[here], own, weights[here], groups) for each in (yes, size))
    return [Fraction(a, b) if b else None for a, b in zip(part, whole, strict=True)]
