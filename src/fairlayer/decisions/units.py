"""Units: samples that every comparison treats alike. Decisions, too, see a batch only through sums.

Within a unit the cheapest way to k yeses is to turn the decisions that cost least. So a unit of n samples has n slopes,
what one yes more costs, in ascending order, and a table of n + 1 costs, which is convex and 0 at the present number.
Samples of different weight are in different units: a heavy one cannot stand in for a light one.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from fairlayer.core._native import cost_tables


class Units:
    """Units of a batch, their samples, and what numbers of yeses cost."""

    def __init__(
        self,
        change: np.ndarray,  # (n,) the cost of turning a decision, above 0; infinite where that is impossible
        yes: np.ndarray,  # (n,) decisions as they are
        pattern: np.ndarray,  # (n,) of 0 to P - 1, samples compared alike; -1 for samples that are left alone
        member: np.ndarray,  # (F, P) the group of each pattern in each comparison, -1 for none
        weights: np.ndarray | None = None,  # (n,) where they differ; those without weight are left alone
    ):
        here = np.flatnonzero(pattern >= 0 if weights is None else (pattern >= 0) & (weights > 0))
        count, unit = member.shape[1], pattern[here]
        self.pattern, self.weight = np.arange(count), np.ones(count)
        if weights is not None:
            heavy, which = np.unique(weights[here], return_inverse=True)
            pairs, unit = np.unique(unit * len(heavy) + which, return_inverse=True)
            self.pattern, which = np.divmod(pairs, len(heavy))
            self.weight, count = heavy[which], len(pairs)
        self.member = np.ascontiguousarray(member[:, self.pattern])
        self.size = np.bincount(unit, minlength=count).astype(np.int64)
        self.start = np.concatenate([[0], np.cumsum(self.size)])
        signed = np.where(yes[here], -change[here], change[here])
        if weights is not None:
            signed = signed * weights[here]
        order = np.lexsort((signed, unit))  # which keeps the order of equal ones: those that come first get the yes
        self.order, self.slope = (
            here[order],
            signed[order],
        )  # (N,) samples unit by unit, the last yes before the first no
        self.now, forced, barred = (
            np.bincount(unit[mask], minlength=count).astype(np.int64)
            for mask in (yes[here], signed == -np.inf, signed == np.inf)
        )
        self.low, self.high = forced, self.size - barred  # the fewest and the most yeses that are possible

    @cached_property
    def cost(self) -> np.ndarray:
        """(N + U,) the tables, one after the other."""
        return cost_tables(self.start, self.slope, self.now)

    @cached_property
    def table_start(self) -> np.ndarray:
        """(U + 1,) where each table begins."""
        return self.start + np.arange(len(self.start))

    def cost_of(self, count: np.ndarray) -> float:
        """What numbers of yeses cost together."""
        return float(self.cost[self.table_start[:-1] + count].sum())

    def decide(self, decided: np.ndarray, count: np.ndarray) -> None:
        """Write the decisions of all samples, given the number of yeses of each unit."""
        rank = np.arange(len(self.order)) - np.repeat(self.start[:-1], self.size)
        decided[self.order] = rank < np.repeat(count, self.size)

    def ties(self, scores: np.ndarray, count: np.ndarray) -> int:
        """People whose decision differs from that of somebody in their unit with the same score."""
        own, between = scores[self.order], np.flatnonzero((count > 0) & (count < self.size))
        last = self.start[between] + count[between]  # the first no of the unit
        tied = between[own[last - 1] == own[last]]
        return sum(
            int((own[self.start[u] : self.start[u + 1]] == own[self.start[u] + count[u]]).sum()) for u in tied.tolist()
        )

    def thresholds(self, scores: np.ndarray, count: np.ndarray, patterns: int) -> np.ndarray:
        """(P,) from which score on a pattern says yes: half way between its last yes and its first no.

        Infinite where a pattern says no, or yes, to all. With weights, the yeses whose weight is nearest to the best.
        """
        found, sample_pattern = np.full(patterns, np.nan), np.repeat(self.pattern, self.size)
        weight, wanted = np.repeat(self.weight, self.size), np.bincount(self.pattern, self.weight * count, patterns)
        for p in range(patterns):
            own = np.flatnonzero(sample_pattern == p)
            own = own[np.argsort(-scores[self.order[own]], kind="stable")]
            mass = np.concatenate([[0.0], np.cumsum(weight[own])])
            k, ranked = int(np.abs(mass - wanted[p]).argmin()), scores[self.order[own]]
            if 0 < k < len(own):
                found[p] = ranked[k] + 0.5 * (ranked[k - 1] - ranked[k])
            else:
                found[p] = -np.inf if k else np.inf
        return found
