"""What a rank brings to a batch: its samples, and the settings that all ranks must share."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box
from fairlayer.binding.cells import Cells
from fairlayer.binding.conditions import Key
from fairlayer.binding.constraint_set import ConstraintSet, Groupings
from fairlayer.binding.groups import SoftGroup
from fairlayer.binding.system import as_numbers
from fairlayer.solve.discrepancy import Discrepancy, inner_limits


def per_sample(bounds: Any) -> tuple[bool, bool]:
    """Whether each bound is one number per sample, however many there are."""
    low, high = (None, None) if bounds is None else bounds
    return _is_column(low), _is_column(high)


def _is_column(side: Any) -> bool:
    if isinstance(side, Tensor):
        return side.ndim > 0
    return not isinstance(side, float | int | None) and np.ndim(side) > 0


Settings = tuple[tuple[str, Hashable], ...]  # what has to be the same on all ranks: names and values


def shared_settings(
    z: Tensor, rules: ConstraintSet, box: Box, bounds: Any, targets: Any, **others: Hashable
) -> Settings:
    """What has to be the same on all ranks."""
    sides = zip((box.lo, box.hi), per_sample(bounds), strict=True)
    tolerances = rules.tolerances()
    gradients = {
        "z": z.requires_grad,
        "tolerances": any(isinstance(tolerance, Tensor) for tolerance in tolerances),
        "bounds": box.wants_gradient,
        "targets": isinstance(targets, Tensor) and targets.requires_grad,
    }
    grad_enabled = torch.is_grad_enabled()
    return (
        ("constraints", rules.key),
        ("tolerances", tuple(map(float, tolerances))),
        ("dtype", z.dtype),
        ("bounds", tuple("one per sample" if per else float(side[0]) for side, per in sides)),
        ("gradients wanted of", tuple(name for name, wants in gradients.items() if wants and grad_enabled)),
        *others.items(),
    )


class Part(NamedTuple):
    """What a rank brings: its samples as they were read, and the settings that all ranks must share."""

    z: Tensor  # (n,) contiguous, without a graph; (n, d) where every rank gets all samples
    box: Box
    sides: tuple[bool, bool]  # whether each bound is one number per sample
    weights: np.ndarray | None
    targets: Any
    groupings: Groupings
    keys: tuple[Key, ...]  # of the columns that cells are made of
    cells: Cells
    soft: dict[Key, SoftGroup]  # attributes of which only probabilities are known
    gathers: bool  # whether every rank gets all samples, as sums over cells are not enough
    has_residuals: bool
    discrepancy: Discrepancy
    compiled: bool
    settings: Settings

    @property
    def inside(self) -> Box:
        """The box, less what no response can be."""
        return self.box.within(*inner_limits(self.discrepancy, self.z.dtype))

    @property
    def width(self) -> int:
        """Numbers of a sample, as rows have them."""
        columns = 1 if self.z.ndim == 1 else self.z.shape[1]
        beside = (self.weights is not None) + self.has_residuals + sum(self.sides)
        return 1 + beside + columns + sum(soft.probabilities.shape[1] for soft in self.soft.values())

    def put_rows(self, cell: Any, rows: np.ndarray) -> None:
        """Fill (n, width) float64 with all that is known of each sample. cell: of each, in the whole batch."""
        columns = [as_numpy(cell)]
        if self.weights is not None:
            columns.append(self.weights)
        if self.has_residuals:
            columns.append(as_numbers(self.targets))
        columns += [side for side, per in zip((self.box.lo, self.box.hi), self.sides, strict=True) if per]
        z = as_numpy(self.z)
        columns += [z] if z.ndim == 1 else [*z.T]
        for soft in self.soft.values():
            columns += [*soft.probabilities.T]
        for j, column in enumerate(columns):
            rows[:, j] = column

    def with_rows(self, rows: np.ndarray) -> tuple[Part, np.ndarray]:
        """The same with the samples of these rows, and the cell of each."""
        columns = iter(rows.T)
        cell = next(columns).astype(np.int32)
        weights = None if self.weights is None else next(columns).copy()
        targets = next(columns).copy() if self.has_residuals else None
        box = self.box
        if any(self.sides):
            lo, hi = (
                next(columns).astype(side.dtype) if per else side
                for side, per in zip((box.lo, box.hi), self.sides, strict=True)
            )
            lowest, highest = float(lo.min(initial=np.inf)), float(hi.max(initial=-np.inf))
            box = replace(box, lo=lo, hi=hi, lowest=lowest, highest=highest)
        if self.z.ndim == 1:
            z = next(columns).copy()
        else:
            z = np.stack([next(columns) for _ in range(self.z.shape[1])], axis=1)
        soft = {}
        for key, group in self.soft.items():
            soft[key] = copy.copy(group)
            soft[key].probabilities = np.stack([next(columns) for _ in group.labels], axis=1)
        tensor = torch.from_numpy(z).to(dtype=self.z.dtype, device=self.z.device)
        return self._replace(z=tensor, box=box, weights=weights, targets=targets, soft=soft), cell
