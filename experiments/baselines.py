"""What the layer is compared with: other ways to fairness, each with the interface of `FairLayer`.

A baseline stands in the place of the layer in a `FairModel`, so two models differ by one argument. Where it adds a
price to the training loss, that is its `penalty(outputs, batch)`, as `fairlayer.training.fit` takes it:

    fit(model, train, validation, loss=loss, epochs=50, penalty=penalty_of(model))
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fairlayer import FairLayer, FairModel, InputError
from fairlayer.core._native import solve_active
from fairlayer.core.soft_step import Softened, held_rates, soft_step
from fairlayer.gaps import bind_batch, row_excesses, row_values
from fairlayer.problem.bounds import Box, read_bounds
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.rows import Rows
from fairlayer.problem.system import System
from fairlayer.training import Batch


class Unconstrained(nn.Module):
    """No fairness at all; the constraints are only measured. Takes the arguments of `FairLayer`.

    In training raw outputs are left as they are; in evaluation they are kept within the bounds.
    """

    penalty: Any = None

    def __init__(self, constraints: Any, bounds: Any = None, **options: Any):
        super().__init__()
        self.projection = FairLayer(constraints, bounds, **options)

    @property
    def rules(self) -> ConstraintSet:
        """The constraints."""
        return self.projection.rules

    def forward(
        self, z: Tensor, groups: Any = None, targets: Any = None, features: Any = None, weights: Any = None
    ) -> Tensor:
        """Outputs for one batch, z of shape (n,) or (n, 1)."""
        bounds = self.projection.bounds
        if self.training or bounds is None:
            return z
        lo, hi = (None if side is None else torch.as_tensor(side, dtype=z.dtype, device=z.device) for side in bounds)
        return torch.clamp(z, lo, hi)

    def _bind(self, n: int, groups: Any, targets: Any, features: Any, weights: Any) -> System:
        if self.rules.about_decisions:
            raise InputError(
                f"{type(self).__name__} prices means of outputs, and decisions have no gradient: train through "
                'FairLayer([RateParity(...)], surrogate="sigmoid") instead.'
            )
        return bind_batch(self.rules, n, groups, targets, features, weights, self.projection.levels)


class Projection(Unconstrained):
    """Post-hoc: trains on raw outputs, projects them in evaluation."""

    def forward(
        self, z: Tensor, groups: Any = None, targets: Any = None, features: Any = None, weights: Any = None
    ) -> Tensor:
        """Raw outputs in training, the nearest that satisfy the constraints in evaluation."""
        return z if self.training else self.projection(z, groups, targets, features, weights)


class Penalty(Unconstrained):
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
        self.strength, self.form, self.only_excess = strength, form, only_excess

    def penalty(self, outputs: Tensor, batch: Batch) -> Tensor:
        """What outputs cost in a batch."""
        system = self._bind(len(outputs), batch.groups, batch.targets, batch.features, batch.weights)
        gaps = row_excesses(outputs, system).amax(0).relu() if self.only_excess else row_values(outputs, system).abs()
        return self.strength * (gaps if self.form == "absolute" else gaps.square()).sum().to(outputs.dtype)


class StrictPenalty(Penalty):
    """A penalty so strong that little but fairness counts."""

    def __init__(self, constraints: Any, bounds: Any = None, *, strength: float = 1000.0, **options: Any):
        super().__init__(constraints, bounds, strength=strength, **options)


class AugmentedLagrangian(Unconstrained):
    """Learns one multiplier per side of every row (method of multipliers: Hestenes, Powell, Rockafellar).

    With g the excess of a row over its tolerance and m its multiplier, adds sum (max(0, m + curvature g)^2 - m^2) / (2
    curvature) to the loss, and then sets m to max(0, m + rate g). rate = curvature is the classical choice, good with
    all samples in one batch; gaps of small batches are noisy and want a much lower rate. Multipliers go by the names of
    the rows: a batch that lacks a group leaves that group's alone.

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
        self.curvature, self.rate, self.merit = curvature, rate, merit
        self.multipliers: dict[str, tuple[float, float]] = {}  # of the upper and the lower bound of a row

    def penalty(self, outputs: Tensor, batch: Batch) -> Tensor:
        """What outputs cost in a batch; in training the multipliers then move along its excesses."""
        system = self._bind(len(outputs), batch.groups, batch.targets, batch.features, batch.weights)
        g = row_excesses(outputs, system)
        g = torch.where(torch.isfinite(g), g, -1.0)  # a side without a bound never binds
        if not self.training:
            return self.merit * g.relu().sum().to(outputs.dtype)
        names = system.view.names
        known = [self.multipliers.get(name, (0.0, 0.0)) for name in names]
        m = torch.tensor(known, dtype=g.dtype, device=g.device).reshape(-1, 2).T
        moved = (m + self.rate * g.detach()).relu()
        self.multipliers |= {name: (above, below) for name, (above, below) in zip(names, moved.T.tolist(), strict=True)}
        terms = (m + self.curvature * g).relu().square() - m.square()
        return terms.sum().to(outputs.dtype) / (2 * self.curvature)

    def get_extra_state(self) -> dict[str, tuple[float, float]]:
        """The multipliers, for state_dict."""
        return dict(self.multipliers)

    def set_extra_state(self, state: dict[str, tuple[float, float]]) -> None:
        """The multipliers, from a state_dict."""
        self.multipliers = dict(state)


