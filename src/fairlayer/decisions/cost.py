"""What decisions cost: within a cell, the cheapest way to a number of yeses moves the scores nearest the threshold.

A cell of n samples has a table of n + 1 costs, one for every number of yeses, from a sort and two running sums. It is 0
at the number that there are now, and convex: every further yes, and every further no, costs at least as much as the one
before. So decisions, too, see a batch only through its cells.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairlayer.compiled import compiled

_TINY = np.finfo(np.float64).tiny


class Costs(NamedTuple):
    """Tables of U cells, one after the other; that of cell u has the places start[u] to start[u + 1] - 1."""

    start: np.ndarray  # (U + 1,)
    cost: np.ndarray  # (n + U,) of 0, 1, 2, ... yeses; infinite where that many are not possible
    mass: np.ndarray  # (n + U,) the weight of that many yeses
    now: np.ndarray  # (U,) yeses that cost nothing
    total: np.ndarray  # (U,) the weight of all samples
    whole: bool  # whether every sample has weight 1, so that weights are counts, and exact
    order: np.ndarray  # (n,) samples cell by cell: the first j of a cell are the j that say yes

    @property
    def size(self) -> np.ndarray:
        """(U,) samples of each cell."""
        return np.diff(self.start) - 1

    def of(self, count: np.ndarray) -> np.ndarray:
        """(U,) the cost of a number of yeses in each cell."""
        return self.cost[self.start[:-1] + count]

    def possible(self) -> tuple[np.ndarray, np.ndarray]:
        """(U,) the fewest and the most yeses that each cell can have."""
        finite = np.isfinite(self.cost)
        tables = [finite[a:b] for a, b in zip(self.start[:-1], self.start[1:], strict=True)]
        low = [int(np.argmax(one)) for one in tables]
        high = [len(one) - 1 - int(np.argmax(one[::-1])) for one in tables]
        return np.array(low, dtype=np.int64), np.array(high, dtype=np.int64)


class Best(NamedTuple):
    """The best numbers of yeses."""

    yeses: np.ndarray  # (U,) of each cell; empty where none satisfies what is asked
    cost: float
    least: float  # no answer costs less


def cell_costs(
    change: np.ndarray,  # (n,) what it costs to turn the decision of a sample around; infinite where that is impossible
    yes: np.ndarray,  # (n,) whether it says yes now
    cell: np.ndarray,  # (n,) of 0 to cells - 1; -1 for samples that are left alone
    cells: int,
    weights: np.ndarray | None = None,  # (n,) above 0; a sample of weight 2 costs and counts twice
) -> Costs:
    """The tables of all cells.

    Of samples whose change costs the same, those that come first get the yes. Weights change the order in no way: what
    a unit of weight costs is the same for a heavy sample as for a light one.
    """
    here = np.flatnonzero(cell >= 0)
    size = np.bincount(cell[here], minlength=cells)
    # Yeses first, the dearest to turn around at the front; then noes, the cheapest at the front.
    rank = np.maximum(change[here], _TINY)
    rank = np.where(yes[here], -rank, rank)
    order = by_cell(here[np.argsort(rank, kind="stable")], cell, size)
    start = np.concatenate([[0], np.cumsum(size + 1)]).astype(np.int64)
    now = np.bincount(cell[here][yes[here]], minlength=cells).astype(np.int64)
    weight = np.ones(len(cell)) if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    cost, mass = np.empty(len(here) + cells), np.empty(len(here) + cells)
    fill_tables(start, order, now, change.astype(np.float64), weight, cost, mass)
    total = np.bincount(cell[here], weight[here], cells).astype(np.float64)  # of no samples numpy makes integers
    return Costs(start, cost, mass, now, total, weights is None, order)


@compiled
def by_cell(order, cell, size):
    """The same samples cell by cell, within each in the order given."""
    place, out = np.cumsum(size) - size, np.empty_like(order)
    for i in order:
        out[place[cell[i]]] = i
        place[cell[i]] += 1
    return out


@compiled
def fill_tables(start, order, now, change, weight, cost, mass):
    """Running sums: of costs away from the number of yeses there are now, of weights from the first yes on."""
    at = 0
    for u in range(now.size):
        begin, n = start[u], start[u + 1] - start[u] - 1
        mass[begin] = 0.0
        for j in range(n):
            mass[begin + j + 1] = mass[begin + j] + weight[order[at + j]]
        cost[begin + now[u]] = 0.0
        for j in range(now[u], n):
            cost[begin + j + 1] = cost[begin + j] + weight[order[at + j]] * change[order[at + j]]
        for j in range(now[u] - 1, -1, -1):
            cost[begin + j] = cost[begin + j + 1] + weight[order[at + j]] * change[order[at + j]]
        at += n
