"""The same solve in tensor operations: any device, any float dtype, any discrepancy.

Only sums over cells leave the device; multipliers are found on the host by the same driver as on the compiled path. A
device without float64 has its sums taken on the CPU.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairlayer.binding.bounds import Box
from fairlayer.binding.exact_sums import TINY, UNIT, exact_sums
from fairlayer.binding.system import System
from fairlayer.solve.discrepancy import Discrepancy, domain_of, inner_limits
from fairlayer.solve.driver import EXACT, MEASURE, WRITE
from fairlayer.solve.feasibility import cell_extremes
from fairlayer.solve.loops import MOST_SUM, NOT_FINITE, OUTSIDE, TOO_LARGE
from fairlayer.solve.newton import ABSOLUTE, ERROR, SHIFT, D, S
from fairlayer.solve.passes import run_passes
from fairlayer.solve.result import Result


class TensorSamples:
    """Samples on their device, or on the CPU where that has no float64, and what a discrepancy makes of them."""

    def __init__(self, z: Tensor, cell: Any, weights: np.ndarray, box: Box, discrepancy: Discrepancy):
        self.device = z.device if has_float64(z.device) else torch.device("cpu")
        self.z, self.discrepancy = z, discrepancy
        self.exact = z.to(self.device).double()
        self.cell = torch.as_tensor(cell, device=self.device).long()
        self.weights = torch.from_numpy(weights).to(self.device) if len(weights) else None
        self.lo, self.hi = box.tensors(self.device)

    def at(self, shift: np.ndarray) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What a response and its derivatives are functions of; shift: (G,) of the cells."""
        return self.exact, torch.from_numpy(shift).to(self.device)[self.cell], self.lo, self.hi

    def weighted(self, values: Tensor) -> Tensor:
        """Values times the weights of the samples."""
        return values if self.weights is None else values * self.weights

    def written(self, y: Tensor) -> Tensor:
        """Outputs rounded to their own dtype, within their bounds and strictly inside what responses can be."""
        dtype = self.z.dtype
        inside = torch.clamp(y.to(dtype), *inner_limits(self.discrepancy, dtype))
        return torch.clamp(inside, self.lo.to(dtype), self.hi.to(dtype))


class TensorPasses(TensorSamples):
    """Passes over the samples of a tensor."""

    def __init__(self, z: Tensor, system: System, box: Box, discrepancy: Discrepancy):
        super().__init__(z, system.cell, system.weights, box, discrepancy)
        self.system, self.value = system, z

    def cell_sums(self, values: Tensor) -> np.ndarray:
        """Sum over each cell, by weight."""
        sums = torch.zeros(len(self.system.weight), dtype=torch.float64, device=self.device)
        return sums.index_add_(0, self.cell, self.weighted(values)).cpu().numpy()

    def usual_slope(self) -> float:
        """The mean slope of a sample before any shift, as if there were no bounds."""
        none = torch.zeros_like(self.exact)
        return float(self.discrepancy.slope(self.exact, none, none - math.inf, none + math.inf).mean())

    def answer(self, request: int, of_cell: np.ndarray) -> None:
        """Take the sums that are asked for."""
        if request == EXACT:
            values = self.value.double().cpu().numpy()
            exact_sums(values, self.cell.int().cpu().numpy(), self.system.weights, of_cell[S], of_cell[ERROR])
            return
        at = self.at(of_cell[SHIFT])
        y = self.discrepancy.response(*at)
        of_cell[D] = self.cell_sums(self.discrepancy.slope(*at))
        if request == MEASURE:
            of_cell[ABSOLUTE] = self.cell_sums(y.abs())
            # An output that needs no change is rounded all the same where the response is not the identity.
            y = y.to(self.z.dtype).double()
        elif request == WRITE:
            written = self.written(y)
            self.value, y = written.to(self.z.device), written.double()
            of_cell[ERROR] = self.cell_sums(y.abs()) * ((len(self.z) + 8.0) * UNIT) + len(self.z) * TINY
        of_cell[S] = self.cell_sums(y)


def has_float64(device: torch.device) -> bool:
    """Whether sums can be taken there in float64."""
    return device.type != "mps"


def solve_tensors(
    z: Tensor, system: System, box: Box, unit: float, discrepancy: Discrepancy, start: np.ndarray
) -> Result:
    """Project z, of shape (n,); unit and start as in `loops.solve_loops`."""
    passes = TensorPasses(z, system, box, discrepancy)
    least, greatest = (float(end) for end in torch.aminmax(passes.exact))
    if not (math.isfinite(least) and math.isfinite(greatest)):
        return _unsolved(NOT_FINITE, system)
    low, high = domain_of(discrepancy)
    if not low < least <= greatest < high:
        return _unsolved(OUTSIDE, system)
    if not max(-least, greatest) * max(float(system.weight.sum()), 1.0) <= MOST_SUM:
        return _unsolved(TOO_LARGE, system)
    extremes = cell_extremes(system, box.within(*inner_limits(discrepancy, z.dtype)))
    extent = (least, greatest, box.lowest, box.highest)
    return run_passes(passes, system, discrepancy, extent, extremes, start, unit)


def _unsolved(outcome: int, system: System) -> Result:
    cells, statistics = np.zeros(len(system.weight)), np.zeros(len(system.rows.offset))
    return Result(outcome, None, statistics, cells, cells, np.zeros(len(system.rows.kind)), statistics, cells)
