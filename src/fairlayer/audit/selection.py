"""Who is selected: rates of decisions, and their ratio to the rate of the group that is selected most.

This is what selection procedures are judged by in practice: the impact ratio of the four-fifths rule, with an interval,
Fisher's exact test, the difference in standard deviations, and the shortfall in people. For scores, the scoring rate:
the share of a group above the median of everybody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fairlayer.audit.result import Interval, Rate, Selection
from fairlayer.audit.tally import GroupSums
from fairlayer.intervals import Comparisons, Moments, all_pairs, effective_count, wilson
from fairlayer.tables.entries import MISSING

FOUR_FIFTHS = 0.8  # the impact ratio below which the four-fifths rule sees adverse impact
SMALL_SHARE = 0.02  # of the samples: smaller groups are marked, and no ratio is taken to them


def rates(successes: np.ndarray, weight: np.ndarray, n: np.ndarray, count: np.ndarray, confidence: float) -> list[Rate]:
    """Shares of the weight, each with its interval. n: effective numbers of samples, of which there are `count`."""
    known = (weight > 0) & (n > 0)
    share = np.clip(successes / np.where(known, weight, 1.0), 0.0, 1.0)
    low, high = wilson(share, np.where(known, n, 0.0), confidence)
    listed = zip(share.tolist(), low.tolist(), high.tolist(), np.rint(count).astype(int).tolist(), known, strict=True)
    return [Rate(p if there else None, a, b, k) for p, a, b, k, there in listed]


def selections(
    sums: GroupSums, labels: Sequence[tuple[Any, ...]], decides: bool, confidence: float, level: float
) -> list[Selection]:
    """How each of some groups is selected. level: of the intervals of all ratios together."""
    count = np.rint(sums[""]).astype(int)
    missing = np.array([MISSING in combination for combination in labels])
    small, known = count < SMALL_SHARE * count.sum(), sums["w"] > 0
    decided, scored = (np.clip(sums.mean(what), 0.0, 1.0) for what in ("d", "m"))
    best_scored = _best(scored, known & ~missing & ~small)
    best = _best(decided, known & ~missing & ~small) if decides else None
    scoring = rates(sums["wm"], sums["w"], effective_count(sums["w"], sums["ww"]), sums[""], confidence)
    ratios = None if best is None else _ratio_intervals(sums, best, level)
    found = []
    for g in range(len(labels)):
        beside: dict[str, Any] = {}
        if ratios is not None and best is not None and g != best and known[g] and not missing[g]:
            both = round(sums["d"][g]), int(count[g]), round(sums["d"][best]), int(count[best])
            beside = {"ratio_interval": ratios[g], "p_value": fisher(*both), "deviations": standard_deviations(*both)}
            beside["shortfall"] = shortfall(*both)
        found.append(
            Selection(
                selected=round(sums["d"][g]) if decides else None,
                impact_ratio=None if missing[g] or best is None else float(decided[g] / decided[best]),
                scoring_rate=scoring[g],
                scoring_ratio=None if missing[g] or best_scored is None else float(scored[g] / scored[best_scored]),
                small=bool(small[g]),
                missing=bool(missing[g]),
                **beside,
            )
        )
    return found


def _best(rate: np.ndarray, comparable: np.ndarray) -> int | None:
    """The comparable group with the greatest rate; None where nobody is selected."""
    best = int(np.where(comparable, rate, -1.0).argmax())
    return best if comparable[best] and rate[best] > 0.0 else None


def _ratio_intervals(sums: GroupSums, best: int, level: float) -> list[Interval]:
    """Of the ratio of each rate to the best one, all together: the intervals of `RateParity(ratio=...)`."""
    every = np.arange(sums.size)
    rows = Comparisons(every, np.full(sums.size, best), rate=True, relative=True)
    groups = max(2, int((sums["w"] > 0).sum()))
    gap = all_pairs(Moments.of_sums(sums.__getitem__, "d", None), rows, level, groups)
    low, high = np.where(gap <= 0.0, 1.0 + gap, 1.0 / np.maximum(1.0 - gap, 1e-300))
    return list(zip(low.tolist(), high.tolist(), strict=True))


def fisher(selected: int, count: int, most_selected: int, most_count: int) -> float:
    """The two-sided p-value of Fisher's exact test that both groups are selected alike."""
    from scipy.stats import fisher_exact

    table = [[selected, count - selected], [most_selected, most_count - most_selected]]
    return float(fisher_exact(table).pvalue)


def standard_deviations(selected: int, count: int, most_selected: int, most_count: int) -> float | None:
    """How far apart the two rates are, in standard deviations of their difference were they equal."""
    pooled = (selected + most_selected) / (count + most_count)
    spread = math.sqrt(pooled * (1.0 - pooled) * (1.0 / count + 1.0 / most_count))
    return (selected / count - most_selected / most_count) / spread if spread > 0.0 else None


def shortfall(selected: int, count: int, most_selected: int, most_count: int) -> float:
    """People of the group who would have been selected at the rate of both groups together, and were not."""
    return count * (selected + most_selected) / (count + most_count) - selected
