"""The derivative of the projection.

With A the active rows, D the slopes and rho_z the sensitivities of the responses, the Jacobian with respect to z is

    J = (I - D A' (A D A')^+ A) diag(rho_z),

for the squared discrepancy without bounds the orthogonal projector on the null space of A (paper, theorem 4.4).
Backward applies J'. Where the projection is piecewise linear, J does not depend on z: backward is then linear in the
gradient, and torch differentiates it in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from fairlayer.core import _native
from fairlayer.core.discrepancies import OPEN, Discrepancy, evaluate
from fairlayer.core.own_discrepancy import OwnProjection
from fairlayer.core.solver import Batch, as_bits, from_bits
from fairlayer.errors import InputError
from fairlayer.problem.rows import EACH
from fairlayer.solution import Solution

_LIMITS = 5  # row bounds, statistic offsets and box: what wants gradients besides z and parameters


def attach_gradient(z: Tensor, batch: Batch, solution: Solution) -> Tensor:
    """The output as a function of whatever wants gradients: z, row bounds, targets, box, parameters."""
    value, system, box = solution.value, batch.system, batch.box
    if not torch.is_grad_enabled():
        return value
    parameters = parameters_of(batch.discrepancy)
    if not (system.wants_gradient or box.wants_gradient or parameters):
        return _attach(value, solution.found, batch, z) if z.requires_grad else value
    if solution.excess and (system.wants_gradient or box.wants_gradient):  # it depends on these, too
        raise InputError(
            "The constraints contradict each other or the bounds, and a relaxed output has a gradient with respect to "
            "z alone: detach the tolerances, targets, rows' limits and bounds, or make the problem feasible."
        )
    if z.is_inference():
        raise RuntimeError("z is an inference tensor, which autograd cannot keep for backward: pass z.clone().")
    others = (system.lower, system.upper, system.offset, box.lo_tensor, box.hi_tensor)
    return _attach(value, solution.found, batch, z, *others, *parameters)


def parameters_of(discrepancy: Discrepancy) -> list[Tensor]:
    """What a discrepancy has to learn, where it is a module."""
    return [one for one in discrepancy.parameters() if one.requires_grad] if isinstance(discrepancy, nn.Module) else []


def plain_apply(function: type[torch.autograd.Function]) -> Callable[..., Tensor]:
    """`function.apply` without what it does for the transforms of torch.func, in which no projection is made."""
    parent: Any = super(torch.autograd.Function, function)
    return parent.apply


def in_forward_mode() -> bool:
    """Whether forward-mode differentiation is under way."""
    return forward_ad._current_level >= 0


def refuse_tangents(**given: Any) -> None:
    """Refuse arguments that carry tangents of forward-mode differentiation, which would be lost."""
    for name, value in given.items():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, Tensor) and forward_ad.unpack_dual(part).tangent is not None:
                raise InputError(
                    f"{name} carries a forward-mode tangent, which would be lost: use reverse mode, y.backward()."
                )


class _Projection(torch.autograd.Function):
    """The projection as a function of z, row bounds, statistic offsets, and the box."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, found: Any, batch: Batch, z: Tensor, *others: Tensor | None) -> Tensor:
        # The output holds ctx. Were ctx to hold the output, only the garbage collector would free either of them.
        ctx.found, ctx.batch, ctx.version = found, batch, batch.z._version
        if len(others) > _LIMITS:
            ctx.save_for_backward(*others[_LIMITS:])  # parameters, which must be what they were
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        found, batch = ctx.found, ctx.batch
        if batch.z._version != ctx.version:
            raise RuntimeError(
                "z has been modified by an in-place operation since it was projected, and its gradient depends on what "
                "it was: pass z.clone(), or change z out of place."
            )
        needed = ctx.needs_input_grad[3:]
        parameters = ctx.saved_tensors if len(needed) > 1 + _LIMITS else ()
        again = torch.is_grad_enabled()
        if again and (parameters or not batch.discrepancy.piecewise_linear):
            raise RuntimeError(
                f"Double backward is not available through the {batch.discrepancy.name!r} discrepancy: use 'squared', "
                "or create_graph=False."
            )
        if again or len(needed) > 1 or isinstance(found, OwnProjection):
            return None, None, None, *_pull_back(batch, found, gradient, needed, parameters)
        # The gradient of a sum is one number, expanded.
        return None, None, None, from_bits(found.pull_back(as_bits(gradient.detach().contiguous())), gradient.dtype)


