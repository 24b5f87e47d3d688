"""The ledger of a stream: what was emitted, cell by cell, what follows from it, and the leader that learns from it.

It knows nothing of stores and transactions: give it a batch, and it says what to enter; give it back its bytes, and it
goes on to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fairlayer.constraints.plain_data import Label, Name
from fairlayer.core._native import enter_batch, move_decisions, pooled_means
from fairlayer.core.classes import column_cells
from fairlayer.problem.bounds import read_bounds
from fairlayer.problem.row_plan import PresentRows
from fairlayer.solution import Solution, Status
from fairlayer.stream.batch import Batch
from fairlayer.stream.cell_index import CellIndex
from fairlayer.stream.leader import Leader, ThresholdLeader
from fairlayer.stream.settings import Settings
from fairlayer.stream.state import EARLY, RECORDED, State

ROUNDING = 1e-9  # of a tolerance
_NONE = np.zeros(0)


class Pending(NamedTuple):
    """A decision whose target has not arrived."""

    cell: int
    output: float
    raw: float


class Outcome(NamedTuple):
    """What a policy emits."""

    value: np.ndarray  # as the raw ones
    nu: np.ndarray  # multipliers of the pooled statistics; under Algorithm 1 of the batch's own, in their places
    status: Status
    excess: float = 0.0
    overruled: int = 0  # decisions that are not the leader's


class Ledger:
    """All that was emitted, by cell, and what follows from it."""

    def __init__(
        self, settings: Settings, levels: Mapping[Name, Sequence[Label]] | None = None, block: bytes | None = None
    ):
        """levels: all labels that attributes can have, where others are to be refused. block: what to go on from."""
        self.settings = settings
        self.index = CellIndex(settings, levels)
        self._go_on(State())
        if block is not None:
            self.load_bytes(block)

    def _go_on(self, state: State) -> None:
        self.state = state
        self.leader = (Leader if self.settings.threshold is None else ThresholdLeader)(self.settings, self.index, state)

    # Entering

    def locate(self, batch: Batch, new: bool = True) -> np.ndarray:
        """The cell of each output of a batch; below 0 for a new one, if none may be made."""
        cell = self.index.locate(batch.n, batch.groups, batch.features, batch.targets, new, batch.width)
        self.state.grow(len(self.index) * self.index.width)
        return column_cells(cell, batch.width)

    def enter(self, batch: Batch, cell: np.ndarray, outcome: Outcome) -> tuple[float, float]:
        """Enter a batch that was emitted; how many of its samples were changed, and by how much in all."""
        state, totals, threshold = self.state, self.state.totals, self.settings.threshold
        raw, value = (array.astype(np.float64, copy=False) for array in (batch.raw, outcome.value))
        known = _NONE if batch.known is None else batch.known
        changed, change, square, largest = enter_batch(
            state.cell_rows, cell, raw, value, known, self.index.width, np.nan if threshold is None else threshold,
            state.agreement, int(totals.samples >= EARLY),
        )  # fmt: skip
        self.leader.learn(raw, cell)
        totals.batches += 1
        totals.samples += batch.n
        totals.changed += changed
        totals.change += change
        totals.square_change += square
        totals.largest_change = max(totals.largest_change, largest)
        totals.excess = max(totals.excess, outcome.excess)
        totals.overruled += outcome.overruled
        return changed, change

    def enter_targets(self, decisions: Sequence[Pending], targets: np.ndarray) -> dict[str, Any]:
        """Move decisions whose targets have arrived to the cells they belong to now; what changed, for the log."""
        cell, output, raw = (np.array(each) for each in zip(*decisions, strict=True))
        new, old = self.index.with_targets(cell.tolist(), targets), cell.astype(np.int32)
        self.state.grow(len(self.index))
        touched = np.union1d(old, new)
        before = self.record(touched)
        move_decisions(self.state.cell_rows, old, new, raw, output, targets)
        self.leader.learn(raw, new)
        self.resolve()
        return self.changes(touched, before)

    def warm_up(self, raw: np.ndarray, groups: Any, features: Any = None) -> None:
        """Let the leader learn from past data, of shape (n,) or (n, d), which do not enter the ledger."""
        width = raw.shape[1] if raw.ndim == 2 else 1
        cell = self.index.locate(len(raw), groups, features, None, width=width)
        self.state.grow(len(self.index) * width)
        self.leader.warm_up(raw.reshape(-1).astype(np.float64), column_cells(cell, width))
        self.state.totals.taught += len(raw)
        self.resolve()

    def resolve(self) -> None:
        """Let the leader find its shift anew."""
        self.leader.resolve(read_bounds(self.settings.bounds, 1, np.float64))

    # Asking

    def view(self) -> PresentRows:
        """The rows between groups that have samples."""
        return self.index.plan.view(self.index.by_statistic(self.state.count) > 0)

    def statistics(self) -> np.ndarray:
        """(K,) the pooled means."""
        plan = self.index.plan
        return pooled_means(self.state.cell_rows, plan.start, plan.statistic, plan.residual)[2]

    def measure(self) -> tuple[PresentRows, np.ndarray, list[float]]:
        """The pooled rows, the means they compare, and the largest gap of each constraint, which is remembered."""
        view, q = self.view(), self.statistics()
        now = view.largest(q, len(self.settings.tolerances))
        before = self.state.largest or [0.0] * len(now)
        self.state.largest = [max(pair) for pair in zip(before, now, strict=True)]
        return view, q, now

    def solution(self, batch: Batch, outcome: Outcome) -> Solution:
        """What is known after a batch, once it is entered."""
        view, q, now = self.measure()
        status = outcome.status
        if status in (Status.OPTIMAL, Status.VACUOUS):
            # A policy may not look at every row; what it promises, it has checked without this slack.
            beyond = any(gap > (1.0 + ROUNDING) * t for gap, t in zip(now, self.settings.tolerances, strict=True))
            if batch.waiting and batch.n:
                status = Status.UNCERTIFIED
            elif not self.state.totals.samples:
                status = Status.VACUOUS
            elif beyond:
                status = Status.EXCEEDED if self.settings.threshold is None else Status.GRANULAR
            else:
                status = Status.VACUOUS if view.vacuous else Status.OPTIMAL
        return Solution(batch.like(outcome.value), view, q, outcome.nu, _NONE, outcome.excess, status=status)

    def unchanged(self, batch: Batch) -> Solution:
        """What is known after a batch without samples."""
        nothing = np.zeros(len(self.index.plan.residual))
        return self.solution(batch, Outcome(batch.raw, nothing, Status.OPTIMAL))

    # Recording

    def record(self, touched: np.ndarray) -> list[list[float]]:
        """The sums of some cells, as a log keeps them."""
        return self.state.cell_rows[touched, :RECORDED].tolist()

    def changes(self, touched: np.ndarray, before: list[list[float]]) -> dict[str, Any]:
        """Sums of some cells before and now, by cell."""
        after = self.record(touched)
        return {self.index.cell_name(c): [b, a] for c, b, a in zip(touched.tolist(), before, after, strict=True)}

    def recorded(self) -> dict[str, list[float]]:
        """The sums of every cell, by cell."""
        return {self.index.cell_name(c): sums for c, sums in enumerate(self.record(np.arange(len(self.state))))}

    def rewind(self) -> dict[str, np.ndarray]:
        """Forget all sums, keeping the cells. Returns those of each, by cell: to be set as a log has them."""
        self.state.cell_rows[:] = 0.0
        return {self.index.cell_name(c): row[:RECORDED] for c, row in enumerate(self.state.cell_rows)}

    def to_bytes(self) -> bytes:
        """Everything, to go on from."""
        return self.state.to_bytes(self.index.to_data())

    def load_bytes(self, block: bytes) -> None:
        """What `to_bytes` gave."""
        state, data = State.from_bytes(block)
        self.index.load_data(data)
        self._go_on(state)
