"""The projection where float64 or the output's dtype is at its end: solved in twice the precision, rounded with care.

Rounding every output to the nearest number of its dtype moves a mean by what an outlier's last digit is worth, which
may be more than the tolerance. But outputs of a cell are of many sizes, and what rounding the coarse ones leaves over
can be made up by the fine ones: they are rounded in this order, and each takes its share of what is left. Where that is
not enough, the aim moves inside by what was missed; and where a cell has coarse outputs alone, it is held where it is,
and the rest of the batch is projected again around it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box
from fairlayer.binding.rows import EACH
from fairlayer.binding.system import System
from fairlayer.compiled import compiled
from fairlayer.solve.exact import exact_shortfalls
from fairlayer.solve.interior import Interior, entry_cells, exact_means, interior_point
from fairlayer.solve.twofold import add, times

MOST_NUMBERS = 2_000_000  # samples times statistics, up to which so much care is affordable
_MOST_SOLVES = 6
_INSIDE = 0.5  # of the room between two bounds, the most that the aim moves inside
_DUST = 1e-12  # of the largest number: the distance to a bound at which an output rests on it
_NO_ROOM = 1e-20  # of the largest output: bounds so near to each other leave nothing to aim at
_COARSE = 0.25  # of what the coarsest cell is worth: those that are held with it


class Careful(NamedTuple):
    """What was found."""

    value: Tensor  # (n,) the output, in its own dtype
    missed: np.ndarray  # (F,) by how much each family is missed, at most 0 where it holds
    optimum: Interior  # what it is a rounding of


def solve_carefully(z: Tensor, system: System, box: Box) -> Careful | None:
    """Project z by the squared distance; None where the method does not end, as rows cannot hold.

    The output that misses its rows least of those tried is returned.
    """
    given, means, of_cell = as_numpy(z).astype(np.float64), exact_means(system), entry_cells(system)
    lo, hi = (np.broadcast_to(side.astype(np.float64), len(z)).copy() for side in (box.lo, box.hi))
    room = _room(system)
    most = np.repeat(_INSIDE * room, np.diff(system.rows.first))
    entries, K = np.abs(means.value.high), len(most)
    margin: np.ndarray = np.zeros(K)
    found, optimum, wider = None, None, 1.0
    for _ in range(_MOST_SOLVES):
        point = interior_point(given, system, means, margin, lo, hi)
        if not point.holds:
            break
        optimum = point if optimum is None else optimum
        rounding = _Rounding(point, given, z.dtype, system, lo, hi)
        for share in (False, True):
            value = rounding.output(share)
            if not bool(torch.isfinite(value).all()):
                return found
            missed = exact_shortfalls(as_numpy(value.double()), system, np.full(len(system.rows.kind), np.inf))
            if found is None or missed.max(initial=0.0) < found.missed.max(initial=0.0):
                found = Careful(value.to(z.device), missed, optimum)
            if (missed <= 0.0).all():
                return found
        if (room[missed > 0.0] <= _NO_ROOM * np.abs(point.y.high).max(initial=0.0)).any():
            return found
        all_digits, last_digits = (
            np.bincount(system.rows.statistic, weights=entries * digits[of_cell], minlength=K)
            for digits in (rounding.all_digits, rounding.last_digits)
        )
        beside = np.repeat(np.maximum(missed, 0.0), np.diff(system.rows.first))
        size = next((digits for digits in (all_digits, last_digits) if (wider * digits <= most).all()), None)
        if size is not None:
            margin, wider = np.minimum(np.maximum(wider * size, margin + beside), most), 4.0 * wider
        else:
            # Of every cell, what its finest output is worth to the statistic that hears of it most.
            worth = np.zeros(len(rounding.last_digits))
            np.maximum.at(worth, of_cell, entries)
            worth *= rounding.last_digits
            coarsest = worth > _COARSE * worth.max(initial=0.0)
            if coarsest[worth > 0.0].all():  # then one is held, and the others have something to go by
                coarsest = np.arange(len(worth)) == worth.argmax()
            coarse = coarsest[as_numpy(system.cell)] & (lo < hi)
            if not worth.any() or not coarse.any():
                break
            lo[coarse] = hi[coarse] = as_numpy(value.double())[coarse]
            margin, wider = np.zeros(K), 1.0
    return found


def _room(system: System) -> np.ndarray:
    """(F,) how far the bounds of each family can move inside before they meet, on each side."""
    lower, upper = system.stated
    half = np.where(system.rows.kind == EACH, 0.5, 0.25) * (upper - lower)  # of differences lower is -upper
    return np.where(np.isfinite(half), half, np.inf)


class _Rounding:
    """Outputs, to be rounded to their dtype."""

    def __init__(
        self, point: Interior, z: np.ndarray, dtype: torch.dtype, system: System, lo: np.ndarray, hi: np.ndarray
    ):
        self.dtype, self.lo, self.hi = dtype, lo, hi
        self.cell, self.cells = as_numpy(system.cell).astype(np.int64), len(system.weight)
        self.weight = system.weights if len(system.weights) else np.ones(len(self.cell))
        # An interior point stops short of the bounds; whoever is held by one is put there, and all others are rounded.
        nearer = np.where(point.y.high - lo <= hi - point.y.high, lo, hi)
        apart = np.abs(point.y.high - nearer)
        size = max(np.abs(side).max(initial=0.0) for side in (point.y.high, np.clip(z, lo, hi)))
        held = point.rests & (apart <= _DUST * size)
        self.moves = ~held & (lo < hi) & (self.weight > 0.0)
        self.y, self.aim = point.y, np.where(held, nearer, point.y.high)
        info = torch.finfo(dtype)
        digit = self.weight * np.maximum(np.abs(point.y.high), info.tiny) * info.eps
        self.order = np.argsort(np.where(held, -np.inf, -digit), kind="stable")
        # By cell: the weight of what rounding may leave of all outputs, and that of the last digit of the finest.
        left = self.weight * np.where(held, apart, 0.0) + 0.5 * digit * self.moves
        self.all_digits = np.bincount(self.cell, weights=left, minlength=self.cells)
        self.last_digits = np.full(self.cells, np.inf)
        np.minimum.at(self.last_digits, self.cell[self.moves], digit[self.moves])
        self.last_digits[~np.isfinite(self.last_digits)] = 0.0

    def output(self, share: bool) -> Tensor:
        """Each rounded to the nearest; or, to `share`, each with what the coarser ones of its cell left over."""
        info, out = torch.finfo(self.dtype), np.empty(len(self.cell))
        free = self.moves if share else np.zeros(len(out), dtype=bool)
        numbers, sides, scale = (self.y.high, self.y.low, self.aim), (self.lo, self.hi), (info.eps, info.tiny)
        _round_in_order(*numbers, self.cell, self.weight, free, self.order, *sides, *scale, self.cells, out)
        return torch.from_numpy(out).to(self.dtype)


@compiled
def _round_in_order(high, low, aim, cell, weight, free, order, lo, hi, eps, tiny, cells, out):
    """Round outputs one by one, each with its share of what the roundings before it left of its cell's sum."""
    n = order.size
    to_come, ahead = np.zeros(cells), np.empty(n)  # weight that is still free to move, from each sample on
    for x in range(n - 1, -1, -1):
        i = order[x]
        if free[i]:
            to_come[cell[i]] += weight[i]
        ahead[i] = to_come[cell[i]]
    left, rest = np.zeros(cells), np.zeros(cells)
    for x in range(n):
        i = order[x]
        c = cell[i]
        wanted = aim[i]
        if free[i]:
            wanted += low[i] + left[c] / ahead[i]
        digit = eps * 0.5 * 2.0 ** math.frexp(max(abs(wanted), tiny))[1]
        out[i] = min(max(digit * np.rint(wanted / digit), lo[i]), hi[i])
        a, b = add(high[i], low[i], -out[i], 0.0)
        a, b = times(weight[i], 0.0, a, b)
        left[c], rest[c] = add(left[c], rest[c], a, b)
