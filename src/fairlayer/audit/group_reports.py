"""What a tally says of each group: rates, errors, calibration, distributions, and how much it was changed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from fairlayer.audit.intervals import possible_outputs, wilson
from fairlayer.audit.result import CalibrationBin, Change, GroupReport, Histogram, Interval, Rate
from fairlayer.audit.tally import BINS, CLASS, OUTPUT_SUMS, TARGET_SUMS, CellTally, Range
from fairlayer.binding.conditions import Key
from fairlayer.intervals import cautious_means, effective_count, quantile_of, welch

HISTOGRAM_BINS = 40
CALIBRATION_BINS = 10
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def describe(tally: CellTally, keys: Sequence[Key], bounds: Range | None, confidence: float) -> list[GroupReport]:
    """Every group that these columns make together; everybody where there are none."""
    z = quantile_of(confidence)
    labels, of_cell = tally.number(keys)
    of_entry = of_cell[tally.cell]
    size = len(labels)
    known = OUTPUT_SUMS + (TARGET_SUMS if tally.targets in ("binary", "numeric") else ())
    sums = {what: tally.total(what, of_entry, size) for what in ("", *known)}
    rates = _error_rates(tally, of_entry, size, z) if tally.targets == "binary" else [{}] * size
    errors = _calibration_errors(tally, of_entry, size) if "wt" in sums else None
    intervals = _mean_intervals(sums, possible_outputs(tally, bounds), confidence)
    everything = sums["w"].sum()
    reports = []
    for g, combination in enumerate(labels):
        of_group = {what: float(values[g]) for what, values in sums.items()}
        weight, count = of_group["w"], round(of_group[""])
        if weight <= 0:
            continue
        mean, decided = of_group["wy"] / weight, tally.threshold is not None
        reports.append(
            GroupReport(
                attributes=tuple(str(key[1]) for key in keys),
                labels=tuple(map(str, combination)),
                count=count,
                share=weight / everything,
                mean=mean,
                mean_interval=intervals[g],
                deviation=math.sqrt(max(0.0, of_group["wyy"] / weight - mean**2)),
                decision_rate=wilson(of_group["wd"], weight, weight**2 / of_group["ww"], count, z) if decided else None,
                target_mean=of_group["wt"] / weight if "wt" in of_group else None,
                bias=of_group["wr"] / weight if "wr" in of_group else None,
                root_mean_squared_error=math.sqrt(of_group["wrr"] / weight) if "wrr" in of_group else None,
                calibration_error=None if errors is None else float(errors[g]),
                **rates[g],
            )
        )
    return reports


def _mean_intervals(
    sums: dict[str, np.ndarray], possible: Range | None, confidence: float
) -> list[Interval] | list[None]:
    size = len(sums["w"])
    if possible is None:
        return [None] * size
    weight, squared = (np.where(sums[what] > 0, sums[what], 1.0) for what in ("w", "ww"))
    mean = sums["wy"] / weight
    scatter = sums["wwyy"] - 2.0 * mean * sums["wwy"] + mean**2 * sums["ww"]
    n = effective_count(sums["w"], sums["ww"])
    ends = (np.full(size, end) for end in possible)
    centre, variance = cautious_means(n, mean, np.maximum(scatter, 0.0) / squared, *ends)
    every, none = np.arange(size), np.full(size, -1)
    low, high = welch(n, centre, variance, mean, every, none, confidence).tolist()
    return list(zip(low, high, strict=True))


def _error_rates(tally: CellTally, of_entry: np.ndarray, size: int, z: float) -> list[dict[str, Rate]]:
    """Decisions against targets that are 0 and 1."""
    truth = np.asarray(tally.columns[CLASS].values)[tally.cell]
    combined = of_entry * 2 + truth
    count, weight, squared, positive = (
        tally.total(what, combined, 2 * size).reshape(size, 2) for what in ("", "w", "ww", "wd")
    )
    chosen = np.rint(tally.total("d", of_entry, size)).astype(int).tolist()  # samples with decision 1
    n = effective_count(weight.sum(axis=1), squared.sum(axis=1))
    by_class = effective_count(weight, squared)
    rates = []
    for g in range(size):
        all_positive = positive[g].sum()
        right = positive[g, 1] + weight[g, 0] - positive[g, 0]
        share = all_positive / weight[g].sum() if weight[g].sum() > 0 else 0.0
        rates.append(
            {
                "accuracy": wilson(right, weight[g].sum(), n[g], round(count[g].sum()), z),
                "true_positive_rate": wilson(positive[g, 1], weight[g, 1], by_class[g, 1], round(count[g, 1]), z),
                "false_positive_rate": wilson(positive[g, 0], weight[g, 0], by_class[g, 0], round(count[g, 0]), z),
                "precision": wilson(positive[g, 1], all_positive, n[g] * share, chosen[g], z),
            }
        )
    return rates


def _calibration_errors(tally: CellTally, of_entry: np.ndarray, size: int) -> np.ndarray:
    """Mean |prediction - target| over bins, by weight."""
    combined = of_entry * CALIBRATION_BINS + _coarse(tally.bin, CALIBRATION_BINS)
    off, weight = (
        tally.total(what, combined, size * CALIBRATION_BINS).reshape(size, CALIBRATION_BINS) for what in ("wr", "w")
    )
    total = weight.sum(axis=1)
    return np.abs(off).sum(axis=1) / np.where(total > 0, total, 1.0)


def _coarse(fine: np.ndarray, bins: int) -> np.ndarray:
    return fine // (BINS // bins)


def _each_group(tally: CellTally) -> Iterator[tuple[str, str, np.ndarray]]:
    """Everybody, then every group of every attribute: attribute, label, and which cells belong."""
    yield "", "", np.ones(tally.cells, dtype=bool)
    for key in tally.attributes:
        labels, of_cell = tally.number([key])
        for g, (label,) in enumerate(labels):
            yield str(key[1]), str(label), of_cell == g


def calibration_curves(tally: CellTally, confidence: float) -> list[CalibrationBin]:
    """Mean target in bins of the prediction, for everybody and by group; bins without samples are left out."""
    z = quantile_of(confidence)
    if tally.targets not in ("binary", "numeric"):
        return []
    edges = np.linspace(*tally.reach, CALIBRATION_BINS + 1).tolist()
    coarse = _coarse(tally.bin, CALIBRATION_BINS)
    curves = []
    for attribute, label, cells in _each_group(tally):
        inside = np.where(cells[tally.cell], coarse, CALIBRATION_BINS)  # the others in a bin of their own, not read
        sums = {w: tally.total(w, inside, CALIBRATION_BINS + 1) for w in ("", "w", "ww", "wy", "wt", "wtt")}
        for b in range(CALIBRATION_BINS):
            count, weight, squared, y, t, tt = (float(values[b]) for values in sums.values())
            if weight <= 0:
                continue
            interval = _target_interval(tally.targets, weight, squared, t, tt, round(count), z)
            curves.append(
                CalibrationBin(attribute, label, edges[b], edges[b + 1], round(count), y / weight, t / weight, interval)
            )
    return curves


def _target_interval(
    kind: str, weight: float, squared: float, t: float, tt: float, count: int, z: float
) -> Interval | None:
    n = weight**2 / squared
    if kind == "binary":
        rate = wilson(t, weight, n, count, z)
        return rate.lower, rate.upper
    if count < 2:
        return None
    half = z * math.sqrt(max(0.0, tt / weight - (t / weight) ** 2) / max(n - 1.0, 1.0))
    return t / weight - half, t / weight + half


def histograms(tally: CellTally) -> list[Histogram]:
    """Distribution of predictions, and of raw outputs where there are some."""
    edges = tuple(np.linspace(*tally.reach, HISTOGRAM_BINS + 1).tolist())
    after, changes = _coarse(tally.bin, HISTOGRAM_BINS), tally.changes
    found = []
    for attribute, label, cells in _each_group(tally):
        counts = np.bincount(after, tally.sums["w"] * cells[tally.cell], HISTOGRAM_BINS)
        before = None
        if changes is not None:
            inside = changes.raw_weight * cells[changes.raw_cell]
            raw = np.bincount(_coarse(changes.raw_bin, HISTOGRAM_BINS), inside, HISTOGRAM_BINS)
            before = tuple(raw.tolist())
        found.append(Histogram(attribute, label, edges, tuple(counts.tolist()), before))
    return found


def changes(tally: CellTally) -> list[Change]:
    """Who was changed, and by how much. Quantiles are means of narrow bins, exact where a bin holds one value."""
    table = tally.changes
    if table is None:
        return []
    order = np.lexsort((table.cell, table.bin))
    found = []
    for attribute, label, cells in _each_group(tally):
        at = order[cells[table.cell[order]]]
        sums = {what: values[at] for what, values in table.sums.items()}
        weight = float(sums["w"].sum())
        if weight <= 0:
            continue
        found.append(
            Change(
                attribute=attribute,
                label=label,
                count=int(table.count[at].sum()),
                changed=float(sums["wx"].sum()) / weight,
                mean=float(sums["wc"].sum()) / weight,
                mean_absolute=float(sums["wa"].sum()) / weight,
                lowest=float(table.lowest[at].min()),
                highest=float(table.highest[at].max()),
                quantiles=_quantiles(table.bin[at], sums["w"], sums["wc"]),
                flipped=None if tally.threshold is None else float(sums["wf"].sum()) / weight,
            )
        )
    return found


def _quantiles(bins: np.ndarray, weight: np.ndarray, total: np.ndarray) -> dict[str, float]:
    _, position = np.unique(bins, return_inverse=True)
    weights, totals = np.bincount(position, weight), np.bincount(position, total)
    reached = np.cumsum(weights) / weights.sum()
    chosen = [int(np.searchsorted(reached, q - 1e-12)) for q in QUANTILES]
    return {f"{q:g}": float(totals[b] / weights[b]) for q, b in zip(QUANTILES, chosen, strict=True)}
