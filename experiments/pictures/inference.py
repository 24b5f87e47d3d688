"""From raw logits to outputs, batch by batch, and what is to be said of these in exact arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import torch

from experiments import exact
from experiments.pictures.settings import Settings
from experiments.pictures.training import bce, parity
from fairlayer import Stream, project
from fairlayer.training import StratifiedBatches

# How raw outputs become outputs: as they are; each batch projected by itself; all pictures projected together; and two
# that look at all batches before: the paper's Algorithm 1 (at either threshold), and the ledger.
RAW, PROJECTED, TOGETHER, LEDGER = "raw", "projected", "projected together", "ledger"
HARD, SOFT = "Algorithm 1, hard", "Algorithm 1, primal-dual"
# How pictures arrive. Every one once, batches with the same number of each group give or take one; or, as the authors
# had it, exactly the same number in every batch, for which some pictures come twice and some never.
ONCE, EQUAL = "each once", "equal shares"


def arrivals(group: np.ndarray, size: int, how: str = ONCE) -> list[np.ndarray]:
    """Positions of the pictures of each batch; none where equal shares need more than so many pictures."""
    return list(StratifiedBatches({"group": group}, size, shuffle=False)) if how == ONCE else _equal_shares(group, size)


def _equal_shares(group: np.ndarray, size: int) -> list[np.ndarray]:
    labels, counts = np.unique(group, return_counts=True)
    if size < len(labels) or size > len(group):
        return []
    wanted = size * counts / len(group)
    quota = np.maximum(1, np.floor(wanted)).astype(int)
    while quota.sum() != size:  # give to, or take from, the one that is farthest from its share
        short = wanted - quota
        place = short.argmax() if quota.sum() < size else np.where(quota > 1, short, np.inf).argmin()
        quota[place] += 1 if quota.sum() < size else -1
    batches = len(group) // size
    stacks = [
        np.resize(np.flatnonzero(group == label), batches * number).reshape(batches, number)
        for label, number in zip(labels, quota, strict=True)
    ]
    return list(np.concatenate(stacks, axis=1))


def renumbered(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """All pictures in the order in which they come, however often, and the batches as positions in that order."""
    ends = np.cumsum([len(taken) for taken in rows])
    return np.concatenate(rows), np.split(np.arange(ends[-1]), ends[:-1])


def emit(
    raw: np.ndarray, group: np.ndarray, rows: Sequence[np.ndarray], how: str, tolerance: float, settings: Settings
) -> np.ndarray:
    """Outputs for every picture."""
    if how == RAW:
        return raw
    if how == TOGETHER:
        return project(raw, {"group": group}, parity(tolerance)).value
    emitted = np.empty_like(raw)
    if how == PROJECTED:
        for taken in rows:
            emitted[taken] = project(raw[taken], {"group": group[taken]}, parity(tolerance)).value
        return emitted
    if how == LEDGER:
        stream = Stream(parity(tolerance))
    else:
        b_tau = min(settings.b_tau) if how == HARD else max(settings.b_tau)
        stream = Stream(parity(tolerance), policy="primal-dual", b_tau=b_tau, eta=settings.eta)
    for taken in rows:
        emitted[taken] = stream.update(raw[taken], {"group": group[taken]}).value
    return emitted


class Means:
    """Exact means of groups."""

    def __init__(self) -> None:
        self.sums: dict[Any, Fraction] = {}
        self.counts: dict[Any, int] = {}

    @classmethod
    def of(cls, values: np.ndarray, group: np.ndarray) -> Means:
        """Of some values."""
        means = cls()
        for label in np.unique(group).tolist():
            part = values[group == label]
            means.sums[label], means.counts[label] = exact.total(part), len(part)
        return means

    def add(self, others: Means) -> None:
        """Include the values of others."""
        for label, total in others.sums.items():
            self.sums[label] = self.sums.get(label, Fraction(0)) + total
            self.counts[label] = self.counts.get(label, 0) + others.counts[label]

    def values(self) -> list[Fraction]:
        """One per group that was seen."""
        return [self.sums[label] / self.counts[label] for label in self.sums]

    def gap(self) -> Fraction:
        """The largest difference of two groups."""
        means = self.values()
        return max(means) - min(means)


def judge(
    emitted: np.ndarray, targets: np.ndarray, group: np.ndarray, rows: Sequence[np.ndarray], tolerance: float
) -> dict[str, Any]:
    """Accuracy and gaps. Means are exact fractions, and so is every comparison with the tolerance.

    batch gap: largest difference of two groups within a batch. pooled: among all pictures together. moments: batches
    after which all pictures so far kept the tolerance.
    """
    limit = Fraction(tolerance)
    pooled, each, moments = Means(), [], 0
    for taken in rows:
        batch = Means.of(emitted[taken], group[taken])
        each.append(batch.gap())
        pooled.add(batch)
        moments += pooled.gap() <= limit
    pairs = [abs(a - b) for a, b in combinations(pooled.values(), 2)]
    sizes = [len(taken) for taken in rows]
    flat = torch.from_numpy(emitted.astype(np.float64))
    return {
        "accuracy": float(np.mean((emitted >= 0) == (targets == 1))),
        "bce": float(bce(flat, torch.tensor(targets, dtype=torch.float64))),
        "logit_sd": float(emitted.std()),
        "batches": len(rows),
        "batches_exact": sum(gap <= limit for gap in each),
        "moments_exact": moments,
        "largest_batch_gap": float(max(each)),
        "mean_batch_gap": float(sum(size * gap for size, gap in zip(sizes, each, strict=True)) / sum(sizes)),
        "pooled_gap": float(pooled.gap()),
        "pooled_exact": pooled.gap() <= limit,
        "pairs": len(pairs),
        "pairs_violated": sum(pair > limit for pair in pairs),
    }
