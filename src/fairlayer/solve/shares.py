"""A rank's share of a batch: what it adds to the sums of the whole, and what it writes.

Two ways, with the same answers: compiled loops on the CPU, and tensor operations for any device and discrepancy. Every
sum is a window (`windows`), of each cell.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fairlayer.binding.bounds import Box
from fairlayer.binding.exact_sums import carry
from fairlayer.compiled import compiled
from fairlayer.solve.discrepancy import Discrepancy, GeneralizedKL, Squared, compiled_kind
from fairlayer.solve.smooth import FURTHEST, ODDS, SQUARED, bound_of, factors, inside, respond, weight_of
from fairlayer.solve.tensors import TensorSamples
from fairlayer.solve.windows import BLOCK, WIDTH, add_tensor, add_value, empty_bank, put, splitters

Bottoms = tuple[int, int]  # of the windows of outputs, and of those of slopes
Sizes = tuple[float, float]  # what an output and a slope, each times a weight, do not exceed

# Places of windows: of the outputs as they are written, their slopes and absolute values; and of the outputs and slopes
# before they are rounded, where they are.
WRITTEN, SLOPES, ABSOLUTE, OUTPUTS, OUTPUT_SLOPES = range(5)


def sizes_of(discrepancy: Discrepancy, largest: float, heaviest: float) -> Sizes:
    """What an output and a slope, each times a weight, do not exceed; largest: output."""
    steepest = largest if isinstance(discrepancy, GeneralizedKL) else 1.0
    return largest * heaviest, steepest * heaviest


def largest_output(discrepancy: Discrepancy, unmoved: float, greatest: float, highest: float, shift: float) -> float:
    """What no output exceeds once it is moved by `shift` either way.

    unmoved: the same before; greatest: of all z; highest: bound.
    """
    if isinstance(discrepancy, GeneralizedKL):
        return min(greatest * math.exp(min(shift, FURTHEST)), highest)
    return unmoved + shift if isinstance(discrepancy, Squared) else 1.0


class LoopShare:
    """Samples of a rank, in the cells of the whole batch, by compiled loops."""

    def __init__(self, z: Tensor, cell: np.ndarray, weights: np.ndarray, box: Box, discrepancy: Discrepancy):
        given = z.numpy()
        self.single = given.itemsize == 4  # what outputs are rounded to
        self.dtype = given.dtype
        self.kind = compiled_kind(discrepancy)
        self.samples = _odds(given) if self.kind == ODDS else given, cell, weights, box.lo, box.hi

    def sums(self, shift: np.ndarray, sizes: Sizes, bottoms: Bottoms, both: bool, absolute: bool) -> np.ndarray:
        """(3 or 5, G, WIDTH) windows at the shifts.

        both: of the outputs before they are rounded, too; absolute: whether those of absolute values are wanted.
        """
        limbs = np.zeros((5 if both else 3, len(shift), WIDTH), dtype=np.int64)
        splits = splitters(sizes[0], bottoms[0]), splitters(sizes[1], bottoms[1])
        _add_sums(self.kind, self.single, *self.samples, shift, bottoms, splits, absolute, limbs)
        return limbs

    def write(self, shift: np.ndarray) -> Tensor:
        """The outputs at the shifts, in their own dtype."""
        out = np.empty(len(self.samples[0]), dtype=self.dtype)
        _write(self.kind, self.single, *self.samples, shift, out)
        return torch.from_numpy(out)

    def slope_sums(self, gradient: Tensor, shift: np.ndarray, bottom: int) -> tuple[np.ndarray, float]:
        """(G, WIDTH) windows of slope times gradient, and the largest absolute value among these."""
        limbs = np.zeros((len(shift), WIDTH), dtype=np.int64)
        g, values = gradient.contiguous().numpy(), np.empty(len(self.samples[0]))
        largest = _slopes_times(self.kind, self.single, g, *self.samples, shift, values)
        if math.isfinite(largest):
            _add_values(values, self.samples[1], bottom, splitters(largest, bottom), limbs)
        return limbs, largest

    def pull_back(self, gradient: Tensor, shift: np.ndarray, correction: np.ndarray) -> Tensor:
        """rho_z (g - w correction): the gradient of z, given what is taken off in each cell."""
        out = np.empty(len(self.samples[0]), dtype=self.dtype)
        g = gradient.contiguous().numpy()
        _pull_back(self.kind, self.single, g, *self.samples, shift, correction, out)
        return torch.from_numpy(out)


class TensorShare(TensorSamples):
    """Samples of a rank, in the cells of the whole batch, in tensor operations."""

    def sums(self, shift: np.ndarray, sizes: Sizes, bottoms: Bottoms, both: bool, absolute: bool) -> np.ndarray:
        """As in `LoopShare`."""
        at, (bottom, slope_bottom) = self.at(shift), bottoms
        y, slope = self.discrepancy.response(*at), self.weighted(self.discrepancy.slope(*at))
        written = self.weighted(self.written(y).double())
        listed = [(written, bottom), (slope, slope_bottom), (written.abs(), bottom)]
        if both:
            listed += [(self.weighted(y), bottom), (slope, slope_bottom)]
        limbs = [add_tensor(values, self.cell, len(shift), lowest) for values, lowest in listed]
        found = torch.stack(limbs).cpu().numpy()
        carry(found.reshape(-1, WIDTH))
        return found

    def write(self, shift: np.ndarray) -> Tensor:
        """As in `LoopShare`."""
        return self.written(self.discrepancy.response(*self.at(shift))).to(self.z.device)

    def slope_sums(self, gradient: Tensor, shift: np.ndarray, bottom: int) -> tuple[np.ndarray, float]:
        """As in `LoopShare`."""
        values = self.discrepancy.slope(*self.at(shift)) * gradient.to(self.device).double()
        limbs = add_tensor(values, self.cell, len(shift), bottom).cpu().numpy()
        carry(limbs)
        return limbs, float(values.abs().max()) if len(values) else 0.0


Share = LoopShare | TensorShare


@compiled(inline=True)
def _within(raw, lo, hi, i):
    """An output within the bounds of its sample."""
    return min(max(raw, float(bound_of(lo, i))), float(bound_of(hi, i)))


@compiled
def _odds(logits):
    """exp(-logit), which the loops take in place of logits; one by one, the same wherever a sample stands."""
    odds = np.empty(logits.size)
    for i in range(logits.size):
        odds[i] = math.exp(-min(max(float(logits[i]), -FURTHEST), FURTHEST))
    return odds


@compiled(inline=True)
def _moved_by(kind, shift):
    """What the shift of each cell is to its samples."""
    return shift if kind == SQUARED else factors(kind, shift)


@compiled(inline=True)
def _answer(kind, single, z, moved):
    """(output before its bounds, the same rounded as it will be written, slope, sensitivity) of one sample.

    One loop takes samples of all kinds, as adding to windows takes most of the time.
    """
    if kind == SQUARED:
        exact, slope, sensitivity = z - moved, 1.0, 1.0
        raw = float(np.float32(exact)) if single else exact
    else:
        exact, slope, sensitivity = respond(kind, z, moved)
        raw = inside(kind, exact, single)
    return exact, raw, slope, sensitivity


@compiled
def _add_sums(kind, single, z, cell, weight, lo, hi, shift, bottoms, splits, absolute, limbs):
    both, counted = limbs.shape[0] > OUTPUTS, weight.size == 0 and kind == SQUARED
    free = np.zeros((2, shift.size), dtype=np.int64)  # samples that no bound holds, where the slope of each is 1
    bottom, slope_bottom = bottoms
    of_output, of_slope = splits
    bank = np.zeros((limbs.shape[0], 2, shift.size))
    moved = _moved_by(kind, shift)
    for start in range(0, z.size, BLOCK):
        for i in range(start, min(start + BLOCK, z.size)):
            c, w = cell[i], weight_of(weight, i)
            low, high = float(bound_of(lo, i)), float(bound_of(hi, i))
            exact, raw, slope, _ = _answer(kind, single, float(z[i]), moved[c])
            y = min(max(raw, low), high)
            value = w * y
            put(bank[WRITTEN], c, limbs[WRITTEN], value, of_output, bottom)
            if absolute:
                put(bank[ABSOLUTE], c, limbs[ABSOLUTE], abs(value), of_output, bottom)
            if counted:
                free[0, c] += y == raw
            elif y == raw:
                put(bank[SLOPES], c, limbs[SLOPES], w * slope, of_slope, slope_bottom)
            if both:
                before = min(max(exact, low), high)
                put(bank[OUTPUTS], c, limbs[OUTPUTS], w * before, of_output, bottom)
                if counted:
                    free[1, c] += before == exact
                elif before == exact:
                    put(bank[OUTPUT_SLOPES], c, limbs[OUTPUT_SLOPES], w * slope, of_slope, slope_bottom)
        for k in range(limbs.shape[0]):
            empty_bank(bank[k], limbs[k], slope_bottom if k in (SLOPES, OUTPUT_SLOPES) else bottom)
    if counted:
        for c in range(shift.size):
            add_value(limbs[SLOPES, c], float(free[0, c]), slope_bottom)
            if both:
                add_value(limbs[OUTPUT_SLOPES, c], float(free[1, c]), slope_bottom)
    for k in range(limbs.shape[0]):
        carry(limbs[k])


@compiled
def _write(kind, single, z, cell, weight, lo, hi, shift, out):
    dtype, moved = out.dtype.type, _moved_by(kind, shift)
    for i in range(z.size):
        _, raw, _, _ = _answer(kind, single, float(z[i]), moved[cell[i]])
        out[i] = dtype(_within(raw, lo, hi, i))


@compiled
def _slopes_times(kind, single, gradient, z, cell, weight, lo, hi, shift, values):
    """Slope times gradient of every sample; the largest absolute value. What is no number counts as infinite."""
    largest, moved = 0.0, _moved_by(kind, shift)
    for i in range(z.size):
        _, raw, slope, _ = _answer(kind, single, float(z[i]), moved[cell[i]])
        free = _within(raw, lo, hi, i) == raw
        g = slope * float(gradient[i]) if free else 0.0
        values[i] = g
        largest = max(largest, abs(g)) if g == g else np.inf
    return largest


@compiled
def _add_values(values, cell, bottom, split, limbs):
    bank = np.zeros((2, limbs.shape[0]))
    for start in range(0, values.size, BLOCK):
        for i in range(start, min(start + BLOCK, values.size)):
            put(bank, cell[i], limbs, values[i], split, bottom)
        empty_bank(bank, limbs, bottom)
    carry(limbs)


@compiled
def _pull_back(kind, single, gradient, z, cell, weight, lo, hi, shift, correction, out):
    dtype, moved = out.dtype.type, _moved_by(kind, shift)
    for i in range(z.size):
        c = cell[i]
        _, raw, _, sensitivity = _answer(kind, single, float(z[i]), moved[c])
        free = _within(raw, lo, hi, i) == raw
        out[i] = dtype(sensitivity * (gradient[i] - weight_of(weight, i) * correction[c])) if free else dtype(0)
