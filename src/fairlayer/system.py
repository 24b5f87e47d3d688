"""A system: constraints bound to one batch. The only thing a solver sees of them.

    lower <= R (M'S - offset) <= upper,    S the cell sums of the outputs.

What depends only on the constraints and on which labels occur is a *plan*, made once and kept; binding it to a batch
takes the cell counts alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from fairlayer.cells import Levels, assign_cells, exact_sums
from fairlayer.constraints import Affine, Batch, Constraint, Grid, GroupConstraint, Key, Statement, as_numpy
from fairlayer.errors import InputError
from fairlayer.groups import Column, Label, Name, SoftGroup, read_groups
from fairlayer.rows import Rows


@dataclass(frozen=True, eq=False)
class Plan:
    """Rows over cells, before counts, targets and tolerances are known."""

    membership: np.ndarray  # (G, K)
    residual: np.ndarray  # (K,) bool
    mean: np.ndarray  # (K,) bool: divided by the group's weight, as a mean is
    plus: np.ndarray  # (m,)
    minus: np.ndarray  # (m,)
    owner: np.ndarray  # (m,) position of the constraint that states the row
    names: tuple[str, ...]
    vacuous: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class System:
    """Rows over the cell sums of one batch."""

    index: Any  # (n,) cell of each sample: int32 array, or int64 tensor away from the CPU
    count: np.ndarray  # (G,) samples per cell
    weight: np.ndarray  # (G,) weight per cell
    weights: np.ndarray  # (n,) weight per sample, or empty where all are 1
    rows: Rows
    plan: Plan
    # What gradients are wanted of, as float64 tensors: row bounds and statistic offsets.
    lower: torch.Tensor | None = None
    upper: torch.Tensor | None = None
    offset: torch.Tensor | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each row."""
        return self.plan.names


def bind(
    constraints: Sequence[Constraint],
    n: int,
    *,
    groups: Any = None,
    targets: Any = None,
    features: Any = None,
    weights: np.ndarray | None = None,
    levels: Mapping[Name, Sequence[Label]] | None = None,
) -> System:
    """Bind constraints to a batch of n samples. Weights, if any, are an (n,) float64 array."""
    attributes = read_groups(groups, n, levels) if any(c.needs_groups for c in constraints) else {}
    batch = Batch(attributes, features, targets)
    columns: dict[Key, Column | SoftGroup] = {}
    for constraint in constraints:
        if isinstance(constraint, GroupConstraint):
            columns.update(constraint.columns(batch))
    groupings = tuple(tuple(batch.attributes(c.over)) if isinstance(c, GroupConstraint) else () for c in constraints)
    by_sample = any(isinstance(c, Affine) for c in constraints) or any(
        isinstance(c, SoftGroup) for c in columns.values()
    )
    if by_sample:
        weight = np.ones(n) if weights is None else weights
        index, count = np.arange(n, dtype=np.int32), np.ones(n)
        plan = _plan(constraints, groupings, _sample_grid(columns, weight))
    else:
        hard: list[Any] = list(columns.values())
        cells = assign_cells(hard, n, weights)
        index, count, weight = cells.index, cells.count, cells.weight
        plan = _cell_plan(_Declarations(constraints), groupings, tuple(columns), cells.levels)
    return _bind_plan(plan, constraints, index, count, weight, weights, targets)


class _Declarations:
    """A list of constraints as a cache key: equal where their rows are, whatever their tolerances."""

    def __init__(self, constraints: Sequence[Constraint]):
        self.constraints = constraints
        self.key = tuple(constraint.key for constraint in constraints)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Declarations) and self.key == other.key


@lru_cache(maxsize=256)
def _cell_plan(
    declarations: _Declarations,
    groupings: tuple[tuple[tuple[Name, ...], ...], ...],
    keys: tuple[Key, ...],
    levels: Levels,
) -> Plan:
    """The plan for cells that mean `levels`."""
    digits = levels.digit_table()
    filled = np.frombuffer(levels.filled, dtype=bool)
    memberships: dict[Key, list[tuple[Label, np.ndarray]]] = {}
    absent: dict[Key, list[Label]] = {}
    for j, key in enumerate(keys):
        masks = ((label, digits[:, j] == v) for v, label in enumerate(levels.labels[j]))
        memberships[key] = [(label, mask.astype(np.float64)) for label, mask in masks if (mask & filled).any()]
        present = {label for label, _ in memberships[key]}
        absent[key] = [label for label in levels.declared[j] or () if label not in present]
    return _plan(declarations.constraints, groupings, Grid(memberships, absent, filled.astype(np.float64)))


def _sample_grid(columns: Mapping[Key, Column | SoftGroup], weight: np.ndarray) -> Grid:
    """A grid in which every sample is its own cell, as soft membership and affine rows need."""
    memberships: dict[Key, list[tuple[Label, np.ndarray]]] = {}
    absent: dict[Key, list[Label]] = {}
    for key, column in columns.items():
        if isinstance(column, SoftGroup):
            pairs = list(zip(column.labels, column.probabilities.T, strict=True))
        else:
            values = as_numpy(column.values)
            labels = column.labels if column.labels is not None else tuple(np.unique(values).tolist())
            codes = range(len(labels)) if column.labels is not None else labels
            pairs = [(label, (values == v).astype(np.float64)) for v, label in zip(codes, labels, strict=True)]
        memberships[key] = [(label, member) for label, member in pairs if member @ weight > 0]
        absent[key] = [label for label, member in pairs if not member @ weight > 0]
    return Grid(memberships, absent, weight)


