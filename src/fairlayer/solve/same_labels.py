"""Bind and solve in one compiled call, for a table of integer labels that has been seen before.

In training, batch after batch has the same labels and only their arrangement changes. Then nothing of what
`system.bind` finds out is new: this takes the labels' ranges and the plan made of them last time, checks on the way
that they hold, and says so if not. One pass over the table instead of two, and none of the bookkeeping.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.binding.bounds import Box
from fairlayer.binding.cells import count_cells, number_cells
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.rows import Rows
from fairlayer.binding.system import System, View
from fairlayer.compiled import compiled
from fairlayer.solve.fused import MOST_SUM, largest_magnitude, reach_and_magnitude, solve_fused
from fairlayer.solve.newton import DONE
from fairlayer.solve.result import Result

_NONE = np.empty(0)


class Template(NamedTuple):
    """What was found out about a table of labels: the least of each column, how many there are, and the plan."""

    start: np.ndarray  # (k,)
    width: np.ndarray  # (k,)
    membership: np.ndarray  # (G, K)
    offset: np.ndarray  # (K,) zeros
    view: View


def remember(rules: ConstraintSet, system: System, table: Tensor) -> Template | None:
    """The template of a table, if all its columns are compared, every group is present, and no more data involved."""
    rows, view = system.rows, system.view
    if table.ndim != 2 or rules.groupings(tuple(range(table.shape[1])))[1] != tuple(range(table.shape[1])):
        return None
    if view.vacuous or system.lower is not None or not rows.M.any(axis=0).all():
        return None
    start, stop = (np.ascontiguousarray(extreme.numpy()) for extreme in torch.aminmax(table, dim=0))
    width = stop - start + 1
    if len(rows.M) != np.prod(width.astype(np.float64)):  # cells of some other kind
        return None
    every_label = all(
        system.samples.reshape(width).sum(axis=tuple(a for a in range(len(width)) if a != j)).all()
        for j in range(len(width))
    )
    if not every_label:  # a column skips an integer, which the next batch may hold
        return None
    membership = (rows.M != 0).astype(np.float64)
    return Template(start, width, membership, rows.offset, view)


def solve_again(
    z: Tensor, table: Tensor, template: Template, box: Box, limits: tuple[np.ndarray, np.ndarray]
) -> tuple[System, Result] | None:
    """Solve a batch by its template; None where the template does not fit, or anything else needs a closer look."""
    if table.shape[1] != len(template.start) or table.shape[0] != len(z) or not len(z):
        return None
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    view = template.view
    fits, index, count, M, end = _solve_again(
        z.numpy(),
        table.numpy(),
        template.start,
        template.width,
        template.membership,
        template.offset,
        view.plus,
        view.minus,
        limits[0],
        limits[1],
        box.lo,
        box.hi,
        torch.finfo(z.dtype).eps / 2,
        _NONE,
        out.numpy(),
    )
    if not fits or end[0] != DONE:
        return None
    rows = Rows(M, template.offset, view.plus, view.minus, *limits)
    return System(index, count, count, _NONE, rows, view), Result(end[0], out, *end[1:])


@compiled
def _solve_again(z, table, start, width, membership, offset, plus, minus, lower, upper, lo, hi, unit, none, out):
    """The compiled part: cells, means, solve."""
    n = z.size
    G, K = membership.shape
    index, count, M = np.empty(n, dtype=np.int32), np.zeros(G), np.zeros((G, K))
    magnitude = largest_magnitude(z)
    fits = magnitude * n <= MOST_SUM and number_cells(table, start, width, index)
    if fits:
        count = count_cells(index, G)
        for j in range(K):
            total = 0.0
            for c in range(G):
                total += count[c] * membership[c, j]
            fits &= total > 0.0
            for c in range(G):
                M[c, j] = membership[c, j] / max(total, 1.0)
    low, high = float(lo[0]), float(hi[0])
    least, most = np.zeros(G), np.zeros(G)
    for c in range(G):
        if count[c] > 0.0:
            least[c], most[c] = count[c] * low, count[c] * high
    reach, magnitude = reach_and_magnitude(-magnitude, magnitude, low, high)
    rows = Rows(M, offset, plus, minus, lower, upper)
    if not fits:
        n = 0
    end = solve_fused(z[:n], index[:n], none, count, count, lo, hi, least, most, reach, magnitude, unit, rows, out[:n])
    return fits, index, count, M, end
