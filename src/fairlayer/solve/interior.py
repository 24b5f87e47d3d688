"""The projection in twice the precision, by an interior-point method: for batches that float64 cannot resolve.

The search over cell sums (`newton`) works in float64. Where one output is 1e12 times the others, or weights lie twelve
decades apart, what decides a row is lost in the rounding of its sums; and with nearly every sample at a bound a search
along lines may creep from kink to kink. An interior point keeps away from all kinks until the end, and with 31 digits
nothing is lost on the way.

    min 1/2 sum_i w_i (y_i - z_i)^2   subject to   p q_k - d c <= b  for both sides of every statistic,  lo <= y <= hi,

q_k a mean of the outputs, c the middle of its family's range (d = 0 where statistics are not compared). Multipliers are
those of shifts, y = z - shift + v_low - v_high, so that weights enter through cell sums alone, and each step solves one
system in as many unknowns as there are statistics.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.binding.rows import EACH, RATIO, Rows
from fairlayer.binding.system import System
from fairlayer.solve.twofold import Factor, Twofold, gram

_SIZES = (1.0, 1e6, 1e12)  # of what outputs may have to move by, in units of what they are: one after another
_MOST_STEPS = 120
_MOST_IDLE = 20  # steps without progress
_SHORT, _CENTRAL = 0.1, 0.1  # a step cut shorter than this share gives way to one that brings products this near
_SMALL, _ENOUGH = 1e-29, 1e-12  # what is left, relative, at which to stop, and above which it is not the optimum
_EQUAL = 1e-25  # of the largest number: bounds nearer to each other are one, and rows that miss it by less hold
_FAR, _FURTHEST = 1e50, 1e100  # beyond bounds, in units of what they leave: where further out makes no difference
_CLEAR = 1e-6  # of the pull of a bound: a slack that is no slack
_REGULAR = 1e-24  # of a group's weight: what makes equal rows definite; the next step takes it back


class Interior(NamedTuple):
    """Where the method ended."""

    y: Twofold  # (n,) outputs, strictly within bounds where these leave room
    inside: np.ndarray  # (n,) outputs that no bound holds
    rests: np.ndarray  # (n,) outputs that clearly rest on a bound
    nu: np.ndarray  # (K,) multipliers of the statistics, 0 where their rows do not bind
    shift: np.ndarray  # (G,)
    residual: float  # what is left of the conditions of the optimum, relative
    holds: bool  # whether it is the optimum, or satisfies its rows at least


class Means(NamedTuple):
    """The statistics of a system without rounding: q = sum_c M[c, k] S_c - offset, entry by entry as in `Rows`."""

    value: Twofold  # (entries,) of M
    offset: Twofold  # (K,)


def exact_means(system: System) -> Means:
    """Means in twice the precision, from shares, weights and targets."""
    rows, plan = system.rows, system.view.plan
    G, K = len(system.weight), len(rows.offset)
    cell, of_cell = as_numpy(system.cell).astype(np.int64), entry_cells(system)
    weight = Twofold(system.weights if len(system.weights) else np.ones(len(cell)))
    own = weight.sums(cell, G)[of_cell]
    share = Twofold(plan.share)
    total = (share * own).sums(rows.statistic, K)[rows.statistic]
    total = own.where(plan.is_matrix[rows.statistic], total)  # rows of a matrix apply to outputs, not to weighted sums
    value = share / total.where(total.high > 0.0, 1.0)
    offset = Twofold(np.zeros(K))
    if system.targets is not None:
        sums = (weight * system.targets).sums(cell, G)
        offset = (value * sums[of_cell]).sums(rows.statistic, K).where(plan.residual)
    return Means(value, offset)


def entry_cells(system: System) -> np.ndarray:
    """(entries,) the cell of every entry of M."""
    return np.repeat(np.arange(len(system.weight)), np.diff(system.rows.start))


def interior_point(
    z: np.ndarray, system: System, means: Means, margin: np.ndarray, lo: np.ndarray, hi: np.ndarray
) -> Interior:
    """Project z, of shape (n,), float64. margin: (K,) how far inside its bounds to aim each; lo, hi: (n,)."""
    with np.errstate(all="ignore"):
        method = _Method(z, system, means, margin, lo, hi)
        for size in _SIZES:
            found = method.search(size, system.rows)
            if found.holds:
                break
        return found


class _Point(NamedTuple):
    """Outputs, middles and multipliers of equal rows; slacks and multipliers of sides and of bounds."""

    y: Twofold
    c: Twofold
    equal: Twofold
    s: Twofold
    m: Twofold
    s_low: Twofold
    v_low: Twofold
    s_high: Twofold
    v_high: Twofold

    def moved(self, step: _Point, alpha: float) -> _Point:
        """A share of a step further."""
        return _Point(*(here + there * alpha for here, there in zip(self, step, strict=True)))

    def longest(self, step: _Point) -> float:
        """How far a step can go before a slack or multiplier would be negative."""
        alpha = 1.0
        for here, there in zip(self[3:], step[3:], strict=True):
            falls = there.high < 0.0
            alpha = min(alpha, float((-here.high[falls] / there.high[falls]).min(initial=1.0)))
        return alpha


class _Left(NamedTuple):
    """What is left of the conditions of the optimum."""

    stationary: Twofold  # (n,)
    sides: Twofold
    equal: Twofold
    balance: Twofold  # (C,) multipliers of a family add up to 0
    gap: float  # mean of slacks times multipliers, by weight
    size: float  # the largest, each relative to its numbers
    holds: bool  # whether rows hold, whatever is left


class _Method:
    """One problem in units of its own: outputs up to about 1, weights up to about 1, all by powers of 2."""

    def __init__(self, z: np.ndarray, system: System, means: Means, margin: np.ndarray, lo: np.ndarray, hi: np.ndarray):
        rows, self.G = system.rows, len(system.weight)
        of_entry, cell = entry_cells(system), as_numpy(system.cell).astype(np.int64)
        weight = system.weights if len(system.weights) else np.ones(len(z))
        self.free = (weight > 0.0) & (lo < hi)  # the others do not move, and are part of the offsets
        fixed, self.still = ~self.free, np.clip(z, lo, hi)
        some = np.flatnonzero(weight == 0.0)  # they are in nobody's mean, and go with their cell
        self.weightless = (some, z[some], lo[some], hi[some], cell[some])
        sums = (Twofold(weight[fixed]) * self.still[fixed]).sums(cell[fixed], self.G)
        offset = means.offset - (means.value * sums[of_entry]).sums(rows.statistic, len(rows.offset))
        self.cell = cell[self.free]
        occupied = np.bincount(self.cell, minlength=self.G)[of_entry] > 0
        largest = np.zeros(len(rows.offset))
        np.maximum.at(largest, rows.statistic, np.abs(means.value.high) * occupied)
        # Statistics that are compared, and their entries.
        family = np.repeat(np.arange(len(rows.kind)), np.diff(rows.first))
        count = np.bincount(family, weights=rows.present, minlength=len(rows.kind))
        self.kept = np.flatnonzero(rows.present & np.where(rows.kind == EACH, count > 0, count > 1)[family])
        number = np.full(len(rows.offset), -1)
        number[self.kept] = np.arange(len(self.kept))
        entries, self.K = number[rows.statistic] >= 0, len(self.kept)
        self.statistic, self.entry_cell = number[rows.statistic[entries]], of_entry[entries]
        self.start = np.concatenate([[0], np.cumsum(np.bincount(self.entry_cell, minlength=self.G))])
        offset, largest = offset[self.kept], largest[self.kept]
        stated = np.concatenate([side[np.isfinite(side)] for side in system.stated])
        size = max(np.abs(part).max(initial=0.0) for part in (self.still, offset.high, stated))
        self.unit, self.heaviest = power_to_one(size), power_to_one(weight[self.free].max(initial=0.0))
        self.w = Twofold(weight[self.free] * self.heaviest)
        self.M = means.value[entries] * (1.0 / self.heaviest)
        self.offset = offset * self.unit
        self.z, self.lo, self.hi = (side[self.free] * self.unit for side in (z, lo, hi))
        self.z = _nearer(self.z, self.lo, self.hi)
        # Multipliers in units of shifts: those of a group of weight W, times 1 / W. By powers of 2.
        self.W = np.array([power_to_one(one) for one in largest / self.heaviest])
        self.shares = self.M * self.W[self.statistic]
        limits = (side * self.unit for side in system.stated)
        self._sides(rows, family[self.kept], margin[self.kept] * self.unit, *limits)
        self.low, self.high = np.isfinite(self.lo), np.isfinite(self.hi)
        self.pairs = max(len(self.of) + int(self.low.sum()) + int(self.high.sum()), 1)

    def _sides(self, rows: Rows, family: np.ndarray, margin: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> None:
        """Both sides of every statistic, as p q - d c <= b; or, where they meet, q - d c = b."""
        each = rows.kind == EACH
        exact = np.where(each, upper - lower <= _EQUAL, (rows.kind != RATIO) & (upper <= _EQUAL))
        self.families = np.unique(family[~each[family]])
        number = np.full(len(rows.kind), -1)
        number[self.families] = np.arange(len(self.families))
        self.family = number[family]  # (K,) of those with a middle, -1 elsewhere
        self.unequal = np.isin(self.family, np.flatnonzero(rows.kind[self.families] == RATIO))
        self.same, self.held = np.flatnonzero(exact[family]), ~exact[family]
        half = np.where(rows.kind == RATIO, 1.0, 0.5)  # of differences c is the middle, of ratios the least
        above, below = np.where(each, upper, half * upper)[family], np.where(each, -lower, (1.0 - half) * upper)[family]
        up, down = (np.flatnonzero(self.held & np.isfinite(side)) for side in (above, below))
        moves = np.where(each, 0.0, 1.0)[family]
        self.of = np.concatenate([up, down])
        ratio = np.where(rows.kind == RATIO, rows.ratio, 1.0)[family]
        self.p = np.concatenate([ratio[up], -np.ones(len(down))])
        self.d = np.concatenate([moves[up], -moves[down]])
        self.b = np.concatenate([(above - margin)[up], (below - margin)[down]])
        self.d_same, self.b_same = moves[self.same], above[self.same] * (1.0 - moves[self.same])

    def statistics(self, outputs: Twofold) -> Twofold:
        """(K,) means of outputs."""
        sums = (self.w * outputs).sums(self.cell, self.G)
        return (self.M * sums[self.entry_cell]).sums(self.statistic, self.K)

    def shifts(self, multipliers: Twofold) -> Twofold:
        """(G,) what multipliers make of cells."""
        return (self.shares * multipliers[self.statistic]).sums(self.entry_cell, self.G)

    def middles(self, c: Twofold, statistic: np.ndarray, d: np.ndarray) -> Twofold:
        """d times the middle of each statistic's family; 0 where it has none."""
        return c[self.family[statistic]] * d if len(c) else Twofold(np.zeros(len(statistic)))

    def by_family(self, of_statistic: Twofold) -> Twofold:
        """(C,) sums over the statistics of each family with a middle."""
        some = self.family >= 0
        return of_statistic[some].sums(self.family[some], len(self.families))

    def _multipliers(self, at: _Point) -> Twofold:
        return (at.m * self.p).sums(self.of, self.K) + at.equal.sums(self.same, self.K)

    def search(self, size: float, rows: Rows) -> Interior:
        """From a first point to the optimum, as far as it goes."""
        found, best, idle = self._first_point(size), np.inf, 0
        at, feasible, least = found, None, np.inf
        for _ in range(_MOST_STEPS):
            left = self.left_over(at)
            residual = left.size
            idle = 0 if residual < 0.9 * best else idle + 1
            if residual < best:
                best, found = residual, at
            if left.holds and left.gap < least:
                feasible, least = at, left.gap
            if not np.isfinite(residual) or best < _SMALL or idle > _MOST_IDLE:
                break
            at = self.step(at, left)
        if best > _ENOUGH and feasible is not None:
            found = feasible
        return self.answer(found, best, best <= _ENOUGH or feasible is not None, rows)

    def _first_point(self, size: float) -> _Point:
        """A point well inside, whose slacks times multipliers are much the same, by weight. size: of the latter."""
        z, low, high = self.z, self.low, self.high
        inner = np.where(low & high, 0.1 * (self.hi - self.lo), 0.1)
        y = np.clip(z, np.where(low, self.lo + inner, -np.inf), np.where(high, self.hi - inner, np.inf))
        q = self.statistics(Twofold(y)) - self.offset
        c = np.zeros(len(self.families))
        for g in range(len(c)):
            here = q.high[self.family == g]
            c[g] = 0.5 * (here.max() + here.min())
        slack = (Twofold(self.b) - q[self.of] * self.p + self.middles(Twofold(c), self.of, self.d)).high
        scale = max(size, float(np.abs(z - y).max(initial=0.0)))
        each = scale / self.w.high
        return _Point(
            Twofold(y),
            Twofold(c),
            Twofold(np.zeros(len(self.same))),
            Twofold(np.maximum(slack, 1e-2 * size)),
            Twofold(scale / self.W[self.of]),
            (Twofold(y) - self.lo).where(low, 1.0),
            Twofold(np.where(low, each, 0.0)),
            (Twofold(self.hi) - y).where(high, 1.0),
            Twofold(np.where(high, each, 0.0)),
        )

    def _gap(self, at: _Point) -> float:
        """Mean of slacks times multipliers, by weight."""
        rows = self.W[self.of] @ (at.s.high * at.m.high)
        bounds = self.w.high @ (at.s_low.high * at.v_low.high + at.s_high.high * at.v_high.high)
        return float(rows + bounds) / self.pairs

    def left_over(self, at: _Point) -> _Left:
        """What is left of the conditions of the optimum at a point."""
        shift = self.shifts(self._multipliers(at))[self.cell]
        moved = at.y - self.z
        stationary = moved + shift - at.v_low + at.v_high
        q = self.statistics(at.y) - self.offset
        sides = at.s + q[self.of] * self.p - self.middles(at.c, self.of, self.d) - self.b
        equal = q[self.same] - self.middles(at.c, self.same, self.d_same) - self.b_same
        price = (at.m * (self.d * self.W[self.of])).sums(self.of, self.K)
        price = price + (at.equal * (self.d_same * self.W[self.same])).sums(self.same, self.K)
        size = (at.m.high * np.abs(self.d) * self.W[self.of]).max(initial=0.0)
        size = max(size, (np.abs(at.equal.high) * self.d_same * self.W[self.same]).max(initial=0.0), 1e-300)
        balance, gap = self.by_family(price), self._gap(at)
        objective = float(self.w.high @ (moved.high * moved.high)) + 1e-40
        parts = (
            np.abs(stationary.high).max(initial=0.0) / max(1.0, float(np.abs(shift.high).max(initial=0.0))),
            np.abs(sides.high).max(initial=0.0),
            np.abs(equal.high).max(initial=0.0),
            np.abs(balance.high).max(initial=0.0) / size,
            gap * self.pairs / objective,
        )
        holds = bool((sides.high <= at.s.high).all()) and bool((np.abs(equal.high) <= _EQUAL).all())
        return _Left(stationary, sides, equal, balance, gap, float(max(parts)), holds)

    def step(self, at: _Point, left: _Left) -> _Point:
        """Mehrotra's predictor and corrector."""
        model = _Model(self, at, left)
        products = (at.s * at.m, at.s_low * at.v_low, at.s_high * at.v_high)
        zero = model.towards(*(-now for now in products))
        reached = self._gap(at.moved(zero, at.longest(zero)))
        aim = min((reached / left.gap) ** 3, 1.0) * left.gap if left.gap > 0.0 else 0.0
        second = (zero.s * zero.m, zero.s_low * zero.v_low, zero.s_high * zero.v_high)
        shares = (1.0 / self.W[self.of], 1.0 / self.w.high, 1.0 / self.w.high)
        ahead = model.towards(
            *(Twofold(aim * share) - now - more for share, now, more in zip(shares, products, second, strict=True))
        )
        if at.longest(ahead) < _SHORT:  # some are so small that they stand in the way: these first
            ahead = model.towards(
                *(
                    Twofold(np.clip(now.high, _CENTRAL * left.gap * share, left.gap * share / _CENTRAL)) - now
                    for share, now in zip(shares, products, strict=True)
                )
            )
        return at.moved(ahead, min(1.0, 0.995 * at.longest(ahead)))

    def answer(self, at: _Point, residual: float, holds: bool, rows: Rows) -> Interior:
        """In the units of the problem."""
        back = 1.0 / self.unit
        y, inside, rests = Twofold(self.still.copy()), np.zeros(len(self.still), dtype=bool), ~self.free
        y.high[self.free], y.low[self.free] = at.y.high * back, at.y.low * back
        pull = np.maximum(at.v_low.high, at.v_high.high) / max(1.0, float(np.abs(at.y.high - self.z).max(initial=0.0)))
        slack = np.minimum(np.where(self.low, at.s_low.high, np.inf), np.where(self.high, at.s_high.high, np.inf))
        inside[self.free], rests[self.free] = slack > pull, slack < _CLEAR * pull
        multipliers = self._multipliers(at) * back
        binds = np.concatenate([self.of[at.m.high > at.s.high], self.same])
        nu = np.zeros(len(rows.offset))
        nu[self.kept[binds]] = (multipliers.high * (self.W / self.heaviest))[binds]
        shift, (some, z, lo, hi, cell) = self.shifts(multipliers).high, self.weightless
        y.high[some] = np.clip(z - shift[cell], lo, hi)
        return Interior(y, inside, rests, nu, shift, residual, holds)


