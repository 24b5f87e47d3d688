"""Samples in memory -> tally."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch

from fairlayer.arrays import as_numpy
from fairlayer.audit.tally import (
    BINS,
    CHANGE_BINS,
    CHANGE_SUMS,
    CLASS,
    MEDIAN_SUMS,
    OUTPUT_SUMS,
    TARGET_SUMS,
    CellTally,
    ChangeTally,
    Range,
    add_up,
    bin_of,
    check_cells,
    check_labels,
    decision_threshold,
)
from fairlayer.binding.cells import assign_cells
from fairlayer.binding.conditions import Key, condition_columns
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.groups import Column, SoftGroup, read_groups
from fairlayer.errors import InputError
from fairlayer.frames import frame_columns, is_frame
from fairlayer.tables.entries import MISSING
from fairlayer.tables.sql_cells import refuse_missing


class AuditSamples(NamedTuple):
    """Samples in memory, checked. Missing labels of groups are labels of their own."""

    y: np.ndarray  # (n,) predictions
    groups: Any
    targets: np.ndarray | None  # (n,) which constraints look at; numbers, unless they are classes
    kind: str | None  # of targets: "binary" (0 and 1), "numeric" or "classes"
    features: Any
    w: np.ndarray | None  # (n,) weights
    raw: np.ndarray | None  # (n,)

    @property
    def t(self) -> np.ndarray | None:
        """(n,) targets that are numbers."""
        return None if self.kind == "classes" else self.targets


def read_samples(
    predictions: Any, groups: Any, targets: Any = None, features: Any = None, weights: Any = None, raw: Any = None
) -> AuditSamples:
    """Refuse what cannot be audited."""
    y = read_numbers(predictions, "predictions")
    n = len(y)
    if n == 0:
        raise InputError("predictions is empty: there is nothing to audit.")
    w = None if weights is None else read_numbers(weights, "weights", n)
    if w is not None and ((w < 0).any() or not w.any()):
        raise InputError("weights must be at least 0, and not all of them 0.")
    known, kind = (None, None) if targets is None else read_targets(targets, n)
    before = None if raw is None else read_numbers(raw, "raw", n)
    return AuditSamples(y, label_missing(groups), known, kind, features, w, before)


def tally_samples(samples: AuditSamples, rules: ConstraintSet, threshold: float | None) -> CellTally:
    """Count samples by cell and bin."""
    y, t, w, raw = samples.y, samples.t, samples.w, samples.raw
    cells, cell = cells_of(columns_of(samples, rules), len(y))
    size = len(next(iter(cells.values())).values)
    observed = Range(float(y.min()), float(y.max()))
    reach = reach_of(observed, None if raw is None else Range(float(raw.min()), float(raw.max())))
    entry, numbers, count = _compress(cell * BINS + bin_of(y, reach), size * BINS)
    threshold = decision_threshold(threshold, samples.kind, observed)
    at = math.inf if threshold is None else threshold
    quantities = {"y": y, "d": (y >= at).astype(np.float64), "m": (y > np.median(y)).astype(np.float64)}
    quantities |= {} if w is None else {"w": w}
    quantities |= {} if t is None else {"t": t, "r": y - t}
    return CellTally(
        attributes=tuple(key for key in cells if key[0] == "group"),
        columns=cells,
        cell=numbers // BINS,
        bin=numbers % BINS,
        count=count,
        sums=_sums(OUTPUT_SUMS + MEDIAN_SUMS + (() if t is None else TARGET_SUMS), quantities, entry, len(numbers)),
        outputs=observed,
        residuals=None if t is None else Range(float((y - t).min()), float((y - t).max())),
        reach=reach,
        targets=samples.kind,
        threshold=threshold,
        changes=None if raw is None else _changes(y, raw, w, cell, size, reach, at),
    )


def read_numbers(values: Any, what: str, n: int | None = None) -> np.ndarray:
    """One finite number per sample."""
    array = as_numpy(values, what)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    try:
        numbers = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{what} must be numbers, one per sample: {error}") from error
    if numbers.ndim != 1:
        raise InputError(f"{what} has shape {numbers.shape}: pass one number per sample, shape (n,).")
    if n is not None and len(numbers) != n:
        raise InputError(f"{what} has {len(numbers)} entries for {n} predictions: pass one per prediction.")
    refuse_missing(what, int((~np.isfinite(numbers)).sum()), len(numbers))
    return numbers


def read_targets(targets: Any, n: int) -> tuple[np.ndarray, str]:
    """Targets, as numbers where they are, and what they are: "binary" (0 and 1), "numeric" or "classes"."""
    array = as_numpy(targets, "targets")
    if array.dtype.kind not in "biuf":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            if array.reshape(-1).shape != (n,):
                raise InputError(f"targets has shape {array.shape} for {n} predictions: pass one each.") from None
            return array.reshape(-1), "classes"
    numbers = read_numbers(array, "targets", n)
    return numbers, "binary" if ((numbers == 0) | (numbers == 1)).all() else "numeric"


def reach_of(outputs: Range, raw: Range | None) -> Range:
    """What the bins range over."""
    low = min(outputs.low, raw.low if raw else outputs.low)
    high = max(outputs.high, raw.high if raw else outputs.high)
    return Range(0.0, 1.0) if low >= 0.0 and high <= 1.0 else Range(low, high)


def label_missing(groups: Any) -> Any:
    """Groups in which a missing label is a label of its own."""
    if isinstance(groups, torch.Tensor | SoftGroup) or groups is None:
        return groups
    if isinstance(groups, Mapping) or is_frame(groups):
        return {name: _labelled(column) for name, column in frame_columns(groups).items()}
    name = getattr(groups, "name", None)
    labelled = _labelled(groups)
    return {name: labelled} if name is not None else labelled


def _labelled(column: Any) -> Any:
    if isinstance(column, torch.Tensor | SoftGroup | str) or not hasattr(column, "__len__"):
        return column
    array = as_numpy(column, "groups")
    if array.dtype.kind == "f":
        missing = np.isnan(array)
    elif array.dtype.kind == "O":
        flat = [value is None or str(value) in ("<NA>", "nan", "NaT") for value in array.reshape(-1).tolist()]
        missing = np.array(flat, dtype=bool).reshape(array.shape)
    else:
        return column
    if not missing.any():
        return column
    array = array.astype(object)
    array[missing] = MISSING
    return array


def columns_of(samples: AuditSamples, rules: ConstraintSet) -> dict[Key, Column]:
    """Everything that the audit looks at, as integers with labels."""
    n = len(samples.y)
    columns: dict[Key, Column] = {}
    for name, column in read_groups(samples.groups, n).items():
        if isinstance(column, SoftGroup):
            raise InputError(f"groups[{name!r}] holds probabilities: an audit counts samples by group, so pass labels.")
        columns["group", name] = column
    for constraint in rules.constraints:
        columns.update(condition_columns(constraint, samples.features, samples.targets))
    if samples.kind == "binary" and samples.t is not None:
        columns[CLASS] = Column("class", samples.t.astype(np.int64), (0.0, 1.0))
    for key, column in columns.items():
        values = as_numpy(column.values)
        if len(values) != n:
            raise InputError(f"features[{key[1]!r}] has {len(values)} entries for {n} predictions: pass one each.")
        if column.labels is None:
            labels, values = np.unique(values, return_inverse=True)
            columns[key] = Column(column.name, values.reshape(-1), tuple(labels.tolist()))
    check_labels(columns)
    return columns


def cells_of(columns: dict[Key, Column], n: int) -> tuple[dict[Key, Column], np.ndarray]:
    """Cells that have samples, as columns of one label each; and the cell of each sample."""
    cells = assign_cells([Column(c.name, as_numpy(c.values), c.labels) for c in columns.values()], n)
    present = np.flatnonzero(cells.samples > 0)
    check_cells(len(present))
    position = np.zeros(len(cells.samples), dtype=np.int64)
    position[present] = np.arange(len(present))
    digits = cells.levels.digit_table()[present]
    kept = {
        key: Column(column.name, digits[:, j], cells.levels.labels[j])
        for j, (key, column) in enumerate(columns.items())
    }
    return kept, position[np.asarray(cells.cell)]


def _compress(number: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position of each number among those that occur; those that occur; and how often each does."""
    count = np.bincount(number, minlength=size)
    occurs = np.flatnonzero(count)
    return (np.cumsum(count > 0) - 1)[number], occurs, count[occurs]


