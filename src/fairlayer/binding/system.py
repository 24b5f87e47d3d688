"""A system: constraints bound to one batch. The only thing a solver sees of them.

    lower <= R (M'S - offset) <= upper,    S the cell sums of the outputs.

What depends only on the constraints and on the labels is a *plan*, made once and kept; which of its groups have
samples is a *view* of it, kept too. Binding them to a batch takes the cell counts alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import torch

from fairlayer.binding.cells import NO_LABEL, UNIT, Levels, assign_cells, exact_sums
from fairlayer.binding.constraint_set import ConstraintSet, Groupings
from fairlayer.binding.groups import Column, Label, Name, SoftGroup, read_groups
from fairlayer.binding.rows import Rows
from fairlayer.constraints import Affine, Batch, Family, Grid, Key, as_numpy
from fairlayer.errors import InputError


class System(NamedTuple):
    """Rows over the cell sums of one batch."""

    cell: Any  # (n,) cell of each sample: int32 array, or int64 tensor away from the CPU
    samples: np.ndarray  # (G,) samples per cell
    weight: np.ndarray  # (G,) weight per cell
    weights: np.ndarray  # (n,) weight per sample, or empty where all are 1
    rows: Rows
    view: View
    # What gradients are wanted of, as float64 tensors: row bounds and statistic offsets.
    lower: torch.Tensor | None = None
    upper: torch.Tensor | None = None
    offset: torch.Tensor | None = None


class View:
    """The rows of a plan whose groups have samples, and the names of those that have not."""

    def __init__(self, plus: list[int], minus: list[int], owner: list[int], names: list[str], vacuous: list[str]):
        self.plus = np.array(plus, dtype=np.int64)
        self.minus = np.array(minus, dtype=np.int64)
        self.owner = np.array(owner, dtype=np.int64)  # position of the constraint that states the row
        self.names = tuple(names)
        self.vacuous = tuple(dict.fromkeys(vacuous))
        self._limits: tuple[Any, np.ndarray, np.ndarray] = (None, np.zeros(0), np.zeros(0))

    def limits(self, tolerances: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of -tolerance and tolerance on every row."""
        if self._limits[0] != tolerances:
            upper = np.array(tolerances, dtype=np.float64)[self.owner]
            self._limits = (tolerances, -upper, upper)
        return self._limits[1:]


class Plan:
    """Rows over cells, before it is known which cells have samples."""

    def __init__(self, families: Sequence[Sequence[Family]], affine: Mapping[int, Affine], size: int):
        """families: of each constraint; affine: those that bring a matrix instead, by position; size: cells."""
        taken: set[str] = set()
        self.affine = affine
        self.affine_prefix = {p: _distinct(constraint.name or "affine", taken) for p, constraint in affine.items()}
        self.families = [[replace(f, prefix=_distinct(f.prefix, taken)) for f in listed] for listed in families]
        members: list[np.ndarray] = []
        residual: list[bool] = []
        for position, listed in enumerate(families):
            if position in affine:
                members += list(affine[position].A)
                residual += [False] * len(affine[position].A)
            for family in listed:
                members += [statistic.membership for statistic in family.statistics]
                residual += [statistic.residual for statistic in family.statistics]
        self.membership = np.ascontiguousarray(np.stack(members, axis=1)) if members else np.zeros((size, 0))
        self.residual = np.array(residual, dtype=bool)
        self.any_residual = bool(self.residual.any())
        self.no_offset = np.zeros(len(residual))
        self.labels = [
            f"{family.prefix}: {s.label}" for listed in self.families for family in listed for s in family.statistics
        ]
        self._views: dict[bytes, View] = {}

    def view(self, present: np.ndarray) -> View:
        """The rows between statistics that are `present`."""
        key = present.tobytes()
        if key not in self._views:
            if len(self._views) > 256:
                self._views.clear()
            self._views[key] = self._make_view(present)
        return self._views[key]

    def _make_view(self, present: np.ndarray) -> View:
        plus: list[int] = []
        minus: list[int] = []
        owner: list[int] = []
        names: list[str] = []
        vacuous: list[str] = []
        start = 0
        for position, listed in enumerate(self.families):
            if position in self.affine:
                constraint = self.affine[position]
                count = len(constraint.A)
                plus += range(start, start + count)
                minus += [-1] * count
                owner += [position] * count
                names += [f"{self.affine_prefix[position]}: row {j}" for j in range(count)]
                start += count
            for family in listed:
                here = [start + i for i, _ in enumerate(family.statistics) if present[start + i]]
                label = {start + i: statistic.label for i, statistic in enumerate(family.statistics)}
                pairs = combinations(here, 2) if family.pairwise else ((a, -1) for a in here)
                for a, b in pairs:
                    plus.append(a)
                    minus.append(b)
                    owner.append(position)
                    names.append(
                        f"{family.prefix}: {label[a]} - {label[b]}" if b >= 0 else f"{family.prefix}: {label[a]}"
                    )
                vacuous += _absent(family, {label[a] for a in here})
                start += len(family.statistics)
        return View(plus, minus, owner, names, vacuous)


