"""The cheapest numbers of yeses: by a sweep where one comparison stands alone, otherwise an integer programme.

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
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fairlayer.core._native import DualSimplex, sweep
from fairlayer.decisions.parts import Part

CLOSE = 1e-9  # of the cost: an answer this near to the bound is the best
_FRACTION = 1e-6  # of a sample, what is taken for none
_NEAR, _TRIED = 12, 8  # whole numbers to either side, and extreme rates, that rounding tries
_DIVE = 40  # steps from fractions to whole numbers
_WORK = 4_000_000  # branches times the size of the programme
_FEW, _MANY = 50, 5_000  # branches at least, and at most
_BISECTIONS = 40
_FINE = Fraction(1, 10**6)  # to which the least excess of overlapping comparisons is found


class Best(NamedTuple):
    """The best numbers of yeses that were found."""

    yeses: np.ndarray | None  # (U,); None where none satisfies what is asked, or none was found
    cost: float
    least: float  # no answer costs less; infinite where it is proved that there is none


def best_counts(part: Part, known: np.ndarray | None = None, quick: bool = False) -> Best:
    """The cheapest numbers of yeses. known: some that keep the limits; quick: branch only until some are found."""
    if part.hold(part.now):
        return Best(part.now, 0.0, 0.0)
    if len(part.comparisons) > 1 or part.weighted:
        return _Search(part).best(known, quick)
    (one,) = part.comparisons
    most = int(part.size.sum()) ** 2
    limit = 1 - _floor(1 - one.limit, most) if one.ratio else _floor(min(one.limit, Fraction(1)), most)
    share = limit.numerator, limit.denominator
    # A pattern of a single comparison is a group of it.
    count = sweep(part.table_start, part.cost, part.now, part.low, part.high, *share, one.ratio)
    if not len(count):
        return Best(None, np.inf, np.inf)
    return Best(count, part.cost_of(count), part.cost_of(count))


def least_excess(part: Part) -> tuple[np.ndarray, Fraction, bool]:
    """Numbers of yeses that need the least wider limits, by how much, and whether no less is proved to do."""
    best, proved = part.now, True
    low, high = Fraction(0), part.excess(part.now)
    for _ in range(_BISECTIONS):
        if high - low <= _FINE:
            break
        for aim in (high - _FINE, (low + high) / 2):
            found = best_counts(part.wider(aim), quick=True)
            if found.yeses is None:
                proved = proved and found.least == np.inf
                low = aim
                break
            best, high = found.yeses, part.excess(found.yeses)
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


class _Node(NamedTuple):
    """What is left to look at: the parent's, with other bounds for one unknown."""

    parent: _Node | None
    unknown: int
    low: float
    high: float


