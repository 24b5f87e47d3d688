"""`project` of a dataset: sums by workers, one solve, shifts by workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlayer.constraints import Constraint
from fairlayer.errors import InputError
from fairlayer.tables.attribute import Attribute, read_cuts
from fairlayer.tables.dataset import BlockQuery, DatasetTable, known_rows
from fairlayer.tables.passes import Change, Shifts
from fairlayer.tables.scored import ScoredTable

Protected = str | Sequence[str] | Mapping[str, Sequence[float]]


@dataclass(frozen=True, eq=False, repr=False)
class Projected(Shifts):
    """A projected dataset, and what is known of it. Its rows are made when they are asked for."""

    dataset: Any  # with one column more
    change: Change
    samples: int

    @property
    def changed(self) -> int:
        """How many scores were changed."""
        return self.change.changed

    @property
    def largest_change(self) -> float:
        """By how much at most."""
        return self.change.largest

    @property
    def mean_change(self) -> float:
        """By how much on average over all, in absolute value."""
        return self.change.total / self.samples

    def __repr__(self) -> str:
        gaps = dict(zip(self.rows, np.round(self.gaps, 6).tolist(), strict=True))
        return f"Projected(status={self.status.name}, gaps={gaps}, changed={self.changed:,} of {self.samples:,})"


def project(
    dataset: Any,
    score: str,
    protected: Protected,
    constraints: Sequence[Constraint] | Constraint,
    bounds: Any = None,
    *,
    target: str | None = None,
    output: str = "fair",
) -> Projected:
    """Move the scores of a dataset as little as possible so that the constraints hold over all of its rows.

    score: the column of scores; protected: the columns of groups, or {"sex": (), "age": (30, 50)} with cut points that
    make groups of numbers; target: the column of targets, where a constraint needs them; features of constraints are
    columns by their names. output: the column to add.

    The rows hold in exact arithmetic. The shifts depend neither on how the dataset is divided into blocks nor on the
    order in which workers finish. Score and cell of every row, 12 bytes, are kept in Ray's object store meanwhile.
    """
    table = DatasetTable(dataset)
    if output in table.columns:
        raise InputError(f"output: the dataset has a column {output!r} already: choose another name.")
    cells = ScoredTable(table, score, read_protected(table, protected), constraints, target, bounds)
    if cells.rules.about_decisions:
        raise InputError(
            "constraints compare rates of decisions, which takes all scores in the memory of one machine: project a "
            "file of up to 50,000,000 rows with `fairlayer project`, or constrain means of scores."
        )
    bound = cells.bind(table.keep(cells.values, cells.code.parameters))
    shifts = bound.solve(bounds)
    sql, parameters = cells.moved(shifts, bound.cell_of_code)
    # Missing scores and codes are looked for, as a bound would take the place of a missing output.
    query = table.rows_query({**cells.values, output: sql}, parameters)
    moved = table.with_columns(_moved, query=query, output=output)
    return Projected(
        **vars(shifts), dataset=moved, change=bound.passes.change(shifts), samples=int(bound.passes.n.sum())
    )


def read_protected(table: DatasetTable, protected: Protected) -> list[Attribute]:
    """The protected attributes."""
    if isinstance(protected, str):
        protected = [protected]
    cuts = protected if isinstance(protected, Mapping) else dict.fromkeys(protected, ())
    if not cuts:
        raise InputError("protected is empty: name the columns of groups, such as protected=['sex'].")
    attributes = []
    for name, points in cuts.items():
        table.require(name, "protected")
        listed = read_cuts(",".join(map(str, points)), f"protected[{name!r}]") if len(points) else ()
        attributes.append(Attribute(name, listed))
    return attributes


def _moved(block: Any, query: BlockQuery, output: str) -> Any:
    """A block with its moved scores."""
    return block.append_column(output, known_rows(block, query).column(output))
