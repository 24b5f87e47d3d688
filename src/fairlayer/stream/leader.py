"""The leader: the shift that would have been best for the raw stream so far, applied before the ledger repairs.

The ledger alone repairs late, and distorts more than it must. The leader takes the stream to go on as it has been, for
a tenth as long again as it has run, and solves the pooled projection over that future with the ledger as its offset:
what has gone astray is brought back over that horizon rather than at once. It aims inside the tolerance by some
standard deviations of the pooled gap, so that the repair seldom binds: by more of them for small batches, on whose few
samples a repair falls.

What "as it has been" means: per cell, the mean of all raw outputs since the last drift, and the shape of the last 256
of them. Drift is looked for in the latest block of a cell's samples, an eighth as long as all before it, at 64 samples
and whenever their number has doubled: when the mean is six standard errors off, everything before the block is
forgotten.
"""

from __future__ import annotations

import numpy as np

from fairlayer.core._native import find_drift, learn_outputs, learn_scores, pooled_means, solve_prices
from fairlayer.problem.bounds import Box
from fairlayer.problem.row_plan import RowPlan
from fairlayer.problem.rows import RATIO, Rows
from fairlayer.stream.cell_index import CellIndex
from fairlayer.stream.settings import Settings
from fairlayer.stream.solver import Problem, Solver
from fairlayer.stream.state import RECENT, State

HORIZON = 0.1  # of the stream's length so far
BLIND = 1.0  # the same, where targets come later: the shift then hits the wrong cells too, and haste would overshoot
SOON = 0.1  # of the horizon between two solves of the leader
BLOCK = 64  # samples after which a cell's latest block is first looked at for drift
DRIFT = 6.0  # standard errors
# Of decisions:
DECISIONS_AHEAD = 60.0  # to plan for at least: a shorter plan has everybody make up for a group of a handful
FEW = 20.0  # scores of a cell: what is learned from fewer counts by less than half
FORGOTTEN = 0.25  # of the scores since a drift: what those before it still count together


