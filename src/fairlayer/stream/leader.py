"""The leader: the shift that would have been best for the raw stream so far, applied before the ledger repairs.

The ledger alone repairs late, and distorts more than it must. The leader takes the stream to go on as it has been, for
a tenth as long again as it has run, and solves the pooled projection over that future with the ledger as its offset:
what has gone astray is brought back over that horizon rather than at once. It aims inside the tolerance by some
standard deviations of the pooled gap, so that the repair seldom binds: by more of them for small batches, on whose few
samples a repair falls.

What "as it has been" means: per cell, the exact mean of all raw outputs since the last drift, and the shape of the
last 256 of them. Drift is looked for in the latest block of a cell's samples, an eighth as long as all before it, at
64 samples and whenever their number has doubled: when the mean is six standard errors off, everything before the block
is forgotten.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fairlayer.binding.bounds import Box
from fairlayer.binding.exact_sums import UNIT
from fairlayer.binding.row_plan import RowPlan
from fairlayer.binding.rows import RATIO, Rows
from fairlayer.compiled import compiled
from fairlayer.solve.class_driver import Found, aim
from fairlayer.solve.class_rows import by_class, class_problem, spread_multipliers
from fairlayer.solve.loops import solve_loops
from fairlayer.solve.newton import DONE
from fairlayer.solve.smooth import ENTROPY, SQUARED
from fairlayer.stream.cell_index import CellIndex
from fairlayer.stream.cell_sums import RING, TOTAL, CellSums
from fairlayer.stream.kernels import history

HORIZON = 0.1  # of the stream's length so far
BLIND = 1.0  # the same, where targets come later: the shift then hits the wrong cells too, and haste would overshoot
MARGIN = 0.55  # standard deviations of the pooled gap, times sqrt(2 log(1 + samples / batch size squared))
SOON = 0.1  # of the horizon between two solves of the leader
BLOCK = 64.0  # samples after which a cell's latest block is first looked at for drift
DRIFT = 6.0  # standard errors


@compiled
def note_rings(raw, cell, ring, ring_count):
    """Raw outputs into the rings of their cells."""
    for i in range(raw.size):
        c = cell[i]
        ring[c, int(ring_count[c]) % RING] = raw[i]
        ring_count[c] += 1.0


@compiled
def note_blocks(raw, cell, past):
    """Raw outputs into the running means of their cells' latest blocks."""
    for i in range(raw.size):
        block, value = past[cell[i], 1], float(raw[i])
        block[0] += 1.0
        step = value - block[1]
        block[1] += step / block[0]
        block[2] += step * (value - block[1])


@compiled
def _merge(into, other):
    """Pool two running means."""
    count = into[0] + other[0]
    if other[0] > 0.0:
        step = other[1] - into[1]
        into[1] += step * other[0] / count
        into[2] += other[2] + step * step * into[0] * other[0] / count
        into[0] = count
    other[:] = 0.0


@compiled
def look_for_drift(past):
    """Compare each cell's latest block with what came before; merge it if full. True after a drift."""
    drifted = False
    for c in range(past.shape[0]):
        before, block = past[c, 0], past[c, 1]
        if block[0] < past[c, 2, 0]:
            continue
        if before[0] >= BLOCK:
            variance = (before[2] + block[2]) / (before[0] + block[0])
            error = np.sqrt(variance * (1.0 / before[0] + 1.0 / block[0]))
            if abs(block[1] - before[1]) > DRIFT * error:
                before[:] = 0.0
                drifted = True
        past[c, 2, 0] = 2.0 * block[0]
        if block[0] >= 0.125 * before[0]:
            _merge(before, block)
            past[c, 2, 0] = BLOCK
    return drifted


@compiled
def _raw_means(past):
    """(G,) how many raw outputs of each cell there were since its last drift, and their mean."""
    known, mean = past[:, 0, 0] + past[:, 1, 0], np.zeros(past.shape[0])
    for c in range(known.size):
        if known[c] > 0.0:
            mean[c] = (past[c, 0, 0] * past[c, 0, 1] + past[c, 1, 0] * past[c, 1, 1]) / known[c]
    return known, mean