class _Search:
    """Branch and bound. Unknowns are the yeses of units, then those of groups."""

    def __init__(self, part: Part):
        self.part = part
        self.units = len(part.now)
        self.found: np.ndarray | None = None
        self.cost = np.inf
        self.program = _Program(part)
        self.whole = not part.weighted  # whether the yeses of groups are whole numbers
        self.low = np.concatenate([part.low, 0.0 * part.total])
        self.high = np.concatenate([part.high, part.total])

    def best(self, known: np.ndarray | None, quick: bool) -> Best:
        """The cheapest numbers of yeses that rounding and branching find."""
        bound, place = self.program.solve(self.low, self.high)
        if np.isfinite(bound):
            self._round(place)
        if known is not None:
            self._consider(known)
        bound = self._branch(bound, quick)
        for everybody, count in ((self.part.low, 0 * self.part.size), (self.part.high, self.part.size)):
            if (everybody == count).all():  # the same answer for all, no or yes
                self._consider(count)
        bound = min(self.cost, bound)
        return Best(self.found, self.cost, self.cost if self.cost - bound <= CLOSE * self.cost else bound)

    def _consider(self, count: np.ndarray) -> None:
        """Keep numbers of yeses that are better than what was found before."""
        cost = self.part.cost_of(count)
        if cost < self.cost and self.part.hold(count):
            self.found, self.cost = count, cost

    @property
    def _cutoff(self) -> float:
        """The cost from which on nothing is worth a look."""
        return self.cost * (1.0 - CLOSE)

    def _round(self, place: np.ndarray) -> None:
        """Whole numbers near the solution with fractions.

        Once the extreme rates are fixed, so are the fewest and the most yeses of every group. With these as bounds the
        programme has whole numbers for its solution where two attributes overlap, as it is then a transportation
        problem, and nearly so where more do.
        """
        U = self.units
        for window in self._windows(place[:U]):
            low, high = self.low.copy(), self.high.copy()
            low[U:], high[U:] = window
            for _ in range(_DIVE):
                bound, place = self.program.solve(low, high)
                if bound >= self._cutoff:
                    break
                near = np.rint(place[:U])
                self._consider(near.astype(np.int64))
                off = np.abs(place[:U] - near)
                if off.max() <= _FRACTION:
                    break
                # The unit that is nearest to a whole number, and all that are nearly as near.
                fixed = (off > _FRACTION) & (off <= max(0.1, float(off[off > _FRACTION].min())))
                low[:U][fixed] = high[:U][fixed] = near[fixed]

    def _windows(self, place: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The fewest and the most yeses of groups, at extreme rates near those of fractional yeses, nearest first."""
        part, listed = self.part, []
        near = np.arange(-_NEAR, _NEAR + 1)[:, None]
        sums = zip(part.of_comparisons(part.sums(place)), part.of_comparisons(part.total), strict=True)
        for one, (yes, size) in zip(part.comparisons, sums, strict=True):
            limit, rate = float(one.limit), yes / size
            wanted = float(rate.max() if one.ratio else rate.min())
            other = wanted * limit if one.ratio else wanted + limit  # the other end of the rates
            own, far = ((np.round(end * size) + near) / size for end in (wanted, other))
            far = far / limit if one.ratio and limit else far - limit
            tried = np.unique(np.concatenate([own, far]).clip(0.0, 1.0))[:, None]
            low, high = (limit * tried * size, tried * size) if one.ratio else (tried * size, (tried + limit) * size)
            if self.whole:
                low, high = np.ceil(low - 1e-9), np.floor(high + 1e-9)
            possible = (low <= high).all(axis=1)
            nearest = np.argsort(np.abs(tried[possible, 0] - wanted), kind="stable")[:_TRIED]
            listed.append((low[possible][nearest], high[possible][nearest]))
        for j in range(min(len(low) for low, _ in listed)):
            yield np.concatenate([low[j] for low, _ in listed]), np.concatenate([high[j] for _, high in listed])

    def _branch(self, bound: float, quick: bool) -> float:
        """Straight down until some answer is found, then always where the bound is lowest. No answer costs less than
        what is returned."""
        left: list[tuple[float, int, _Node | None]] = [(bound, 0, None)]
        branches = min(max(_WORK // self.program.size, _FEW), _MANY)
        made = 0
        while left and made < branches and left[0][0] < self._cutoff and not (quick and self.found is not None):
            bound, _, node = left.pop() if self.found is None else heapq.heappop(left)
            low, high = self._bounds(node)
            while True:
                made += 1
                own, place = self.program.solve(low, high)
                bound = max(bound, own)
                if bound < self._cutoff:
                    self._consider(np.rint(place[: self.units]).astype(np.int64))
                parts = self._split(place, low, high) if bound < self._cutoff else []  # of what was just found, too
                if not parts:
                    break
                left += [(bound, made * 3 + j, _Node(node, *part)) for j, part in enumerate(parts[:0:-1])]
                node = _Node(node, *parts[0])
                low[node.unknown], high[node.unknown] = node.low, node.high
            if self.found is not None:
                heapq.heapify(left)
        return min((bound for bound, _, _ in left), default=np.inf)

    def _bounds(self, node: _Node | None) -> tuple[np.ndarray, np.ndarray]:
        low, high = self.low.copy(), self.high.copy()
        while node is not None:
            at = node.unknown
            low[at], high[at] = max(low[at], node.low), min(high[at], node.high)
            node = node.parent
        return low, high

    def _split(self, place: np.ndarray, low: np.ndarray, high: np.ndarray) -> list[tuple[int, float, float]]:
        """An unknown and its new bounds, those to look at first at the front. Groups come before units."""
        U, place = self.units, np.clip(place, low, high)
        off = np.abs(place - np.rint(place))
        for begin, end in ((U, len(place)), (0, U)) if self.whole else ((0, U),):
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


class _Program:
    """The linear programme, in samples of mean weight. Its first rows are the yeses of groups, the others compare them
    with the extreme rates, which are unknowns as the yeses of units are."""

    def __init__(self, part: Part):
        self.part = part
        self.scale = float(part.weight.mean())
        sizes = part.of_comparisons(part.total / self.scale)
        # Of every group K_g - coefficient * N_g * rate, between two ends: comparison, coefficient, and the ends.
        blocks = [(f, 0.0, 0.0 * size, size) for f, size in enumerate(sizes)]
        for f, (one, size) in enumerate(zip(part.comparisons, sizes, strict=True)):
            limit = float(one.limit)
            if one.ratio:
                blocks += [(f, 1.0, -size, 0.0 * size), (f, limit, 0.0 * size, size)]
            else:
                blocks += [(f, 1.0, 0.0 * size, limit * size)]
        owner, coefficients, lower, upper = zip(*blocks, strict=True)
        self.lower, self.upper = np.concatenate(lower), np.concatenate(upper)
        widths = [len(ends) for ends in lower]
        begin = np.cumsum([0, *widths[:-1]]) - np.array(part.begin)[[*owner]]
        group = part.group[[*owner]].T  # (U, blocks)
        counted = group >= 0
        # A unit counts in a row of each block; a rate in all rows of its comparison.
        rate, own = np.repeat(owner, widths), np.repeat(coefficients, widths)
        own = own * np.concatenate([sizes[f] for f in owner])
        of_rate = [np.flatnonzero((rate == f) & (own > 0.0)) for f in range(len(sizes))]
        entries = np.concatenate([counted.sum(axis=1), [len(rows) for rows in of_rate]])
        F, (start, table) = len(sizes), (part.start, part.cost)
        self.simplex = DualSimplex(
            np.concatenate([start, start[-1] + np.arange(1, F + 1)]),
            np.concatenate([part.slope, np.zeros(F)]),
            np.concatenate([table, np.zeros(2 * F)]),
            np.concatenate([[0], np.cumsum(entries)]),
            np.concatenate([(group + begin)[counted], *of_rate]),
            np.concatenate(
                [np.repeat(part.weight / self.scale, counted.sum(axis=1)), *(-own[rows] for rows in of_rate)]
            ),
            len(self.lower),
        )
        self.size = int(counted.sum()) + len(self.lower) ** 2

    def solve(self, low: np.ndarray, high: np.ndarray) -> tuple[float, np.ndarray]:
        """A bound below on the cost between two bounds, infinite where nothing is feasible; and the unknowns."""
        U, groups = len(self.part.now), len(self.part.total)
        lower, upper, rates = self.lower.copy(), self.upper.copy(), np.zeros(len(self.part.comparisons))
        lower[:groups], upper[:groups] = low[U:] / self.scale, high[U:] / self.scale
        fewest, most = np.concatenate([low[:U], rates]), np.concatenate([high[:U], rates + 1.0])
        bound, place = self.simplex.solve(fewest.astype(np.int64), most.astype(np.int64), lower, upper)
        return bound, np.concatenate([place[:U], self.part.sums(place[:U])])
