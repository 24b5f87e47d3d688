"""A whole batch on every rank, for what is not to be had from sums over cells.

Decisions need every score, classes and probabilities of groups every row. Then each rank gets all samples, solves the
whole batch as a process by itself would, and keeps its own part: order n numbers on the wire, and the time of the whole
batch on every rank. Samples are sorted, so that the answer does not depend on who holds what.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box
from fairlayer.binding.families import GridColumn
from fairlayer.binding.process_group import Ranks
from fairlayer.binding.system import System, bind_plan, make_plan
from fairlayer.solve.opening import Whole
from fairlayer.solve.part import Part

_NONE = np.empty(0)


class Gathered(NamedTuple):
    """The samples of all ranks."""

    system: System
    box: Box
    z: Tensor  # (n,) or (n, d), as the ranks have it
    order: np.ndarray  # (n,) where each of them stood: rank by rank
    mine: slice  # of these

    def own(self, values: Tensor) -> Tensor:
        """This rank's part of what has a row for each sample, in its own order."""
        found = values.new_empty(values.shape)
        found[self.order] = values
        return found[self.mine]


def gather(ranks: Ranks, whole: Whole) -> Gathered:
    """All samples of a batch, sorted by all that is known of them."""
    rows = whole.held.rows
    if rows is None:
        own = np.empty((len(whole.part.z), whole.part.width))
        whole.part.put_rows(whole.cell, own)
        rows = exchange_rows(ranks, own, whole.counts, whole.mine)
    order = np.lexsort(rows.T[::-1])
    part, cell = whole.part.with_rows(rows[order])
    return Gathered(_bound(whole, part, cell), part.box, part.z, order, whole.mine)


def in_columns(values: Tensor) -> np.ndarray:
    """(n, d) float64 of values of shape (n,) or (n, d)."""
    found = as_numpy(values).astype(np.float64)
    return found if found.ndim == 2 else found[:, None]


def exchange_rows(ranks: Ranks, rows: np.ndarray, counts: list[int], mine: slice) -> np.ndarray:
    """The rows of all ranks, one below the other; rows: (n, d) float64 of this one, counts: of all."""
    if not sum(counts):
        return rows
    words = np.zeros((sum(counts), rows.shape[1]), dtype=np.int64)
    words[mine] = np.ascontiguousarray(rows).view(np.int64)
    return ranks.total(words).view(np.float64)


def _bound(whole: Whole, part: Part, cell: np.ndarray) -> System:
    """The constraints bound to the whole batch. part: with all samples."""
    weights, targets = part.weights, part.targets
    if whole.system is not None:
        return whole.system._replace(cell=cell, weights=_NONE if weights is None else weights, targets=targets)
    digits, n = whole.levels.digit_table()[cell], len(cell)
    grid = {key: GridColumn(whole.levels.labels[j], digits[:, j].copy()) for j, key in enumerate(part.keys)}
    grid |= {key: GridColumn(soft.labels, soft.probabilities) for key, soft in part.soft.items()}
    plan = make_plan(whole.rules, part.groupings, grid, n)
    ones = np.ones(n)
    index, weight = np.arange(n, dtype=np.int32), ones if weights is None else weights
    return bind_plan(plan, whole.rules, index, ones, weight, weights, targets)
