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

import numpy as np

from fairlayer.binding.bounds import Box
from fairlayer.binding.rows import Rows
from fairlayer.binding.system import Plan
from fairlayer.compiled import compiled
from fairlayer.solve.fused import reach_and_magnitude, solve_fused
from fairlayer.solve.newton import DONE
from fairlayer.stream.cell_index import CellIndex
from fairlayer.stream.cell_sums import COUNT, RING, TOTAL, CellSums
from fairlayer.stream.kernels import history, leader_shift, learn

HORIZON = 0.1  # of the stream's length so far
BLIND = 1.0  # the same, where targets come later: the shift then hits the wrong cells too, and haste would overshoot
MARGIN = 0.55  # standard deviations of the pooled gap, times sqrt(2 log(1 + samples / batch size squared))
SOON = 0.1  # of the horizon between two solves of the leader
BLOCK = 64.0  # samples after which a cell's latest block is first looked at for drift
DRIFT = 6.0  # standard errors


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
def lead(membership, residual, plus, minus, lower, upper, sums, square, ring, ring_count, past, lo, hi, future, margin):
    """The leader's price of each statistic, and whether it could be found.

    The plan is for `future` samples, and keeps away from the tolerances by `margin` standard deviations of the pooled
    gap. The prices of a cell's statistics add up to its shift.
    """
    G, K = membership.shape
    price = np.zeros(K)
    # The future: each cell's ring, moved to its mean, weighted to last until the horizon.
    size, seen, emitted = 0, 0.0, 0.0
    mass, mean = np.zeros(G), np.zeros(G)
    for c in range(G):
        size += min(int(ring_count[c]), RING)
        mass[c] = past[c, 0, 0] + past[c, 1, 0]
        if mass[c] > 0.0:
            mean[c] = (past[c, 0, 0] * past[c, 0, 1] + past[c, 1, 0] * past[c, 1, 1]) / mass[c]
        seen += mass[c]
        emitted += sums[c, COUNT]
    if size == 0 or plus.size == 0:
        return price, True
    z, cell, weight = np.empty(size), np.empty(size, dtype=np.int32), np.empty(size)
    at = 0
    cell_weight, cell_count = np.zeros(G), np.zeros(G)
    for c in range(G):
        kept = min(int(ring_count[c]), RING)
        if kept == 0:
            continue
        middle = 0.0
        for i in range(kept):
            middle += ring[c, i] / kept
        cell_weight[c], cell_count[c] = future * mass[c] / seen, float(kept)
        for i in range(kept):
            z[at], cell[at], weight[at] = ring[c, i] + (mean[c] - middle), c, cell_weight[c] / kept
            at += 1
    # Pooled rows at the horizon, and how much noise their statistics carry.
    M, constant, noise = np.zeros((G, K)), np.zeros(K), np.zeros(K)
    total_weight = np.zeros(K)
    for k in range(K):
        counted, high, low = history(membership, residual, sums, k)
        value, squares = 0.0, 0.0
        total_weight[k] = counted
        for c in range(G):
            if membership[c, k] != 0.0:
                total_weight[k] += membership[c, k] * cell_weight[c]
                value += membership[c, k] * sums[c, TOTAL]
                squares += membership[c, k] * square[c]
        if total_weight[k] > 0.0:
            constant[k] = -(high + low) / total_weight[k]
            for c in range(G):
                M[c, k] = membership[c, k] / total_weight[k]
        if counted > 1.0:
            noise[k] = max(squares / counted - (value / counted) ** 2, 0.0) / counted
    low, high = lower.copy(), upper.copy()
    for j in range(plus.size):
        variance = noise[plus[j]]
        if minus[j] >= 0:
            variance += noise[minus[j]]
        away = min(margin * np.sqrt(variance / (1.0 + 2.0 * emitted / future)), 0.5 * (upper[j] - lower[j]))
        low[j] += away
        high[j] -= away
    bound_low, bound_high = float(lo[0]), float(hi[0])
    least, most = np.zeros(G), np.zeros(G)
    for c in range(G):
        if cell_weight[c] > 0.0:
            least[c], most[c] = cell_weight[c] * bound_low, cell_weight[c] * bound_high
    reach, magnitude = reach_and_magnitude(z.min(), z.max(), bound_low, bound_high)
    rows = Rows(M, constant, plus, minus, low, high)
    sides = np.array([bound_low]), np.array([bound_high])
    end = solve_fused(
        z, cell, weight, cell_count, cell_weight, sides[0], sides[1], least, most, reach, magnitude, 2.0**-53, rows,
        np.empty(size),
    )  # fmt: skip
    if end[0] != DONE:
        return price, False
    for j in range(plus.size):
        price[plus[j]] += end[1][j]
        if minus[j] >= 0:
            price[minus[j]] -= end[1][j]
    for k in range(K):
        if total_weight[k] > 0.0:
            price[k] /= total_weight[k]
    return price, True


