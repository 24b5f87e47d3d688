"""The soft step: outputs near the raw ones whose largest gap is priced rather than bounded.

    min_y  ||y - z||^2 + lambda n v(y)    subject to    lo <= y <= hi,

v(y) the largest amount by which a row exceeds its tolerance, down to where the narrowest row is an equality. For rows
that share one tolerance this is the largest |gap| up to a constant: the primal step of the paper's Algorithm 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box
from fairlayer.binding.rows import dense
from fairlayer.binding.system import System
from fairlayer.solve.families import MINUS, PLUS, M, P, active_rows, largest_excess
from fairlayer.solve.priced import solve_priced
from fairlayer.solve.tensors import has_float64


class Softened(NamedTuple):
    """The end of a soft step."""

    value: Any  # (n,) like z
    gap: float  # largest |row|; nan where there is no row, because groups are absent
    excess: float  # largest amount by which a row exceeds its tolerance, negative within; nan where there is no row
    nu: np.ndarray  # (K,) multipliers of the statistics; those of the rows add up to the price at most
    pinned: bool  # the price is so high that the narrowest row became an equality
    slopes: np.ndarray  # (G,) samples per cell that rest on no bound
    shift: np.ndarray  # (G,)


def soft_step(
    z: Any,  # (n,) float32 or float64, array or tensor on the CPU
    system: System,  # constraints bound to the batch, see `system.bind`
    box: Box,  # bounds in z's dtype, see `bounds.read_bounds`
    price: float,  # of one unit of gap; lambda n / 2 in the paper's terms
) -> Softened:
    """Solve without a gradient. A price of 0 gives z within its bounds; a high one the projection onto equalities."""
    raw = np.ascontiguousarray(as_numpy(z))
    out = np.empty_like(raw)
    rows = system.rows
    pinned, nu, shift, slopes, q = solve_priced(
        raw, system.cell, system.weights, system.samples, system.weight, box.lo, box.hi, rows, float(price), out
    )
    gap = excess = float("nan")
    if len(system.view.plus):
        gap = float(np.abs(system.view.values(q)).max())
        excess = largest_excess(rows, q)
    value = torch.from_numpy(out) if isinstance(z, Tensor) else out
    return Softened(value, gap, excess, nu, pinned, slopes, shift)


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

    device = z.device if has_float64(z.device) else torch.device("cpu")
    index = torch.as_tensor(system.cell).long()
    shifted = (plain.double() - torch.from_numpy(softened.shift)[index]).to(plain.dtype)
    free = (shifted == softened.value).to(device=device, dtype=torch.float64)
    dz = z.to(device).double() * free
    A, inverse = _active_rows(system, softened)
    if A.size:
        index = index.to(device)
        weights = torch.from_numpy(system.weights).to(device) if len(system.weights) else None
        sums = dz.new_zeros(A.shape[1]).index_add(0, index, dz if weights is None else dz * weights)
        pull = torch.from_numpy(A.T @ inverse @ A).to(device)
        dz = dz - free * (pull @ sums)[index]
    move = dz.to(device=z.device, dtype=z.dtype)
    return value + (move - move.detach()), softened


def _active_rows(system: System, softened: Softened) -> tuple[np.ndarray, np.ndarray]:
    """Active rows over cells, (a, G), and the inverse by which dmu = inverse A D dz."""
    rows = system.rows
    pairs = active_rows(rows, softened.nu)
    statistic = dense(rows).T
    plus, minus = (pairs[side].astype(np.int64) for side in (PLUS, MINUS))
    A = pairs[P][:, None] * statistic[plus] - pairs[M][:, None] * statistic[minus]
    inverse = np.linalg.pinv((A * softened.slopes) @ A.T, rcond=1e-12, hermitian=True)
    if not softened.pinned:
        towards = inverse.sum(axis=1)
        scale = towards.sum()
        if scale > 0.0:
            inverse = inverse - np.outer(towards, towards) / scale
    return A, inverse