class SoftStep(Unconstrained):
    """Small training batches by the primal-dual step of the paper's Algorithm 1, large ones by the hard layer.

    A training batch of fewer than b_tau samples is not forced within the tolerance. It gets the soft step, in which the
    largest excess over the tolerance costs lambda n; then lambda grows by eta / sqrt(t + 1) times n times that excess,
    or shrinks if all rows hold. lambda starts every epoch (every call of `train()`) at 0 and is used for nothing else:
    evaluation projects every batch, and inference has a `Stream` of its own. A batch in which no two groups can be
    compared is only kept within its bounds, and leaves lambda alone.
    """

    multiplier: Tensor
    steps: Tensor

    def __init__(self, constraints: Any, bounds: Any = None, *, b_tau: int = 64, eta: float = 0.1, **options: Any):
        super().__init__(constraints, bounds, **options)
        self.b_tau, self.eta = b_tau, eta
        self.register_buffer("multiplier", torch.zeros((), dtype=torch.float64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def train(self, mode: bool = True) -> SoftStep:
        """As any module's; an epoch begins with lambda at 0."""
        if mode:
            self.multiplier.zero_()
            self.steps.zero_()
        return super().train(mode)

    def forward(
        self, z: Tensor, groups: Any = None, targets: Any = None, features: Any = None, weights: Any = None
    ) -> Tensor:
        """Outputs for one batch."""
        n = z.numel()
        if not self.training or n >= self.b_tau:
            return self.projection(z, groups, targets, features, weights)
        system = self._bind(n, groups, targets, features, weights)
        dtype = np.float64 if z.dtype == torch.float64 else np.float32
        box = read_bounds(self.projection.bounds, n, dtype)
        value, softened = soften(z.reshape(-1), system, box, 0.5 * n * float(self.multiplier))
        if math.isfinite(softened.excess):
            step = self.eta / math.sqrt(int(self.steps) + 1)
            self.multiplier.add_(step * n * softened.excess).clamp_(min=0.0)
            self.steps.add_(1)
        return value.reshape(z.shape)


def soften(z: Tensor, system: System, box: Box, price: float) -> tuple[Tensor, Softened]:
    """The soft step as a differentiable function of z, of any float dtype on any device.

    The active rows A share the excess e, and their multipliers keep their sum: with sigma their signs and D the slopes,

        dy = D (dz - A' dmu),   A dy = sigma de,   sigma' dmu = 0    (de = 0 instead of the last where pinned).

    The step is piecewise linear in z, so its derivative is written as a linear map of constants, and autograd does the
    rest, to any order.
    """
    plain = z.detach().cpu()
    plain = plain if plain.dtype in (torch.float32, torch.float64) else plain.float()
    softened = soft_step(plain, system, box, price)
    value = softened.value.to(device=z.device, dtype=z.dtype)
    if not (torch.is_grad_enabled() and z.requires_grad):
        return value, softened

    index = torch.from_numpy(system.cell).long()
    shifted = (plain.double() - torch.from_numpy(softened.shift)[index]).to(plain.dtype)
    free = (shifted == softened.value).double()
    dz = z.cpu().double() * free
    if softened.nu.any():
        weights = torch.from_numpy(system.weights) if len(system.weights) else None
        M, inverse = torch.from_numpy(system.rows.dense()), torch.from_numpy(_inverse(system.rows, softened))
        sums = dz.new_zeros(len(M)).index_add(0, index, dz if weights is None else dz * weights)
        dz = dz - free * (M @ (inverse @ (M.T @ sums)))[index]
    move = dz.to(device=z.device, dtype=z.dtype)
    return value + (move - move.detach()), softened


def _inverse(rows: Rows, softened: Softened) -> np.ndarray:
    """(K, K) the matrix that takes the change of the statistics to that of their multipliers."""
    inverse = np.zeros((len(softened.nu),) * 2)
    for k in np.flatnonzero(softened.nu):
        inverse[k] = solve_active(rows, softened.nu, softened.slopes, np.eye(1, len(inverse), int(k))[0])
    if not softened.pinned:
        wider = held_rates(rows, softened.nu)
        towards = inverse @ wider
        scale = towards @ wider
        if scale > 0.0:
            inverse = inverse - np.outer(towards, towards) / scale
    return inverse


def penalty_of(model: FairModel) -> Any:
    """What `fit` takes as `penalty`: the one of the model's baseline, if it has one."""
    return getattr(model.layer, "penalty", None)
