"""Overlapping attributes: numbers of yeses of cells that belong to several groups at once.

An integer programme in one unknown per cell, whatever the number of samples. Costs are convex, and enter as tangents.
Three steps:

1. With fractions of samples allowed it is a linear programme, to which tangents are added where its answer lies. The
   prices of its rows give a bound below on the cost of every answer, worked out from the tables alone.
2. Whole numbers near its solution: a small programme, whose answer is good, and quickly found.
3. The same prices say which numbers of yeses no better answer can have. Among the others the programme is solved for as
   long as a number of branches allows (not an amount of time, so that the same problem has the same answer on every
   machine). If it ends, its answer is the best; otherwise the bound says how far from it the answer can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import scipy  # whose parts load when they are used

from fairlayer.decisions.cost import Best, Costs
from fairlayer.errors import InputError

_CLOSE = 1e-9  # of the cost: an answer this near to the bound is the best
_NOTHING = 1e-24  # of the dearest number of yeses: less than rounding a score costs
_MOST_ROUNDS = 60
_NEAR = 3  # whole numbers to either side of the fractional solution
_FEW_BRANCHES, _MOST_BRANCHES = 100, 256_000  # the second over the square of the number of cells
_MOST_TANGENTS = 4_000
_MOST_PAIRS = 5_000
_SIMPLE = 10**6  # largest denominator of a fraction that a ratio is taken to stand for
_SIZE = 1e4  # of costs, as the solver sees them
_DOUBT = 2e-6  # what the solver takes for nothing, in that size
_SOLVE_ERROR = 4  # of scipy's statuses
_NOTHING_FOUND = Best(np.zeros(0, dtype=np.int64), np.inf, np.inf)


def overlapping_counts(
    costs: Costs,
    member: np.ndarray,  # (F, U) the group of each unit in each comparison, -1 for none
    allowed: Sequence[float | Fraction],
    ratio: Sequence[bool],
) -> Best:
    """The best numbers of yeses that were found."""
    rows = _Rows(costs, member, allowed, ratio)
    model = _Model(costs, rows)
    relaxed = model.relax()
    if relaxed is None:
        return _NOTHING_FOUND
    place, least, pull = relaxed
    found, reach = None, _NEAR
    while found is None:
        low, high = np.maximum(np.floor(place) - reach, model.low), np.minimum(np.ceil(place) + reach, model.high)
        found, _ = model.whole(low, high, place, _FEW_BRANCHES)
        if found is None and (low <= model.low).all() and (high >= model.high).all():
            if not model.presolve:
                break
            model.presolve = False  # which now and then calls a programme infeasible that is not
        reach *= 4
    if not costs.whole or found is None:  # a programme of weights aims inside the rows, where these lie on them
        found = min((one for one in (found, *model.alike()) if one is not None), key=model.cost_of, default=None)
    if found is None:
        return _NOTHING_FOUND
    cost = model.cost_of(found)
    close = _CLOSE * cost + _NOTHING * model.dearest
    if cost - least > close and costs.whole:
        low, high = model.worth_a_look(pull, cost - least)
        if (high - low).sum() <= _MOST_TANGENTS:
            better, bound = model.whole(low, high, place, _MOST_BRANCHES // len(low) ** 2 + 1)
            if better is not None and model.cost_of(better) < cost:
                found, cost = better, model.cost_of(better)
            least = max(least, min(bound, cost))
    return Best(found, cost, cost if cost - least <= close else least)


class _Rows:
    """Rows over the weights of yeses of the units: matrix @ mass <= limit, between every two groups compared."""

    def __init__(
        self, costs: Costs, member: np.ndarray, allowed: Sequence[float | Fraction], ratio: Sequence[bool]
    ) -> None:
        self.costs = costs
        self.pairs: list[tuple[np.ndarray, np.ndarray, Fraction, Fraction]] = []
        entries: list[tuple[int, int, float]] = []
        limits: list[float] = []
        for of_unit, share, by_ratio in zip(member, allowed, ratio, strict=True):
            groups = [np.flatnonzero(of_unit == g) for g in range(of_unit.max(initial=-1) + 1)]
            groups = [units for units in groups if len(units)]
            factor, tolerance = (Fraction(share), Fraction(0)) if by_ratio else (Fraction(1), Fraction(min(share, 1)))
            if len(self.pairs) + len(groups) * (len(groups) - 1) > _MOST_PAIRS:
                raise InputError(
                    f"overlapping RateParity compare more than {_MOST_PAIRS:,} pairs of groups: compare fewer "
                    "attributes at a time, or make coarser groups."
                )
            for a, b in ((a, b) for a in groups for b in groups if a is not b):
                one, other = float(costs.total[a].sum()), float(costs.total[b].sum())
                scale = max(one, other)  # so that a row is in samples
                own, limit = _as_solved(factor, tolerance, one, other, costs.whole)
                entries += [(len(limits), u, own * other / scale) for u in a.tolist()]
                entries += [(len(limits), u, -one / scale) for u in b.tolist()]
                limits.append(limit / scale)
                self.pairs.append((a, b, factor, tolerance))
        row, unit, value = (np.array(part) for part in zip(*entries, strict=True)) if entries else (np.zeros(0),) * 3
        shape = (len(limits), len(costs.now))
        self.matrix = scipy.sparse.csr_array((value, (row.astype(int), unit.astype(int))), shape=shape)
        self.limit = np.array(limits)

    def hold(self, count: np.ndarray) -> bool:
        """Whether they do: in rational arithmetic where weights are counts, and slightly inside where they are not."""
        mass = self.costs.mass[self.costs.start[:-1] + count]
        if not self.costs.whole:
            return bool((self.matrix @ mass <= self.limit).all())
        whole, total = mass.astype(np.int64), self.costs.total.astype(np.int64)
        for first, second, ratio, tolerance in self.pairs:
            one, other = (Fraction(int(whole[units].sum()), int(total[units].sum())) for units in (first, second))
            if ratio * one - other > tolerance:
                return False
        return True


def _as_solved(factor: Fraction, tolerance: Fraction, one: float, other: float, whole: bool) -> tuple[float, float]:
    """Factor and limit of  factor * other * mass(a) - one * mass(b) <= limit,  as a solver that rounds should see them.

    Of whole numbers the left side has steps, and the limit may lie anywhere between two of them: half way is safest.
    """
    if not whole:
        return float(factor), float(tolerance) * one * other * (1.0 - 1e-12) - 1e-12 * one * other
    simple = factor.limit_denominator(_SIMPLE)
    step = Fraction(1, simple.denominator)
    limit = tolerance * Fraction(one) * Fraction(other)
    limit = Fraction(limit.numerator * simple.denominator // limit.denominator, simple.denominator)
    if factor <= simple:
        return float(simple), float(limit + step / 4)
    # A ratio that is a hair above a simple fraction excludes it, except of nothing at all.
    return float(simple + step / (2 * Fraction(one) * Fraction(other))), float(limit)


class _Model:
    """The programme: weights of yeses, and what each unit's cost is at least, by its tangents."""

    def __init__(self, costs: Costs, rows: _Rows):
        self.costs = costs
        self.rows = rows
        self.low, self.high = (ends.astype(np.float64) for ends in costs.possible())
        self.dearest = float(costs.cost[np.isfinite(costs.cost)].max(initial=0.0))
        self.unit = _SIZE / max(self.dearest, 1e-300)
        self.presolve = True

    def cost_of(self, count: np.ndarray) -> float:
        """What numbers of yeses cost."""
        return float(self.costs.of(count).sum())

    def alike(self) -> list[np.ndarray]:
        """The same answer for everybody, no or yes, where that is possible: all rates are 0, or 1."""
        return [
            count.astype(np.int64)
            for count, rate in ((self.low, 0.0), (self.high, 1.0))
            if np.allclose(self._masses(count) / self.costs.total, rate, 0, 1e-12)
        ]

    def _tangent(self, u: int, at: int) -> tuple[int, float, float]:
        """Of a unit, between `at` and `at + 1` yeses: the slope by weight, and the value at none."""
        begin = self.costs.start[u] + at
        cost, mass = self.costs.cost[begin : begin + 2], self.costs.mass[begin : begin + 2]
        slope = (cost[1] - cost[0]) / (mass[1] - mass[0])
        return u, float(slope), float(cost[0] - slope * mass[0])

    def _inside(self, u: int, at: float) -> int:
        return min(max(int(at), int(self.low[u])), int(self.high[u]) - 1)

    def _masses(self, count: np.ndarray) -> np.ndarray:
        return self.costs.mass[self.costs.start[:-1] + count.astype(np.int64)]

    def relax(self) -> tuple[np.ndarray, float, np.ndarray] | None:
        """With fractions of samples: numbers of yeses, a bound below on any cost, and how the rows pull at each unit.

        None where even fractions cannot keep the rows.
        """
        U, open_ = len(self.low), [u for u in range(len(self.low)) if self.low[u] < self.high[u]]
        known = {(u, self._inside(u, at)) for u in open_ for at in (self.low[u], self.costs.now[u], self.high[u])}
        known |= {(u, self._inside(u, at)) for u in open_ for at in np.linspace(self.low[u], self.high[u], 9)}
        best = -np.inf
        pull, place = np.zeros(U), self.costs.now.astype(np.float64)
        for _ in range(_MOST_ROUNDS):
            answer = scipy.optimize.linprog(
                np.concatenate([np.zeros(U), np.ones(U)]),
                *self._inequalities(sorted(known), np.zeros(U)),
                bounds=np.column_stack([
                    np.concatenate([self._masses(self.low), np.zeros(U)]),
                    np.concatenate([self._masses(self.high), np.full(U, np.inf)]),
                ]),
                method="highs",
            )  # fmt: skip
            if answer.x is None:
                return None
            price = np.maximum(-answer.ineqlin.marginals[: len(self.rows.limit)], 0.0) / self.unit
            bound = self._bound(price)
            if bound > best:
                best, pull = bound, self.rows.matrix.T @ price
                place = np.array([self._place(u, weight) for u, weight in enumerate(answer.x[:U].tolist())])
            spent = sum(self._between(u, place) for u, place in enumerate(place))
            if best > 0.0:
                self.unit = _SIZE / best
            new = {(u, self._inside(u, self._place(u, float(answer.x[u])))) for u in open_} - known
            if not new or spent - best <= 1e-12 * spent:
                break
            known |= new
        return place, max(best, 0.0), pull

    def _inequalities(self, known: list[tuple[int, int]], offset: np.ndarray) -> tuple[Any, np.ndarray]:
        """The rows, then the tangents, over weights of yeses (less an offset) and the costs of the units."""
        U, T = len(self.low), len(known)
        tangents = [self._tangent(u, at) for u, at in known]
        unit, slope, value = (np.array(part) for part in zip(*tangents, strict=True)) if T else (np.zeros(0),) * 3
        own = scipy.sparse.csr_array((slope * self.unit, (np.arange(T), unit.astype(int))), shape=(T, U))
        level = scipy.sparse.csr_array((-np.ones(T), (np.arange(T), unit.astype(int))), shape=(T, U))
        matrix = scipy.sparse.block_array([[self.rows.matrix, None], [own, level]], format="csr")
        limit = [self.rows.limit - self.rows.matrix @ offset, -value * self.unit - own @ offset]
        return matrix, np.concatenate(limit)

    def _bound(self, price: np.ndarray) -> float:
        """What any answer costs at least, given prices of the rows: every unit does what is best for itself."""
        pull, total = self.rows.matrix.T @ price, -float(price @ self.rows.limit)
        for u, (a, b) in enumerate(zip(self.costs.start[:-1], self.costs.start[1:], strict=True)):
            total += float((self.costs.cost[a:b] + pull[u] * self.costs.mass[a:b]).min())
        return total

    def worth_a_look(self, pull: np.ndarray, room: float) -> tuple[np.ndarray, np.ndarray]:
        """The fewest and the most yeses of each unit that an answer can have which is better by less than `room`."""
        low, high = self.low.copy(), self.high.copy()
        for u, (a, b) in enumerate(zip(self.costs.start[:-1], self.costs.start[1:], strict=True)):
            own = self.costs.cost[a:b] + pull[u] * self.costs.mass[a:b]
            near = np.flatnonzero(own <= own.min() + room * (1.0 + 1e-9) + 1e-12 * abs(own.min()))
            low[u], high[u] = near[0], near[-1]
        return low, high

    def _place(self, u: int, weight: float) -> float:
        """A weight of yeses as a number of them, with fractions."""
        table = self.costs.mass[self.costs.start[u] : self.costs.start[u + 1]]
        if len(table) == 1:
            return 0.0
        at = min(max(int(np.searchsorted(table, weight, side="right")) - 1, 0), len(table) - 2)
        return min(max(at + (weight - table[at]) / (table[at + 1] - table[at]), self.low[u]), self.high[u])

    def _between(self, u: int, place: float) -> float:
        at, begin = int(np.floor(place)), self.costs.start[u]
        if at >= self.high[u]:
            return float(self.costs.cost[begin + int(self.high[u])])
        return float(self.costs.cost[begin + at] * (at + 1 - place) + self.costs.cost[begin + at + 1] * (place - at))

    def whole(
        self, low: np.ndarray, high: np.ndarray, near: np.ndarray, branches: int
    ) -> tuple[np.ndarray | None, float]:
        """Good whole numbers of yeses from low to high, and what any of these cost at least.

        Tangents are there for every number near the fractional solution `near`, ever fewer away from it, and added
        where the answers lie.
        """
        if not self.costs.whole:
            return self._choose(low, high, branches), -np.inf
        steps = [0, 1, 2, 3, 5, 8, 13, 21, 40, 80, 160, 320, 640, 1280, 2560]
        known = {
            (u, min(max(int(near[u]) + side * step, int(low[u])), int(high[u]) - 1))
            for u in range(len(low))
            if low[u] < high[u]
            for step in steps
            for side in (-1, 1)
        }
        best, bound = None, -np.inf
        for _ in range(_MOST_ROUNDS):
            count, dual, complete = self._branch(low, high, sorted(known), branches)
            bound = max(bound, dual)
            if count is None:
                break
            if self.rows.hold(count) and (best is None or self.cost_of(count) < self.cost_of(best)):
                best = count
            own = {(u, min(max(at, int(low[u])), int(high[u]) - 1)) for u, at in enumerate(count) if low[u] < high[u]}
            new = own | {(u, max(at - 1, int(low[u]))) for u, at in own}
            if new <= known or not complete:
                break
            known |= new
        return best, bound

    def _branch(
        self, low: np.ndarray, high: np.ndarray, known: list[tuple[int, int]], branches: int
    ) -> tuple[np.ndarray | None, float, bool]:
        """One integer programme: numbers of yeses, a bound below on their cost, and whether it came to its end."""
        U, offset = len(low), self._masses(np.zeros(len(low)))
        for _ in range(4):
            matrix, limit = self._inequalities(known, offset)
            fixed = self.costs.of(low.astype(np.int64)) * self.unit * (low >= high)  # which has no tangent
            answer = scipy.optimize.milp(
                np.concatenate([np.zeros(U), np.ones(U)]),
                constraints=scipy.optimize.LinearConstraint(matrix, np.full(len(limit), -np.inf), limit),
                bounds=scipy.optimize.Bounds(np.concatenate([low, fixed]), np.concatenate([high, np.full(U, np.inf)])),
                integrality=np.concatenate([np.ones(U), np.zeros(U)]),
                options={"mip_rel_gap": 0.0, "node_limit": branches, "presolve": self.presolve},
            )
            if answer.status != _SOLVE_ERROR or answer.x is not None:  # so it also calls an end by branches
                break
            self.unit *= 0.01  # numbers of very different sizes are what it fails at
        if answer.x is None:
            return None, -np.inf, False
        bound = answer.fun if answer.mip_dual_bound is None else answer.mip_dual_bound
        return np.round(answer.x[:U]).astype(np.int64), (bound - _DOUBT) / self.unit, answer.status == 0

    def _choose(self, low: np.ndarray, high: np.ndarray, branches: int) -> np.ndarray | None:
        """Where weights differ from sample to sample: one of the numbers of yeses of each unit."""
        unit = np.concatenate([np.full(int(b - a) + 1, u) for u, (a, b) in enumerate(zip(low, high, strict=True))])
        number = np.concatenate([np.arange(int(a), int(b) + 1) for a, b in zip(low, high, strict=True)])
        place, shape = self.costs.start[:-1][unit] + number, (len(low), len(unit))
        one = scipy.sparse.csr_array((np.ones(len(unit)), (unit, np.arange(len(unit)))), shape=shape)
        mass = scipy.sparse.csr_array((self.costs.mass[place], (unit, np.arange(len(unit)))), shape=shape)
        size = max(1.0, float(np.abs(self.rows.limit).max(initial=0.0)))
        answer = scipy.optimize.milp(
            self.costs.cost[place] * self.unit,
            constraints=[
                scipy.optimize.LinearConstraint(one, 1.0, 1.0),
                scipy.optimize.LinearConstraint(self.rows.matrix @ mass, -np.inf, self.rows.limit - 1e-6 * size),
            ],
            bounds=scipy.optimize.Bounds(0.0, 1.0),
            integrality=np.ones(len(unit)),
            options={"mip_rel_gap": 0.0, "node_limit": branches},
        )
        if answer.x is None:
            return None
        count = np.round(one @ (np.round(answer.x) * number)).astype(np.int64)
        return count if self.rows.hold(count) else None
