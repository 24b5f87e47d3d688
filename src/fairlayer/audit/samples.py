"""Samples in memory -> tally."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    SUMS,
    Entries,
    Tally,
    add_up,
    cells_of,
    decision_threshold,
    reach_of,
)
from fairlayer.errors import InputError
from fairlayer.intervals import Range
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

    def columns(self, rules: ConstraintSet) -> dict[Key, Column]:
        """Everything that cells depend on."""
        columns: dict[Key, Column] = {}
        for name, column in read_groups(self.groups, len(self.y)).items():
            if isinstance(column, SoftGroup):
                what = f"groups[{name!r}] holds probabilities"
                raise InputError(f"{what}: an audit counts samples by group, so pass labels.")
            columns["group", name] = column
        for constraint in rules.constraints:
            columns.update(condition_columns(constraint, self.features, self.targets))
        for key, column in columns.items():
            if len(column) != len(self.y):
                raise InputError(
                    f"features[{key[1]!r}] has {len(column)} entries for {len(self.y)} predictions: pass one each."
                )
        return columns

    def tally(self, rules: ConstraintSet, threshold: float | None) -> Tally:
        """Count samples by cell and bin."""
        letters: dict[str, np.ndarray] = {"y": self.y.astype(np.float64)}
        letters |= {} if self.weights is None else {"w": self.weights}
        letters |= {} if self.t is None else {"t": self.t, "r": letters["y"] - self.t}
        letters |= {} if self.raw is None else {"z": self.raw.astype(np.float64)}
        ranges = {letter: Range.of(values) for letter, values in letters.items()}
        reach, threshold = reach_of(ranges), decision_threshold(threshold, self.kind, ranges["y"])
        grid, cell = cells_of(self.columns(rules), len(self.y))
        decided = _decide(self.y, threshold) if self.decisions is None else self.decisions
        letters |= {"d": decided, "m": letters["y"] > np.median(letters["y"])}
        entries = _entries(cell, _bin(letters["y"], reach), SUMS[self.kind], letters)
        raw = changes = None
        if self.raw is not None:
            raw = _entries(cell, _bin(letters["z"], reach), ("w",), letters)
            change = letters["y"] - letters["z"]
            decided_before = _decide(self.raw, threshold) if self.raw_decisions is None else self.raw_decisions
            letters |= {"c": change, "a": np.abs(change), "x": change != 0, "f": decided != decided_before}
            steps = np.ceil(letters["a"] * (CHANGE_BINS / (float(letters["a"].max()) or 1.0)))
            step = np.sign(change) * np.minimum(steps, CHANGE_BINS)
            changes = _entries(cell, step.astype(np.int64), CHANGE_SUMS, letters, ends_of="c")
        return Tally(grid, entries, ranges, self.kind, threshold, raw, changes)


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
    known, kind = (None, None) if targets is None else _read_targets(targets, n)
    before = None if raw is None else read_numbers(raw, "raw", n)
    labelled = groups
    if not isinstance(groups, CodedGroups):
        labelled = {name: _label_missing(column) for name, column in group_columns(groups).items()}
    return Samples(y, labelled, known, kind, features, w, before)


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


def _read_targets(targets: Any, n: int) -> tuple[np.ndarray, str]:
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
    return numbers, "binary" if np.isin(numbers, (0.0, 1.0)).all() else "numeric"


def _label_missing(column: Any) -> Any:
    """A column in which a missing label is a label of its own."""
    if isinstance(column, torch.Tensor | SoftGroup | str) or not hasattr(column, "__len__"):
        return column
    array = as_numpy(column, "groups")
    if array.dtype.kind not in "fOM":
        return column
    values = array.astype(object).reshape(-1)
    missing = np.fromiter(map(is_missing, values), bool, len(values))
    values[missing] = MISSING
    return values if missing.any() else column


def _decide(outputs: np.ndarray, threshold: float | None) -> np.ndarray:
    """Which outputs are decisions 1: those at the threshold or above, in the dtype that they have."""
    return outputs >= outputs.dtype.type(math.inf if threshold is None else threshold)


def _bin(values: np.ndarray, reach: Range) -> np.ndarray:
    """The bin of each output; the last one is closed at its upper end."""
    per_bin = BINS / reach.width if reach.width > 0 else 0.0
    return np.clip(np.floor((values - reach.low) * per_bin), 0, BINS - 1).astype(np.int64)


def _entries(
    cell: np.ndarray, step: np.ndarray, wanted: Sequence[str], letters: Mapping[str, np.ndarray], ends_of: str = ""
) -> Entries:
    """Entries with sums of products of the quantities that a name spells; w is 1 where there are no weights."""
    least, width = int(step.min()), int(step.max() - step.min()) + 1
    numbers, entry, count = np.unique(cell * width + (step - least), return_inverse=True, return_counts=True)
    entry, size = entry.reshape(-1), len(numbers)
    sums = {"": count.astype(np.float64)}
    spelled = {name: "".join(letter for letter in name if letter in letters) for name in wanted}
    for factors in dict.fromkeys(spelled.values()):
        if factors:
            sums[factors] = add_up(reduce(np.multiply, [letters[one] for one in factors]), entry, size)
    named = {"": sums[""]} | {name: sums[factors] for name, factors in spelled.items()}
    if ends_of:
        named |= {"lowest": np.full(size, np.inf), "highest": np.full(size, -np.inf)}
        np.minimum.at(named["lowest"], entry, letters[ends_of])
        np.maximum.at(named["highest"], entry, letters[ends_of])
    return Entries(numbers // width, numbers % width + least, named)
