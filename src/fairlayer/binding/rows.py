"""Rows: what constraints and solver have in common, and all of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairlayer.compiled import compiled

EACH, DIFFERENCE, RATIO = 0, 1, 2  # how the statistics of a family are compared
KIND, COEFFICIENT, LOWER, UPPER = 0, 1, 2, 3  # places in Rows.family
NO_PARTS = np.zeros((0, 0), dtype=np.uint32)  # every cell is a part of its own


class Rows(NamedTuple):
    """Constraints as the solver sees them, over the cell sums S.

    Statistic k is q_k = sum_c M[c, k] S_c - offset_k, for instance a group's mean. M is kept without its zeros, part by
    part: as a rule every cell is a part of its own; combinations of many labels, nearly all different, are made of
    parts that they share, and what a part counts towards is noted once. Statistics f's first[f] to first[f + 1] are a
    family, of which those `present` are compared:

        EACH         lower <= q_k <= upper                       for its one statistic,
        DIFFERENCE   q_a - q_b <= upper                          for every two,
        RATIO        ratio * q_a - q_b <= upper                  for every two; lower is -inf.

    So a family of many statistics has one row for every two of them, of which none is ever listed: the worst is that
    of the greatest against the least.
    """

    start: np.ndarray  # (parts + 1,) where the entries of each part start
    statistic: np.ndarray  # (entries,)
    value: np.ndarray  # (entries,) of M
    offset: np.ndarray  # (K,)
    present: np.ndarray  # (K,) whether any sample counts towards it
    first: np.ndarray  # (F + 1,)
    family: np.ndarray  # (4, F) kind, ratio, lower and upper of each family
    part: np.ndarray = NO_PARTS  # (parts of a cell, G) uint32, or NO_PARTS

    @property
    def kind(self) -> np.ndarray:
        """(F,) how the statistics of each family are compared."""
        return self.family[KIND]

    @property
    def ratio(self) -> np.ndarray:
        """(F,) the coefficient of the first statistic of every row."""
        return self.family[COEFFICIENT]

    @property
    def lower(self) -> np.ndarray:
        """(F,) lower bounds."""
        return self.family[LOWER]

    @property
    def upper(self) -> np.ndarray:
        """(F,) upper bounds."""
        return self.family[UPPER]

    def between(self, lower: np.ndarray, upper: np.ndarray) -> Rows:
        """The same rows with other bounds."""
        return self._replace(family=np.stack([self.kind, self.ratio, lower, upper]))

    def flat(self) -> Rows:
        """The same rows, every cell a part of its own."""
        if not self.part.size:
            return self
        start, entry = flat_entries(self.start, self.part)
        return self._replace(start=start, statistic=self.statistic[entry], value=self.value[entry], part=NO_PARTS)


def flat_entries(start: np.ndarray, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the entries of each cell start if every cell is a part of its own; and the entry that each of them was."""
    begin, width = start[part.T].reshape(-1), np.diff(start)[part.T]
    end = np.cumsum(width)
    entry = np.arange(end[-1]) + np.repeat(begin - end + width.reshape(-1), width.reshape(-1))
    return np.concatenate([[0], end[len(part) - 1 :: len(part)]]).astype(np.int64), entry


@compiled
def over_parts(part, parts, of_cell):
    """(parts,) sum over the cells of each part; what the cells have themselves where each is a part of its own."""
    if part.size == 0:
        return of_cell
    total = np.empty(parts)
    _add_parts(part, of_cell, total)
    return total


@compiled(inner=True, borrows=True, later="None")
def _add_parts(part, of_cell, total):
    total[:] = 0.0
    for j in range(part.shape[0]):
        for c in range(of_cell.size):
            total[part[j, c]] += of_cell[c]


@compiled(inline=True)
def parts_in(part, of_cell, memory):
    """The same, in memory that is given where there is something to add up."""
    of_part = of_cell
    if part.size > 0:
        of_part = memory
        _add_parts(part, of_cell, memory)
    return of_part


def dense(rows: Rows) -> np.ndarray:
    """(G, K) M with its zeros."""
    rows = rows.flat()
    M = np.zeros((len(rows.start) - 1, len(rows.offset)))
    np.add.at(M, (np.repeat(np.arange(len(M)), np.diff(rows.start)), rows.statistic), rows.value)
    return M


def cell_totals(rows: Rows, of_cell: np.ndarray, absolute: bool = False) -> np.ndarray:
    """(K,) sum over cells of M (or |M|) times a number of each."""
    value = np.abs(rows.value) if absolute else rows.value
    of_part = over_parts(rows.part, len(rows.start) - 1, of_cell)
    weights = value * np.repeat(of_part, np.diff(rows.start))
    # Of no entries at all numpy makes integers, for which everything would be compiled anew.
    return np.bincount(rows.statistic, weights=weights, minlength=len(rows.offset)).astype(np.float64, copy=False)