def _plan(constraints: Sequence[Constraint], groupings: Sequence[Sequence[tuple[Name, ...]]], grid: Grid) -> Plan:
    """Lay the statements of all constraints side by side."""
    members: list[np.ndarray] = []
    residual: list[bool] = []
    mean: list[bool] = []
    rows: list[tuple[int, int, str]] = []
    owner: list[int] = []
    vacuous: list[str] = []
    for position, constraint in enumerate(constraints):
        start = len(members)
        if isinstance(constraint, Affine):
            title = constraint.name or "affine"
            members += list(constraint.A)
            residual += [False] * len(constraint.A)
            mean += [False] * len(constraint.A)
            stated = [(start + j, -1, f"{title}: row {j}") for j in range(len(constraint.A))]
        else:
            statement: Statement = constraint.state(grid, list(groupings[position]))
            members += [statistic.membership for statistic in statement.statistics]
            residual += [statistic.residual for statistic in statement.statistics]
            mean += [True] * len(statement.statistics)
            stated = [(start + a, start + b if b >= 0 else -1, name) for a, b, name in statement.rows]
            vacuous += statement.vacuous
        rows += stated
        owner += [position] * len(stated)
    return Plan(
        membership=np.ascontiguousarray(np.stack(members, axis=1)) if members else np.zeros((len(grid.weight), 0)),
        residual=np.array(residual, dtype=bool),
        mean=np.array(mean, dtype=bool),
        plus=np.array([row[0] for row in rows], dtype=np.int64),
        minus=np.array([row[1] for row in rows], dtype=np.int64),
        owner=np.array(owner, dtype=np.int64),
        names=tuple(row[2] for row in rows),
        vacuous=tuple(dict.fromkeys(vacuous)),
    )


def _bind_plan(
    plan: Plan,
    constraints: Sequence[Constraint],
    index: Any,
    count: np.ndarray,
    weight: np.ndarray,
    weights: np.ndarray | None,
    targets: Any,
) -> System:
    """Put counts, targets and tolerances in."""
    if plan.mean.all():
        M = plan.membership / (weight @ plan.membership)
    elif weights is not None and not (weights > 0).all():
        raise InputError("weights has zeros: Affine rows need a positive weight for every output.")
    else:
        M = plan.membership / np.where(plan.mean, weight @ plan.membership, weight[:, None])
    sample_weights = np.empty(0) if weights is None else weights
    offset, offset_tensor = np.zeros(len(plan.mean)), None
    if plan.residual.any():
        sums, error = np.empty(len(weight)), np.empty(len(weight))
        exact_sums(as_numpy(targets).astype(np.float64), as_numpy(index).astype(np.int32), sample_weights, sums, error)
        offset = (sums @ M) * plan.residual
        if isinstance(targets, torch.Tensor) and targets.requires_grad:
            offset_tensor = _offset_tensor(M * plan.residual, index, weights, targets)
    lower, upper, lower_tensor, upper_tensor = _limits(plan, constraints)
    rows = Rows(M, offset, plan.plus, plan.minus, lower, upper)
    return System(index, count, weight, sample_weights, rows, plan, lower_tensor, upper_tensor, offset_tensor)


def _offset_tensor(M: np.ndarray, index: Any, weights: np.ndarray | None, targets: torch.Tensor) -> torch.Tensor:
    """Means of the targets, as a tensor through which gradients reach them."""
    values = targets.double().cpu()
    if weights is not None:
        values = values * torch.from_numpy(weights)
    sums = torch.zeros(len(M), dtype=torch.float64).index_add(0, torch.as_tensor(as_numpy(index)).long(), values)
    return sums @ torch.from_numpy(M)


def _limits(
    plan: Plan, constraints: Sequence[Constraint]
) -> tuple[np.ndarray, np.ndarray, torch.Tensor | None, torch.Tensor | None]:
    """Bounds of all rows; as tensors too where a tolerance wants gradients."""
    sides = [_sides(constraint) for constraint in constraints]
    if not any(isinstance(side, torch.Tensor) for pair in sides for side in pair):
        if len(sides) == 1 and np.ndim(sides[0][1]) == 0:
            upper = np.full(len(plan.owner), sides[0][1])
            return -upper, upper, None, None
        low, high = (np.concatenate([_spread(pair[s], plan, c) for c, pair in enumerate(sides)]) for s in (0, 1))
        return low, high, None, None
    tensors = [
        torch.cat([torch.as_tensor(_spread(pair[s], plan, c)) for c, pair in enumerate(sides)]).double() for s in (0, 1)
    ]
    low, high = (tensor.detach().cpu().numpy() for tensor in tensors)
    return low, high, tensors[0], tensors[1]


def _sides(constraint: Constraint) -> tuple[Any, Any]:
    """Lower and upper bound of a constraint's rows: numbers, arrays, or tensors that want gradients."""
    if isinstance(constraint, Affine):
        return constraint.lower, constraint.upper
    tolerance = constraint.tolerance
    if isinstance(tolerance, torch.Tensor):
        tolerance = tolerance.double().cpu() if tolerance.requires_grad else float(tolerance)
    return -tolerance, tolerance


def _spread(side: Any, plan: Plan, position: int) -> Any:
    """One bound for each row of the constraint at `position`."""
    count = int((plan.owner == position).sum())
    if isinstance(side, torch.Tensor):
        return side.cpu().expand(count)
    return np.broadcast_to(side, (count,))
