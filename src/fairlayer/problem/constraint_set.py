"""A list of constraints, read once: what is needed of every batch, and a key under which plans are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fairlayer.constraints.affine import Affine
from fairlayer.constraints.constraint import Constraint, GroupConstraint
from fairlayer.constraints.plain_data import Name
from fairlayer.errors import InputError
from fairlayer.problem.rows import RATIO

if TYPE_CHECKING:
    from fairlayer.problem.row_plan import RowPlan

Groupings = tuple[tuple[tuple[Name, ...], ...], ...]  # of each constraint
Limits = tuple[np.ndarray, np.ndarray, torch.Tensor | None, torch.Tensor | None]


class ConstraintSet:
    """Constraints that hold together. Two are equal where their rows are, whatever the tolerances."""

    def __init__(self, constraints: Sequence[Constraint] | Constraint):
        if not isinstance(constraints, Constraint | Sequence):
            raise InputError(f"constraints must be one, or a list of them; got {constraints!r}.")
        listed = [constraints] if isinstance(constraints, Constraint) else list(constraints)
        wrong = [constraint for constraint in listed if not isinstance(constraint, Constraint)]
        if wrong:
            raise InputError(f"constraints must hold constraints such as MeanParity(0.05); got {wrong[0]!r}.")
        bare = [type(one).__name__ for one in listed if not isinstance(one, Affine | GroupConstraint)]
        if bare:
            raise InputError(f"{bare[0]} is a bare Constraint, which says nothing: derive it from GroupConstraint.")
        self.constraints = listed
        # Those that compare no groups bring a matrix over samples instead.
        self.matrix_at: dict[int, Affine] = {
            position: constraint  # type: ignore[misc]
            for position, constraint in enumerate(listed)
            if not constraint.needs_groups
        }
        self.matrices = list(self.matrix_at.values())
        self.only_matrices = bool(listed) and len(self.matrices) == len(listed)
        self.needs_groups = len(self.matrices) < len(listed)
        self.conditioned = [constraint for constraint in listed if constraint.conditions]
        self.needs_targets = next((type(c).__name__ for c in listed if c.needs_targets), None)
        self.needs_positive = next(
            (type(c).__name__ for c in listed if c.quantity == "output" and getattr(c, "comparison", "") == "ratio"),
            None,
        )
        self.about_decisions = any(constraint.quantity == "decision" for constraint in listed)
        self.needs_features = any(constraint.needs_features for constraint in listed)
        self.key = tuple((type(constraint), constraint.key) for constraint in listed)
        self._hash = hash(self.key)
        self._groupings: dict[tuple[Name, ...], tuple[Groupings, tuple[Name, ...]]] = {}
        # Tolerances that are tensors change as they are learned; numbers stay, and so do the limits made of them.
        self._learned = any(isinstance(getattr(c, "tolerance", None), torch.Tensor) for c in listed)
        self._limits: tuple[RowPlan | None, Any] = (None, None)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ConstraintSet) and self.key == other.key)

    def groupings(self, names: tuple[Name, ...]) -> tuple[Groupings, tuple[Name, ...]]:
        """What each constraint compares, given the attributes there are; and which of these are looked at."""
        known = self._groupings.get(names)
        if known is None:
            each = tuple(
                tuple(constraint.groupings(names)) if constraint.needs_groups else ()  # type: ignore[attr-defined]
                for constraint in self.constraints
            )
            wanted = {name for groupings in each for grouping in groupings for name in grouping}
            # In the order of the table, in which cells are numbered, whatever order constraints name them in.
            known = self._groupings[names] = each, tuple(name for name in names if name in wanted)
        return known

    @property
    def wants_gradient(self) -> bool:
        """Whether gradients are wanted of a tolerance, or of a limit of rows."""
        limits = [getattr(c, name, None) for c in self.constraints for name in ("tolerance", "lower", "upper")]
        return any(isinstance(limit, torch.Tensor) and limit.requires_grad for limit in limits)

    def tolerances(self) -> tuple[Any, ...]:
        """Tolerances as they are now: numbers, or tensors where gradients of them are wanted; 0 where there is none."""
        return tuple(_tolerance(getattr(constraint, "tolerance", None)) for constraint in self.constraints)

    def allowed(self) -> tuple[float, ...]:
        """The largest gap that each constraint allows; 0 for a matrix."""
        return tuple(float(getattr(constraint, "allowed", 0.0)) for constraint in self.constraints)

    def check_bounds(self, lowest: float, what: str = "bounds") -> None:
        """Refuse outputs that may be negative where their means are compared by ratio."""
        if self.needs_positive is not None and not lowest >= 0.0:
            raise InputError(
                f"{what} goes down to {lowest:g}, but {self.needs_positive} compares means by their ratio, which says "
                "nothing of outputs that may be negative: pass bounds=(0, 1), or another lower end of at least 0; or "
                "compare differences, with MeanParity."
            )

    def limits(self, plan: RowPlan) -> Limits:
        """Bounds of every family of a plan; as tensors too where gradients of them are wanted."""
        if self.matrices or self._learned:
            return self._learned_limits(plan)
        kept, limits = self._limits  # another thread may be at work on another plan
        if kept is not plan:
            upper = np.array(self.tolerances(), dtype=np.float64)[plan.owner]
            limits = np.where(plan.kind == RATIO, -np.inf, -upper), upper, None, None
            self._limits = plan, limits
        return limits

    def _learned_limits(self, plan: RowPlan) -> Limits:
        sides: list[list[torch.Tensor]] = [[torch.zeros(0)], [torch.zeros(0)]]
        for position, tolerance in enumerate(self.tolerances()):
            matrix = self.matrix_at.get(position)
            pair = (-tolerance, tolerance) if matrix is None else (matrix.lower, matrix.upper)
            for side, value in zip(sides, pair, strict=True):
                tensor = value.cpu() if isinstance(value, torch.Tensor) else torch.tensor(np.asarray(value))
                side.append(tensor.double().expand(int((plan.owner == position).sum())))
        lower, upper = map(torch.cat, sides)
        lower = torch.where(torch.from_numpy(plan.kind == RATIO), -torch.inf, lower)
        graphs = [side if side.requires_grad else None for side in (lower, upper)]
        return lower.detach().numpy(), upper.detach().numpy(), graphs[0], graphs[1]


def _tolerance(tolerance: Any) -> Any:
    if isinstance(tolerance, torch.Tensor):
        return tolerance.cpu().double() if tolerance.requires_grad else float(tolerance.cpu())
    return 0.0 if tolerance is None else tolerance
