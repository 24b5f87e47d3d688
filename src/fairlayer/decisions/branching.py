"""Overlapping attributes, or samples of different weight: an integer programme, by rounding and by branch and bound.

    minimise  sum_u c_u(k_u)    subject to    r_f N_g <= K_g <= (r_f + tol) N_g    for all groups g of comparison f,

k_u the yeses of unit u, K_g those of group g. With fractions of samples allowed it is a linear programme, which
`DualSimplex` solves, and whose prices bound the cost of every answer from below. Whole numbers near its solution are
found by fixing the extreme rates r_f. Branch and bound goes on from there: a group, or a unit, whose yeses have a
fraction is split into at most so many, and more. It ends when nothing is left that could be better, or after a number
of branches; never after an amount of time, so that a problem has the same answer on every machine. Nothing counts as
an answer before its rates are checked in rational arithmetic.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fairlayer.core._native import DualSimplex
from fairlayer.decisions.rates import Rows
from fairlayer.decisions.units import Units

CLOSE = 1e-9  # of the cost: an answer this near to the bound is the best
_FRACTION = 1e-6  # of a sample, what is taken for none
_NEAR, _TRIED = 12, 8  # whole numbers to either side, and extreme rates, that rounding tries
_DIVE = 40  # steps from fractions to whole numbers
_WORK = 4_000_000  # branches times the size of the programme
_FEW, _MANY = 50, 5_000  # branches at least, and at most


class Best(NamedTuple):
    """The best numbers of yeses that were found."""

    yeses: np.ndarray | None  # (U,); None where none satisfies what is asked, or none was found
    cost: float
    least: float  # no answer costs less; infinite where it is proved that there is none


def branch(units: Units, rows: Rows, known: np.ndarray | None = None, quick: bool = False) -> Best:
    """The cheapest numbers of yeses. known: some that keep the rows; quick: branch only until some are found."""
    search = _Search(units, rows)
    search.round()
    if known is not None:
        search.consider(known)
    search.run(quick)
    uniform = ((units.low, 0 * units.low), (units.high, units.size))  # the same answer for everybody, no or yes
    for count, wanted in uniform:
        if (count == wanted).all():
            search.consider(count)
    least = min(search.cost, search.bound)
    return Best(search.best, search.cost, search.cost if search.cost - least <= CLOSE * search.cost else least)


class _Node(NamedTuple):
    """What is left to look at: the parent's, with other bounds for one unknown."""

    parent: _Node | None
    unknown: int
    low: float
    high: float


