"""The derivative of the projection: the only custom backward of the library.

With A the active rows, D the slopes and rho_z the sensitivities of the responses, the Jacobian with respect to z is

    J = (I - D A' (A D A')^+ A) diag(rho_z),

for the squared discrepancy without bounds the orthogonal projector on the null space of A (paper, theorem 4.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.binding.bounds import Box
from fairlayer.binding.system import System
from fairlayer.errors import InputError
from fairlayer.solution import Facts
from fairlayer.solve.discrepancy import Discrepancy
from fairlayer.solve.fused import pull_back
from fairlayer.solve.result import Result

_NO_OUTPUT = torch.empty(0)


class Solved(NamedTuple):
    """A solved projection: all that its derivative and its report need."""

    system: System
    result: Result
    box: Box
    discrepancy: Discrepancy
    fused: bool
    excess: float = 0.0

    def active(self) -> np.ndarray:
        """The rows that hold the output where it is: those with a multiplier, and every equality."""
        rows, active = self.system.rows, self.result.active
        equalities = np.flatnonzero(rows.lower == rows.upper)
        return np.union1d(active, equalities) if len(equalities) else active

    def facts(self) -> Facts:
        """What the user may want to know."""
        view, result = self.system.view, self.result
        return Facts(
            view.names,
            view.vacuous,
            self.system.rows,
            result.statistics,
            result.multipliers,
            result.missed,
            self.excess,
        )


def attach_gradient(z: Tensor, solved: Solved) -> Tensor:
    """The output as a function of whatever wants gradients: z, row bounds, targets, box."""
    system, box = solved.system, solved.box
    if not torch.is_grad_enabled():
        return solved.result.value
    others = (system.lower, system.upper, system.offset, box.lo_tensor, box.hi_tensor)
    if any(tensor is not None for tensor in others):
        if solved.excess:  # it depends on all of these, and its own derivative is not taken
            raise InputError(
                "The constraints contradict each other or the bounds, and a relaxed output has a gradient with respect "
                "to z alone: detach the tolerances, targets, rows' limits and bounds, or make the problem feasible."
            )
        return _Projection.apply(solved, z, *others)
    return _Projection.apply(solved, z) if z.requires_grad else solved.result.value


class _Projection(torch.autograd.Function):
    """The projection as a function of z, row bounds, statistic offsets, and the box."""

    @staticmethod
    def forward(ctx: Any, solved: Solved, z: Tensor, *others: Tensor | None) -> Tensor:
        ctx.save_for_backward(z)
        # The output holds ctx. Were ctx to hold the output, only the garbage collector would free either of them.
        ctx.solved = solved._replace(result=solved.result._replace(value=_NO_OUTPUT))
        return solved.result.value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        solved: Solved = ctx.solved
        (z,) = ctx.saved_tensors
        needed = ctx.needs_input_grad[1:]
        if solved.fused and len(needed) == 1 and not torch.is_grad_enabled():
            return None, _fused_gradient(solved, z, gradient)
        if torch.is_grad_enabled() and not solved.discrepancy.piecewise_linear:
            raise RuntimeError(
                f"Double backward through the {solved.discrepancy.name!r} discrepancy is not available: "
                "its second derivatives are not implemented. Use create_graph=False, or discrepancy='squared'."
            )
        return None, *_tensor_gradients(solved, z.detach(), gradient, (*needed, *[False] * 5)[:6])[: len(needed)]


def _fused_gradient(solved: Solved, z: Tensor, gradient: Tensor) -> Tensor:
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    system, result = solved.system, solved.result
    pull_back(
        gradient.contiguous().numpy(),
        z.detach().contiguous().numpy(),
        system.cell,
        system.weights,
        solved.box.lo,
        solved.box.hi,
        result.shift,
        result.slopes,
        system.rows,
        solved.active(),
        out.numpy(),
    )
    return out


def _tensor_gradients(solved: Solved, z: Tensor, gradient: Tensor, needed: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """Gradients in tensor operations, themselves differentiable with respect to `gradient`.

    With A the active rows, D the slopes and rho_z the sensitivities: v = (A D A')^+ A D g, and

        dz = rho_z (g - A'v),   d(row bound) = v,   d(offset) = R'v,   d(box) = g - A'v where a sample rests on it.
    """
    system, result, device = solved.system, solved.result, z.device
    rows, active = system.rows, solved.active()
    index = torch.as_tensor(system.cell, device=device).long()
    lo, hi = solved.box.tensors(device)
    s = torch.from_numpy(result.shift).to(device)[index]
    exact = z.double()
    if solved.fused:  # which side of a bound a sample is on was decided in its own dtype
        exact, s = (exact - s).to(z.dtype).double(), torch.zeros((), dtype=torch.float64)
    slope = solved.discrepancy.slope(exact, s, lo, hi)
    sensitivity = solved.discrepancy.sensitivity(exact, s, lo, hi)

    R = np.zeros((len(active), rows.M.shape[1]))
    for a, j in enumerate(active):
        R[a, rows.plus[j]] += 1.0
        if rows.minus[j] >= 0:
            R[a, rows.minus[j]] -= 1.0
    over_cells = R @ rows.M.T  # (a, G)
    inverse = np.linalg.pinv((over_cells * result.slopes) @ over_cells.T, rcond=1e-12, hermitian=True)
    A = torch.from_numpy(over_cells).to(device)

    g = gradient.double()
    sums = torch.zeros(A.shape[1], dtype=torch.float64, device=device).index_add(0, index, slope * g)
    v = torch.from_numpy(inverse).to(device) @ (A @ sums)
    correction = (v @ A)[index]
    if len(system.weights):
        correction = correction * torch.from_numpy(system.weights).to(device)
    free = g - correction

    # The bound that pushes moves the row; both do by half where neither pushes, as at an equality that z satisfies.
    to_upper = torch.from_numpy(0.5 + 0.5 * np.sign(result.multipliers[active])).to(device)
    position = torch.from_numpy(active).to(device)
    per_row = torch.zeros(len(rows.plus), dtype=torch.float64, device=device)
    held = 1.0 - slope
    raw = exact - s
    return (
        (sensitivity * free).to(z.dtype) if needed[0] else None,
        per_row.index_add(0, position, v * (1.0 - to_upper)).cpu() if needed[1] else None,
        per_row.index_add(0, position, v * to_upper).cpu() if needed[2] else None,
        (v @ torch.from_numpy(R).to(device)).cpu() if needed[3] else None,
        _to_bound(held * free * (raw < lo), solved.box.lo_tensor) if needed[4] else None,
        _to_bound(held * free * (raw > hi), solved.box.hi_tensor) if needed[5] else None,
    )


def _to_bound(gradient: Tensor, bound: Tensor | None) -> Tensor | None:
    """Sum to the shape of the bound, which may be one number for all samples."""
    if bound is None:
        return None
    return (gradient if bound.ndim else gradient.sum()).to(bound.dtype).to(bound.device)
