"""The derivative of the projection: the only custom backward of the library.

With A the active rows, D the slopes and rho_z the sensitivities of the responses, the Jacobian with respect to z is

    J = (I - D A' (A D A')^+ A) diag(rho_z),

for the squared discrepancy without bounds the orthogonal projector on the null space of A (paper, theorem 4.4).
Backward applies J'. Where the projection is piecewise linear, J does not depend on z, and the derivative of backward is
J itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from fairlayer.core import _native
from fairlayer.core.own_discrepancy import OwnProjection
from fairlayer.core.solver import Batch, Projected, as_bits, from_bits
from fairlayer.errors import InputError
from fairlayer.problem.rows import EACH

_OVERWRITTEN = (
    "z has been modified by an in-place operation since it was projected, and its gradient depends on what it was: "
    "pass z.clone(), or change z out of place."
)


def attach_gradient(z: Tensor, projected: Projected) -> Tensor:
    """The output as a function of whatever wants gradients: z, row bounds, targets, box."""
    system, box = projected.batch.system, projected.batch.box
    value = projected.value
    if not torch.is_grad_enabled():
        return value
    if system.wants_gradient or box.wants_gradient:
        if projected.excess:  # it depends on all of these, and its own derivative is not taken
            raise InputError(
                "The constraints contradict each other or the bounds, and a relaxed output has a gradient with respect "
                "to z alone: detach the tolerances, targets, rows' limits and bounds, or make the problem feasible."
            )
        if z.is_inference():
            raise RuntimeError("z is an inference tensor, of which nothing can be kept for backward: pass z.clone().")
        others = (system.lower, system.upper, system.offset, box.lo_tensor, box.hi_tensor)
        return _attach(value, projected, z, *others)
    return _attach(value, projected, z) if z.requires_grad else value


def in_forward_mode() -> bool:
    """Whether forward-mode differentiation is under way."""
    return forward_ad._current_level >= 0


def refuse_tangents(**given: Any) -> None:
    """Refuse arguments of which forward-mode differentiation is under way: their tangents would be lost."""
    for name, value in given.items():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, Tensor) and forward_ad.unpack_dual(part).tangent is not None:
                raise InputError(
                    f"{name} carries a forward-mode tangent, which would be lost: use reverse mode, y.backward()."
                )


class _Projection(torch.autograd.Function):
    """The projection as a function of z, row bounds, statistic offsets, and the box."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, projected: Projected, z: Tensor, *others: Tensor | None) -> Tensor:
        # The output holds ctx. Were ctx to hold the output, only the garbage collector would free either of them.
        ctx.found, ctx.batch = projected.found, projected.batch
        ctx.version = projected.batch.z._version
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        found, batch = ctx.found, ctx.batch
        if batch.z._version != ctx.version:
            raise RuntimeError(_OVERWRITTEN)
        if torch.is_grad_enabled():
            if not batch.discrepancy.piecewise_linear:
                raise RuntimeError(
                    f"Double backward is not available through the {batch.discrepancy.name!r} discrepancy: use "
                    "'squared', or create_graph=False."
                )
            return None, None, *PullBack.apply(_Derivative(found, batch), ctx.needs_input_grad[2:], gradient)
        needed = ctx.needs_input_grad[2:]
        if len(needed) == 1:
            return None, None, pulled_back(found, gradient)
        return None, None, *_Derivative(found, batch).pull_back(gradient, needed)


# Past what `Function.apply` does for the transforms of torch.func, in which no projection is made.
_attach = super(torch.autograd.Function, _Projection).apply


class Linear(Protocol):
    """The derivative of a projection with respect to several arguments, where it does not depend on any of them."""

    def pull_back(self, gradient: Tensor, needed: Sequence[bool]) -> tuple[Tensor | None, ...]:
        """Gradients of the arguments, as far as they are needed, given that of the output."""

    def push_forward(self, *tangents: Tensor | None) -> Tensor:
        """The change of the output, given those of the arguments; None where one does not change."""


