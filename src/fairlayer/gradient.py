"""The derivative of the projection: the only custom backward of the library.

With A the active rows, D the slopes and rho_z the sensitivities of the responses, the Jacobian with respect to z is

    J = (I - D A' (A D A')^+ A) diag(rho_z),

for the squared discrepancy without bounds the orthogonal projector on the null space of A (paper, theorem 4.4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box
from fairlayer.binding.process_group import Ranks
from fairlayer.binding.rows import EACH, Rows, dense
from fairlayer.constraints.affine import Affine
from fairlayer.errors import InputError
from fairlayer.solve import Task
from fairlayer.solve.batch import Ends, Matrices, by_threads, new_ends, pull_back_batch, solve_batch
from fairlayer.solve.discrepancy import inner_limits
from fairlayer.solve.families import MINUS, PLUS, P, active_rows
from fairlayer.solve.families import M as COEFFICIENT
from fairlayer.solve.gathering import Gathered, exchange_rows, in_columns
from fairlayer.solve.loops import pull_back
from fairlayer.solve.newton import shifts, solve_active
from fairlayer.solve.ranks import gradient_sums
from fairlayer.solve.result import Result
from fairlayer.solve.shares import LoopShare
from fairlayer.solve.smooth import ODDS
from fairlayer.solve.tensors import has_float64

_OVERWRITTEN = (
    "z has been modified by an in-place operation since it was projected, and its gradient depends on what it was: "
    "pass z.clone(), or change z out of place."
)
_NO_DOUBLE_BACKWARD = (
    "Double backward over a process group is not available: use create_graph=False, or process_group=None."
)


# A solved projection: all that its derivative needs, nu, shift and slopes, and not the output, which holds this.
Solved = tuple[Task, np.ndarray, np.ndarray, np.ndarray]


def attach_gradient(z: Tensor, task: Task, result: Result, excess: float) -> Tensor:
    """The output as a function of whatever wants gradients: z, row bounds, targets, box."""
    system, box = task.system, task.box
    if not torch.is_grad_enabled():
        return result.value
    if system.wants_gradient or box.wants_gradient:
        if excess:  # it depends on all of these, and its own derivative is not taken
            raise InputError(
                "The constraints contradict each other or the bounds, and a relaxed output has a gradient with respect "
                "to z alone: detach the tolerances, targets, rows' limits and bounds, or make the problem feasible."
            )
        others = (system.lower, system.upper, system.offset, box.lo_tensor, box.hi_tensor)
        return _attach(task, result, z, *others)
    return _attach(task, result, z) if z.requires_grad else result.value


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
    def forward(ctx: Any, task: Task, result: Result, z: Tensor, *others: Tensor | None) -> Tensor:
        if others and z.is_inference():
            raise RuntimeError("z is an inference tensor, of which nothing can be kept for backward: pass z.clone().")
        # The output holds ctx. Were ctx to hold the output, only the garbage collector would free either of them.
        ctx.solved = task, result.nu, result.shift, result.slopes
        ctx.version = task.z._version  # save_for_backward would see to it too, and take as long as a small solve
        return result.value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        solved: Solved = ctx.solved
        task = solved[0]
        if task.z._version != ctx.version:
            raise RuntimeError(_OVERWRITTEN)
        needed, again = ctx.needs_input_grad[2:], torch.is_grad_enabled()
        if again and task.ranks is not None:
            raise RuntimeError(_NO_DOUBLE_BACKWARD)
        if task.loops is not None and len(needed) == 1 and not again:
            return None, None, _compiled_gradient(solved, gradient)
        if again and not task.discrepancy.piecewise_linear:
            raise RuntimeError(
                f"Double backward through the {task.discrepancy.name!r} discrepancy is not available: "
                "its second derivatives are not implemented. Use create_graph=False, or discrepancy='squared'."
            )
        gradients = _tensor_gradients(solved, task.z, gradient, (*needed, *[False] * 5)[:6])
        return None, None, *gradients[: len(needed)]


# Past what `Function.apply` does for the transforms of torch.func, in which no projection is made.
_attach = super(torch.autograd.Function, _Projection).apply


def _compiled_gradient(solved: Solved, gradient: Tensor) -> Tensor:
    (z, system, box, discrepancy, loops, ranks), nu, shift, slopes = solved
    if ranks is not None:
        _, correction = _rank_corrections(solved, z, gradient)
        return LoopShare(z, system.cell, system.weights, box, discrepancy).pull_back(gradient, shift, correction)
    kind, single, given, lo, hi = loops  # type: ignore[misc]
    pulled = np.empty(given.shape, given.dtype)
    toward = np.ascontiguousarray((gradient if kind != ODDS else gradient.double()).numpy())  # a sum's repeats a number
    pull_back(kind, toward, given, system.cell, system.weights, lo, hi, nu, shift, slopes, single, pulled, *system.rows)
    return torch.from_numpy(pulled) if kind != ODDS else torch.from_numpy(pulled).to(gradient.dtype)


def _rank_corrections(solved: Solved, z: Tensor, gradient: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """v = R'(A D A')^+ A D g over the samples of all ranks, whose losses add up; and M v, of each cell."""
    task, nu, shift, slopes = solved
    rows = task.system.rows
    v = solve_active(rows, nu, slopes, gradient_sums(task, shift, z, gradient))
    correction = np.empty(len(shift))
    shifts(rows, v, correction)
    return v, correction


def _tensor_gradients(solved: Solved, z: Tensor, gradient: Tensor, needed: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """Gradients in tensor operations, themselves differentiable with respect to `gradient`.

    With A = R M' the active rows, D the slopes and rho_z the sensitivities: v = R'(A D A')^+ A D g, and

        dz = rho_z (g - M v),   d(row bound) = v,   d(offset) = v,   d(box) = g - M v where a sample rests on it.
    """
    (_, system, box, discrepancy, loops, ranks), nu, shift, slopes = solved
    rows, device = system.rows, z.device if has_float64(z.device) else torch.device("cpu")
    index = torch.as_tensor(system.cell, device=device).long()
    lo, hi = box.tensors(device)
    s = torch.from_numpy(shift).to(device)[index]
    exact = z.to(device).double()
    open_ended = torch.tensor(math.inf, dtype=torch.float64, device=device)
    raw = discrepancy.response(exact, s, -open_ended, open_ended)
    if loops is not None:  # which side of a bound a sample is on was decided in its own dtype
        raw = torch.clamp(raw.to(z.dtype), *inner_limits(discrepancy, z.dtype)).double()
    # Slopes between the bounds, once without them: both sides then agree on who is held.
    free = ((raw >= lo) & (raw <= hi)).double()
    slope = discrepancy.slope(exact, s, -open_ended, open_ended) * free
    sensitivity = discrepancy.sensitivity(exact, s, -open_ended, open_ended) * free

    g = gradient.to(device).double()
    M = dense(rows)
    if ranks is None:
        v = _multipliers(rows, M, nu, slopes, index, slope * g)
        of_cell = torch.from_numpy(M).to(device) @ v
    else:  # as the compiled loops do it, to the bit
        v, of_cell = (torch.from_numpy(part).to(device) for part in _rank_corrections(solved, z, gradient))
    correction = of_cell[index]
    if len(system.weights):
        correction = correction * torch.from_numpy(system.weights).to(device)
    pulled = g - correction

    lower, upper = _bound_gradients(rows, nu, v.cpu()) if needed[1] or needed[2] else (None, None)
    if ranks is not None and lower is not None and upper is not None:
        # Every rank has a copy of what the bounds are made of: their gradients add up to the whole.
        lower, upper = lower / ranks.size, upper / ranks.size
    return (
        (sensitivity * pulled).to(z.dtype).to(z.device) if needed[0] else None,
        lower if needed[1] else None,
        upper if needed[2] else None,
        v.cpu() if needed[3] else None,
        _to_bound(pulled * (raw < lo), box.lo_tensor) if needed[4] else None,
        _to_bound(pulled * (raw > hi), box.hi_tensor) if needed[5] else None,
    )


def attach_share(
    z: Tensor, everyones: Tensor, value: Tensor, batch: Gathered, ranks: Ranks, counts: list[int]
) -> Tensor:
    """This rank's part of the output of a whole batch, which each rank projects by itself, as a function of its own z.

    everyones: the z of all ranks, sorted; value: a function of it; counts: samples of every rank.
    """
    if not everyones.requires_grad:
        return batch.own(value)
    return _Share.apply(z, (everyones, value, batch, ranks, counts))


class _Share(torch.autograd.Function):
    """A part of a whole batch. Backward, too, every rank does the whole, given the gradients of all."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, whole: tuple[Tensor, Tensor, Gathered, Ranks, list[int]]) -> Tensor:
        ctx.whole = whole
        _, value, batch, _, _ = whole
        return batch.own(value.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(_NO_DOUBLE_BACKWARD)
        z, value, batch, ranks, counts = ctx.whole
        rows = exchange_rows(ranks, in_columns(gradient), counts, batch.mine)
        upstream = rows[batch.order].reshape(value.shape)
        given = torch.from_numpy(upstream).to(dtype=value.dtype, device=value.device)
        (found,) = torch.autograd.grad(value, z, given, retain_graph=True)
        return batch.own(found), None


def _multipliers(
    rows: Rows, M: np.ndarray, nu: np.ndarray, slopes: np.ndarray, index: Tensor, weighed: Tensor
) -> Tensor:
    """(K,) v, with M as a matrix of (G, K); weighed: slope times gradient of each sample."""
    pairs = active_rows(rows, nu)
    R = np.zeros((pairs.shape[1], len(rows.offset)))
    np.add.at(R, (np.arange(len(R)), pairs[PLUS].astype(np.int64)), pairs[P])
    np.subtract.at(R, (np.arange(len(R)), pairs[MINUS].astype(np.int64)), pairs[COEFFICIENT])
    over_cells = R @ M.T  # (a, G)
    inverse = np.linalg.pinv((over_cells * slopes) @ over_cells.T, rcond=1e-12, hermitian=True)
    sums = torch.zeros(len(M), dtype=torch.float64, device=index.device).index_add(0, index, weighed)
    return torch.from_numpy(R.T @ inverse @ over_cells).to(index.device) @ sums


def _bound_gradients(rows: Rows, nu: np.ndarray, v: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the lower and upper bounds of the families."""
    family = torch.from_numpy(np.repeat(np.arange(len(rows.kind)), np.diff(rows.first)))
    each = torch.from_numpy((rows.kind == EACH)[family.numpy()])
    # The bound that pushes moves a statistic; both do by half where neither pushes, as at an equality that z satisfies.
    up = torch.from_numpy(0.5 + 0.5 * np.sign(nu))
    ratio = torch.from_numpy(rows.ratio)[family]
    # Of families that are compared, whoever is pushed down gains what the bound gives way.
    to_upper = torch.where(each, v * up, torch.where(torch.from_numpy(nu > 0), v / ratio, torch.zeros_like(v)))
    to_lower = torch.where(each, v * (1.0 - up), torch.zeros_like(v))
    zeros = torch.zeros(len(rows.kind), dtype=torch.float64)
    return zeros.index_add(0, family, to_lower), zeros.index_add(0, family, to_upper)


def _to_bound(gradient: Tensor, bound: Tensor | None) -> Tensor | None:
    """Sum to the shape of the bound, which may be one number for all samples."""
    if bound is None:
        return None
    return (gradient if bound.ndim else gradient.sum()).to(bound.dtype).to(bound.device)


def stacked(constraints: Sequence[Affine], box: Box, weights: np.ndarray | None) -> Matrices:
    """The rows of several constraints, of every problem of a batch."""
    A = _together([c.A for c in constraints], 2)
    lower, upper = _together([c.lower for c in constraints], 1), _together([c.upper for c in constraints], 1)
    return Matrices(A, lower, upper, np.empty(0) if weights is None else weights, box.lo, box.hi)


def _together(parts: list[Any], single: int) -> np.ndarray:
    """Arrays of every problem, one below the other; once where all problems have the same. single: their dimensions."""
    each = [as_numpy(part) for part in parts]
    each = [part[None] if part.ndim == single else part[:1] if part.strides[0] == 0 else part for part in each]
    if len(each) > 1:
        problems = max(map(len, each))
        each = [np.concatenate([np.broadcast_to(part, (problems, *part.shape[1:])) for part in each], axis=1)]
    (whole,) = each
    return whole if whole.flags.carray else np.array(whole, order="C")  # loops are compiled for nothing else


def project_batch(z: Tensor, matrices: Matrices) -> tuple[Tensor, Ends]:
    """Project every row of z, (B, n); the value is a function of z."""
    given = z.detach().contiguous().numpy()
    B, n = given.shape
    out, ends = np.empty_like(given), new_ends(B, matrices.A.shape[1], n)
    by_threads(B, solve_batch, given, matrices, out, ends)
    value = torch.from_numpy(out)
    return (_attach_batch(z, (value, matrices, ends)) if z.requires_grad and torch.is_grad_enabled() else value), ends


class _BatchProjection(torch.autograd.Function):
    """A batch of projections as a function of z, each linear where it is differentiable."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, solved: tuple[Tensor, Matrices, Ends]) -> Tensor:
        value, *ctx.solved = solved
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        pull = _PullBack.apply if torch.is_grad_enabled() else _pulled
        return pull(gradient, *ctx.solved), None


_attach_batch = super(torch.autograd.Function, _BatchProjection).apply  # as above


def _pulled(gradient: Tensor, matrices: Matrices, ends: Ends) -> Tensor:
    given = gradient.detach().contiguous().numpy()
    out = np.empty_like(given)
    by_threads(len(given), pull_back_batch, given, matrices, ends, out)
    return torch.from_numpy(out)


class _PullBack(torch.autograd.Function):
    """The vector-Jacobian product, itself linear in the vector: its derivative is the Jacobian again."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, matrices: Matrices, ends: Ends) -> Tensor:
        ctx.solved = (matrices, ends)
        return _pulled(gradient, matrices, ends)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        matrices, ends = ctx.solved
        # With weights J is not symmetric: J = W^-1 J' W.
        weight = torch.from_numpy(matrices.weight).to(gradient.dtype) if len(matrices.weight) else None
        back = _PullBack.apply(gradient if weight is None else gradient * weight, matrices, ends)
        return (back if weight is None else back / weight), None, None