class Leader:
    """The leader of one stream: when to solve, and the shift to apply."""

    def __init__(self, book: CellIndex, account: CellSums):
        self.book = book
        self.account = account
        self._shift: tuple[Plan, np.ndarray, np.ndarray] | None = None

    def shift(self) -> np.ndarray:
        """Of each cell. A cell without a target gets what is to be expected of those with one, by their counts now."""
        plan = self.book.plan
        if self._shift is None or self._shift[0] is not plan:
            price = np.array([self.account.price.get(label, 0.0) for label in plan.labels])
            self._shift = (plan, leader_shift(plan.membership, price), self.book.without_target())
        _, shift, pending = self._shift
        if not (pending >= 0).any():
            return shift
        shift, count = shift.copy(), self.account.count
        for p in np.unique(pending[pending >= 0]):
            with_target = np.flatnonzero(pending == p)
            if count[with_target].sum() > 0:
                shift[p] = np.average(shift[with_target], weights=count[with_target])
        return shift

    def follow(self, box: Box, tolerances: tuple[float, ...]) -> None:
        """After a batch: look for drift, and solve again when the stream has grown enough."""
        numbers = self.account.numbers
        drifted = look_for_drift(self.account.cells["past"])
        if drifted or numbers["samples"] >= (1.0 + SOON * HORIZON) * numbers["led_at"]:
            self.solve(box, tolerances)

    def solve(self, box: Box, tolerances: tuple[float, ...]) -> None:
        """Find the prices anew."""
        cells, plan = self.account.cells, self.book.plan
        known = (self.account.count + cells["ring_count"]) @ plan.membership > 0
        view = plan.view(known)
        numbers = self.account.numbers
        horizon = BLIND if (self.book.without_target() >= 0).any() else HORIZON
        # Batches may be longer than the horizon; the prices serve at least until the next solve.
        samples = numbers["samples"]
        future = max(horizon * samples, samples - numbers["led_at"], 1.0)
        batch = samples / numbers["batches"] if samples else 1.0
        margin = MARGIN * np.sqrt(2.0 * np.log1p(samples / batch**2))
        price, found = lead(
            plan.membership,
            plan.residual,
            view.plus,
            view.minus,
            *view.limits(tolerances),
            *(cells[name] for name in ("sums", "square", "ring", "ring_count", "past")),
            box.lo,
            box.hi,
            future,
            margin,
        )
        numbers["led_at"] = samples
        if found:
            self.account.price = dict(zip(plan.labels, price.tolist(), strict=True))
            self._shift = None

    def teach(self, raw: np.ndarray, cell: np.ndarray) -> None:
        """Learn from past data."""
        cells = self.account.cells
        for c, value in zip(cell.tolist(), raw.tolist(), strict=True):
            learn(cells["ring"], cells["ring_count"], cells["past"], RING, c, value)
            if cells["past"][c, 1, 0] >= BLOCK:
                look_for_drift(cells["past"])
