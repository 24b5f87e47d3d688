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
from fairlayer.solve.interior import ENOUGH, Interior, entry_cells, exact_means, interior_point
from fairlayer.solve.twofold import add, times

MOST_NUMBERS = 2_000_000  # samples times statistics, up to which so much care is affordable
_MOST_SOLVES = 8
_INSIDE = 0.5  # of the room between two bounds, the most that the aim moves inside
_COARSE = 1.0 / 16.0  # of the coarsest cell: those that are held with it


class Careful(NamedTuple):
    """What was found."""

    value: Tensor  # (n,) the output, in its own dtype
    missed: np.ndarray  # (F,) by how much each family is missed, at most 0 where it holds
    optimum: Interior  # of which it is the rounding


def solve_carefully(z: Tensor, system: System, box: Box) -> Careful | None:
    """Project z by the squared distance; None where the method does not end, as rows cannot hold.

    The output that misses its rows least of those tried is returned.
    """
    given, means, of_cell = as_numpy(z.double()), exact_means(system), entry_cells(system)
    lo, hi = (np.broadcast_to(side.astype(np.float64), len(z)).copy() for side in (box.lo, box.hi))
    most = np.repeat(_INSIDE * _room(system), np.diff(system.rows.first))
    entries, K = np.abs(means.value.high), len(most)
    margin, found, optimum, wider = np.zeros(K), None, None, 1.0
    for _ in range(_MOST_SOLVES):
        point = interior_point(given, system, means, margin, lo, hi)
        if not point.residual <= ENOUGH:
            break
        optimum = point if optimum is None else optimum
        value, left = _rounded(point, z.dtype, system, lo, hi)
        missed = exact_shortfalls(as_numpy(value.double()), system, np.full(len(system.rows.kind), np.inf))
        if found is None or missed.max(initial=0.0) < found.missed.max(initial=0.0):
            found = Careful(value, missed, optimum)
        if (missed <= 0.0).all():
            break
        needed = wider * np.bincount(system.rows.statistic, weights=entries * left[of_cell], minlength=K)
        if (needed <= most).all():
            margin, wider = needed, 4.0 * wider
            continue
        # Of every cell, what its finest output is worth to the statistic that hears of it most.
        worth = np.zeros(len(left))
        np.maximum.at(worth, of_cell, entries)
        worth *= left
        coarse = (worth > _COARSE * worth.max(initial=0.0))[as_numpy(system.cell)]
        if not (coarse & (lo < hi)).any():
            break
        lo[coarse] = hi[coarse] = as_numpy(value.double())[coarse]
        margin, wider = np.zeros(K), 1.0
    return found


def _room(system: System) -> np.ndarray:
    """(F,) how far the bounds of each family can move inside before they meet."""
    lower, upper = system.stated
    half = np.where(system.rows.kind == EACH, 0.5, 0.25) * (upper - lower)  # of differences lower is -upper
    return np.where(np.isfinite(half), half, np.inf)


def _rounded(
    point: Interior, dtype: torch.dtype, system: System, lo: np.ndarray, hi: np.ndarray
) -> tuple[Tensor, np.ndarray]:
    """Outputs in their dtype, and by cell the weight of the last digit of the finest that is free to move."""
    info, cell = torch.finfo(dtype), as_numpy(system.cell).astype(np.int64)
    weight = system.weights if len(system.weights) else np.ones(len(cell))
    digit = weight * np.maximum(np.abs(point.y.high), info.tiny) * info.eps
    order = np.argsort(-digit, kind="stable")
    out = np.empty(len(cell))
    _round_in_order(
        point.y.high, point.y.low, cell, weight, point.inside, order, lo, hi, info.eps, info.tiny, len(system.weight), out
    )
    left = np.full(len(system.weight), np.inf)
    np.minimum.at(left, cell[point.inside], digit[point.inside])
    return torch.from_numpy(out).to(dtype), np.where(np.isfinite(left), left, 0.0)


@compiled
def _round_in_order(high, low, cell, weight, inside, order, lo, hi, eps, tiny, cells, out):
    """Round outputs one by one, each with its share of what the roundings before it left of its cell's sum."""
    n = order.size
    to_come, ahead = np.zeros(cells), np.empty(n)  # weight that is still free to move, from each sample on
    for x in range(n - 1, -1, -1):
        i = order[x]
        if inside[i]:
            to_come[cell[i]] += weight[i]
        ahead[i] = to_come[cell[i]]
    left, rest = np.zeros(cells), np.zeros(cells)
    for x in range(n):
        i = order[x]
        c = cell[i]
        wanted = high[i]
        if inside[i]:
            wanted += low[i] + left[c] / ahead[i]
        digit = eps * 0.5 * 2.0 ** math.frexp(max(abs(wanted), tiny))[1]
        out[i] = min(max(digit * np.rint(wanted / digit), lo[i]), hi[i])
        a, b = add(high[i], low[i], -out[i], 0.0)
        a, b = times(weight[i], 0.0, a, b)
        left[c], rest[c] = add(left[c], rest[c], a, b)