@compiled
def coming_samples(kind, ring, ring_count, past, future):
    """The samples expected: each cell's ring, moved to its mean, weighted to last until the horizon.

    Where outputs must lie within an interval, none is moved by more than half its way to the end of it.
    Returns (outputs, cells, weights, samples and weight of each cell).
    """
    mass, mean = _raw_means(past)
    kept, cell_weight = np.minimum(ring_count, RING).astype(np.int64), future * mass / mass.sum()
    size, at = kept.sum(), 0
    z, cell, weight = np.empty(size), np.empty(size, dtype=np.int32), np.empty(size)
    for c in range(kept.size):
        middle = 0.0
        for i in range(kept[c]):
            middle += ring[c, i] / kept[c]
        for i in range(kept[c]):
            z[at], cell[at], weight[at] = ring[c, i] + (mean[c] - middle), c, cell_weight[c] / kept[c]
            if kind != SQUARED:
                z[at] = max(z[at], 0.5 * ring[c, i])
                if kind == ENTROPY:
                    z[at] = min(z[at], 0.5 + 0.5 * ring[c, i])
            at += 1
    return z, cell, weight, kept.astype(np.float64), cell_weight


@compiled
def coming_points(ring, ring_count, past, future, classes):
    """The same of class probabilities: the rings of each cell's classes, moved to their means.

    No probability falls to less than half of itself. Returns (points, cells, weights, weight of each cell and class).
    """
    d, G = classes, ring_count.size // classes
    known, mean = _raw_means(past)
    mass, kept = np.zeros(G), np.minimum(ring_count[::d], RING).astype(np.int64)
    for c in range(G):  # a drift may have been found in some classes, and the rest forgotten of these
        mass[c] = known[c * d : (c + 1) * d].max()
    own, size, at = future * mass / mass.sum(), kept.sum(), 0
    z, cell, weight = np.empty((size, d)), np.empty(size, dtype=np.int32), np.empty(size)
    for c in range(G):
        if kept[c] == 0:
            continue
        for j in range(c * d, (c + 1) * d):
            middle = ring[j, : kept[c]].mean()
            for i in range(kept[c]):
                z[at + i, j - c * d] = max(ring[j, i] + (mean[j] - middle), 0.5 * ring[j, i])
        for i in range(kept[c]):
            z[at + i] /= z[at + i].sum()
            cell[at + i], weight[at + i] = c, own[c] / kept[c]
        at += kept[c]
    return z, cell, weight, np.repeat(own, d)


@compiled
def noise(start, statistic, share, sums, square, counted):
    """(K,) variance of the pooled mean of each statistic."""
    value, squares = np.zeros(counted.size), np.zeros(counted.size)
    for c in range(sums.shape[0]):
        for e in range(start[c], start[c + 1]):
            value[statistic[e]] += share[e] * sums[c, TOTAL]
            squares[statistic[e]] += share[e] * square[c]
    for k in range(counted.size):
        n = counted[k]
        squares[k] = max(squares[k] / n - (value[k] / n) ** 2, 0.0) / n if n > 1.0 else 0.0
    return squares


