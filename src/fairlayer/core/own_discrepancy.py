"""The projection under a discrepancy that the core does not know: responses in tensor operations, sums as passes.

All is computed in float64 on the host, and rounded to the dtype of the output when it is written.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairlayer.core import End, solve
from fairlayer.core._native import MOST_SUM
from fairlayer.core.discrepancies import OPEN, Discrepancy, domain_of, evaluate, inner_limits
from fairlayer.core.feasibility import cell_extremes
from fairlayer.problem.bounds import Box
from fairlayer.problem.exact_sums import TINY, UNIT, exact_sums
from fairlayer.problem.rows import Rows
from fairlayer.problem.system import System


class OwnProjection:
    """A projected batch, with what `_native.Projection` has; and the passes that its solve asks for."""

    def __init__(
        self, z: Tensor, system: System, box: Box, discrepancy: Discrepancy, rows: Rows, start: Any, exact: bool
    ):
        self.z, self.system, self.discrepancy, self.rows = z, system, discrepancy, rows
        self.given = z.double()
        self.cell = torch.from_numpy(system.cell).long()
        self.weights = torch.from_numpy(system.weights) if len(system.weights) else None
        self.lo, self.hi = box.tensors()
        self.value: Any = None
        self.nu = self.statistics = np.zeros(len(rows.offset))
        self.shift = self.slopes = self.absolute = np.zeros(len(system.weight))
        self.missed = np.zeros(len(rows.kind))
        self.end = self._fault(system)
        if self.end != End.SOLVED:
            return
        least, greatest = (float(end) for end in torch.aminmax(self.given))
        reach = math.inf
        if hasattr(discrepancy, "reach"):
            reach = discrepancy.reach(least, greatest, box.lowest, box.highest)
        usual = 1.0 if discrepancy.piecewise_linear else self._usual_slope()
        extremes = cell_extremes(system, box.within(*inner_limits(discrepancy, z.dtype)))
        rounding = torch.finfo(z.dtype).eps / 2 if exact else 0.0
        found = solve(rows, self, system.samples, system.weight * usual, *extremes, reach, rounding, start)
        self.end, self.nu, self.shift, self.slopes = found.end, found.nu, found.shift, found.slopes
        self.missed, self.statistics, self.absolute = found.missed, found.statistics, found.absolute

    @property
    def holds(self) -> bool:
        """Whether every row certainly holds."""
        return self.end == End.SOLVED and bool((self.missed <= 0.0).all())

    def _fault(self, system: System) -> End:
        """Why no solve can begin; `SOLVED` if one can."""
        if not bool(torch.isfinite(self.given).all()):
            return End.NOT_FINITE
        low, high = domain_of(self.discrepancy)
        if not bool(((self.given > low) & (self.given < high)).all()):
            return End.OUTSIDE
        largest = float(self.given.abs().max()) * max(float(system.weight.sum()), 1.0)
        return End.SOLVED if largest <= MOST_SUM else End.TOO_LARGE

    def _usual_slope(self) -> float:
        """The mean slope of a sample before any shift, as if there were no bounds."""
        none = torch.zeros_like(self.given)
        return float(self._of("slope", self.given, none, none - math.inf, none + math.inf).mean())

    def _of(self, method: str, *at: Tensor) -> Tensor:
        return evaluate(self.discrepancy, method, *at)

    def _at(self, shift: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.given, torch.from_numpy(np.array(shift))[self.cell], self.lo, self.hi

    def _cell_sums(self, values: Tensor) -> np.ndarray:
        values = values if self.weights is None else values * self.weights
        sums = torch.zeros(len(self.system.weight), dtype=torch.float64)
        return sums.index_add_(0, self.cell, values).numpy()

    # The passes.

    def measure(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sums of outputs as they are, of slopes and of absolute values."""
        at = self._at(np.zeros(len(self.system.weight)))
        y = self._of("response", *at)
        # An output that needs no change is rounded all the same where the response is not the identity.
        sums = self._cell_sums(y.to(self.z.dtype).double())
        return sums, self._cell_sums(self._of("slope", *at)), self._cell_sums(y.abs())

    def sums(self, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of outputs and slopes at the shifts."""
        at = self._at(shift)
        return self._cell_sums(self._of("response", *at)), self._cell_sums(self._of("slope", *at))

    def write(self, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Write the output; sums of it and of slopes, and a bound on their error."""
        at, dtype = self._at(shift), self.z.dtype
        inside = torch.clamp(self._of("response", *at).to(dtype), *inner_limits(self.discrepancy, dtype))
        self.value = torch.clamp(inside, self.lo.to(dtype), self.hi.to(dtype))
        y, n = self.value.double(), len(self.z)
        error = self._cell_sums(y.abs()) * ((n + 8.0) * UNIT) + n * TINY
        return self._cell_sums(y), self._cell_sums(self._of("slope", *at)), error

    def exact(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums of what was written, each rounded once, and a bound on their error."""
        sums, error = np.empty(len(self.system.weight)), np.empty(len(self.system.weight))
        exact_sums(self.value.double().numpy(), self.system.cell, self.system.weights, sums, error)
        return sums, error

    @property
    def side(self) -> np.ndarray:
        """(n,) -1 below the lower bound, 1 above the upper one, 0 between them."""
        z, s, _, _ = self._at(self.shift)
        raw = self._of("response", z, s, -OPEN, OPEN)
        return ((raw > self.hi).to(torch.int8) - (raw < self.lo).to(torch.int8)).numpy()
