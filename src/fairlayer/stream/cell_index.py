"""The cells that a stream has met, and what the constraints say over them.

Cells are numbered in order of appearance and keep their numbers for good; groups never seen before may appear at any
time. Where a sample has several outputs, such as the probabilities of d classes, its cell c stands for the cells c d to
c d + d - 1 of the state, one for each: an output is one more label of a cell, and rows compare groups output by
output. Where a constraint needs targets, samples whose target has not arrived are cells of their own: they count for
the constraints that need none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairlayer.constraints.plain_data import Label, Name
from fairlayer.errors import InputError
from fairlayer.plural import plural
from fairlayer.problem.cells import assign_cells
from fairlayer.problem.families import GridColumn, Key, condition_columns, unknown_columns
from fairlayer.problem.groups import Column, SoftGroup, read_groups
from fairlayer.problem.row_plan import RowPlan
from fairlayer.problem.system import check_lengths, make_plan
from fairlayer.stream.settings import Settings

LABELLED: Key = ("labelled",)


class CellIndex:
    """Cells met so far. `digits[c][j]` is the position of cell c's label in `labels[j]`.

    levels: all labels that attributes can have, where others are to be refused. width: how many outputs a sample has,
    known from the first batch on.
    """

    def __init__(self, settings: Settings, levels: Mapping[Name, Sequence[Label]] | None = None):
        self.rules = settings.rules
        self.levels = levels
        # What one of several outputs is called in the names of rows and cells: by its number, or by its own name.
        self._output = "class" if settings.simplex else "output"
        self._outputs = settings.classes
        self.names: tuple[Name, ...] | None = None
        self.keys: tuple[Key, ...] = ()
        self.labels: list[dict[Label, int]] = []
        self.digits: list[tuple[int, ...]] = []
        self.width = 1
        self._plan: RowPlan | None = None
        self._start_afresh()

    def __len__(self) -> int:
        return len(self.digits)

    def locate(self, n: int, groups: Any, features: Any, targets: Any, new: bool = True, width: int = 1) -> np.ndarray:
        """The number of each sample's cell. new: give new cells new numbers; otherwise they are -1."""
        if self.names is not None and width != self.width:
            raise InputError(
                f"z has {width} {plural(width, 'column')}, this stream {self.width}: pass as many outputs per sample "
                "as in its first batch."
            )
        names, columns = self._columns(n, groups, features, targets)
        cells = assign_cells(list(columns.values()), n)
        here = np.flatnonzero(cells.samples)
        digits = cells.levels.digit_table()[here].tolist()
        found = [[cells.levels.labels[j][digit] for j, digit in enumerate(one)] for one in digits]
        for label in {*names, *(label for labels in found for label in labels)}:
            plain(label)  # refuses what cannot be kept, before anything is changed
        if self.names is None and here.size:
            self.names, self.keys, self.width = names, tuple(columns), width
            self.labels = [{} for _ in columns]
        number = np.full(len(cells.samples), -1, dtype=np.int32)
        number[here] = [self.number(labels, new) for labels in found]
        return number[cells.cell]

    def _columns(self, n: int, groups: Any, features: Any, targets: Any) -> tuple[tuple[Name, ...], dict[Key, Column]]:
        """The attributes of a batch, and its columns in the order of the cells' labels."""
        attributes = read_groups(groups, n, self.levels)
        names = tuple(attributes)
        if self.names is not None and set(names) != set(self.names):
            raise InputError(f"groups has columns {list(names)}, this stream {list(self.names)}: pass the same ones.")
        for name, column in attributes.items():
            if isinstance(column, SoftGroup):
                raise InputError(
                    f"groups[{name!r}] is a SoftGroup: a stream counts decisions by group, so pass labels."
                )
        _, used = self.rules.groupings(self.names or names)
        columns: dict[Key, Any] = {("group", name): attributes[name] for name in used}
        for constraint in self.rules.constraints:
            if constraint.needs_targets and targets is None:
                columns.update(unknown_columns(constraint, n))
            else:
                columns.update(condition_columns(constraint, features, targets))
        if self.rules.needs_targets:
            columns[LABELLED] = Column("labelled", np.full(n, int(targets is not None)), (False, True))
        check_lengths(self.rules, columns, n)
        return names, columns

    def with_targets(self, cells: Sequence[int], targets: np.ndarray) -> np.ndarray:
        """The cells that samples of `cells`, whose targets were not known, belong to with these targets."""
        columns: dict[Any, Any] = {LABELLED: Column("labelled", np.zeros(len(cells), dtype=np.int64), (True,))}
        for constraint in self.rules.constraints:
            if constraint.needs_targets:
                columns.update(condition_columns(constraint, None, targets))
        numbers = []
        for i, cell in enumerate(cells):
            labels = dict(zip(self.keys, self.cell_labels(cell), strict=True))
            labels |= {key: column.labels[column.values[i]] for key, column in columns.items()}
            numbers.append(self.number(list(labels.values())))
        return np.array(numbers, dtype=np.int32)

    def number(self, labels: Sequence[Label], new: bool = True) -> int:
        """The number of the cell with these labels. If there is none: a new one, or -1 where none may be made."""
        if not new:
            return self._numbers.get(tuple(self.labels[j].get(label, -1) for j, label in enumerate(labels)), -1)
        digits = tuple(self.labels[j].setdefault(label, len(self.labels[j])) for j, label in enumerate(labels))
        if digits not in self._numbers:
            self._numbers[digits] = len(self.digits)
            self.digits.append(digits)
            self._plan = None
        return self._numbers[digits]

    def cell_labels(self, cell: int) -> tuple[Label, ...]:
        """The labels of a cell."""
        return tuple(list(self.labels[j])[digit] for j, digit in enumerate(self.digits[cell]))

    def cell_name(self, place: int) -> str:
        """The labels of a cell of the state as JSON, by which logs name it; the last is that of several outputs."""
        while len(self._cell_names) <= place:
            cell, output = divmod(len(self._cell_names), self.width)
            labels = [plain(label) for label in self.cell_labels(cell)]
            text = json.dumps(labels if self.width == 1 else [*labels, f"{self._output} {output}"])
            self._cell_names.append(text)
        return self._cell_names[place]

    @property
    def plan(self) -> RowPlan:
        """Rows over the cells of the state."""
        if self._plan is None:
            digits = np.array(self.digits, dtype=np.int64).reshape(len(self.digits), len(self.keys))
            digits = np.repeat(digits, self.width, axis=0)
            grid = {key: GridColumn(tuple(self.labels[j]), digits[:, j]) for j, key in enumerate(self.keys)}
            # Before the first batch, which brings the attributes, there is nothing to compare.
            nothing = tuple(() for _ in self.rules.constraints)
            groupings = nothing if self.names is None else self.rules.groupings(self.names)[0]
            known = ~self.waiting() if LABELLED in grid else None
            plan = make_plan(self.rules, groupings, grid, len(digits), known)
            if self.width > 1:
                output, names = np.arange(len(digits)) % self.width, self._outputs or range(self.width)
                each = [(output == j, f"{self._output} {name}") for j, name in enumerate(names)]
                plan = RowPlan([family.of_column(*one) for one in each for family in plan.families], len(digits))
            self._plan = plan
        return self._plan

    def by_statistic(self, of_cell: np.ndarray) -> np.ndarray:
        """(K,) sum over the cells of each statistic."""
        plan = self.plan
        of_entry = np.repeat(of_cell, np.diff(plan.start))
        return np.bincount(plan.statistic, weights=of_entry, minlength=len(plan.residual))

    def labels_met(self) -> dict[Name, tuple[Label, ...]]:
        """The labels met of each attribute, in the order in which rows name them."""
        return {key[1]: tuple(labels) for key, labels in zip(self.keys, self.labels, strict=True) if key[0] == "group"}

    def waiting(self) -> np.ndarray:
        """(G,) which cells of the state hold decisions that wait for their targets."""
        waits = np.zeros(len(self.digits), dtype=bool)
        if LABELLED in self.keys:
            at = self.keys.index(LABELLED)
            waits[:] = [digits[at] == self.labels[at].get(False) for digits in self.digits]
        return np.repeat(waits, self.width)

    def without_target(self) -> np.ndarray:
        """(G,) of each cell with a target, the cell of like samples without one; -1 where there is none."""
        waits = self.waiting()
        if self.width > 1 or not waits.any():  # samples of several outputs do not wait
            return np.full(len(waits), -1)
        free = [j for j, key in enumerate(self.keys) if key[0] in ("group", "feature")]
        like = [tuple(digits[j] for j in free) for digits in self.digits]
        pending = {like[c]: c for c in np.flatnonzero(waits).tolist()}
        return np.array([-1 if waits[c] else pending.get(like[c], -1) for c in range(len(like))])

    def to_data(self) -> dict[str, Any]:
        """Plain data, for a store."""
        return {
            "names": [plain(name) for name in self.names] if self.names is not None else None,
            "keys": [[plain(part) for part in key] for key in self.keys],
            "labels": [[plain(label) for label in labels] for labels in self.labels],
            "digits": [list(digits) for digits in self.digits],
            **({"width": self.width} if self.width > 1 else {}),
        }

    def load_data(self, data: dict[str, Any]) -> None:
        """What `to_data` gave. Where it is what is known already, all that was worked out from it stays."""
        if data == self.to_data():
            return
        self.names = tuple(map(_label, data["names"])) if data["names"] is not None else None
        self.keys = tuple(tuple(map(_label, key)) for key in data["keys"])
        self.labels = [{_label(label): v for v, label in enumerate(labels)} for labels in data["labels"]]
        self.digits = [tuple(digits) for digits in data["digits"]]
        self.width = data.get("width", 1)
        self._start_afresh()

    def _start_afresh(self) -> None:
        """Forget what was worked out from the cells."""
        self._numbers = {digits: number for number, digits in enumerate(self.digits)}
        self._cell_names: list[str] = []
        self._plan = None


def plain(label: Label) -> Any:
    """A label or name as JSON has it; tuples, which it has not, are marked."""
    if isinstance(label, tuple):
        return {"tuple": [plain(part) for part in label]}
    value = label.item() if hasattr(label, "item") else label
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(f"label or name {label!r} cannot be kept by a stream: use strings, numbers or booleans.")


def _label(data: Any) -> Label:
    return tuple(_label(part) for part in data["tuple"]) if isinstance(data, dict) else data