class Leader:
    """The leader of one stream: when to solve, and the shift to apply."""

    margin = MARGIN

    def __init__(self, book: CellIndex, account: CellSums, kind: Any = SQUARED):
        self.book = book
        self.account = account
        self.kind = kind  # of discrepancy
        self._shift: tuple[RowPlan, np.ndarray, np.ndarray] | None = None

    def shift(self) -> np.ndarray:
        """Of each cell. A cell without a target gets what is to be expected of those with one, by their counts now."""
        plan = self.book.plan
        if self._shift is None or self._shift[0] is not plan:
            cell, price = np.repeat(np.arange(plan.size), np.diff(plan.start)), self.prices()[plan.statistic]
            shift = np.bincount(cell, weights=plan.share * price, minlength=plan.size)
            self._shift = (plan, shift, self.book.without_target())
        _, shift, pending = self._shift
        if not (pending >= 0).any():
            return shift
        shift, count = shift.copy(), self.account.count
        for p in np.unique(pending[pending >= 0]):
            with_target = np.flatnonzero(pending == p)
            if count[with_target].sum() > 0:
                shift[p] = np.average(shift[with_target], weights=count[with_target])
        return shift

    def maybe_resolve(self, box: Box) -> None:
        """After a batch: look for drift, and solve again when the stream has grown enough."""
        numbers = self.account.numbers
        drifted = look_for_drift(self.account.cells["past"])
        if drifted or numbers["samples"] >= (1.0 + SOON * HORIZON) * numbers["led_at"]:
            self.resolve(box)

    def horizon(self) -> float:
        """How many samples to plan for, from now on."""
        numbers = self.account.numbers
        samples, led_at = numbers["samples"], numbers["led_at"]
        numbers["led_at"] = samples
        horizon = BLIND if (self.book.without_target() >= 0).any() else HORIZON
        # Batches may be longer than the horizon; the prices serve at least until the next solve.
        return max(horizon * samples, samples - led_at, 1.0)

    def resolve(self, box: Box) -> None:
        """Find the prices anew: project what is expected, with the ledger as an offset."""
        cells, plan = self.account.cells, self.book.plan
        future = self.horizon()
        z, cell, weights, count, weight = coming_samples(
            self.kind, cells["ring"], cells["ring_count"], cells["past"], future * self.book.width
        )
        if not len(z) or not len(plan.kind):
            return
        rows, some = self.rows_ahead(weight, future)
        outcome, nu, *_ = solve_loops(
            self.kind, z, cell, weights, count, weight, *box.wide(), rows, np.zeros(0), UNIT, False, np.empty(len(z))
        )
        if outcome == DONE:
            self.set_prices(nu / some)

    def rows_ahead(self, weight: np.ndarray, future: float) -> tuple[Rows, np.ndarray]:
        """The pooled rows after the samples expected, aimed inside their bounds, and (K,) what the means are over.

        weight: (G,) of the samples expected in each cell; future: of them all.
        """
        cells, plan = self.account.cells, self.book.plan
        counted, high, low, _ = history(
            plan.start, plan.statistic, plan.share, plan.residual, cells["sums"], cells["error"]
        )
        total = counted + plan.totals(weight)
        known = total > 0
        some = np.where(known, total, 1.0)
        upper = self.aims(counted, future)
        lower = np.where(plan.kind == RATIO, -np.inf, -upper)
        return plan.rows(plan.share / some[plan.statistic], known, -(high + low) / some, lower, upper), some

    def prices(self) -> np.ndarray:
        """(K,) one of each statistic."""
        return np.array([self.account.price.get(label, 0.0) for label in self.book.plan.labels])

    def set_prices(self, price: np.ndarray) -> None:
        """Take these from now on, (K,) one of each statistic."""
        self.account.price = dict(zip(self.book.plan.labels, price.tolist(), strict=True))
        self._shift = None

    def aims(self, counted: np.ndarray, future: float) -> np.ndarray:
        """(F,) the tolerances less what to keep away from them: some standard deviations of the pooled gap.

        counted: (K,) what the means are over so far; future: how many samples are to come.
        """
        plan, numbers, cells = self.book.plan, self.account.numbers, self.account.cells
        upper = self.book.rules.limits(plan)[1]
        variance = noise(plan.start, plan.statistic, plan.share, cells["sums"], cells["square"], counted)
        samples, emitted = numbers["samples"], float(self.account.count.sum()) / self.book.width
        batch = samples / numbers["batches"] if samples else 1.0
        deviations = self.margin * np.sqrt(2.0 * np.log1p(samples / batch**2))
        largest = np.zeros(len(plan.kind))
        for f, (first, last) in enumerate(zip(plan.first[:-1].tolist(), plan.first[1:].tolist(), strict=True)):
            largest[f] = np.sort(variance[first:last])[-2:].sum()
        # Equal means as they are now leave a share of them to a ratio.
        mean = float(self.account.total.sum()) / (emitted * self.book.width) if emitted else 0.0
        room = np.where(plan.kind == RATIO, 0.5 * (1.0 - plan.ratio) * mean, upper)
        return upper - np.minimum(deviations * np.sqrt(largest / (1.0 + 2.0 * emitted / future)), room)

    def learn(self, raw: np.ndarray, cell: np.ndarray) -> None:
        """Take note of raw outputs."""
        cells = self.account.cells
        note_rings(raw, cell, cells["ring"], cells["ring_count"])
        note_blocks(raw, cell, cells["past"])

    def warm_up(self, raw: np.ndarray, cell: np.ndarray) -> None:
        """Learn from past data."""
        past = self.account.cells["past"]
        for i, c in enumerate(cell.tolist()):
            self.learn(raw[i : i + 1], cell[i : i + 1])
            if past[c, 1, 0] >= BLOCK:
                look_for_drift(past)


class ClassLeader(Leader):
    """The leader of a stream of class probabilities: a shift of every cell and class.

    The projection of the future is on the simplex, and gives the prices of groups in every class.
    """

    margin = 0.8  # more than for one output: several classes may make a repair necessary

    def resolve(self, box: Box) -> None:
        """Find the prices anew: project what is expected, with the ledger as an offset."""
        cells, plan, classes = self.account.cells, self.book.plan, self.book.width
        future = self.horizon()
        z, cell, weights, weight = coming_points(cells["ring"], cells["ring_count"], cells["past"], future, classes)
        if not len(z) or not len(plan.kind):
            return
        rows, some = self.rows_ahead(weight, future)
        ahead = by_class(rows, classes, 1, weight > 0.0)
        problem = class_problem(self.kind, z, cell, weights, ahead)
        found = Found.nothing(len(weight) // classes, len(ahead.family), classes)
        if not len(ahead.family) or aim(problem, problem.half, found):
            self.set_prices(spread_multipliers(found.nu, float(weights.sum()), ahead, len(some)) / some)
