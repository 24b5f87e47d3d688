"""`Request`: what `project` or a layer is asked for, read and checked before any work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from fairlayer.arrays import as_floats, as_numpy, check_dense, is_dense
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.core.classes import check_class_kind, check_class_rules, check_class_shape
from fairlayer.core.discrepancies import check_interval, find_discrepancy, is_squared, known_name
from fairlayer.core.gradient import in_forward_mode, refuse_tangents
from fairlayer.core.solver import DTYPES
from fairlayer.decisions.project import read_threshold
from fairlayer.decisions.scores import check_surrogate
from fairlayer.errors import AbsentGroupError, InputError
from fairlayer.problem.bounds import Box, are_numbers, read_bounds
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.groups import find_missing
from fairlayer.problem.process_group import Group
from fairlayer.problem.system import System, bind

Absent = Literal["vacuous", "raise"]
Infeasible = Literal["raise", "relax"]
Surrogate = Literal["sigmoid"] | None

_LEAST_WEIGHT, _WIDEST_WEIGHTS = 1e-250, 1e100
_CHOICES = {"absent": ("vacuous", "raise"), "infeasible": ("raise", "relax")}


class Data(NamedTuple):
    """What constraints look at, of one batch."""

    groups: Any
    targets: Any
    features: Any
    weights: Any


@dataclass(eq=False, repr=False)
class Request:
    """What is asked of every batch, read and checked once: for one call of `project`, or for all calls of a layer."""

    rules: Any  # a ConstraintSet, whatever constraints are given
    bounds: Any
    discrepancy: Any  # a Discrepancy, whatever name is given
    levels: Mapping[Name, Sequence[Label]] | None
    absent: Absent
    infeasible: Infeasible
    surrogate: Surrogate
    temperature: float
    process_group: Group
    simplex: bool

    def __post_init__(self) -> None:
        if not isinstance(self.rules, ConstraintSet):
            self.rules = ConstraintSet(self.rules)
        self.discrepancy = find_discrepancy(self.discrepancy)
        if self.process_group is None:  # over ranks the others have to learn of an error: see `check`
            self._check_arguments()
        self._boxes: dict[torch.dtype, Box] = {}  # of bounds that are numbers, and the same for every batch

    def _check_arguments(self) -> None:
        """Refuse what does not go together."""
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise InputError(f"{name} must be one of {known}; got {getattr(self, name)!r}.")
        if self.surrogate is not None or self.rules.about_decisions:
            check_surrogate(self.surrogate, self.temperature)
        if self.rules.about_decisions:
            read_threshold(self.rules)
            if not is_squared(self.discrepancy):
                raise InputError(f"discrepancy {self.discrepancy.name!r} does not go with decisions: use 'squared'.")
        if self.simplex:
            if self.bounds is not None or self.surrogate is not None:
                raise InputError("simplex=True takes neither bounds nor a surrogate: leave them out.")
            check_class_kind(known_name(self.discrepancy) or self.discrepancy)
            check_class_rules(self.rules)

    def data(self, groups: Any, targets: Any, features: Any, weights: Any) -> Data:
        """What the constraints look at; the rest is ignored."""
        rules = self.rules
        targets = None if rules.needs_targets is None else targets
        return Data(groups, targets, features if rules.needs_features else None, weights)

    def check(self, z: Tensor, data: Data) -> None:
        """Refuse what cannot be projected, before any work."""
        if self.process_group is not None:
            self._check_arguments()
        if z.dtype not in DTYPES:
            raise InputError(f"z must hold floats of 16, 32 or 64 bits; got a tensor of {z.dtype}.")
        if is_functorch_wrapped_tensor(z):
            raise InputError(
                "z is inside a transform of torch.func, such as forward mode, which the solver cannot see: use "
                "backward()."
            )
        check_dense(z, "z")
        if z.ndim not in (1, 2):
            raise InputError(f"z has shape {tuple(z.shape)}: pass outputs of shape (n,) or (n, d).")
        if self.simplex:
            check_class_shape(z)
        if data.targets is None and self.rules.needs_targets:
            raise InputError(f"targets is missing: {self.rules.needs_targets} compares outputs with them.")
        if in_forward_mode():
            rules = self.rules.constraints
            limits = [getattr(c, name, None) for c in rules for name in ("tolerance", "lower", "upper")]
            refuse_tangents(z=z, targets=data.targets, bounds=self.bounds, constraints=limits)

    def box(self, n: int, dtype: torch.dtype) -> Box:
        """The bounds of n outputs, once it is known that constraints and discrepancy have a meaning within them."""
        box = self._boxes.get(dtype)
        if box is None:
            box = read_bounds(self.bounds, n, dtype)
            self.rules.check_bounds(box.lowest)
            check_interval(box, self.discrepancy)
            if are_numbers(self.bounds):
                self._boxes[dtype] = box
        return box

    def bind(self, n: int, data: Data) -> System:
        """The constraints, bound to a batch of n outputs."""
        groups, targets, features, weights = data
        if targets is not None:
            targets = read_targets(targets, n)
        if weights is not None:
            weights = read_weights(weights, n)
        system = bind(self.rules, n, groups, targets, features, weights, self.levels)
        if self.absent == "raise":
            self.refuse_absent(system)
        return system

    def refuse_absent(self, system: System) -> None:
        """Refuse a batch that lacks groups, where that was asked for."""
        if self.absent == "raise" and system.view.vacuous:
            raise AbsentGroupError(
                f"Groups are absent from this batch: {'; '.join(system.view.vacuous[:5])}. Use larger or stratified "
                'batches, or absent="vacuous" to project what can be compared.'
            )


def read_targets(targets: Any, n: int) -> Any:
    """Targets, one per output, as they came."""
    dense = isinstance(targets, Tensor) and is_dense(targets)
    flat = (targets if dense else as_numpy(targets, "targets")).reshape(-1)
    if len(flat) != n:
        raise InputError(f"targets has {len(flat)} entries for {n} outputs: pass one per output.")
    values = as_numpy(flat)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError(f"targets[{int(np.flatnonzero(~np.isfinite(values))[0])}] is not finite.")
    missing = np.flatnonzero(find_missing(values))
    if len(missing):
        raise InputError(f"targets[{missing[0]}] is missing: leave such samples out, or fill their targets in.")
    return flat


def read_weights(weights: Any, n: int) -> np.ndarray:
    """Weights, one per output, in float64."""
    values = as_floats(weights, "weights", "numbers, one per output").reshape(-1)
    if len(values) != n:
        raise InputError(f"weights has {len(values)} entries for {n} outputs: pass one per output.")
    if not np.isfinite(values).all() or (values < 0).any():
        raise InputError("weights must be finite and at least 0.")
    some = values[values > 0]
    least, most = some.min(initial=np.inf), some.max(initial=0.0)
    if len(some) and (least < _LEAST_WEIGHT or most / least > _WIDEST_WEIGHTS):
        raise InputError(
            f"weights range from {least:g} to {most:g}: the least must be at least {_LEAST_WEIGHT:g}, and the greatest "
            f"at most {_WIDEST_WEIGHTS:g} times as much. Only their ratios matter: scale them, and leave out those who "
            "hardly count."
        )
    return values
