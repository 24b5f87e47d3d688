"""Constraints bound to one batch: cells, and rows over their sums. The only thing a solver sees.

Whatever depends only on the constraints and on the labels is a *plan*, made once and kept. Binding it to a batch takes
the cell counts and the targets alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from fairlayer.arrays import as_floats
from fairlayer.errors import InputError
from fairlayer.problem.cells import Levels, assign_cells
from fairlayer.problem.constraint_set import ConstraintSet, Groupings
from fairlayer.problem.exact_sums import UNIT, exact_sums
from fairlayer.problem.families import Grid, GridColumn, Key, condition_columns, list_families
from fairlayer.problem.groups import Column, GivenLevels, SoftGroup, read_groups
from fairlayer.problem.row_plan import PresentRows, RowPlan
from fairlayer.problem.rows import EACH, Rows

_NONE = np.empty(0)
MOST_KEPT = 4096  # cells of a plan that is kept for the next batch


class System(NamedTuple):
    """Rows over the cell sums of one batch."""

    cell: np.ndarray  # (n,) int32 cell of each sample
    samples: np.ndarray  # (G,) samples per cell
    weight: np.ndarray  # (G,) weight per cell
    weights: np.ndarray  # (n,) weight per sample, or empty where all are 1
    rows: Rows
    view: PresentRows
    # What gradients are wanted of, as float64 tensors: bounds of families and statistic offsets.
    lower: torch.Tensor | None = None
    upper: torch.Tensor | None = None
    offset: torch.Tensor | None = None
    # What rational arithmetic needs: targets, where residuals are taken, and bounds as they were stated.
    targets: np.ndarray | None = None
    stated: tuple[np.ndarray, np.ndarray] = (np.zeros(0), np.zeros(0))

    @property
    def wants_gradient(self) -> bool:
        """Whether gradients are wanted of anything in it."""
        return self.lower is not None or self.upper is not None or self.offset is not None


def bind(
    rules: ConstraintSet,
    n: int,
    groups: Any = None,
    targets: Any = None,
    features: Any = None,
    weights: np.ndarray | None = None,
    levels: GivenLevels = None,
) -> System:
    """Bind constraints to a batch of n samples. Weights, if any, are an (n,) float64 array."""
    groupings, columns = read_columns(rules, n, groups, targets, features, levels)
    return bind_columns(rules, groupings, columns, n, weights, targets)


def read_columns(
    rules: ConstraintSet, n: int, groups: Any, targets: Any, features: Any, levels: GivenLevels
) -> tuple[Groupings, dict[Key, Column | SoftGroup]]:
    """What constraints compare, and every column of a batch that they look at."""
    attributes = read_groups(groups, n, levels) if rules.needs_groups else {}
    groupings, used = rules.groupings(tuple(attributes))
    columns: dict[Key, Column | SoftGroup] = {("group", name): attributes[name] for name in used}
    for constraint in rules.conditioned:
        columns.update(condition_columns(constraint, features, targets))
    if rules.needs_features or rules.matrices:
        check_lengths(rules, columns, n)
    return groupings, columns


def check_lengths(rules: ConstraintSet, columns: Mapping[Key, Column | SoftGroup], n: int) -> None:
    """Refuse features and matrices that are not of the batch's size; groups and targets have been checked."""
    for key, column in columns.items():
        if key[0] == "feature" and len(column) != n:
            raise InputError(f"features[{key[1]!r}] has {len(column)} entries for {n} outputs: pass one per output.")
    for constraint in rules.matrices:
        if constraint.A.ndim != 2 or constraint.A.shape[1] != n:
            raise InputError(f"A has shape {constraint.A.shape}, which does not fit {n} outputs.")
        if constraint.problems is not None:
            raise InputError(f"lower or upper is for {constraint.problems} problems: pass z of shape (problems, {n}).")


def make_plan(
    rules: ConstraintSet, groupings: Groupings, grid: Grid, size: int, known: np.ndarray | None = None
) -> RowPlan:
    """The plan of constraints over the cells of a grid. known: cells whose targets are, where some are not."""
    families = [
        family
        for position, constraint in enumerate(rules.constraints)
        if constraint.needs_groups
        for family in list_families(constraint, position, groupings[position], grid, known)  # type: ignore[arg-type]
    ]
    return RowPlan(families, size, rules.matrix_at)


def _cell_plan(rules: ConstraintSet, groupings: Groupings, keys: tuple[Key, ...], levels: Levels) -> RowPlan:
    """The plan over cells of these levels, of the columns of these keys."""
    digits = levels.digit_table()
    grid = {key: GridColumn(levels.labels[j], np.ascontiguousarray(digits[:, j])) for j, key in enumerate(keys)}
    return make_plan(rules, groupings, grid, len(digits))


