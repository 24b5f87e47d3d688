"""The best numbers of yeses for a list of comparisons, part by part.

Comparisons that share no cell are problems of their own. One comparison alone is solved by the sweep, exactly; several
that overlap, or samples of different weight, by branch and bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fairlayer.core._native import sweep
from fairlayer.decisions.branching import Best, branch
from fairlayer.decisions.rates import Comparison, Rows
from fairlayer.decisions.units import Units

_BISECTIONS = 40
_FINE = Fraction(1, 10**6)  # to which the least excess of overlapping comparisons is found


class Part(NamedTuple):
    """Comparisons that depend on each other, and the patterns of cells that all of them treat alike."""

    comparisons: tuple[int, ...]  # their positions in the list
    pattern: np.ndarray  # (cells,) -1 for cells that none of them looks at
    member: np.ndarray  # (comparisons, patterns)


def split(comparisons: Sequence[Comparison], cells: int) -> list[Part]:
    """The parts of a problem that can be solved one by one."""
    left, parts = list(range(len(comparisons))), []
    table = np.array([one.member for one in comparisons], dtype=np.int64).reshape(len(comparisons), cells)
    while left:
        linked = [left.pop(0)]
        seen = table[linked[0]] >= 0
        while more := [f for f in left if (seen & (table[f] >= 0)).any()]:
            linked += more
            left = [f for f in left if f not in more]
            seen = seen | (table[more] >= 0).any(axis=0)
        linked.sort()
        member, pattern = np.unique(table[linked][:, seen], axis=1, return_inverse=True)
        of_cell = np.full(cells, -1, dtype=np.int64)
        of_cell[seen] = pattern.reshape(-1)
        parts.append(Part(tuple(linked), of_cell, member))
    return parts


def best_counts(units: Units, rows: Rows, known: np.ndarray | None = None, quick: bool = False) -> Best:
    """The cheapest numbers of yeses. known: some that keep the rows; quick: good ones will do."""
    if rows.hold(units.now):
        return Best(units.now, 0.0, 0.0)
    if len(rows.comparisons) > 1 or (units.weight != 1.0).any():
        return branch(units, rows, known, quick)
    (one,) = rows.comparisons
    most = int(units.size.sum()) ** 2
    limit = 1 - _floor(1 - one.limit, most) if one.ratio else _floor(min(one.limit, Fraction(1)), most)
    share = limit.numerator, limit.denominator
    # A pattern of a single comparison is a group of it.
    count = sweep(units.table_start, units.cost, units.now, units.low, units.high, *share, one.ratio)
    if not len(count):
        return Best(None, np.inf, np.inf)
    return Best(count, units.cost_of(count), units.cost_of(count))


def least_excess(units: Units, rows: Rows) -> tuple[np.ndarray, Fraction, bool]:
    """Numbers of yeses that need the least wider limits, by how much, and whether no less is proved to do."""
    best, proved = units.now, True
    low, high = Fraction(0), rows.excess(units.now)
    for _ in range(_BISECTIONS):
        if high - low <= _FINE:
            break
        for aim in (high - _FINE, (low + high) / 2):
            found = best_counts(units, rows.wider(aim), quick=True)
            if found.yeses is None:
                proved = proved and found.least == np.inf
                low = aim
                break
            best, high = found.yeses, rows.excess(found.yeses)
    return best, high, proved


def _floor(value: Fraction, denominator: int) -> Fraction:
    """The greatest fraction not above a value between 0 and 1, of denominators up to a number.

    Whole numbers up to that number, times the one or the other, are the same when rounded down. Found among the
    convergents of the value and those between them (Stern and Brocot).
    """
    if value.denominator <= denominator:
        return value
    nearest = value.limit_denominator(denominator)
    if nearest <= value:
        return nearest
    # The neighbour of the nearest fraction p / q on its lower side: p x - q y = 1 with the largest x that is allowed.
    p, q = nearest.numerator, nearest.denominator
    x = pow(p, -1, q)
    x += (denominator - x) // q * q
    return Fraction((p * x - 1) // q, x)
