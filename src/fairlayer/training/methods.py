"""Other ways to fairness, each with the interface of `FairLayer`, so that two models differ by one argument.

A method maps raw outputs to outputs, and may add a `penalty` to the training loss, which it leaves in that attribute at
every call. `fit` adds it, and calls `start_epoch` and `after_step`. In a loop of your own:

    y = model(x, groups)
    (loss(y, targets) + model.layer.penalty).backward();  optimizer.step();  model.layer.after_step()
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fairlayer.binding.bounds import read_bounds
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.system import System
from fairlayer.errors import InputError
from fairlayer.gaps import bind_batch, row_excesses, row_values
from fairlayer.layer import FairLayer
from fairlayer.core.soft_step import soften


class Method(nn.Module):
    """Takes the arguments of `FairLayer`. Training sees raw outputs; in evaluation they are kept within the bounds."""

    def __init__(self, constraints: Any, bounds: Any = None, **options: Any):
        super().__init__()
        self.projection = FairLayer(constraints, bounds, **options)
        self.penalty: Tensor | float = 0.0

    @property
    def rules(self) -> ConstraintSet:
        """The constraints."""
        return self.projection.rules

    @property
    def levels(self) -> Any:
        """All labels that attributes can have, where given."""
        return self.projection.levels

    def forward(
        self, z: Tensor, groups: Any = None, targets: Any = None, features: Any = None, weights: Any = None
    ) -> Tensor:
        """Outputs for one batch, z of shape (n,) or (n, 1)."""
        bounds = self.projection.bounds
        if self.training or bounds is None:
            return z
        lo, hi = (None if side is None else torch.as_tensor(side, dtype=z.dtype, device=z.device) for side in bounds)
        return torch.clamp(z, lo, hi)

    def start_epoch(self) -> None:
        """To be called before every epoch of training."""

    def after_step(self) -> None:
        """To be called after every step of the optimiser."""

    def _bind(self, z: Tensor, groups: Any, targets: Any, features: Any, weights: Any) -> System:
        if self.rules.about_decisions:
            raise InputError(
                f"{type(self).__name__} prices means of outputs, and decisions have no gradient: train through "
                'FairLayer([RateParity(...)], surrogate="sigmoid") instead.'
            )
        return bind_batch(self.rules, z.numel(), groups, targets, features, weights, self.levels)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "penalty": 0.0}  # it holds a graph


class Unconstrained(Method):
    """No fairness at all; the constraints are only measured."""


class Projection(Method):
    """Post-hoc: trains on raw outputs, projects them in evaluation."""

    def forward(
        self, z: Tensor, groups: Any = None, targets: Any = None, features: Any = None, weights: Any = None
    ) -> Tensor:
        """Raw outputs in training, the nearest that satisfy the constraints in evaluation."""
        return z if self.training else self.projection(z, groups, targets, features, weights)


class Penalty(Method):
    """Adds strength * sum over rows of |gap|, or of gap^2, to the loss.

    only_excess: penalise what exceeds the tolerance, instead of all of the gap as the paper does.
    """

    def __init__(
        self,
        constraints: Any,
        bounds: Any = None,
        *,
        strength: float = 1.0,
        form: Literal["absolute", "squared"] = "absolute",
        only_excess: bool = False,
        **options: Any,
    ):
        super().__init__(constraints, bounds, **options)
        if form not in ("absolute", "squared"):
            raise InputError(f"form must be 'absolute' or 'squared'; got {form!r}.")
        if not (math.isfinite(strength) and strength >= 0):
            raise InputError(f"strength must be a finite number, at least 0; got {strength!r}.")
        self.strength = strength
        self.form = form
        self.only_excess = only_excess

    def forward(
        self, z: Tensor, groups: Any = None, targets: Any = None, features: Any = None, weights: Any = None
    ) -> Tensor:
        """The outputs as they are; what they cost is in `penalty`."""
        y = super().forward(z)
        system = self._bind(z, groups, targets, features, weights)
        flat = y.reshape(-1)
        gaps = row_excesses(flat, system).amax(0).relu() if self.only_excess else row_values(flat, system).abs()
        self.penalty = self.strength * (gaps if self.form == "absolute" else gaps.square()).sum().to(z.dtype)
        return y

    def extra_repr(self) -> str:
        """Strength and form."""
        return f"strength={self.strength}, form={self.form!r}"


class StrictPenalty(Penalty):
    """A penalty so strong that little but fairness counts."""

    def __init__(self, constraints: Any, bounds: Any = None, *, strength: float = 1000.0, **options: Any):
        super().__init__(constraints, bounds, strength=strength, **options)


class AugmentedLagrangian(Method):
    """Learns one multiplier per side of every row (method of multipliers: Hestenes, Powell, Rockafellar).

    With g the excess of a row over its tolerance and m its multiplier, adds sum (max(0, m + curvature g)^2 - m^2) / (2
    curvature) to the loss, and after every step sets m to max(0, m + rate g). rate = curvature is the classical choice,
    good with all samples in one batch; gaps of small batches are noisy and want a much lower rate. Multipliers go by
    the names of the rows: a batch that lacks a group leaves that group's alone.

    Multipliers change from epoch to epoch, and the training objective with them. To compare epochs, evaluation charges
    merit * sum of the excesses instead.
    """

    def __init__(
        self,
        constraints: Any,
        bounds: Any = None,
        *,
        curvature: float = 1.0,
        rate: float = 0.01,
        merit: float = 100.0,
        **options: Any,
    ):
        super().__init__(constraints, bounds, **options)
        if not curvature > 0:
            raise InputError(f"curvature must be above 0; got {curvature!r}.")
        self.curvature = curvature
        self.rate = rate
        self.merit = merit
        self.multipliers: dict[str, tuple[float, float]] = {}  # of the upper and the lower bound of a row
        self._pending: tuple[tuple[str, ...], Tensor] | None = None

    def forward(
        self, z: Tensor, groups: Any = None, targets: Any = None, features: Any = None, weights: Any = None
    ) -> Tensor:
        """The outputs as they are; what they cost is in `penalty`."""
        y = super().forward(z)
        system = self._bind(z, groups, targets, features, weights)
        g = row_excesses(y.reshape(-1), system)
        g = torch.where(torch.isfinite(g), g, -1.0)  # a side without a bound never binds
        if self.training:
            m = [self.multipliers.get(name, (0.0, 0.0)) for name in system.view.names]
            above_below = torch.tensor(m, dtype=g.dtype, device=g.device).reshape(-1, 2).T
            terms = (above_below + self.curvature * g).relu().square() - above_below.square()
            self.penalty = terms.sum().to(z.dtype) / (2 * self.curvature)
            self._pending = system.view.names, g.detach().cpu()
        else:
            self.penalty = self.merit * g.relu().sum().to(z.dtype)
        return y

    def after_step(self) -> None:
        """Move the multipliers along the excesses of the batch just seen."""
        if self._pending is None:
            return
        names, g = self._pending
        self._pending = None
        for name, (over, under) in zip(names, g.T.tolist(), strict=True):
            above, below = self.multipliers.get(name, (0.0, 0.0))
            self.multipliers[name] = max(0.0, above + self.rate * over), max(0.0, below + self.rate * under)

    def get_extra_state(self) -> dict[str, tuple[float, float]]:
        """The multipliers, for state_dict."""
        return dict(self.multipliers)

    def set_extra_state(self, state: dict[str, tuple[float, float]]) -> None:
        """The multipliers, from a state_dict."""
        self.multipliers = dict(state)


class SoftStep(Method):
    """Small training batches by the primal-dual step of the paper's Algorithm 1, large ones by the hard layer.

    A training batch of fewer than b_tau samples is not forced within the tolerance. It gets the soft step, in which the
    largest excess over the tolerance costs lambda n; then lambda grows by eta / sqrt(t + 1) times n times that excess,
    or shrinks if all rows hold. lambda starts every epoch at 0 and is used for nothing else: evaluation projects every
    batch, and inference has a `Stream` of its own. A batch in which no two groups can be compared is only kept within
    its bounds, and leaves lambda alone.
    """

    multiplier: Tensor
    steps: Tensor

    def __init__(self, constraints: Any, bounds: Any = None, *, b_tau: int = 64, eta: float = 0.1, **options: Any):
        super().__init__(constraints, bounds, **options)
        self.b_tau = b_tau
        self.eta = eta
        self.register_buffer("multiplier", torch.zeros((), dtype=torch.float64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def start_epoch(self) -> None:
        """lambda is 0 again."""
        self.multiplier.zero_()
        self.steps.zero_()

    def forward(
        self, z: Tensor, groups: Any = None, targets: Any = None, features: Any = None, weights: Any = None
    ) -> Tensor:
        """Outputs for one batch."""
        n = z.numel()
        if not self.training or n >= self.b_tau:
            return self.projection(z, groups, targets, features, weights)
        system = self._bind(z, groups, targets, features, weights)
        dtype = np.float64 if z.dtype == torch.float64 else np.float32
        box = read_bounds(self.projection.bounds, n, dtype)
        value, softened = soften(z.reshape(-1), system, box, 0.5 * n * float(self.multiplier))
        if math.isfinite(softened.excess):
            step = self.eta / math.sqrt(int(self.steps) + 1)
            self.multiplier.add_(step * n * softened.excess).clamp_(min=0.0)
            self.steps.add_(1)
        return value.reshape(z.shape)

    def extra_repr(self) -> str:
        """Threshold and step."""
        return f"b_tau={self.b_tau}, eta={self.eta}"