_kept_plan = lru_cache(maxsize=256)(_cell_plan)


def _sample_column(column: Column | SoftGroup) -> GridColumn:
    """A column of samples, each its own cell."""
    if isinstance(column, SoftGroup):
        return GridColumn(column.labels, column.probabilities)
    if column.labels is not None:
        return GridColumn(column.labels, column.values)
    found, digits = np.unique(column.values, return_inverse=True)
    return GridColumn(tuple(found.tolist()), digits)


def bind_columns(
    rules: ConstraintSet,
    groupings: Groupings,
    columns: Mapping[Key, Column | SoftGroup],
    n: int,
    weights: np.ndarray | None,
    targets: Any,
) -> System:
    """Bind constraints to a batch whose columns have been read."""
    if rules.matrices and weights is not None and not (weights > 0).all():
        raise InputError("weights has zeros: Affine rows need a positive weight for every output.")
    # What is kept: the plan of rows over cells.
    if rules.matrices or SoftGroup in map(type, columns.values()):  # every sample is its own cell
        index, count = np.arange(n, dtype=np.int32), np.ones(n)
        weight = count if weights is None else weights
        plan = make_plan(rules, groupings, {key: _sample_column(c) for key, c in columns.items()}, n)
    else:
        each: list[Column] = [*columns.values()]  # type: ignore[list-item]
        index, count, weight, levels = assign_cells(each, n, weights)
        plan = (_cell_plan if count.size > MOST_KEPT else _kept_plan)(rules, groupings, tuple(columns), levels)
    # What is bound anew: means, tolerances and targets.
    value, present = plan.means(weight)
    lower, upper, lower_tensor, upper_tensor = rules.limits(plan)
    rows = plan.rows(value, present, plan.no_offset, lower, upper)
    sample_weights = _NONE if weights is None else weights
    numbers = offset_tensor = None
    if plan.any_residual:
        numbers, sums, error = as_numbers(targets), np.empty(len(weight)), np.empty(len(weight))
        exact_sums(numbers, index, sample_weights, sums, error)
        if isinstance(targets, torch.Tensor) and targets.requires_grad:
            offset_tensor = _offset_tensor(rows, plan.residual, index, weights, targets)
        rows = less_targets(rows, plan, sums, error)
    wanted = lower_tensor, upper_tensor, offset_tensor
    return System(index, count, weight, sample_weights, rows, plan.view(present), *wanted, numbers, (lower, upper))


def less_targets(rows: Rows, plan: RowPlan, sums: np.ndarray, error: np.ndarray) -> Rows:
    """Rows less the means of the targets, where residuals are taken. sums: of the targets of each cell, within error.

    What rounding may have done to these means is taken off the tolerances.
    """
    offset = rows.totals(sums) * plan.residual
    if not np.isfinite(offset).all():
        raise InputError("targets are too large: their sums exceed the range of float64. Scale them and z down.")
    doubt = rows.totals(error + (len(sums) + 2) * UNIT * np.abs(sums), absolute=True) * plan.residual
    two = np.where(plan.kind == EACH, 1.0, 2.0)
    off = two * np.maximum.reduceat(doubt, plan.first[:-1]) if len(doubt) else np.zeros(0)
    off = np.minimum(off, 0.25 * (rows.upper - rows.lower))
    return rows._replace(offset=offset).between(rows.lower + off, rows.upper - off)


def as_numbers(targets: Any) -> np.ndarray:
    """Targets as float64, where residuals are taken of them."""
    return as_floats(targets, "targets", "numbers where residuals are taken of them")


def _offset_tensor(
    rows: Rows, residual: np.ndarray, index: np.ndarray, weights: np.ndarray | None, targets: torch.Tensor
) -> torch.Tensor:
    """Means of the targets, as a tensor through which gradients reach them."""
    values = targets.cpu().double()  # in this order: not every device has float64
    if weights is not None:
        values = values * torch.from_numpy(weights)
    cells = len(rows.start) - 1
    sums = torch.zeros(cells, dtype=torch.float64).index_add(0, torch.from_numpy(index).long(), values)
    entry_cell = torch.from_numpy(rows.entry_cell)
    of_entry = sums[entry_cell] * torch.from_numpy(rows.value * residual[rows.statistic])
    return torch.zeros(len(rows.offset), dtype=torch.float64).index_add(0, torch.from_numpy(rows.statistic), of_entry)
