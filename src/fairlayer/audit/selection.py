"""Who is selected: rates of decisions, and their ratio to the rate of the group that is selected most.

This is what selection procedures are judged by in practice: the impact ratio of the four-fifths rule, with an interval,
Fisher's exact test, the difference in standard deviations, and the shortfall in people. For scores, the scoring rate:
the share of a group above the median of everybody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fairlayer.audit.intervals import wilson
from fairlayer.audit.result import Interval, Rate, Selection
from fairlayer.audit.tally import CellTally
from fairlayer.binding.conditions import Key
from fairlayer.intervals import effective_count, quantile_of
from fairlayer.tables.entries import MISSING

FOUR_FIFTHS = 0.8  # the impact ratio below which the four-fifths rule sees adverse impact
SMALL_SHARE = 0.02  # of the samples: smaller groups are marked, and no ratio is taken to them


def selections(tally: CellTally, keys: Sequence[Key], confidence: float) -> list[Selection]:
    """Every group that these columns make together, those with the least impact ratio first."""
    z = quantile_of(confidence)
    labels, of_cell = tally.number(keys)
    of_entry, size = of_cell[tally.cell], len(labels)
    sums = {what: tally.total(what, of_entry, size) for what in ("", "w", "ww", "d", "wd", "m", "wm")}
    n = effective_count(sums["w"], sums["ww"])
    counts = np.rint(sums[""]).astype(int)
    missing = np.array([MISSING in combination for combination in labels])
    small = counts < SMALL_SHARE * counts.sum()
    comparable = ~missing & ~small & (sums["w"] > 0)

    def rates(total: np.ndarray) -> list[Rate]:
        return [wilson(total[g], sums["w"][g], n[g], int(counts[g]), z) for g in range(size)]

    decides = tally.threshold is not None
    decided, most = rates(sums["wd"]), _most(sums["wd"], sums["w"], comparable) if decides else None
    scored, scored_most = rates(sums["wm"]), _most(sums["wm"], sums["w"], comparable)
    found = []
    for g, combination in enumerate(labels):
        if sums["w"][g] <= 0:
            continue
        selected = round(sums["d"][g])
        beside: dict[str, float | Interval | None] = {}
        if most is not None and g != most and not missing[g]:
            both = selected, int(counts[g]), round(sums["d"][most]), int(counts[most])
            beside = {
                "ratio_interval": ratio_interval(decided[g], decided[most]),
                "p_value": fisher(*both),
                "deviations": standard_deviations(*both),
                "shortfall": shortfall(*both),
            }
        found.append(
            Selection(
                attributes=tuple(str(key[1]) for key in keys),
                labels=tuple(map(str, combination)),
                count=int(counts[g]),
                share=float(counts[g] / counts.sum()),
                selected=selected if decides else None,
                rate=decided[g] if decides else None,
                impact_ratio=None if missing[g] or most is None else _ratio(decided[g], decided[most]),
                scoring_rate=scored[g],
                scoring_ratio=None if missing[g] or scored_most is None else _ratio(scored[g], scored[scored_most]),
                small=bool(small[g]),
                missing=bool(missing[g]),
                **beside,  # type: ignore[arg-type]
            )
        )
    return sorted(found, key=lambda one: (one.missing, math.inf if one.impact_ratio is None else one.impact_ratio))


def _most(total: np.ndarray, weight: np.ndarray, comparable: np.ndarray) -> int | None:
    """The group with the greatest rate, of those that are large enough; None where nobody is selected."""
    if not comparable.any():
        return None
    rate = np.where(comparable, total / np.where(weight > 0, weight, 1.0), -1.0)
    best = int(rate.argmax())
    return best if rate[best] > 0.0 else None


def _ratio(rate: Rate, most: Rate) -> float | None:
    return None if rate.value is None or not most.value else rate.value / most.value


def ratio_interval(rate: Rate, most: Rate) -> Interval | None:
    """Of the ratio of two rates, from the intervals of both (Donner & Zou 2012, with Wilson's)."""
    if rate.value is None or not most.value:
        return None
    p, q = rate.value, most.value

    def end(near: float, far: float, sign: float) -> float:
        scale = far * (2.0 * q - far)
        if scale <= 0.0:
            return math.inf
        return (p * q + sign * math.sqrt(max(0.0, (p * q) ** 2 - near * (2.0 * p - near) * scale))) / scale

    return max(0.0, float(end(rate.lower, most.upper, -1.0))), float(end(rate.upper, most.lower, 1.0))


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
