"""Samples in memory -> tally."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import Any

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
    Entries,
    Tally,
    add_up,
    check_cells,
    check_size,
    decision_threshold,
    reach_of,
)
from fairlayer.errors import InputError
from fairlayer.intervals import Range
from fairlayer.problem.cells import assign_cells
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.families import Key, condition_columns
from fairlayer.problem.groups import CodedGroups, Column, SoftGroup, group_columns, is_missing, read_groups
from fairlayer.tables.entries import MISSING
from fairlayer.tables.sql_cells import refuse_missing


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples in memory, checked. Missing labels of groups are labels of their own."""

    y: np.ndarray  # (n,) predictions, in their own dtype
    groups: Any
    targets: np.ndarray | None = None  # (n,) which constraints look at; numbers, unless they are classes
    kind: str | None = None  # of targets: "binary" (0 and 1), "numeric" or "classes"
    features: Any = None
    weights: np.ndarray | None = None  # (n,)
    raw: np.ndarray | None = None  # (n,) in their own dtype
    # (n,) whether this class is the predicted one, and whether it was by the raw outputs, where there are several.
    decisions: np.ndarray | None = None
    raw_decisions: np.ndarray | None = None

    @property
    def t(self) -> np.ndarray | None:
        """(n,) targets that are numbers."""
        return None if self.kind == "classes" else self.targets


def read_samples(
    predictions: Any, groups: Any, targets: Any = None, features: Any = None, weights: Any = None, raw: Any = None
) -> Samples:
    """Refuse what cannot be audited."""
    y = read_numbers(predictions, "predictions")
    n = len(y)
    if n == 0:
        raise InputError("predictions is empty: there is nothing to audit.")
    w = None if weights is None else read_numbers(weights, "weights", n).astype(np.float64)
    if w is not None and ((w < 0).any() or not w.any()):
        raise InputError("weights must be at least 0, and not all of them 0.")
    known, kind = (None, None) if targets is None else read_targets(targets, n)
    before = None if raw is None else read_numbers(raw, "raw", n)
    return Samples(y, label_missing(groups), known, kind, features, w, before)


def read_numbers(values: Any, what: str, n: int | None = None) -> np.ndarray:
    """One finite number per sample, as float64 unless they are floats already."""
    array = as_numpy(values, what)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    try:
        numbers = array if array.dtype in (np.float16, np.float32) else array.astype(np.float64)
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
    numbers = read_numbers(array, "targets", n).astype(np.float64)
    return numbers, "binary" if ((numbers == 0) | (numbers == 1)).all() else "numeric"


def label_missing(groups: Any) -> Any:
    """Groups in which a missing label is a label of its own."""
    if isinstance(groups, CodedGroups):
        return groups
    return {name: _labelled(column) for name, column in group_columns(groups).items()}


def _labelled(column: Any) -> Any:
    if isinstance(column, torch.Tensor | SoftGroup | str) or not hasattr(column, "__len__"):
        return column
    array = as_numpy(column, "groups")
    if array.dtype.kind not in "fOM":
        return column
    values = array.astype(object).reshape(-1)
    missing = np.fromiter(map(is_missing, values), bool, len(values))
    if not missing.any():
        return column
    values[missing] = MISSING
    return values