def _distinct(prefix: str, taken: set[str]) -> str:
    """The prefix, numbered if need be: rows and statistics are known by their names, so these must differ."""
    text, number = prefix, 1
    while text in taken:
        number += 1
        text = f"{prefix} ({number})"
    taken.add(text)
    return text


def _absent(family: Family, present: set[str]) -> list[str]:
    """What a family cannot say because groups of it have no samples."""
    found = [statistic for statistic in family.statistics if statistic.label in present]
    missing = [f"{family.prefix}: {s.label} is absent" for s in family.statistics if s.label not in present]
    if family.pairwise and len(found) == 1:
        missing.append(f"{family.prefix}: only {found[0].label} is present")
    return missing


def bind(
    rules: ConstraintSet,
    n: int,
    *,
    groups: Any = None,
    targets: Any = None,
    features: Any = None,
    weights: np.ndarray | None = None,
    levels: Mapping[Name, Sequence[Label]] | None = None,
) -> System:
    """Bind constraints to a batch of n samples. Weights, if any, are an (n,) float64 array."""
    attributes = read_groups(groups, n, levels) if rules.needs_groups else {}
    groupings, used = rules.groupings(tuple(attributes))
    columns: dict[Key, Column | SoftGroup] = {("group", name): attributes[name] for name in used}
    batch = Batch(features, targets)
    for constraint in rules.constraints:
        columns.update(constraint.columns(batch))
    check_lengths(rules, columns, n)
    soft = any(isinstance(column, SoftGroup) for column in columns.values())
    if soft or rules.affine:  # every sample is its own cell
        index, count = np.arange(n, dtype=np.int32), np.ones(n)
        weight = count if weights is None else weights
        plan = _plan(rules, groupings, Grid({key: _sample_members(c) for key, c in columns.items()}, n))
    else:
        index, count, weight, meaning = assign_cells(list(columns.values()), n, weights)  # type: ignore[arg-type]
        kinds = tuple(tuple(map(type, labels)) for labels in meaning.labels)
        plan = _cell_plan(rules, groupings, tuple(columns), meaning, kinds)
    return _bind_plan(plan, rules, index, count, weight, weights, targets)


def check_lengths(rules: ConstraintSet, columns: Mapping[Key, Column | SoftGroup], n: int) -> None:
    """Refuse features and matrices that are not of the batch's size; groups and targets have been checked."""
    for key, column in columns.items():
        if key[0] == "region" and len(column.values) != n:  # type: ignore[union-attr]
            raise InputError(
                f"features[{key[-1]!r}] has {len(column.values)} entries for {n} outputs: "  # type: ignore[union-attr]
                "pass one per output."
            )
    for constraint in rules.affine:
        if constraint.A.ndim != 2 or constraint.A.shape[1] != n:
            raise InputError(f"A has shape {constraint.A.shape}, which does not fit {n} outputs.")
        if constraint.problems is not None:
            raise InputError(f"lower or upper is for {constraint.problems} problems: pass z of shape (problems, {n}).")


@lru_cache(maxsize=256)
def _cell_plan(
    rules: ConstraintSet,
    groupings: Groupings,
    keys: tuple[Key, ...],
    levels: Levels,
    kinds: tuple[tuple[type, ...], ...],
) -> Plan:
    """The plan for cells that mean `levels`, whose labels are of these types: 0, 0.0 and False are equal but differ."""
    digits = levels.digit_table()
    members = {
        key: [
            (label, (digits[:, j] == v).astype(np.float64))
            for v, label in enumerate(levels.labels[j])
            if label is not NO_LABEL
        ]
        for j, key in enumerate(keys)
    }
    return _plan(rules, groupings, Grid(members, len(digits)))


def _sample_members(column: Column | SoftGroup) -> list[tuple[Label, np.ndarray]]:
    """Which samples, each its own cell, carry each label; for soft groups, with what probability."""
    if isinstance(column, SoftGroup):
        return list(zip(column.labels, column.probabilities.T, strict=True))
    values = as_numpy(column.values)
    if column.labels is None:
        return [(v, (values == v).astype(np.float64)) for v in np.unique(values).tolist()]
    return [(label, (values == v).astype(np.float64)) for v, label in enumerate(column.labels)]


