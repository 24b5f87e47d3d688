"""`Asked`: what `project` is asked, read and checked before any work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_floats, as_numpy, check_dense, is_dense
from fairlayer.binding.bounds import Box, read_bounds
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.groups import is_missing
from fairlayer.binding.process_group import Ranks
from fairlayer.binding.system import System, bind
from fairlayer.classes import check_class_kind, check_class_rules, check_class_shape
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.decisions.project import read_threshold
from fairlayer.errors import AbsentGroupError, InputError
from fairlayer.gradient import in_forward_mode, refuse_tangents
from fairlayer.solve import is_compiled
from fairlayer.solve.conic import Conic
from fairlayer.solve.discrepancy import check_interval

Absent = Literal["vacuous", "raise"]
Infeasible = Literal["raise", "relax"]
Path = Literal["auto", "compiled", "tensor"]
Surrogate = Literal["sigmoid"] | None

# The dtypes of outputs, and how bounds are read in each: as torch has them where numpy has none.
DTYPES: dict[torch.dtype, Any] = {
    torch.float64: np.float64,
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.bfloat16: torch.bfloat16,
}
_LEAST_WEIGHT, _WIDEST_WEIGHTS = 1e-250, 1e100
_CHOICES = {"absent": ("vacuous", "raise"), "infeasible": ("raise", "relax"), "path": ("auto", "compiled", "tensor")}
_CHOSEN = set(product(*_CHOICES.values()))


class Asked(NamedTuple):
    """What `project` was asked: all but the outputs."""

    rules: ConstraintSet
    groups: Any
    targets: Any
    features: Any
    weights: Any
    absent: Absent
    infeasible: Infeasible
    path: Path
    bounds: Any
    discrepancy: Any  # a Discrepancy, or a Conic
    levels: Mapping[Name, Sequence[Label]] | None
    surrogate: Surrogate
    temperature: float
    ranks: Ranks | None
    simplex: bool

    def check(self, z: Tensor) -> None:
        """Refuse what cannot be projected, before any work."""
        rules = self.rules
        if z.dtype not in DTYPES:
            raise InputError(f"z must hold floats of 16, 32 or 64 bits; got a tensor of {z.dtype}.")
        if torch._C._functorch.is_functorch_wrapped_tensor(z):
            raise InputError(
                "z is inside a transform of torch.func, such as forward mode, which the solver cannot see: use "
                "backward()."
            )
        if not is_dense(z):
            check_dense(z, "z")
        if z.ndim not in (1, 2):
            raise InputError(f"z has shape {tuple(z.shape)}: pass outputs of shape (n,) or (n, d).")
        if self.ranks is not None and not self.simplex and z.ndim == 2 and z.shape[1] != 1:
            raise InputError(
                f"z has shape {tuple(z.shape)}: over a process group, project each column by itself, z[:, j], or class "
                "probabilities with simplex=True."
            )
        if self.simplex:
            if self.bounds is not None or self.surrogate is not None or self.path == "tensor":
                raise InputError(
                    "simplex=True knows neither bounds, nor a surrogate, nor path='tensor': leave them out."
                )
            check_class_shape(z)
            check_class_kind(self.discrepancy.name)
            check_class_rules(rules)
        if rules.needs_targets and self.targets is None:
            raise InputError(f"targets is missing: {rules.needs_targets} compares outputs with them.")
        if rules.about_decisions:
            read_threshold(rules)
            if self.discrepancy.name != "squared":
                raise InputError(f"discrepancy {self.discrepancy.name!r} does not go with decisions: use 'squared'.")
        if in_forward_mode():
            limits = [getattr(c, name, None) for c in rules.constraints for name in ("tolerance", "lower", "upper")]
            refuse_tangents(z=z, targets=self.targets, bounds=self.bounds, constraints=limits)
        if self[5:8] not in _CHOSEN:
            for name, known in _CHOICES.items():
                if getattr(self, name) not in known:
                    raise InputError(f"{name} must be one of {known}; got {getattr(self, name)!r}.")

    def box(self, n: int, dtype: torch.dtype) -> Box:
        """The bounds of n outputs, once it is known that constraints and discrepancy have a meaning within them."""
        box = read_bounds(self.bounds, n, DTYPES[dtype])
        self.rules.check_bounds(box.lowest)
        check_interval(box, self.discrepancy)
        return box

    def takes_loops(self, z: Tensor) -> bool:
        """Whether compiled loops take these outputs, as the path asks."""
        compiled = is_compiled(z, self.discrepancy) and self.path != "tensor"
        if self.path == "compiled" and not compiled:
            raise InputError(
                "path='compiled' takes float32 or float64 on the CPU, and a discrepancy by its name; z is "
                f"{z.dtype} on {z.device}, discrepancy {self.discrepancy.name!r}."
            )
        return compiled

    def span(self) -> tuple[float, float]:
        """The range of outputs within bounds that are numbers; infinite where they are not."""
        if self.bounds is not None and any(np.ndim(as_numpy(side)) for side in self.bounds):
            return -np.inf, np.inf
        box = read_bounds(self.bounds, 2, np.float64)
        return box.lowest, box.highest

    def bind(self, n: int) -> System:
        """The constraints, bound to a batch of n outputs."""
        rules, groups, targets, features, weights = self[:5]
        if targets is not None:
            targets = read_targets(targets, n)
        if weights is not None:
            weights = read_weights(weights, n)
        system = bind(
            rules,
            n,
            groups=groups,
            targets=targets,
            features=features,
            weights=weights,
            levels=self.levels,
            in_parts=not (rules.about_decisions or self.simplex or isinstance(self.discrepancy, Conic)),
        )
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
    flat = (
        targets.reshape(-1)
        if isinstance(targets, Tensor) and is_dense(targets)
        else as_numpy(targets, "targets").reshape(-1)
    )
    if len(flat) != n:
        raise InputError(f"targets has {len(flat)} entries for {n} outputs: pass one per output.")
    values = as_numpy(flat)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError(f"targets[{int(np.flatnonzero(~np.isfinite(values))[0])}] is not finite.")
    if values.dtype == object:
        missing = [i for i, value in enumerate(values.tolist()) if is_missing(value)]
        if missing:
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