class PullBack(torch.autograd.Function):
    """The vector-Jacobian product, linear in the vector."""

    @staticmethod
    def forward(ctx: Any, linear: Linear, needed: Sequence[bool], gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the arguments, as far as they are needed."""
        ctx.linear = linear
        return linear.pull_back(gradient, needed)

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        """The Jacobian-vector product."""
        return None, None, PushForward.apply(ctx.linear, *tangents)


class PushForward(torch.autograd.Function):
    """The Jacobian-vector product, the transpose of `PullBack`: each is the derivative of the other."""

    @staticmethod
    def forward(ctx: Any, linear: Linear, *tangents: Tensor | None) -> Tensor:
        """The change of the output."""
        ctx.linear = linear
        return linear.push_forward(*tangents)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The vector-Jacobian product."""
        return None, *PullBack.apply(ctx.linear, ctx.needs_input_grad[1:], gradient)


def pulled_back(found: Any, gradient: Tensor) -> Tensor:
    """The gradient with respect to z. found: as of `solver.attempt`."""
    plain = gradient.detach().contiguous()  # that of a sum repeats one number
    if isinstance(found, OwnProjection):
        return torch.from_numpy(found.pull_back(plain.double().numpy())).to(gradient.dtype)
    return from_bits(found.pull_back(as_bits(plain)), gradient.dtype)


class _Derivative:
    """The derivative with respect to z, row bounds, statistic offsets, and the box."""

    def __init__(self, found: Any, batch: Batch):
        self.found, self.batch = found, batch
        self.rows, self.side, nu = batch.system.rows, np.asarray(found.side), np.asarray(found.nu)
        self.family = np.repeat(np.arange(len(self.rows.kind)), np.diff(self.rows.first))
        each = (self.rows.kind == EACH)[self.family]
        # By how much the bounds of its family move a statistic: the one that pushes does; both do by half where neither
        # pushes, as at an equality that z satisfies. Of statistics that are compared, those that are pushed down gain
        # what the bound gives way.
        up = 0.5 + 0.5 * np.sign(nu)
        self.by_lower = np.where(each, 1.0 - up, 0.0)
        self.by_upper = np.where(each, up, np.where(nu > 0, 1.0 / self.rows.ratio[self.family], 0.0))

    def pull_back(self, gradient: Tensor, needed: Sequence[bool]) -> tuple[Tensor | None, ...]:
        """Gradients of all, as far as they are needed."""
        if len(needed) == 1:
            return (pulled_back(self.found, gradient),)
        plain, box, families = gradient.detach().contiguous(), self.batch.box, len(self.rows.kind)
        if isinstance(self.found, OwnProjection):
            pulled, v, raw = self.found.pull_back_all(plain.double().numpy())
            of_z = torch.from_numpy(pulled).to(gradient.dtype)
        else:
            bits, v, raw = self.found.pull_back_all(as_bits(plain))
            of_z = from_bits(bits, gradient.dtype)
        lower, upper = (np.bincount(self.family, v * by, families) for by in (self.by_lower, self.by_upper))
        lo, hi = _to_bound(raw * (self.side < 0), box.lo_tensor), _to_bound(raw * (self.side > 0), box.hi_tensor)
        all_of_them = of_z, torch.from_numpy(lower), torch.from_numpy(upper), torch.from_numpy(v), lo, hi
        return tuple(one if wanted else None for one, wanted in zip(all_of_them, needed, strict=True))

    def push_forward(self, *tangents: Tensor | None) -> Tensor:
        """The change of the output: that of each sample by itself, less what keeps the active rows where they are."""
        system, dtype = self.batch.system, self.batch.z.dtype
        z, lower, upper, offset, lo, hi = (
            0.0 if one is None else one.detach().double().numpy() for one in (*tangents, *[None] * (6 - len(tangents)))
        )
        free = self.side == 0
        slope: Any = 1.0
        sensitivity: Any = 1.0
        if isinstance(self.found, OwnProjection):
            slope, sensitivity = self.found.slope.numpy(), self.found.sensitivity.numpy()
        alone = free * sensitivity * z + (self.side < 0) * lo + (self.side > 0) * hi
        weighted = alone * system.weights if len(system.weights) else alone
        q = self.rows.totals(np.bincount(system.cell, weighted, len(system.weight))) - offset
        q -= self.by_lower * np.broadcast_to(lower, len(self.rows.kind))[self.family]
        q -= self.by_upper * np.broadcast_to(upper, len(self.rows.kind))[self.family]
        v = _native.solve_active(self.rows, np.asarray(self.found.nu), np.asarray(self.found.slopes), q)
        return torch.from_numpy(alone - free * slope * _native.spread(self.rows, v)[system.cell]).to(dtype)


def _to_bound(gradient: np.ndarray, bound: Tensor | None) -> Tensor | None:
    """Sum to the shape of the bound, which may be one number for all samples."""
    if bound is None:
        return None
    found = torch.from_numpy(gradient)
    return (found if bound.ndim else found.sum()).to(bound.dtype)
