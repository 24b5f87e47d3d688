"""The ledger of a stream: its book of cells, its account of them, and the leader who learns from both.

It knows nothing of stores and transactions: give it a batch, and it says what to enter; give it back its bytes, and it
goes on to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairlayer.binding.bounds import read_bounds
from fairlayer.binding.conditions import condition_columns
from fairlayer.binding.groups import Column
from fairlayer.binding.row_plan import PresentRows, RowPlan
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.solution import Facts, Status
from fairlayer.solve.class_rows import column_cells
from fairlayer.stream.cell_index import LABELLED, CellIndex
from fairlayer.stream.cell_sums import (
    COUNT,
    DECISION_FIELDS,
    EARLY,
    OUTPUT_FIELDS,
    RAW,
    TARGET,
    TOTAL,
    CellSums,
)
from fairlayer.stream.fair_rounding import limit_units
from fairlayer.stream.kernels import add_sums, history, note_raw, note_shares, pooled_statistics, settle
from fairlayer.stream.leader import ClassLeader, Leader
from fairlayer.stream.policies import Outcome
from fairlayer.stream.settings import Settings
from fairlayer.stream.store import Pending
from fairlayer.stream.threshold_leader import ThresholdLeader

ROUNDING = 1e-9  # of a tolerance
_NO_SHARES = [1.0, 0.0, 0.0, 0.0, 0.0]  # of a row before its first batch, see kernels.note_shares


class Ledger:
    """All that was emitted, by cell, and what follows from it."""

    def __init__(
        self, settings: Settings, levels: Mapping[Name, Sequence[Label]] | None = None, block: bytes | None = None
    ):
        """levels: all labels that attributes can have, where others are to be refused. block: what to go on from."""
        self.settings = settings
        column = "class" if settings.simplex else "output"
        self.book = CellIndex(settings.rules, levels, column, settings.classes)
        self._limits: tuple[RowPlan, np.ndarray, np.ndarray] | None = None
        self._fields = OUTPUT_FIELDS if settings.threshold is None else DECISION_FIELDS
        self._go_on(CellSums(self._fields))
        if block is not None:
            self.load_bytes(block)

    def _go_on(self, account: CellSums) -> None:
        """Go on from this account."""
        settings = self.settings
        self.account = account
        self.leader: Leader
        if settings.threshold is not None:
            self.leader = ThresholdLeader(self.book, account, settings.threshold)
        else:
            self.leader = (ClassLeader if settings.simplex else Leader)(self.book, account, settings.kind)
        self._cell_names: list[str] = []
        self._shares: tuple[PresentRows, np.ndarray] | None = None
        self._full: PresentRows | None = None  # the view, once all groups have samples

    def _counted(self, values: np.ndarray) -> np.ndarray:
        """(n,) what is summed of these outputs: themselves, or 1 for a yes and 0 for a no."""
        threshold = self.settings.threshold
        return values if threshold is None else (values >= np.float64(threshold)).astype(np.float64)

    # Entering

    def locate(self, n: int, groups: Any, features: Any, targets: Any, new: bool = True, width: int = 1) -> np.ndarray:
        """The cell of each output of a batch, with room for it in the account; below 0 for a new one, if none may be
        made. width: outputs of each sample.
        """
        self.book.check_width(width)
        cell = self.book.look_up(groups, n)
        if cell is None:
            cell = self.book.locate(n, groups, features, targets, new, width)
            self.account.grow(len(self.book) * self.book.width)
        return column_cells(cell, width)

    def enter(
        self, raw: np.ndarray, outcome: Outcome, cell: np.ndarray, targets: np.ndarray | None
    ) -> tuple[float, float]:
        """Enter a batch that was emitted; how many of its samples were changed, and by how much in all."""
        cells, numbers = self.account.cells, self.account.numbers
        counted = self._counted(outcome.value)
        changed, change, square, largest = settle(
            raw, outcome.value, counted, cell, cells["sums"], cells["error"], cells["square"], self.book.width
        )
        self.leader.learn(raw, cell)
        if targets is not None:
            add_sums(targets, cell, TARGET, cells["sums"], cells["error"])
        early_or_late = self.account.moments[int(numbers["samples"] >= EARLY)]
        note_raw(self._counted(raw), counted, cell, cells["sums"], early_or_late)
        numbers["batches"] += 1
        numbers["samples"] += len(raw) // self.book.width
        numbers["changed"] += changed
        numbers["change"] += change
        numbers["square_change"] += square
        numbers["largest_change"] = max(numbers["largest_change"], largest)
        numbers["excess"] = max(numbers["excess"], outcome.excess)
        numbers["overruled"] += outcome.overruled
        plan, view = self.book.plan, self.view()
        if not plan.any_residual:
            note_shares(counted, cell, plan.membership, view.plus, view.minus, self._row_shares(view))
        return changed, change

    def enter_targets(self, decisions: Sequence[Pending], targets: np.ndarray) -> dict[str, Any]:
        """Move decisions whose targets have arrived to the cells they belong to now; what changed, for the log."""
        old, output, raw = (np.array(each) for each in zip(*decisions, strict=True))
        new = np.array(self._cells_with_targets(old.tolist(), targets), dtype=np.int32)
        self.account.grow(len(self.book))
        self._full = None
        touched = np.union1d(old, new)
        before = self.record(touched)
        sums, error = self.account.cells["sums"], self.account.cells["error"]
        for cell, sign in ((old.astype(np.int32), -1.0), (new, 1.0)):
            np.add.at(sums[:, COUNT], cell, sign)
            np.add.at(sums[:, RAW], cell, sign * raw)
            np.add.at(self.account.cells["square"], cell, sign * output**2)
            add_sums(sign * output, cell, TOTAL, sums, error)
        add_sums(targets, new, TARGET, sums, error)
        self.leader.learn(raw, new)
        self.resolve()
        return self.changes(touched, before)

    def _cells_with_targets(self, cells: Sequence[int], targets: np.ndarray) -> list[int]:
        """The cells that samples of `cells` belong to with these targets."""
        columns: dict[Any, Any] = {LABELLED: Column("labelled", np.zeros(len(cells), dtype=np.int64), (True,))}
        for constraint in self.settings.rules.constraints:
            if constraint.needs_targets:
                columns.update(condition_columns(constraint, None, targets))
        numbers = []
        for i, cell in enumerate(cells):
            labels = dict(zip(self.book.keys, self.book.cell_labels(cell), strict=True))
            labels |= {key: column.labels[column.values[i]] for key, column in columns.items()}
            numbers.append(self.book.number(list(labels.values())))
        return numbers

    def warm_up(self, raw: np.ndarray, groups: Any, features: Any = None) -> None:
        """Let the leader learn from past data, of shape (n,) or (n, d), which do not enter the ledger."""
        width = raw.shape[1] if raw.ndim == 2 else 1
        cell = self.locate(len(raw), groups, features, None, width=width)
        self.leader.warm_up(raw.reshape(-1), cell)
        self.account.numbers["taught"] += len(raw)
        self.resolve()

    def resolve(self) -> None:
        """Let the leader find its shift anew."""
        self.leader.resolve(read_bounds(self.settings.bounds, 1, np.float64))

    # Asking

    def view(self) -> PresentRows:
        """The rows between groups that have samples."""
        plan = self.book.plan
        if self._full is not None and self._full.plan is plan:
            return self._full
        view = plan.view(plan.totals(self.account.count) > 0)
        if view.present.all():
            self._full = view
        return view

    def decision_limits(self) -> tuple[np.ndarray, np.ndarray]:
        """(G, F) the group of each cell in each family, and (F,) what the families admit: see fair_rounding.py."""
        plan = self.book.plan
        if self._limits is None or self._limits[0] is not plan:
            group = plan.statistic.reshape(plan.size, len(plan.kind))  # every cell has one in each family
            self._limits = plan, group, limit_units(plan.kind, plan.ratio, self.settings.rules.limits(plan)[1])
        return self._limits[1:]

    def statistics(self) -> np.ndarray:
        """(K,) the pooled means."""
        plan, cells = self.book.plan, self.account.cells
        so_far = history(plan.start, plan.statistic, plan.share, plan.residual, cells["sums"], cells["error"])
        return pooled_statistics(so_far)

    def measure(self) -> tuple[PresentRows, np.ndarray, list[float]]:
        """The pooled rows, the means they compare, and the largest gap of each constraint, which is remembered."""
        view, q = self.view(), self.statistics()
        now = view.largest(q, len(self.settings.tolerances))
        before = self.account.largest or [0.0] * len(now)
        self.account.largest = [max(pair) for pair in zip(before, now, strict=True)]
        return view, q, now

    def facts(self, outcome: Outcome, waiting: bool) -> Facts:
        """What is known after a batch; waiting: for targets that some constraint needs."""
        view, q, now = self.measure()
        status = outcome.status
        if status in (Status.OPTIMAL, Status.VACUOUS):
            # A policy may not look at every row; what it promises, it has checked without this slack.
            beyond = any(gap > (1.0 + ROUNDING) * t for gap, t in zip(now, self.settings.tolerances, strict=True))
            if waiting:
                status = Status.UNCERTIFIED
            elif beyond:
                status = Status.EXCEEDED if self.settings.threshold is None else Status.GRANULAR
            else:
                status = Status.VACUOUS if view.vacuous else Status.OPTIMAL
        return Facts(view, q, outcome.nu, np.zeros(0), outcome.excess, promise=status)

    def facts_so_far(self) -> Facts:
        """What is known after a batch without samples."""
        nothing = np.zeros(len(self.book.plan.residual))
        if not self.account.count.any():
            return Facts(self.view(), nothing, nothing, nothing[:0], promise=Status.VACUOUS)
        return self.facts(Outcome(nothing[:0], nothing, Status.OPTIMAL), waiting=False)

    def shares(self) -> dict[str, list[float]]:
        """What Lemma 3.1 needs, by row."""
        if self._shares is not None:
            view, kept = self._shares
            self.account.shares.update(zip(view.names, kept.tolist(), strict=True))
        return self.account.shares

    def _row_shares(self, view: PresentRows) -> np.ndarray:
        """The same as an array, in the order of a view's rows."""
        if self._shares is None or self._shares[0] is not view:
            known = self.shares()
            rows = [known.get(name, _NO_SHARES) for name in view.names]
            self._shares = (view, np.array(rows, dtype=np.float64).reshape(len(rows), len(_NO_SHARES)))
        return self._shares[1]

    # Recording

    def record(self, touched: np.ndarray) -> list[list[float]]:
        """The sums of some cells, as a log keeps them."""
        return self.account.cells["sums"][touched].tolist()

    def changes(self, touched: np.ndarray, before: list[list[float]]) -> dict[str, Any]:
        """Sums of some cells before and now, by cell."""
        after = self.record(touched)
        return {self.cell_name(c): [b, a] for c, b, a in zip(touched.tolist(), before, after, strict=True)}

    def cell_name(self, cell: int) -> str:
        """The labels of a cell, as a log names it."""
        while len(self._cell_names) <= cell:
            self._cell_names.append(self.book.cell_text(len(self._cell_names)))
        return self._cell_names[cell]

    def recorded(self) -> dict[str, list[float]]:
        """The sums of every cell, by cell."""
        return {self.cell_name(c): sums for c, sums in enumerate(self.record(np.arange(len(self.account))))}

    def rewind(self) -> dict[str, np.ndarray]:
        """Forget all sums, keeping the cells. Returns those of each, by cell: to be set as a log has them."""
        self.account.cells["sums"][:] = 0.0
        self._full = None
        return {self.cell_name(c): sums for c, sums in enumerate(self.account.cells["sums"])}

    def to_bytes(self) -> bytes:
        """Everything, to go on from."""
        self.shares()
        return self.account.to_bytes(self.book.to_data())

    def load_bytes(self, block: bytes) -> None:
        """What `to_bytes` gave."""
        account, data = CellSums.from_bytes(block, self._fields)
        self.book.load_data(data)
        self._go_on(account)