def _sums(wanted: tuple[str, ...], quantities: dict[str, np.ndarray], entry: np.ndarray, size: int) -> dict[str, Any]:
    """Sums of products of the quantities that a name spells; w is 1 where there are no weights."""
    factors = {name: tuple(quantity for quantity in name if quantity in quantities) for name in wanted}
    one = np.ones(len(entry))
    sums = {}
    for spelled in dict.fromkeys(factors.values()):
        sums[spelled] = add_up(reduce(np.multiply, [quantities[letter] for letter in spelled], one), entry, size)
    return {name: sums[spelled] for name, spelled in factors.items()}


def _changes(
    y: np.ndarray, raw: np.ndarray, w: np.ndarray | None, cell: np.ndarray, size: int, reach: Range, threshold: float
) -> ChangeTally:
    change = y - raw
    absolute = np.abs(change)
    largest = float(absolute.max()) or 1.0
    steps = np.sign(change).astype(np.int64) * np.ceil(absolute * (CHANGE_BINS / largest)).astype(np.int64)
    width = 2 * CHANGE_BINS + 1
    number = cell * width + np.clip(steps, -CHANGE_BINS, CHANGE_BINS) + CHANGE_BINS
    entry, numbers, count = _compress(number, size * width)
    quantities = {
        "c": change,
        "a": absolute,
        "x": (change != 0).astype(np.float64),
        "f": ((y >= threshold) != (raw >= threshold)).astype(np.float64),
    }
    quantities |= {} if w is None else {"w": w}
    lowest, highest = np.full(len(numbers), np.inf), np.full(len(numbers), -np.inf)
    np.minimum.at(lowest, entry, change)
    np.maximum.at(highest, entry, change)
    raw_entry, raw_numbers, _ = _compress(cell * BINS + bin_of(raw, reach), size * BINS)
    return ChangeTally(
        cell=numbers // width,
        bin=numbers % width - CHANGE_BINS,
        count=count,
        lowest=lowest,
        highest=highest,
        sums=_sums(CHANGE_SUMS, quantities, entry, len(numbers)),
        raw_cell=raw_numbers // BINS,
        raw_bin=raw_numbers % BINS,
        raw_weight=_sums(("w",), quantities, raw_entry, len(raw_numbers))["w"],
    )