class Leader:
    """When to solve, and the shift to apply."""

    def __init__(self, settings: Settings, index: CellIndex, state: State):
        self.settings = settings
        self.index = index
        self.state = state
        self.solver = Solver(settings)
        # Standard deviations of the pooled gap to keep away from it, times sqrt(2 log(1 + samples / batch size^2)).
        # More for classes: several of them may make a repair necessary.
        self.margin = 0.8 if settings.simplex else 0.55
        self.least_horizon = 1.0
        self._shift: tuple[RowPlan, np.ndarray, np.ndarray] | None = None

    def shift(self) -> np.ndarray:
        """Of each cell. A cell without a target gets what is to be expected of those with one, by their counts now."""
        plan = self.index.plan
        if self._shift is None or self._shift[0] is not plan:
            cell = np.repeat(np.arange(plan.size), np.diff(plan.start))
            shift = np.bincount(cell, weights=self.prices()[plan.statistic], minlength=plan.size)
            self._shift = (plan, shift, self.index.without_target())
        _, shift, pending = self._shift
        if not (pending >= 0).any():
            return shift
        shift, count = shift.copy(), self.state.count
        for p in np.unique(pending[pending >= 0]):
            with_target = np.flatnonzero(pending == p)
            if count[with_target].sum() > 0:
                shift[p] = np.average(shift[with_target], weights=count[with_target])
        return shift

    def learn(self, raw: np.ndarray, cell: np.ndarray) -> None:
        """Take note of raw outputs, in float64."""
        learn_outputs(self.state.past_rows, self.state.recent, cell, raw)

    def warm_up(self, raw: np.ndarray, cell: np.ndarray) -> None:
        """Learn from past data."""
        for at in range(0, len(raw), BLOCK):
            self.learn(raw[at : at + BLOCK], cell[at : at + BLOCK])
            self.find_drift()

    def find_drift(self) -> bool:
        """Whether raw outputs of some cell are no longer what they were; if so, the earlier ones are forgotten."""
        return find_drift(self.state.past_rows, BLOCK, DRIFT)

    def maybe_resolve(self, box: Box) -> None:
        """After a batch: look for drift, and solve again when the stream has grown enough."""
        totals = self.state.totals
        if self.find_drift() or totals.samples >= (1.0 + SOON * HORIZON) * totals.led_at:
            self.resolve(box)

    def horizon(self) -> float:
        """How many samples to plan for, from now on."""
        totals = self.state.totals
        since, totals.led_at = totals.samples - totals.led_at, totals.samples
        horizon = BLIND if (self.index.without_target() >= 0).any() else HORIZON
        # Batches may be longer than the horizon; the prices serve at least until the next solve.
        return max(horizon * totals.samples, since, self.least_horizon)

    def resolve(self, box: Box) -> None:
        """Find the prices anew: project what is expected, with the ledger as an offset."""
        plan, width = self.index.plan, self.index.width
        future = self.horizon()
        if not len(plan.kind) or not self.state.past["known"].any():
            return
        z, cell, weights, weight = self._expected(future)
        rows, some = self._rows_ahead(weight, future)
        problem = Problem(z, cell, rows, box, np.dtype(np.float64), width, weights)
        nu = self.solver.multipliers(problem)
        if nu is not None:
            self.set_prices(nu / some)

    def _expected(self, future: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The samples expected: each cell's ring, moved to its mean, weighted to last until the horizon.

        Where outputs lie within an interval, none is moved by more than half its way to the end of it.
        Returns outputs, their cells, weights of the samples, and (G,) of the cells.
        """
        simplex, classes = self.settings.simplex, self.index.width if self.settings.simplex else 1
        before, latest = self.state.past["before"], self.state.past["latest"]
        known = before["count"] + latest["count"]
        mean = (before["count"] * before["mean"] + latest["count"] * latest["mean"]) / np.maximum(known, 1.0)
        kept = np.minimum(self.state.past["known"], RECENT)
        inside = np.arange(int(kept.max())) < kept[:, None]
        ring = self.state.recent[:, : inside.shape[1]]
        z = ring + (mean - np.where(inside, ring, 0.0).sum(axis=1) / np.maximum(kept, 1.0))[:, None]
        if simplex or self.settings.discrepancy != "squared":
            z = np.maximum(z, 0.5 * ring)
        if self.settings.discrepancy == "entropy" and not simplex:
            z = np.minimum(z, 0.5 + 0.5 * ring)
        # A drift may have been found in some classes, and the rest forgotten of these alone.
        mass = known.reshape(-1, classes).max(axis=1)
        weight = future * self.index.width / classes * mass / mass.sum()
        here = inside[::classes]
        sample = np.nonzero(here)[0]
        points = z.reshape(len(mass), classes, -1).transpose(0, 2, 1)[here]  # (n, classes)
        if simplex:
            points /= points.sum(axis=1, keepdims=True)
        cell = (sample[:, None] * classes + np.arange(classes)).astype(np.int32)
        each = (weight / np.maximum(kept[::classes], 1.0))[sample]
        return points.reshape(-1), cell.reshape(-1), each, np.repeat(weight, classes)

    def _rows_ahead(self, weight: np.ndarray, future: float) -> tuple[Rows, np.ndarray]:
        """The pooled rows after the samples expected, aimed inside their bounds, and (K,) what the means are over.

        weight: (G,) of the samples expected in each cell; future: of them all.
        """
        plan = self.index.plan
        counted, total, _ = pooled_means(self.state.cell_rows, plan.start, plan.statistic, plan.residual)
        over = counted + self.index.by_statistic(weight)
        known = over > 0
        some = np.where(known, over, 1.0)
        upper = self.aims(counted, future)
        lower = np.where(plan.kind == RATIO, -np.inf, -upper)
        return plan.rows(1.0 / some[plan.statistic], known, -total / some, lower, upper), some

    def prices(self) -> np.ndarray:
        """(K,) one of each statistic."""
        return np.array([self.state.price.get(label, 0.0) for label in self.index.plan.labels])

    def set_prices(self, price: np.ndarray) -> None:
        """Take these from now on, (K,) one of each statistic."""
        self.state.price = dict(zip(self.index.plan.labels, price.tolist(), strict=True))
        self._shift = None

    def aims(self, counted: np.ndarray, future: float) -> np.ndarray:
        """(F,) the tolerances less what to keep away from them: some standard deviations of the pooled gap.

        counted: (K,) what the means are over so far; future: how many samples are to come.
        """
        plan, totals, state = self.index.plan, self.state.totals, self.state
        upper = self.index.rules.limits(plan)[1]
        some = np.maximum(counted, 1.0)
        mean = self.index.by_statistic(state.cells["total"][:, 0]) / some
        variance = np.maximum(self.index.by_statistic(state.cells["square"]) / some - mean**2, 0.0) / some
        variance[counted <= 1.0] = 0.0
        ends = zip(plan.first[:-1].tolist(), plan.first[1:].tolist(), strict=True)
        largest = np.array([np.sort(variance[first:last])[-2:].sum() for first, last in ends])
        emitted = float(state.count.sum()) / self.index.width
        batch = totals.samples / totals.batches if totals.samples else 1.0
        deviations = self.margin * np.sqrt(2.0 * np.log1p(totals.samples / batch**2))
        # Equal means as they are now leave a share of them to a ratio.
        overall = float(state.total.sum()) / (emitted * self.index.width) if emitted else 0.0
        room = np.where(plan.kind == RATIO, 0.5 * (1.0 - plan.ratio) * overall, upper)
        return upper - np.minimum(deviations * np.sqrt(largest / (1.0 + 2.0 * emitted / future)), room)


class ThresholdLeader(Leader):
    """The leader of a stream of decisions: a threshold for every cell, so that the ledger seldom has to overrule.

    Overruling costs much, since it hits the next person however far their score is from the threshold. So what was
    decided so far is made up for by moving thresholds: those are found that bring all rates, those decided and those
    to come, into their ranges at the least squared change. As for means, the leader aims inside the tolerance.
    """

    def __init__(self, settings: Settings, index: CellIndex, state: State):
        super().__init__(settings, index, state)
        assert settings.threshold is not None
        self.threshold = settings.threshold
        self.margin = 0.7  # as for means, but overruling a decision costs more than repairing a mean
        self.least_horizon = DECISIONS_AHEAD

    def thresholds(self) -> np.ndarray:
        """Of each cell. What the last score that is moved costs is the square of its distance.

        The less is known of a cell, the less its threshold is moved: its rate then stays near that of the raw scores.
        """
        shift, known = self.shift(), self.state.past["known"]
        return self.threshold + known / (known + FEW) * np.copysign(np.sqrt(np.abs(shift)), shift)

    def learn(self, raw: np.ndarray, cell: np.ndarray) -> None:
        """Take note of raw scores, in float64."""
        state = self.state
        state.totals.distance = learn_scores(
            state.past_rows, state.recent, cell, raw, self.threshold, state.totals.distance
        )

    def resolve(self, box: Box) -> None:
        """Find the prices anew: the least change of what is expected, with the ledger as an offset."""
        state, plan = self.state, self.index.plan
        horizon = self.horizon()
        if state.totals.distance == 0.0 or not len(plan.kind):
            return
        count, yes = self.index.by_statistic(state.count), self.index.by_statistic(state.cells["total"][:, 0])
        width = self.aims(count, horizon)
        price, group = self.prices(), plan.statistic.reshape(plan.size, len(plan.kind))
        coming = self._coming(horizon)
        solve_prices(
            state.past_rows, state.recent, state.totals.distance, group, plan.first, plan.ratio, width, coming, count,
            yes, price,
        )  # fmt: skip
        self.set_prices(price)

    def _coming(self, horizon: float) -> np.ndarray:
        """(G,) how many samples of each cell are to come. Cells that drifted forget what was before it."""
        past = self.state.past
        since = past["before"]["count"] + past["latest"]["count"]
        faded = past["known"] > since
        share = np.where(faded, FORGOTTEN * since / np.maximum(past["known"], 1.0), 1.0)
        self.state.recent[faded] *= share[faded, None]
        past["known"] *= share
        return since * (horizon / max(since.sum(), 1.0))
