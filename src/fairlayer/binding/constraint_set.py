"""A list of constraints, read once: what is needed of every batch, and a key under which plans are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fairlayer.binding.groups import Name
from fairlayer.constraints import Affine, Constraint
from fairlayer.errors import InputError

Groupings = tuple[tuple[tuple[Name, ...], ...], ...]  # of each constraint


class ConstraintSet:
    """Constraints that hold together. Two are equal where their rows are, whatever the tolerances."""

    def __init__(self, constraints: Sequence[Constraint] | Constraint):
        if not isinstance(constraints, Constraint | Sequence):
            raise InputError(f"constraints must be one, or a list of them; got {constraints!r}.")
        listed = [constraints] if isinstance(constraints, Constraint) else list(constraints)
        for constraint in listed:
            if not isinstance(constraint, Constraint):
                raise InputError(f"constraints must hold constraints such as MeanParity(0.05); got {constraint!r}.")
        self.constraints = listed
        self.affine = [constraint for constraint in listed if isinstance(constraint, Affine)]
        self.only_affine = bool(listed) and len(self.affine) == len(listed)
        self.needs_groups = len(self.affine) < len(listed)
        self.needs_targets = next((type(c).__name__ for c in listed if c.needs_targets), None)
        self.needs_features = any(constraint.needs_features for constraint in listed)
        self.key = tuple((type(constraint), constraint.key) for constraint in listed)
        self._hash = hash(self.key)
        self.template: Any = None  # of the last table of labels, see solve/repeat.py
        self._groupings: dict[tuple[Name, ...], tuple[Groupings, tuple[Name, ...]]] = {}

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ConstraintSet) and self.key == other.key)

    def groupings(self, names: tuple[Name, ...]) -> tuple[Groupings, tuple[Name, ...]]:
        """What each constraint compares, given the attributes there are; and which of these are looked at."""
        if names not in self._groupings:
            each = tuple(tuple(constraint.groupings(names)) for constraint in self.constraints)
            wanted = {name for groupings in each for grouping in groupings for name in grouping}
            # In the order of the table, in which cells are numbered, whatever order constraints name them in.
            self._groupings[names] = each, tuple(name for name in names if name in wanted)
        return self._groupings[names]

    def tolerances(self) -> tuple[Any, ...]:
        """Tolerances as they are now: numbers, or tensors where gradients of them are wanted."""
        return tuple(_tolerance(constraint.tolerance) for constraint in self.constraints)


def _tolerance(tolerance: Any) -> Any:
    if isinstance(tolerance, torch.Tensor):
        return tolerance.double().cpu() if tolerance.requires_grad else float(tolerance)
    return tolerance
