"""The best numbers of yeses, for any list of comparisons: cells that are compared with each other, part by part.

Comparisons that share no cell are problems of their own. Where one comparison has cells to itself, `sweep` solves it
exactly; where several overlap, `overlapping` does, or says how far from the optimum its answer can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fairlayer.decisions.cost import Best, Costs
from fairlayer.decisions.overlapping import overlapping_counts
from fairlayer.decisions.sweep import sweep


class Comparison(NamedTuple):
    """Groups of cells whose rates of yes are compared: every two of them."""

    member: np.ndarray  # (cells,) the group of each cell, -1 for none
    allowed: float | Fraction  # the largest difference of two rates; of a ratio, the least ratio
    ratio: bool = False


class Part(NamedTuple):
    """Comparisons that depend on each other, over units: the cells that all of them treat alike."""

    comparisons: tuple[int, ...]  # their positions in the list
    unit: np.ndarray  # (cells,) -1 for cells that none of them looks at
    member: np.ndarray  # (comparisons, units)


def split(comparisons: Sequence[Comparison], cells: int) -> list[Part]:
    """The parts of a problem that can be solved one by one."""
    left, parts = list(range(len(comparisons))), []
    table = np.array([c.member for c in comparisons], dtype=np.int64).reshape(len(comparisons), cells)
    while left:
        linked = [left.pop(0)]
        seen = table[linked[0]] >= 0
        while more := [f for f in left if (seen & (table[f] >= 0)).any()]:
            linked += more
            left = [f for f in left if f not in more]
            seen = seen | (table[more] >= 0).any(axis=0)
        linked.sort()
        patterns, unit = np.unique(table[linked][:, seen], axis=1, return_inverse=True)
        of_cell = np.full(cells, -1, dtype=np.int64)
        of_cell[seen] = unit.reshape(-1)
        parts.append(Part(tuple(linked), of_cell, patterns))
    return parts


def best_counts(costs: Costs, part: Part, comparisons: Sequence[Comparison]) -> Best:
    """The best numbers of yeses of a part. costs: the tables of its units."""
    stated = [comparisons[position] for position in part.comparisons]
    if len(stated) == 1:
        # A unit of a single comparison is a group of it.
        return sweep(costs, stated[0].allowed, stated[0].ratio)
    return overlapping_counts(costs, part.member, [one.allowed for one in stated], [one.ratio for one in stated])


def thresholds(scores: np.ndarray, costs: Costs, count: np.ndarray) -> np.ndarray:
    """(units,) from which score on a unit says yes: half way between its last yes and its first no, in raw scores.

    scores: of the samples that the tables were made of. Infinite where a unit says no, or yes, to all.
    """
    begin = np.concatenate([[0], np.cumsum(costs.size)])
    found = np.empty(len(count))
    for u, j in enumerate(count.tolist()):
        own = scores[costs.order[begin[u] : begin[u + 1]]]
        if j == 0 or j == len(own):
            found[u] = -np.inf if j else np.inf
        else:
            found[u] = own[:j].min() + 0.5 * (own[j:].max() - own[:j].min())
    return found
