"""The derivative of the projection: the only custom backward of the library.

With A the active rows, D the slopes and rho_z the sensitivities of the responses, the Jacobian with respect to z is

    J = (I - D A' (A D A')^+ A) diag(rho_z),

for the squared discrepancy without bounds the orthogonal projector on the null space of A (paper, theorem 4.4).
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from fairlayer.binding.rows import EACH, Rows
from fairlayer.core.own_discrepancy import OwnProjection
from fairlayer.core.solver import Projected, as_bits, from_bits
from fairlayer.errors import InputError

_OVERWRITTEN = (
    "z has been modified by an in-place operation since it was projected, and its gradient depends on what it was: "
    "pass z.clone(), or change z out of place."
)


def attach_gradient(z: Tensor, projected: Projected) -> Tensor:
    """The output, where z is, as a function of whatever wants gradients: z, row bounds, targets, box."""
    system, box = projected.batch.system, projected.batch.box
    value = projected.value if z.is_cpu else projected.value.to(z.device)
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
        ctx.z, ctx.version = projected.batch.z, projected.batch.z._version
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        found, batch = ctx.found, ctx.batch
        if ctx.z._version != ctx.version:
            raise RuntimeError(_OVERWRITTEN)
        needed = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            if not batch.discrepancy.piecewise_linear or any(needed[1:]):
                raise RuntimeError(
                    f"Double backward is available with respect to z alone, and not through the "
                    f"{batch.discrepancy.name!r} discrepancy unless that is 'squared': use create_graph=False."
                )
            weights = batch.system.weights
            return None, None, PullBack.apply(gradient, _Linear(found), weights), *[None] * (len(needed) - 1)
        if len(needed) == 1:
            return None, None, pulled_back(found, gradient)
        return None, None, *_all_gradients(found, batch, gradient, needed)


# Past what `Function.apply` does for the transforms of torch.func, in which no projection is made.
_attach = super(torch.autograd.Function, _Projection).apply


class Linear(Protocol):
    """A projection that is linear in z, where it is differentiable."""

    def pull_back(self, gradient: Tensor) -> Tensor:
        """The vector-Jacobian product."""


class _Linear:
    def __init__(self, found: Any):
        self.pull_back = lambda gradient: pulled_back(found, gradient)


class PullBack(torch.autograd.Function):
    """The vector-Jacobian product, itself linear in the vector: its derivative is the Jacobian again."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, linear: Linear, weights: np.ndarray) -> Tensor:
        """The vector times the Jacobian."""
        ctx.linear, ctx.weights = linear, weights
        return linear.pull_back(gradient)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The Jacobian times the vector."""
        # With weights J is not symmetric: J = W^-1 J' W.
        weight = torch.from_numpy(ctx.weights).to(gradient) if len(ctx.weights) else None
        given = gradient if weight is None else gradient * weight
        back = PullBack.apply(given, ctx.linear, ctx.weights)
        return (back if weight is None else back / weight), None, None


def pulled_back(found: Any, gradient: Tensor) -> Tensor:
    """The gradient with respect to z, where `gradient` is. found: as of `solver.attempt`."""
    if isinstance(found, OwnProjection):
        return torch.from_numpy(found.pull_back(gradient.detach().double().cpu().numpy())).to(gradient)
    host = gradient.detach().cpu().contiguous()  # that of a sum repeats one number
    pulled = from_bits(found.pull_back(as_bits(host)), gradient.dtype)
    return pulled if gradient.is_cpu else pulled.to(gradient.device)


def _all_gradients(found: Any, batch: Any, gradient: Tensor, needed: Any) -> tuple[Tensor | None, ...]:
    """Gradients of z and of row bounds, offsets and box, as far as they are needed."""
    host = gradient.detach().cpu().contiguous()
    if isinstance(found, OwnProjection):
        pulled, v, raw = found.pull_back_all(host.double().numpy())
        of_z = torch.from_numpy(pulled).to(gradient)
    else:
        bits, v, raw = found.pull_back_all(as_bits(host))
        of_z = from_bits(bits, gradient.dtype).to(gradient.device)
    box, side = batch.box, np.asarray(found.side)
    lower, upper = _bound_gradients(batch.system.rows, np.asarray(found.nu), torch.from_numpy(v))
    return (
        of_z if needed[0] else None,
        lower if needed[1] else None,
        upper if needed[2] else None,
        torch.from_numpy(v) if needed[3] else None,
        _to_bound(raw * (side < 0), box.lo_tensor) if needed[4] else None,
        _to_bound(raw * (side > 0), box.hi_tensor) if needed[5] else None,
    )


def _bound_gradients(rows: Rows, nu: np.ndarray, v: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the lower and upper bounds of the families."""
    family = torch.from_numpy(np.repeat(np.arange(len(rows.kind)), np.diff(rows.first)))
    each = torch.from_numpy((rows.kind == EACH)[family.numpy()])
    # The bound that pushes moves a statistic; both do by half where neither pushes, as at an equality that z satisfies.
    up = torch.from_numpy(0.5 + 0.5 * np.sign(nu))
    ratio = torch.from_numpy(rows.ratio)[family]
    # Of families that are compared, the statistics that are pushed down gain what the bound gives way.
    to_upper = torch.where(each, v * up, torch.where(torch.from_numpy(nu > 0), v / ratio, torch.zeros_like(v)))
    to_lower = torch.where(each, v * (1.0 - up), torch.zeros_like(v))
    zeros = torch.zeros(len(rows.kind), dtype=torch.float64)
    return zeros.index_add(0, family, to_lower), zeros.index_add(0, family, to_upper)


def _to_bound(gradient: np.ndarray, bound: Tensor | None) -> Tensor | None:
    """Sum to the shape of the bound, which may be one number for all samples."""
    if bound is None:
        return None
    found = torch.from_numpy(gradient)
    return (found if bound.ndim else found.sum()).to(bound.dtype).to(bound.device)
