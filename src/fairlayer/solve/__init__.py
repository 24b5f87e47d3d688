"""Solvers: one method on cell sums (`newton`), two ways to take the sums (`fused`, `tensor`)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fairlayer.binding.bounds import Box
from fairlayer.binding.system import System
from fairlayer.solve.discrepancy import Discrepancy, Squared
from fairlayer.solve.fused import reach_and_magnitude, solve_fused
from fairlayer.solve.result import Result
from fairlayer.solve.tensor import solve_tensor

FUSED_DTYPES = (torch.float32, torch.float64)


def is_fused(z: Tensor, discrepancy: Discrepancy) -> bool:
    """Whether the compiled path can take this problem."""
    return z.device.type == "cpu" and z.dtype in FUSED_DTYPES and isinstance(discrepancy, Squared)


def solve(
    z: Tensor,
    system: System,
    box: Box,
    extent: tuple[float, float],
    discrepancy: Discrepancy,
    fused: bool,
    allows_rounding: bool = False,
) -> Result:
    """Project z, of shape (n,) and values within `extent`, onto a system; on the compiled path where `fused`.

    allows_rounding: aim at the bounds of the rows themselves, which rounding the output may then pass by a little,
    instead of so far inside that it cannot. For rows that leave no such room.
    """
    unit = 0.0 if allows_rounding else torch.finfo(z.dtype).eps / 2
    largest = max(abs(extent[0]), abs(extent[1]))  # all that the repeat lane knows: both must take the same steps
    reach, magnitude = reach_and_magnitude(-largest, largest, box.lowest, box.highest)
    if box.per_sample:  # then a sample may be pushed to a bound well inside the widest ones
        magnitude = max(magnitude, float(box.lo.max()), -float(box.hi.min()))
    extremes = cell_extremes(system, box)
    if not fused:
        return solve_tensor(z, system, box, extremes, reach, unit, discrepancy)
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    outcome, multipliers, active, shift, slopes, missed, statistics = solve_fused(
        z.numpy(),
        system.cell,
        system.weights,
        system.samples,
        system.weight,
        box.lo,
        box.hi,
        *extremes,
        reach,
        magnitude,
        unit,
        system.rows,
        out.numpy(),
    )
    return Result(outcome, out, multipliers, active, shift, slopes, missed, statistics)


def cell_extremes(system: System, box: Box) -> tuple[np.ndarray, np.ndarray]:
    """The least and the most that each cell sum can be within the bounds."""
    return _extreme(system, box.lo), _extreme(system, box.hi)


def _extreme(system: System, side: np.ndarray) -> np.ndarray:
    if len(side) > 1:
        index = system.cell if isinstance(system.cell, np.ndarray) else system.cell.cpu().numpy()
        values = side.astype(np.float64)
        if len(system.weights):  # what has no weight adds nothing, even where its bound is infinite
            values = np.where(system.weights > 0, values, 0.0) * system.weights
        return np.bincount(index, weights=values, minlength=len(system.weight))
    bound = float(side[0])
    if np.isfinite(bound):
        with np.errstate(over="ignore"):  # a sum past the range of floats is as good as an open one
            return system.weight * bound
    return np.where(system.weight > 0, bound, 0.0)
