"""What a tally says of each group: rates, errors, calibration, distributions, and how much it was changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fairlayer.audit.result import CalibrationBin, Change, Group, Histogram, Interval, Rate
from fairlayer.audit.selection import rates, selections
from fairlayer.audit.tally import BINS, CHANGE_BINS, Entries, GroupSums, Tally
from fairlayer.intervals import Moments, Range, effective_count, mean_intervals, normal_quantile, wilson
from fairlayer.problem.families import Key

CALIBRATION_BINS = 10
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def edges(tally: Tally) -> tuple[float, ...]:
    """Where the bins of histograms begin and end."""
    return tuple(np.linspace(*tally.reach, BINS + 1).tolist())


def describe(tally: Tally, keys: Sequence[Key], span: Range | None, confidence: float, level: float) -> list[Group]:
    """Every group that these columns make together; everybody where there are none.

    Intervals of single figures hold by themselves with `confidence`, those of ratios together with `level`.
    """
    labels, of_cell = tally.number(keys)
    size = len(labels)
    sums, numeric = tally.entries.of_groups(of_cell, size), tally.targets in ("binary", "numeric")
    weight, mean = sums["w"], sums.mean("y")
    moments = Moments.of_sums(sums.__getitem__, "y", span)
    every: dict[str, Sequence[Any]] = {
        "attributes": [tuple(str(key[1]) for key in keys)] * size,
        "labels": [tuple(map(str, combination)) for combination in labels],
        "count": np.rint(sums[""]).astype(int).tolist(),
        "share": (weight / weight.sum()).tolist(),
        "mean": mean.tolist(),
        "mean_interval": [None] * size,
        "deviation": np.sqrt(np.maximum(0.0, sums.mean("yy") - mean**2)).tolist(),
        "decision_rate": [None] * size,
    }
    if span is not None:
        every["mean_interval"] = [(low, high) for low, high in mean_intervals(moments, confidence).T.tolist()]
    if tally.threshold is not None:
        every["decision_rate"] = rates(sums["wd"], weight, moments.n, sums[""], confidence)
    if keys:
        every["selection"] = selections(sums, labels, tally.threshold is not None, confidence, level)
    if numeric:
        bins = _calibration_bins(tally.entries, of_cell, size)
        every["target_mean"], every["bias"] = sums.mean("t").tolist(), sums.mean("r").tolist()
        every["root_mean_squared_error"] = np.sqrt(sums.mean("rr")).tolist()
        every["calibration_error"] = (np.abs(bins["wr"]).sum(axis=1) / np.where(weight > 0, weight, 1.0)).tolist()
    if tally.targets == "binary":
        every |= _error_rates(sums, confidence)
    if len(keys) < 2:
        every["histogram"] = _histograms(tally, of_cell, size)
        if numeric:
            every["calibration"] = _calibration_curves(tally, bins, confidence)
        if tally.changes is not None:
            every["change"] = _changes(tally.changes, of_cell, size, tally.threshold is not None)
    return [Group(**{name: values[g] for name, values in every.items()}) for g in range(size) if weight[g] > 0]


def _error_rates(sums: GroupSums, confidence: float) -> dict[str, list[Rate]]:
    """Decisions against targets that are 0 and 1."""
    both, positive, chosen, right = sums["w"], sums["wt"], sums["wd"], sums["wdt"]
    n, n_positive = effective_count(both, sums["ww"]), effective_count(positive, sums["wwt"])
    n_negative = effective_count(both - positive, sums["ww"] - sums["wwt"])
    n_chosen = n * chosen / np.where(both > 0, both, 1.0)
    negatives = sums[""] - sums["t"]
    return {
        "accuracy": rates(right + (both - positive - chosen + right), both, n, sums[""], confidence),
        "true_positive_rate": rates(right, positive, n_positive, sums["t"], confidence),
        "false_positive_rate": rates(chosen - right, both - positive, n_negative, negatives, confidence),
        "precision": rates(right, chosen, n_chosen, sums["d"], confidence),
    }


def _calibration_bins(entries: Entries, of_cell: np.ndarray, size: int) -> GroupSums:
    """Sums by group and bin of the prediction."""
    coarser = Entries(entries.cell, entries.bin // (BINS // CALIBRATION_BINS), entries.sums)
    return coarser.of_groups(of_cell, size, CALIBRATION_BINS)


def _calibration_curves(tally: Tally, bins: GroupSums, confidence: float) -> list[tuple[CalibrationBin, ...]]:
    """Mean target in bins of the prediction; bins without samples are left out."""
    ends = np.linspace(*tally.reach, CALIBRATION_BINS + 1).tolist()
    prediction, target, n = bins.mean("y"), bins.mean("t"), effective_count(bins["w"], bins["ww"])
    if tally.targets == "binary":
        low, high = wilson(np.clip(target, 0.0, 1.0), n, confidence)
    else:
        deviation = np.sqrt(np.maximum(bins.mean("tt") - target**2, 0.0) / np.maximum(n - 1.0, 1.0))
        low, high = (target + side * normal_quantile(confidence) * deviation for side in (-1, 1))

    def curve(g: int) -> tuple[CalibrationBin, ...]:
        found = []
        for b in np.flatnonzero(bins["w"][g] > 0).tolist():
            count, interval = round(bins[""][g, b]), (float(low[g, b]), float(high[g, b]))
            known: Interval | None = interval if tally.targets == "binary" or count > 1 else None
            means = float(prediction[g, b]), float(target[g, b])
            found.append(CalibrationBin(ends[b], ends[b + 1], count, *means, known))
        return tuple(found)

    return [curve(g) for g in range(bins.size)]


def _histograms(tally: Tally, of_cell: np.ndarray, size: int) -> list[Histogram]:
    """Distribution of predictions, and of raw outputs where there are some."""
    after = tally.entries.of_groups(of_cell, size, BINS)["w"].tolist()
    before = [None] * size if tally.raw is None else tally.raw.of_groups(of_cell, size, BINS)["w"].tolist()
    return [Histogram(tuple(new), None if old is None else tuple(old)) for new, old in zip(after, before, strict=True)]


def _changes(changes: Entries, of_cell: np.ndarray, size: int, decided: bool) -> list[Change]:
    """Who was changed, and by how much. Quantiles are means of narrow bins, exact where a bin holds one value."""
    group = of_cell[changes.cell]
    lowest, highest = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(lowest, group, changes.sums["lowest"])
    np.maximum.at(highest, group, changes.sums["highest"])
    sums = changes.of_groups(of_cell, size)
    shifted = Entries(changes.cell, changes.bin + CHANGE_BINS, changes.sums)
    bins = shifted.of_groups(of_cell, size, 2 * CHANGE_BINS + 1)
    reached, means = np.cumsum(bins["w"], axis=1) / np.where(sums["w"] > 0, sums["w"], 1.0)[:, None], bins.mean("c")
    places = {q: np.argmax(reached >= q - 1e-12, axis=1) for q in QUANTILES}
    return [
        Change(
            changed=float(sums.mean("x")[g]),
            mean=float(sums.mean("c")[g]),
            mean_absolute=float(sums.mean("a")[g]),
            lowest=float(lowest[g]),
            highest=float(highest[g]),
            quantiles={f"{q:g}": float(means[g, at[g]]) for q, at in places.items()},
            flipped=float(sums.mean("f")[g]) if decided else None,
        )
        for g in range(size)
    ]
