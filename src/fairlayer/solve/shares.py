"""A rank's share of a batch: what it adds to the sums of the whole, and what it writes.

Two ways, with the same answers: compiled loops on the CPU, and tensor operations for any device and discrepancy. Every
sum is a window (`windows`), of each cell.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fairlayer.binding.bounds import Box
from fairlayer.binding.exact_sums import carry
from fairlayer.compiled import compiled
from fairlayer.solve.discrepancy import Discrepancy
from fairlayer.solve.windows import WIDTH, add_tensor, add_value

Bottoms = tuple[int, int]  # of the windows of outputs, and of those of slopes

# Places of windows: of the outputs as they are written, their slopes and absolute values; and of the outputs and slopes
# before they are rounded, where they are.
WRITTEN, SLOPES, ABSOLUTE, OUTPUTS, OUTPUT_SLOPES = range(5)


class Share(Protocol):
    """Samples of a rank, in the cells of the whole batch."""

    def sums(self, shift: np.ndarray, bottoms: Bottoms, both: bool, absolute: bool) -> np.ndarray:
        """(3 or 5, G, WIDTH) windows at the shifts.

        both: of the outputs before they are rounded, too; absolute: whether those of absolute values are wanted.
        """

    def write(self, shift: np.ndarray) -> Tensor:
        """The outputs at the shifts, in their own dtype."""

    def slope_sums(self, gradient: Tensor, shift: np.ndarray, bottom: int) -> tuple[np.ndarray, float]:
        """(G, WIDTH) windows of slope times gradient, and the largest absolute value among these."""


class LoopShare:
    """By compiled loops."""

    def __init__(self, z: Tensor, cell: np.ndarray, weights: np.ndarray, box: Box):
        self.z, self.cell, self.weights = z.numpy(), cell, weights
        self.lo, self.hi = box.lo, box.hi

    def sums(self, shift: np.ndarray, bottoms: Bottoms, both: bool, absolute: bool) -> np.ndarray:
        """As in `Share`."""
        limbs = np.zeros((5 if both else 3, len(shift), WIDTH), dtype=np.int64)
        _add_sums(self.z, self.cell, self.weights, self.lo, self.hi, shift, *bottoms, absolute, limbs)
        carry(limbs.reshape(-1, WIDTH))
        return limbs

    def write(self, shift: np.ndarray) -> Tensor:
        """As in `Share`."""
        out = np.empty_like(self.z)
        _write(self.z, self.cell, self.lo, self.hi, shift, out)
        return torch.from_numpy(out)

    def slope_sums(self, gradient: Tensor, shift: np.ndarray, bottom: int) -> tuple[np.ndarray, float]:
        """As in `Share`."""
        limbs = np.zeros((len(shift), WIDTH), dtype=np.int64)
        g = gradient.contiguous().numpy()
        largest = _add_gradient(g, self.z, self.cell, self.lo, self.hi, shift, bottom, limbs)
        carry(limbs)
        return limbs, largest

    def pull_back(self, gradient: Tensor, shift: np.ndarray, correction: np.ndarray) -> Tensor:
        """rho_z (g - w correction): the gradient of z, given what is taken off in each cell."""
        out = np.empty_like(self.z)
        g = gradient.contiguous().numpy()
        _pull_back(g, self.z, self.cell, self.weights, self.lo, self.hi, shift, correction, out)
        return torch.from_numpy(out)


class TensorShare:
    """In tensor operations."""

    def __init__(
        self, z: Tensor, cell: Tensor, weights: np.ndarray, box: Box, discrepancy: Discrepancy, device: torch.device
    ):
        """device: where sums are taken."""
        self.z, self.discrepancy, self.device = z, discrepancy, device
        self.exact, self.cell = z.to(device).double(), torch.as_tensor(cell, device=device).long()
        self.weights = torch.from_numpy(weights).to(device) if len(weights) else None
        self.lo, self.hi = box.tensors(device)

    def _shift_of(self, shift: np.ndarray) -> Tensor:
        return torch.from_numpy(shift).to(self.device)[self.cell]

    def _written(self, y: Tensor) -> Tensor:
        dtype = self.z.dtype
        return torch.clamp(y.to(dtype), self.lo.to(dtype), self.hi.to(dtype))

    def _weighted(self, values: Tensor) -> Tensor:
        return values if self.weights is None else values * self.weights

    def sums(self, shift: np.ndarray, bottoms: Bottoms, both: bool, absolute: bool) -> np.ndarray:
        """As in `Share`."""
        s, (bottom, slope_bottom) = self._shift_of(shift), bottoms
        y = self.discrepancy.response(self.exact, s, self.lo, self.hi)
        slope = self._weighted(self.discrepancy.slope(self.exact, s, self.lo, self.hi))
        written = self._weighted(self._written(y).double())
        listed = [(written, bottom), (slope, slope_bottom), (written.abs(), bottom)]
        if both:
            listed += [(self._weighted(y), bottom), (slope, slope_bottom)]
        limbs = [add_tensor(values, self.cell, len(shift), lowest) for values, lowest in listed]
        found = torch.stack(limbs).cpu().numpy()
        carry(found.reshape(-1, WIDTH))
        return found

    def write(self, shift: np.ndarray) -> Tensor:
        """As in `Share`."""
        y = self.discrepancy.response(self.exact, self._shift_of(shift), self.lo, self.hi)
        return self._written(y).to(self.z.device)

    def slope_sums(self, gradient: Tensor, shift: np.ndarray, bottom: int) -> tuple[np.ndarray, float]:
        """As in `Share`."""
        slope = self.discrepancy.slope(self.exact, self._shift_of(shift), self.lo, self.hi)
        values = slope * gradient.to(self.device).double()
        limbs = add_tensor(values, self.cell, len(shift), bottom).cpu().numpy()
        carry(limbs)
        return limbs, float(values.abs().max()) if len(values) else 0.0


@compiled(inline=True)
def _one(side, i):
    return side[i] if side.size > 1 else side[0]


@compiled
def _add_sums(z, cell, weight, lo, hi, shift, bottom, slope_bottom, absolute, limbs):
    dtype = z.dtype.type
    both, weighted = limbs.shape[0] > OUTPUTS, weight.size > 0
    free = np.zeros((2, shift.size), dtype=np.int64)  # samples of weight 1 that no bound holds
    for i in range(z.size):
        c = cell[i]
        w = weight[i] if weighted else 1.0
        exact = float(z[i]) - shift[c]
        raw = dtype(exact)
        y = min(max(raw, _one(lo, i)), _one(hi, i))
        value = w * float(y)
        add_value(limbs[WRITTEN, c], value, bottom)
        if absolute:
            add_value(limbs[ABSOLUTE, c], abs(value), bottom)
        if not weighted:
            free[0, c] += y == raw
        elif y == raw:
            add_value(limbs[SLOPES, c], w, slope_bottom)
        if both:
            before = min(max(exact, float(_one(lo, i))), float(_one(hi, i)))
            add_value(limbs[OUTPUTS, c], w * before, bottom)
            if not weighted:
                free[1, c] += before == exact
            elif before == exact:
                add_value(limbs[OUTPUT_SLOPES, c], w, slope_bottom)
    if not weighted:
        for c in range(shift.size):
            add_value(limbs[SLOPES, c], float(free[0, c]), slope_bottom)
            if both:
                add_value(limbs[OUTPUT_SLOPES, c], float(free[1, c]), slope_bottom)


@compiled
def _write(z, cell, lo, hi, shift, out):
    dtype = out.dtype.type
    for i in range(z.size):
        raw = dtype(float(z[i]) - shift[cell[i]])
        out[i] = min(max(raw, _one(lo, i)), _one(hi, i))


@compiled
def _add_gradient(gradient, z, cell, lo, hi, shift, bottom, limbs):
    """The largest absolute value; what is no number counts as infinite."""
    dtype = z.dtype.type
    largest = 0.0
    for i in range(z.size):
        c = cell[i]
        raw = dtype(float(z[i]) - shift[c])
        if min(max(raw, _one(lo, i)), _one(hi, i)) == raw:
            g = float(gradient[i])
            add_value(limbs[c], g, bottom)
            largest = max(largest, abs(g)) if g == g else np.inf
    return largest


@compiled
def _pull_back(gradient, z, cell, weight, lo, hi, shift, correction, out):
    dtype, zero = out.dtype.type, out.dtype.type(0)
    for i in range(z.size):
        c = cell[i]
        raw = dtype(float(z[i]) - shift[c])
        y = min(max(raw, _one(lo, i)), _one(hi, i))
        w = weight[i] if weight.size > 0 else 1.0
        out[i] = dtype(gradient[i] - w * correction[c]) if y == raw else zero