def _plan(rules: ConstraintSet, groupings: Groupings, grid: Grid) -> Plan:
    families = [c.families(grid, groupings[position]) for position, c in enumerate(rules.constraints)]
    affine = {position: c for position, c in enumerate(rules.constraints) if isinstance(c, Affine)}
    return Plan(families, affine, grid.size)


def _bind_plan(
    plan: Plan,
    rules: ConstraintSet,
    index: Any,
    count: np.ndarray,
    weight: np.ndarray,
    weights: np.ndarray | None,
    targets: Any,
) -> System:
    """Put counts, targets and tolerances in."""
    total = weight @ plan.membership
    if rules.affine:
        M, present = _with_matrices(plan, rules, weight, total)
    else:
        present = total > 0
        M = plan.membership / (total if present.all() else np.where(present, total, 1.0))
    view = plan.view(present)
    sample_weights = np.empty(0) if weights is None else weights
    offset, offset_tensor = plan.no_offset, None
    if plan.any_residual:
        sums, error = np.empty(len(weight)), np.empty(len(weight))
        exact_sums(_as_numbers(targets), as_numpy(index).astype(np.int32), sample_weights, sums, error)
        offset = (sums @ M) * plan.residual
        if not np.isfinite(offset).all():
            raise InputError("targets are too large: their sums pass the range of float64. Scale them and z down.")
        doubt = ((error + (len(sums) + 2) * UNIT * np.abs(sums)) @ np.abs(M)) * plan.residual
        if isinstance(targets, torch.Tensor) and targets.requires_grad:
            offset_tensor = _offset_tensor(M * plan.residual, index, weights, targets)
    tolerances = rules.tolerances()
    if not rules.affine and not any(isinstance(tolerance, torch.Tensor) for tolerance in tolerances):
        limits: tuple[Any, ...] = (*view.limits(tolerances), None, None)
    else:
        limits = _mixed_limits(view, rules, tolerances)
    if plan.any_residual:  # what rounding may have done to the targets' means is taken off the tolerance
        off = doubt[view.plus] + np.where(view.minus >= 0, doubt[view.minus], 0.0)
        off = np.minimum(off, 0.25 * (limits[1] - limits[0]))
        limits = (limits[0] + off, limits[1] - off, *limits[2:])
    rows = Rows(M, offset, view.plus, view.minus, limits[0], limits[1])
    return System(index, count, weight, sample_weights, rows, view, limits[2], limits[3], offset_tensor)


def _as_numbers(targets: Any) -> np.ndarray:
    try:
        return as_numpy(targets).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"targets must be numbers where residuals are taken of them: {error}") from error


def _with_matrices(
    plan: Plan, rules: ConstraintSet, weight: np.ndarray, total: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """M where some statistics are means and others rows of a matrix, which apply to outputs, not to weighted sums."""
    is_mean = np.ones(len(total), dtype=bool)
    start = 0
    for position, families in enumerate(plan.families):
        if position in plan.affine:
            is_mean[start : start + len(plan.affine[position].A)] = False
            start += len(plan.affine[position].A)
        start += sum(len(family.statistics) for family in families)
    if not (weight > 0).all():
        raise InputError("weights has zeros: Affine rows need a positive weight for every output.")
    present = (total > 0) | ~is_mean
    return plan.membership / np.where(is_mean, np.where(present, total, 1.0), weight[:, None]), present


def _offset_tensor(M: np.ndarray, index: Any, weights: np.ndarray | None, targets: torch.Tensor) -> torch.Tensor:
    """Means of the targets, as a tensor through which gradients reach them."""
    values = targets.double().cpu()
    if weights is not None:
        values = values * torch.from_numpy(weights)
    sums = torch.zeros(len(M), dtype=torch.float64).index_add(0, torch.as_tensor(as_numpy(index)).long(), values)
    return sums @ torch.from_numpy(M)


def _mixed_limits(view: View, rules: ConstraintSet, tolerances: tuple[Any, ...]) -> tuple[Any, ...]:
    """Bounds of all rows where some are not plain numbers; as tensors too where gradients of them are wanted."""
    sides: list[list[Any]] = [[], []]
    for position, constraint in enumerate(rules.constraints):
        count = int((view.owner == position).sum())
        pair = (-tolerances[position], tolerances[position])
        if isinstance(constraint, Affine):
            pair = (constraint.lower, constraint.upper)
        for side, value in zip(sides, pair, strict=True):
            tensor = value.double().cpu() if isinstance(value, torch.Tensor) else torch.tensor(np.asarray(value))
            side.append(tensor.expand(count))
    lower, upper = (torch.cat(side).double() for side in sides)
    wanted = (lower.requires_grad, upper.requires_grad)
    return (
        lower.detach().numpy(),
        upper.detach().numpy(),
        lower if wanted[0] else None,
        upper if wanted[1] else None,
    )