class _Search:
    """Unknowns are the yeses of units, then those of groups."""

    def __init__(self, units: Units, rows: Rows):
        self.units = units
        self.rows = rows
        self.best: np.ndarray | None = None
        self.cost = np.inf
        self.bound = -np.inf  # no answer costs less
        self.program = _Program(units, rows)

    def consider(self, count: np.ndarray) -> None:
        """Keep numbers of yeses that are better than what was found before."""
        cost = self.units.cost_of(count)
        if cost < self.cost and self.rows.hold(count):
            self.best, self.cost = count, cost

    @property
    def cutoff(self) -> float:
        """The cost from which on nothing is worth a look."""
        return self.cost * (1.0 - CLOSE)

    def round(self) -> None:
        """Whole numbers near the solution with fractions.

        Once the extreme rates are fixed, so are the fewest and the most yeses of every group. With these as bounds the
        programme has whole numbers for its solution where two attributes overlap, as it is then a transportation
        problem, and nearly so where more do.
        """
        U = len(self.units.now)
        self.bound, place = self.program.solve(self.program.low, self.program.high)
        if not np.isfinite(self.bound):
            return
        for window in _windows(self.rows, place[:U], self.program.whole):
            low, high = self.program.low.copy(), self.program.high.copy()
            low[U:], high[U:] = window
            for _ in range(_DIVE):
                bound, place = self.program.solve(low, high)
                if bound >= self.cutoff:
                    break
                near = np.rint(place[:U])
                self.consider(near.astype(np.int64))
                off = np.abs(place[:U] - near)
                if off.max() <= _FRACTION:
                    break
                # The unit that is nearest to a whole number, and all that are nearly as near.
                fixed = (off > _FRACTION) & (off <= max(0.1, float(off[off > _FRACTION].min())))
                low[:U][fixed] = high[:U][fixed] = near[fixed]

    def run(self, quick: bool) -> None:
        """Branch: straight down until some answer is found, then always where the bound is lowest."""
        left = [(self.bound, 0, _Node(None, -1, 0, 0))]
        branches = min(max(_WORK // self.program.size, _FEW), _MANY)
        made = 0
        while left and made < branches and left[0][0] < self.cutoff and not (quick and self.best is not None):
            bound, _, node = left.pop() if self.best is None else heapq.heappop(left)
            low, high = self._bounds(node)
            while True:
                made += 1
                own, place = self.program.solve(low, high)
                bound = max(bound, own)
                if bound < self.cutoff:
                    self.consider(np.rint(place[: len(self.units.now)]).astype(np.int64))
                if bound >= self.cutoff:  # of what was just found, too
                    break
                parts = self._split(place, low, high)
                left += [(bound, made * 3 + j, _Node(node, *part)) for j, part in enumerate(parts[:0:-1])]
                if not parts:
                    break
                node = _Node(node, *parts[0])
                low[node.unknown], high[node.unknown] = node.low, node.high
            if self.best is not None:
                heapq.heapify(left)
        self.bound = min((bound for bound, _, _ in left), default=np.inf)

    def _bounds(self, node: _Node) -> tuple[np.ndarray, np.ndarray]:
        low, high = self.program.low.copy(), self.program.high.copy()
        while node.parent is not None:
            at = node.unknown
            low[at], high[at] = max(low[at], node.low), min(high[at], node.high)
            node = node.parent
        return low, high

    def _split(self, place: np.ndarray, low: np.ndarray, high: np.ndarray) -> list[tuple[int, float, float]]:
        """An unknown and its new bounds, those to look at first at the front. Groups come before units."""
        U, place = len(self.units.now), np.clip(place, low, high)
        off = np.abs(place - np.rint(place))
        for begin, end in ((U, len(place)), (0, U)) if self.program.whole else ((0, U),):
            at = begin + int(off[begin:end].argmax())
            if off[at] > _FRACTION:
                floor = float(np.floor(place[at]))
                down, up = (at, float(low[at]), floor), (at, floor + 1.0, float(high[at]))
                return [down, up] if place[at] - floor < 0.5 else [up, down]
        # Whole numbers that float arithmetic takes for an answer and rational arithmetic does not, or a programme that
        # was not solved to its end: everything else, one unit at a time.
        free = np.flatnonzero(low[:U] < high[:U])
        if not len(free):
            return []
        at, k = int(free[0]), float(np.rint(place[free[0]]))
        parts = (at, k, k), (at, float(low[at]), k - 1.0), (at, k + 1.0, float(high[at]))
        return [part for part in parts if part[1] <= part[2]]


def _windows(rows: Rows, place: np.ndarray, whole: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The fewest and the most yeses of all groups, at extreme rates near those of fractional yeses, nearest first."""
    listed = []
    near = np.arange(-_NEAR, _NEAR + 1)[:, None]
    for one, rates in zip(rows.comparisons, rows.rates, strict=True):
        size, limit, rate = rates.total, float(one.limit), rates.sums(place) / rates.total
        wanted = float(rate.max() if one.ratio else rate.min())
        other = wanted * limit if one.ratio else wanted + limit  # the other end of the rates
        own, far = ((np.round(end * size) + near) / size for end in (wanted, other))
        far = far / limit if one.ratio and limit else far - limit
        tried = np.unique(np.concatenate([own, far]).clip(0.0, 1.0))[:, None]
        low, high = (limit * tried * size, tried * size) if one.ratio else (tried * size, (tried + limit) * size)
        if whole:
            low, high = np.ceil(low - 1e-9), np.floor(high + 1e-9)
        possible = (low <= high).all(axis=1)
        nearest = np.argsort(np.abs(tried[possible, 0] - wanted), kind="stable")[:_TRIED]
        listed.append((low[possible][nearest], high[possible][nearest]))
    for j in range(min(len(low) for low, _ in listed)):
        yield np.concatenate([low[j] for low, _ in listed]), np.concatenate([high[j] for _, high in listed])


class _Program:
    """The linear programme. Its first rows are the yeses of groups, the others compare them with the extreme rates."""

    def __init__(self, units: Units, rows: Rows):
        self.units = units
        self.rates = rows.rates
        self.whole = bool((units.weight == 1.0).all())  # whether the yeses of groups are whole numbers
        self.scale = float(units.weight.mean())  # so that a row is in samples
        sizes = [rates.total / self.scale for rates in rows.rates]
        blocks = [(f, 0.0 * size, 0.0 * size, size) for f, size in enumerate(sizes)]  # comparison, rate, and two ends
        for f, (one, size) in enumerate(zip(rows.comparisons, sizes, strict=True)):
            limit, share, endless = float(one.limit), size / size.mean(), np.full(len(size), np.inf)
            if one.ratio:
                blocks += [(f, -share, -endless, 0.0 * size), (f, -limit * share, 0.0 * size, endless)]
            else:
                blocks += [(f, -share, 0.0 * size, limit * size)]
        owner, value, lower, upper = zip(*blocks, strict=True)
        widths = [len(ends) for ends in lower]
        row = np.full((len(units.now), len(blocks)), -1)  # in which each unit counts
        for block, (f, begin) in enumerate(zip(owner, np.cumsum([0, *widths[:-1]]).tolist(), strict=True)):
            row[rows.rates[f].here, block] = begin + rows.rates[f].group
        counted = row >= 0
        self.lower, self.upper = np.concatenate(lower), np.concatenate(upper)
        self.simplex = DualSimplex(
            units.start,
            units.slope,
            units.weight / self.scale,
            np.concatenate([[0], np.cumsum(counted.sum(axis=1))]),
            row[counted],
            np.repeat(owner, widths),
            np.concatenate(value),
            np.array([size.mean() for size in sizes]),
        )
        self.size = int(counted.sum()) + len(self.lower) ** 2
        groups = sum(map(len, sizes))
        self.low = np.concatenate([units.low, np.zeros(groups)])
        self.high = np.concatenate([units.high, *(rates.total for rates in rows.rates)])

    def solve(self, low: np.ndarray, high: np.ndarray) -> tuple[float, np.ndarray]:
        """A bound below on the cost between two bounds, infinite where nothing is feasible; and the unknowns."""
        U, lower, upper = len(self.units.now), self.lower.copy(), self.upper.copy()
        groups = len(low) - U
        lower[:groups], upper[:groups] = low[U:] / self.scale, high[U:] / self.scale
        units = low[:U].astype(np.int64), high[:U].astype(np.int64)
        bound, place = self.simplex.solve(*units, lower, upper, self.units.cost)
        return bound, np.concatenate([place, *(rates.sums(place) for rates in self.rates)])
