"""The leader of a stream of decisions: a threshold for every cell, so that the ledger seldom has to overrule.

Overruling costs much, since it hits the next person however far their score is from the threshold. So what was decided
so far is made up for by moving thresholds: the stream is taken to go on as it has been for a while, and the thresholds
are found that bring all rates, those decided and those to come, into their ranges at the least squared change. As for
means, the leader aims inside the tolerance by some standard deviations of the pooled gap.
"""

from __future__ import annotations

import numpy as np

from fairlayer.core._native import learn_scores, solve_prices
from fairlayer.problem.bounds import Box
from fairlayer.stream.cell_index import CellIndex
from fairlayer.stream.leader import Leader
from fairlayer.stream.settings import Settings
from fairlayer.stream.state import State

MARGIN = 0.7  # as for means, but overruling a decision costs more than repairing a mean
HORIZON = 60.0  # decisions to plan for at least: a shorter plan has everybody make up for a group of a handful
FEW = 20.0  # scores of a cell: what is learned from fewer counts by less than half
FORGOTTEN = 0.25  # of the scores since a drift: what those before it still count together


class ThresholdLeader(Leader):
    """The leader of a stream of decisions: what it finds are thresholds."""

    def __init__(self, settings: Settings, index: CellIndex, state: State):
        super().__init__(settings, index, state)
        assert settings.threshold is not None
        self.threshold = settings.threshold
        self.margin = MARGIN
        self.least_horizon = HORIZON

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