def tally_samples(samples: Samples, rules: ConstraintSet, threshold: float | None) -> Tally:
    """Count samples by cell and bin."""
    y, t, w, n = samples.y.astype(np.float64), samples.t, samples.weights, len(samples.y)
    columns, cell = cells_of(columns_of(samples, rules), n)
    outputs = _range(y)
    raw = None if samples.raw is None else samples.raw.astype(np.float64)
    reach = reach_of(outputs, None if raw is None else _range(raw))
    threshold = decision_threshold(threshold, samples.kind, outputs)
    decided = samples.decisions if samples.decisions is not None else decide(samples.y, threshold)
    quantities = {"y": y, "d": decided.astype(np.float64), "m": (y > np.median(y)).astype(np.float64)}
    quantities |= {} if w is None else {"w": w}
    quantities |= {} if t is None else {"t": t, "r": y - t}
    wanted = OUTPUT_SUMS + MEDIAN_SUMS + (() if t is None else TARGET_SUMS)
    before = changes = None
    if raw is not None and samples.raw is not None:
        before = _entries(cell, _bin(raw, reach), ("w",), quantities)
        change = y - raw
        per_bin = CHANGE_BINS / (float(np.abs(change).max()) or 1.0)
        step = np.clip(np.sign(change) * np.ceil(np.abs(change) * per_bin), -CHANGE_BINS, CHANGE_BINS)
        quantities |= {"c": change, "a": np.abs(change), "x": (change != 0).astype(np.float64)}
        before_decided = decide(samples.raw, threshold) if samples.raw_decisions is None else samples.raw_decisions
        quantities["f"] = (decided != before_decided).astype(np.float64)
        changes = _entries(cell, step.astype(np.int64), CHANGE_SUMS, quantities, ends_of=change)
    return Tally(
        attributes=tuple(key for key in columns if key[0] == "group"),
        columns=columns,
        entries=_entries(cell, _bin(y, reach), wanted, quantities),
        outputs=outputs,
        residuals=None if t is None else _range(y - t),
        reach=reach,
        targets=samples.kind,
        threshold=threshold,
        raw=before,
        changes=changes,
    )


def decide(outputs: np.ndarray, threshold: float | None) -> np.ndarray:
    """Which outputs are decisions 1: those at the threshold or above, in the dtype that they have."""
    return outputs >= outputs.dtype.type(math.inf if threshold is None else threshold)


def columns_of(samples: Samples, rules: ConstraintSet) -> dict[Key, Column]:
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
    check_size(columns)
    return columns


def cells_of(columns: dict[Key, Column], n: int) -> tuple[dict[Key, Column], np.ndarray]:
    """Cells that have samples, as columns of one label each; and the cell of each sample."""
    cells = assign_cells([Column(c.name, as_numpy(c.values), c.labels) for c in columns.values()], n)
    present = np.flatnonzero(cells.samples > 0)
    check_cells(len(present))
    position = np.zeros(len(cells.samples), dtype=np.int64)
    position[present] = np.arange(len(present))
    digits = cells.levels.digit_table()[present]
    kept = {key: Column(c.name, digits[:, j], cells.levels.labels[j]) for j, (key, c) in enumerate(columns.items())}
    return kept, position[np.asarray(cells.cell)]


def _range(values: np.ndarray) -> Range:
    return Range(float(values.min()), float(values.max()))


def _bin(values: np.ndarray, reach: Range) -> np.ndarray:
    """The bin of each output; the last one is closed at its upper end."""
    if reach.width <= 0:
        return np.zeros(len(values), dtype=np.int64)
    return np.clip(np.floor((values - reach.low) * (BINS / reach.width)), 0, BINS - 1).astype(np.int64)


def _entries(
    cell: np.ndarray,
    step: np.ndarray,
    wanted: tuple[str, ...],
    quantities: dict[str, np.ndarray],
    ends_of: np.ndarray | None = None,
) -> Entries:
    """Entries with sums of products of the quantities that a name spells; w is 1 where there are no weights."""
    least, width = int(step.min()), int(step.max() - step.min()) + 1
    numbers, entry, count = np.unique(cell * width + (step - least), return_inverse=True, return_counts=True)
    entry, size = entry.reshape(-1), len(numbers)
    factors = {name: tuple(letter for letter in name if letter in quantities) for name in wanted}
    one, sums = np.ones(len(cell)), {}
    for spelled in dict.fromkeys(factors.values()):
        sums[spelled] = add_up(reduce(np.multiply, [quantities[letter] for letter in spelled], one), entry, size)
    named = {name: sums[spelled] for name, spelled in factors.items()}
    if ends_of is not None:
        named |= {"lowest": np.full(size, np.inf), "highest": np.full(size, -np.inf)}
        np.minimum.at(named["lowest"], entry, ends_of)
        np.maximum.at(named["highest"], entry, ends_of)
    return Entries(numbers // width, numbers % width + least, count, named)
