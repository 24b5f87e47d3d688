"""The same solve in tensor operations: any device, any float dtype, any discrepancy.

Only sums over cells leave the device; multipliers are found on the host by the same driver as on the compiled path. A
device without float64 has its sums taken on the CPU.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fairlayer.binding.bounds import Box
from fairlayer.binding.exact_sums import TINY, UNIT, exact_sums
from fairlayer.binding.system import System
from fairlayer.solve.certify import is_tight
from fairlayer.solve.discrepancy import Discrepancy, domain_of, inner_limits
from fairlayer.solve.driver import EXACT, FINISHED, MEASURE, MISSED, OUTCOME, SUMS, begin, proceed
from fairlayer.solve.extremes import cell_extremes
from fairlayer.solve.loops import MOST_SUM, NOT_FINITE, OUTSIDE, TOO_LARGE
from fairlayer.solve.newton import ABSOLUTE, ERROR, PATIENCE, SHIFT, SQUARE, TRIAL, D, S, statistics
from fairlayer.solve.result import Result


class TensorPasses:
    """Passes over the samples of a tensor."""

    def __init__(self, z: Tensor, system: System, box: Box, discrepancy: Discrepancy):
        self.device = z.device if has_float64(z.device) else torch.device("cpu")
        self.z, self.system, self.discrepancy = z, system, discrepancy
        self.exact = z.to(self.device).double()
        self.cell = torch.as_tensor(system.cell, device=self.device).long()
        self.weights = torch.from_numpy(system.weights).to(self.device) if len(system.weights) else None
        self.lo, self.hi = box.tensors(self.device)
        self.value = z

    def cell_sums(self, values: Tensor) -> np.ndarray:
        """Sum over each cell, by weight."""
        weighted = values if self.weights is None else values * self.weights
        sums = torch.zeros(len(self.system.weight), dtype=torch.float64, device=self.device)
        return sums.index_add_(0, self.cell, weighted).cpu().numpy()

    def shift_of(self, shift: np.ndarray) -> Tensor:
        """The shift of each sample."""
        return torch.from_numpy(shift).to(self.device)[self.cell]

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
        s = self.shift_of(of_cell[SHIFT])
        y = self.discrepancy.response(self.exact, s, self.lo, self.hi)
        of_cell[D] = self.cell_sums(self.discrepancy.slope(self.exact, s, self.lo, self.hi))
        if request == SUMS:
            of_cell[S] = self.cell_sums(y)
            return
        if request == MEASURE:
            of_cell[ABSOLUTE] = self.cell_sums(y.abs())
            squares = y * y if self.weights is None else y * y * self.weights
            of_cell[SQUARE] = self.cell_sums(squares)
            # An output that needs no change is rounded all the same where the response is not the identity.
            y = y.to(self.z.dtype).double()
            of_cell[S] = self.cell_sums(y)
            return
        dtype = self.z.dtype
        inside = torch.clamp(y.to(dtype), *inner_limits(self.discrepancy, dtype))
        value = torch.clamp(inside, self.lo.to(dtype), self.hi.to(dtype))
        self.value = value.to(self.z.device)
        written = value.double()
        of_cell[S] = self.cell_sums(written)
        of_cell[ERROR] = self.cell_sums(written.abs()) * ((len(self.z) + 8.0) * UNIT) + len(self.z) * TINY


def has_float64(device: torch.device) -> bool:
    """Whether sums can be taken there in float64."""
    return device.type != "mps"


def solve_tensors(
    z: Tensor,
    system: System,
    box: Box,
    unit: float,
    discrepancy: Discrepancy,
    start: np.ndarray,
) -> Result:
    """Project z, of shape (n,); unit and start as in `loops.solve_loops`."""
    passes = TensorPasses(z, system, box, discrepancy)
    smallest, largest = torch.aminmax(passes.exact)
    if not bool(torch.isfinite(smallest) & torch.isfinite(largest)):
        return _unsolved(NOT_FINITE, system)
    low, high = domain_of(discrepancy)
    if not low < float(smallest) <= float(largest) < high:
        return _unsolved(OUTSIDE, system)
    if not float(torch.maximum(-smallest, largest)) * max(float(system.weight.sum()), 1.0) <= MOST_SUM:
        return _unsolved(TOO_LARGE, system)
    reach = math.inf
    if hasattr(discrepancy, "reach"):
        reach = discrepancy.reach(float(smallest), float(largest), box.lowest, box.highest)
    extremes = cell_extremes(system, box.within(*inner_limits(discrepancy, z.dtype)))
    weight = system.weight
    if not discrepancy.piecewise_linear:
        weight = weight * passes.usual_slope()
    solve = begin(system.rows, system.samples, weight, *extremes, reach, start, unit)
    if discrepancy.name != "squared":
        solve.search.number[PATIENCE] = np.inf  # there is no other way
    of_cell, request = solve.search.cell, MEASURE
    while request != FINISHED:
        passes.answer(request, of_cell)
        request = proceed(solve)
    nu, missed = solve.search.statistic[TRIAL], solve.family[MISSED]
    return Result(
        int(solve.search.number[OUTCOME]),
        passes.value,
        nu,
        of_cell[SHIFT],
        of_cell[D],
        missed,
        statistics(system.rows, of_cell[S]),
        of_cell[ABSOLUTE],
        is_tight(system.rows, nu, missed),
    )


def _unsolved(outcome: int, system: System) -> Result:
    cells, statistics = np.zeros(len(system.weight)), np.zeros(len(system.rows.offset))
    return Result(outcome, None, statistics, cells, cells, np.zeros(len(system.rows.kind)), statistics, cells)
