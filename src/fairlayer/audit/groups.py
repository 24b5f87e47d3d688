"""What a tally says of each group: rates, errors, calibration, distributions, and how much it was changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fairlayer.audit.result import CalibrationBin, Change, Group, Histogram, Interval, Rate
from fairlayer.audit.selection import selections
from fairlayer.audit.tally import BINS, CLASS, OUTPUT_SUMS, TARGET_SUMS, Entries, Tally
from fairlayer.intervals import Moments, Range, effective_count, mean_intervals, normal_quantile, wilson
from fairlayer.problem.families import Key

HISTOGRAM_BINS = 40
CALIBRATION_BINS = 10
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def edges(tally: Tally) -> tuple[float, ...]:
    """Where the bins of histograms begin and end."""
    return tuple(np.linspace(*tally.reach, HISTOGRAM_BINS + 1).tolist())


def describe(tally: Tally, keys: Sequence[Key], span: Range | None, confidence: float, level: float) -> list[Group]:
    """Every group that these columns make together; everybody where there are none.

    Intervals of single figures hold by themselves with `confidence`, those of ratios together with `level`.
    """
    labels, of_cell = tally.number(keys)
    entries, size = tally.entries, len(labels)
    of_entry = of_cell[entries.cell]
    numeric = tally.targets in ("binary", "numeric")
    sums = {
        w: entries.total(w, of_entry, size) for w in ("", *OUTPUT_SUMS, "m", "wm", *(TARGET_SUMS if numeric else ()))
    }
    weight = sums["w"]
    mean = {
        what: sums[f"w{what}"] / np.where(weight > 0, weight, 1.0)
        for what in ("y", "yy", "t", "r", "rr")
        if f"w{what}" in sums
    }
    moments = Moments.of_sums(sums.__getitem__, "y", span)
    around = mean_intervals(moments, confidence).T.tolist()
    every: dict[str, Any] = {}
    if tally.threshold is not None:
        every["decision_rate"] = rates(sums["wd"], weight, moments.n, sums[""], confidence)
    if keys:
        every["selection"] = selections(sums, moments.n, labels, tally.threshold is not None, confidence, level)
    if numeric:
        every["target_mean"], every["bias"] = mean["t"].tolist(), mean["r"].tolist()
        every["root_mean_squared_error"] = np.sqrt(mean["rr"]).tolist()
        every["calibration_error"] = _calibration_errors(entries, of_entry, size).tolist()
    if tally.targets == "binary":
        every |= _error_rates(tally, of_entry, size, confidence)
    if len(keys) < 2:
        every["histogram"] = _histograms(tally, of_cell, size)
        if numeric:
            every["calibration"] = _calibration_curves(tally, of_entry, size, confidence)
        if tally.changes is not None:
            every["change"] = _changes(tally.changes, of_cell, size, tally.threshold is not None)
    return [
        Group(
            attributes=tuple(str(key[1]) for key in keys),
            labels=tuple(map(str, combination)),
            count=round(sums[""][g]),
            share=float(weight[g] / weight.sum()),
            mean=float(mean["y"][g]),
            mean_interval=None if span is None else (around[g][0], around[g][1]),
            deviation=math.sqrt(max(0.0, mean["yy"][g] - mean["y"][g] ** 2)),
            **{"decision_rate": None} | {name: values[g] for name, values in every.items()},
        )
        for g, combination in enumerate(labels)
        if weight[g] > 0
    ]


def rates(successes: np.ndarray, weight: np.ndarray, n: np.ndarray, count: np.ndarray, confidence: float) -> list[Rate]:
    """Shares of the weight, each with its interval. n: effective numbers of samples, of which there are `count`."""
    known = (weight > 0) & (n > 0)
    share = np.clip(successes / np.where(known, weight, 1.0), 0.0, 1.0)
    low, high = wilson(share, np.where(known, n, 0.0), confidence)
    listed = zip(share.tolist(), low.tolist(), high.tolist(), np.rint(count).astype(int).tolist(), known, strict=True)
    return [Rate(p if there else None, a, b, k) for p, a, b, k, there in listed]


def _error_rates(tally: Tally, of_entry: np.ndarray, size: int, confidence: float) -> dict[str, list[Rate]]:
    """Decisions against targets that are 0 and 1."""
    combined = of_entry * 2 + np.asarray(tally.columns[CLASS].values)[tally.entries.cell]
    count, weight, squared, d, wd = (
        tally.entries.total(what, combined, 2 * size).reshape(size, 2).T for what in ("", "w", "ww", "d", "wd")
    )
    both, n, by_class = (
        weight.sum(axis=0),
        effective_count(weight.sum(0), squared.sum(0)),
        effective_count(weight, squared),
    )
    right, chosen = wd[1] + weight[0] - wd[0], wd.sum(axis=0)
    share = chosen / np.where(both > 0, both, 1.0)
    return {
        "accuracy": rates(right, both, n, count.sum(axis=0), confidence),
        "true_positive_rate": rates(wd[1], weight[1], by_class[1], count[1], confidence),
        "false_positive_rate": rates(wd[0], weight[0], by_class[0], count[0], confidence),
        "precision": rates(wd[1], chosen, n * share, d.sum(axis=0), confidence),
    }


def _by_bin(entries: Entries, what: str, of_entry: np.ndarray, size: int, bins: int) -> np.ndarray:
    """(size, bins): sums of groups over coarser bins."""
    coarse = of_entry * bins + entries.bin // (BINS // bins)
    return entries.total(what, coarse, size * bins).reshape(size, bins)


def _calibration_errors(entries: Entries, of_entry: np.ndarray, size: int) -> np.ndarray:
    """Mean |prediction - target| over bins, by weight."""
    off, weight = (_by_bin(entries, what, of_entry, size, CALIBRATION_BINS) for what in ("wr", "w"))
    total = weight.sum(axis=1)
    return np.abs(off).sum(axis=1) / np.where(total > 0, total, 1.0)


def _calibration_curves(
    tally: Tally, of_entry: np.ndarray, size: int, confidence: float
) -> list[tuple[CalibrationBin, ...]]:
    """Mean target in bins of the prediction; bins without samples are left out."""
    ends = np.linspace(*tally.reach, CALIBRATION_BINS + 1).tolist()
    count, weight, squared, y, t, tt = (
        _by_bin(tally.entries, what, of_entry, size, CALIBRATION_BINS) for what in ("", "w", "ww", "wy", "wt", "wtt")
    )
    safe, n = np.where(weight > 0, weight, 1.0), effective_count(weight, squared)
    prediction, target = y / safe, t / safe
    if tally.targets == "binary":
        low, high = wilson(np.clip(target, 0.0, 1.0), n, confidence)
    else:
        deviation = np.sqrt(np.maximum(tt / safe - target**2, 0.0) / np.maximum(n - 1.0, 1.0))
        low, high = (target + side * normal_quantile(confidence) * deviation for side in (-1, 1))

    def interval(g: int, b: int) -> Interval | None:
        return (float(low[g, b]), float(high[g, b])) if tally.targets == "binary" or count[g, b] > 1 else None

    return [
        tuple(
            CalibrationBin(
                ends[b], ends[b + 1], round(count[g, b]), float(prediction[g, b]), float(target[g, b]), interval(g, b)
            )
            for b in np.flatnonzero(weight[g] > 0).tolist()
        )
        for g in range(size)
    ]


def _histograms(tally: Tally, of_cell: np.ndarray, size: int) -> list[Histogram]:
    """Distribution of predictions, and of raw outputs where there are some."""
    after, before = (
        None if part is None else _by_bin(part, "w", of_cell[part.cell], size, HISTOGRAM_BINS).tolist()
        for part in (tally.entries, tally.raw)
    )
    return [Histogram(tuple(after[g]), None if before is None else tuple(before[g])) for g in range(size)]  # type: ignore[index]


def _changes(changes: Entries, of_cell: np.ndarray, size: int, decided: bool) -> list[Change | None]:
    """Who was changed, and by how much. Quantiles are means of narrow bins, exact where a bin holds one value."""
    order = np.lexsort((changes.cell, changes.bin))
    of_entry, found = of_cell[changes.cell[order]], list[Change | None]()
    for g in range(size):
        at = order[of_entry == g]
        sums = {what: values[at] for what, values in changes.sums.items()}
        weight = float(sums["w"].sum())
        if weight <= 0:
            found.append(None)
            continue
        share = {what: float(sums[what].sum()) / weight for what in ("wx", "wc", "wa", "wf")}
        found.append(
            Change(
                changed=share["wx"],
                mean=share["wc"],
                mean_absolute=share["wa"],
                lowest=float(sums["lowest"].min()),
                highest=float(sums["highest"].max()),
                quantiles=_quantiles(changes.bin[at], sums["w"], sums["wc"]),
                flipped=share["wf"] if decided else None,
            )
        )
    return found


def _quantiles(bins: np.ndarray, weight: np.ndarray, total: np.ndarray) -> dict[str, float]:
    _, position = np.unique(bins, return_inverse=True)
    weights, totals = np.bincount(position, weight), np.bincount(position, total)
    reached = np.cumsum(weights) / weights.sum()
    chosen = [int(np.searchsorted(reached, q - 1e-12)) for q in QUANTILES]
    return {f"{q:g}": float(totals[b] / weights[b]) for q, b in zip(QUANTILES, chosen, strict=True)}