class _Model:
    """The conditions of the optimum, linearised at a point, and solved for steps from it."""

    def __init__(self, method: _Method, at: _Point, left: _Left):
        self.method, self.at, self.left = method, at, left
        K, W = method.K, method.W
        self.slope = Twofold(np.ones(len(at.y))) / (at.v_low / at.s_low + at.v_high / at.s_high + 1.0)
        # Of each statistic, how stiff its sides are; the stiffer is worked out from the sum of both.
        self.stiffness = at.m / at.s
        strength = self.stiffness.high * method.p**2
        self.stiffer = np.zeros(len(method.of), dtype=bool)
        order = np.argsort(strength, kind="stable")
        last = np.full(K, -1)
        last[method.of[order]] = order
        self.stiffer[last[last >= 0]] = True
        total = (self.stiffness * method.p**2).sums(method.of, K)
        self.total = total.where(method.held, 1.0)
        self.with_middle = (self.stiffness * (method.p * method.d)).sums(method.of, K)
        slopes = (method.w * self.slope).sums(method.cell, method.G)
        self.factor = Factor(gram(method.start, method.statistic, method.shares, slopes, K), self._more)
        self.column = (self.with_middle * W / self.total).where(method.held)
        self.column = self.column + Twofold(method.d_same * W[method.same]).sums(method.same, K)
        self._eliminate_middles()

    def _more(self, diagonal: Twofold) -> Twofold:
        """What stands on the diagonal besides the gram matrix: the give of sides, and next to nothing of equal rows."""
        return diagonal + (Twofold(self.method.W) / self.total).where(self.method.held, self.method.W * _REGULAR)

    def _eliminate_middles(self) -> None:
        method, C = self.method, len(self.method.families)
        self.columns = [self.factor.solve(self.column.where(method.family == g)) for g in range(C)]
        schur = Twofold(np.zeros((C, C)))
        for g, column in enumerate(self.columns):
            products = method.by_family(self.column * column)
            schur.high[:, g], schur.low[:, g] = products.high, products.low
        # Of ratios the two sides move with the middle by different shares.
        square = (self.stiffness * method.d**2).sums(method.of, method.K)
        rest = ((square - self.with_middle * self.with_middle / self.total) * method.W).where(method.held)
        more = method.by_family(rest.where(method.unequal))
        self.schur = Factor(schur, lambda diagonal: diagonal + more)

    def towards(self, aim: Twofold, aim_low: Twofold, aim_high: Twofold) -> _Point:
        """The step after which slacks times multipliers have changed by what is aimed at."""
        method, at, left, W = self.method, self.at, self.left, self.method.W
        pull = -left.stationary + (aim_low / at.s_low).where(method.low) - (aim_high / at.s_high).where(method.high)
        sums = (method.w * self.slope * pull).sums(method.cell, method.G)
        right = (method.shares * sums[method.entry_cell]).sums(method.statistic, method.K)
        own = (aim + at.m * left.sides) / at.s
        push = (own * method.p).sums(method.of, method.K)
        right = (
            right
            + (push * W / self.total).where(method.held)
            + (left.equal * W[method.same]).sums(method.same, method.K)
        )
        x = self.factor.solve(right)
        middle = Twofold(np.zeros(len(self.columns)))
        if self.columns:
            along = (own * method.d).sums(method.of, method.K)
            along = ((along - self.with_middle * push / self.total) * W).where(method.held)
            middle = self.schur.solve(method.by_family(self.column * x) + left.balance + method.by_family(along))
            for g, column in enumerate(self.columns):
                x = x - column * Twofold(np.full(method.K, middle.high[g]), np.full(method.K, middle.low[g]))
        y = self.slope * (pull - method.shifts(x)[method.cell])
        change = method.statistics(y)[method.of] * method.p - method.middles(middle, method.of, method.d)
        m = own + self.stiffness * change
        # A stiff side would magnify the rounding of its change: it gets what the other leaves of the sum.
        rest = x[method.of] - (m * method.p).where(~self.stiffer).sums(method.of, method.K)[method.of]
        m = m.where(~self.stiffer, rest / method.p)
        s = (-change - left.sides).where(~self.stiffer, (aim - at.s * m) / at.m)
        v_low = ((aim_low - at.v_low * y) / at.s_low).where(method.low)
        v_high = ((aim_high + at.v_high * y) / at.s_high).where(method.high)
        return _Point(y, middle, x[method.same], s, m, y.where(method.low), v_low, (-y).where(method.high), v_high)


def _nearer(z: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """z far beyond its bounds brought to where squares are numbers: in order, and in proportion at the end."""
    within = np.clip(z, lo, hi)
    far = np.minimum(np.abs(z - within), 1e300)
    if far.max(initial=0.0) <= _FURTHEST:
        return z
    return np.where(far > _FAR, within + np.sign(z - within) * np.maximum(far * (_FURTHEST / far.max()), _FAR), z)


def power_to_one(size: float) -> float:
    """The power of 2 that brings a number near 1; 1 where there is none."""
    return float(np.ldexp(1.0, min(-int(np.frexp(size)[1]), 1000))) if 0.0 < size < np.inf else 1.0
