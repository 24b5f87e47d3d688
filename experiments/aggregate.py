"""What fairness in every batch is worth over all of them (paper, Lemma 3.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.errors import InputError
from fairlayer.problem.groups import code_groups
from fairlayer.training import as_batch


@dataclass(frozen=True)
class AggregateBound:
    """How far apart two groups can be over all batches, if every batch keeps them within the tolerance."""

    attribute: Any
    pair: tuple[Any, Any]
    share: float  # of the first among the samples of both
    deviation: float  # of that share, in the batch where it is largest
    bound: float  # Lemma 3.1
    sharp: float  # the same with every batch counted by its own deviation; never more than `bound`


def aggregate_bound(
    loader: Iterable[Any], tolerance: float, bounds: tuple[float, float], attribute: Any = None
) -> list[AggregateBound]:
    """Bound the gap of means over all batches of a loader, given that no batch exceeds `tolerance` (Lemma 3.1).

        |gap| <= tolerance + R D (1/p + 1/(1 - p)),

    p the share of the first group of a pair, D its largest deviation in a batch, and R half the width of `bounds`, in
    which outputs lie: a shift of all outputs leaves gaps as they are, so the lemma's largest magnitude of a mean is
    taken about the middle. Lists every pair of every attribute, or of the one given, the widest bound first.

    sharp is tolerance + R sum_b |a_b - b_b|, with a_b and b_b the parts of each group that are in batch b.
    """
    counts: dict[Any, list[Counter[Any]]] = {}
    for item in loader:
        for name, column in code_groups(as_batch(item).groups).attributes.items():
            if attribute is None or name == attribute:
                values, numbers = np.unique(as_numpy(column.values), return_counts=True)
                labels = [value if column.labels is None else column.labels[value] for value in values.tolist()]
                counts.setdefault(name, []).append(Counter(dict(zip(labels, numbers.tolist(), strict=True))))
    if not counts:
        raise InputError(f"The batches have no attribute {attribute!r}.")
    half = 0.5 * (bounds[1] - bounds[0])
    found = [
        _bound_pair(name, pair, per_batch, tolerance, half)
        for name, per_batch in counts.items()
        for pair in combinations(dict.fromkeys(label for batch in per_batch for label in batch), 2)
    ]
    return sorted(found, key=lambda entry: -entry.bound)


def _bound_pair(
    name: Any, pair: tuple[Any, Any], per_batch: list[Counter[Any]], tolerance: float, half: float
) -> AggregateBound:
    a, b = (np.array([batch[label] for batch in per_batch], dtype=np.float64) for label in pair)
    present = a + b > 0
    share = a.sum() / (a + b).sum()
    deviation = float(np.abs(a[present] / (a + b)[present] - share).max())
    bound = tolerance + half * deviation * (1 / share + 1 / (1 - share))
    sharp = tolerance + half * float(np.abs(a / a.sum() - b / b.sum()).sum())
    return AggregateBound(name, pair, float(share), deviation, float(bound), sharp)