_attach = plain_apply(_Projection)
ProjectionNode: Any = _Projection._backward_cls  # of outputs that need no more than it


class _ActiveSolve(torch.autograd.Function):
    """R' (R H R')^+ R q, with R the active rows over the statistics and H = M' D M: linear in q, and symmetric."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, batch: Batch, found: Any) -> Tensor:
        ctx.batch, ctx.found = batch, found
        nu, slopes = np.asarray(found.nu), np.asarray(found.slopes)
        return torch.from_numpy(_native.solve_active(batch.system.rows, nu, slopes, q.numpy()))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _ActiveSolve.apply(gradient.contiguous(), ctx.batch, ctx.found), None, None


def _pull_back(
    batch: Batch, found: Any, gradient: Tensor, needed: Sequence[bool], parameters: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """Gradients of z, row bounds, statistic offsets, box and parameters of the discrepancy, as far as needed.

    All but those of the parameters are made of operations that torch can differentiate again.
    """
    system, box, rows = batch.system, batch.box, batch.system.rows
    cell, statistic, M = (
        torch.from_numpy(system.cell).long(),
        torch.from_numpy(rows.statistic),
        torch.tensor(rows.value),
    )
    cell_of_entry = torch.from_numpy(rows.entry_cell)
    side = torch.from_numpy(np.array(found.side))
    free, g = (side == 0).double(), gradient.double()
    # Slope and sensitivity of the responses as if there were no bounds.
    at = batch.z.double(), torch.from_numpy(np.array(found.shift))[cell], -OPEN, OPEN
    slope, sensitivity = evaluate(batch.discrepancy, "slope", *at), evaluate(batch.discrepancy, "sensitivity", *at)

    def total(size: int, where: Tensor, values: Tensor) -> Tensor:
        return values.new_zeros(size).index_add(0, where, values)

    sums = total(len(system.weight), cell, free * slope * g)
    v = _ActiveSolve.apply(total(len(rows.offset), statistic, M * sums[cell_of_entry]), batch, found)
    shift = total(len(system.weight), cell_of_entry, M * v[statistic])[cell]
    raw = g - (torch.from_numpy(system.weights) * shift if len(system.weights) else shift)
    of_z = (free * sensitivity * raw).to(gradient.dtype)
    if len(needed) == 1:
        return (of_z,)
    # By how much the bounds of its family move a statistic: the one that pushes does; both do by half where neither
    # pushes, as at an equality that z satisfies. Where statistics are compared, those pushed down move with the bound.
    family = rows.statistic_family
    nu, each = np.asarray(found.nu), (rows.kind == EACH)[family]
    up = 0.5 + 0.5 * np.sign(nu)
    by_lower = np.where(each, 1.0 - up, 0.0)
    by_upper = np.where(each, up, np.where(nu > 0, 1.0 / rows.ratio[family], 0.0))
    lower, upper = (
        total(len(rows.kind), torch.from_numpy(family), v * torch.from_numpy(by)) for by in (by_lower, by_upper)
    )
    lo, hi = _to_bound(raw * (side < 0), box.lo_tensor), _to_bound(raw * (side > 0), box.hi_tensor)
    learned: Sequence[Tensor | None] = ()
    if parameters:  # they move the responses as z does, at shifts that are held
        with torch.enable_grad():
            y = batch.discrepancy.response(*at)
            learned = torch.autograd.grad(y, parameters, (free * raw).to(y.dtype), allow_unused=True)
    found_all = (of_z, lower, upper, v, lo, hi, *learned)
    return tuple(one if wanted else None for one, wanted in zip(found_all, needed, strict=True))


def _to_bound(gradient: Tensor, bound: Tensor | None) -> Tensor | None:
    """Sum to the shape of the bound, which may be one number for all samples."""
    if bound is None:
        return None
    return (gradient if bound.ndim else gradient.sum()).to(bound.dtype)
