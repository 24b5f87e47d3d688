"""The scores of a file with the cells of its rows, to be projected: read in parts, bound as a whole, written again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.rows import EACH, cell_totals
from fairlayer.binding.system import System, bind
from fairlayer.constraints import GroupConstraint
from fairlayer.errors import InputError
from fairlayer.tables.attribute import Attribute
from fairlayer.tables.duckdb_table import number, quote
from fairlayer.tables.sql_cells import MOST_LABELS, CellCode
from fairlayer.tables.table_io import Source, TableFile, connect, named, plain_errors


@dataclass
class Counts:
    """What one pass over the rows finds of each code: rows, the sum of their targets, and a bound on its error."""

    rows: np.ndarray
    targets: np.ndarray
    error: np.ndarray


class ScoredRows:
    """The rows of a table: their scores, and the codes of their cells."""

    def __init__(
        self,
        source: Source,
        score: str,
        attributes: Sequence[Attribute],
        constraints: Sequence[GroupConstraint],
        target: str | None,
    ):
        self.source = source
        self.score = score
        self.constraints = constraints
        self.target = target
        with TableFile(source) as file:
            self.code = CellCode(file, constraints, target)
            for attribute in attributes:
                self._add_group(attribute)
        self.cell_of_code = np.zeros(0, dtype=np.int32)

    def _add_group(self, attribute: Attribute) -> None:
        name = attribute.column
        if attribute.cuts:
            self.code.add_cuts(name, attribute.cuts, attribute.groups)
            return
        value, labels = self.code.labels(name)
        if len(labels) > MOST_LABELS:
            raise InputError(
                f"--protected: column {name!r} has more than {MOST_LABELS} groups: give cut points, such as "
                f"--protected {name}=30,50, or choose another column."
            )
        self.code.add_labels(name, value, labels)

    @property
    def size(self) -> int:
        """Number of codes."""
        return self.code.size

    @property
    def needs_target_sums(self) -> bool:
        """Whether means of residuals are compared."""
        return any(constraint.quantity == "residual" for constraint in self.constraints)

    @property
    def parameters(self) -> dict[str, Any]:
        """Of the SQL of the codes."""
        return self.code.parameters

    def bind(self, counts: Counts) -> System:
        """Constraints bound to the whole table, by one row for each code that occurs, which counts as many."""
        codes = np.flatnonzero(counts.rows)
        groups, features, targets = self.code.meanings(codes)
        weight = counts.rows[codes].astype(np.float64)
        if self.needs_target_sums:
            targets = counts.targets[codes] / weight
        system = bind(
            ConstraintSet(list(self.constraints)),
            len(codes),
            groups=groups,
            features=features,
            targets=targets,
            weights=weight,
        )
        self.cell_of_code = np.zeros(self.size, dtype=np.int32)
        self.cell_of_code[codes] = system.cell
        return _with_doubt(system, counts.error[codes]) if self.needs_target_sums else system

    def parts(self, source: Source, *more: str, vectors: int) -> Any:
        """Frames with the columns z and code, and more, in the order of a file."""
        asked = ", ".join([f"{number(self.score)} AS z", f"{self.code.sql} AS code", *more])
        with plain_errors(source.path), connect() as connection:
            sql = f"SELECT {asked} FROM {source.relation}"
            result = connection.execute(sql, {**self.parameters, **source.parameters})
            while len(frame := result.fetch_df_chunk(vectors)):
                yield frame

    def copy_sql(self, keep_raw: str | None) -> str:
        """The table with the score moved by $shift, a list by code, and kept between $lo and $hi."""
        moved = f"{number(self.score)} - list_extract($shift, {self.code.sql} + 1)"
        raw = "" if keep_raw is None else f", {quote(self.score)} AS {named(keep_raw)}"
        replaced = f"least(greatest({moved}, $lo), $hi) AS {named(self.score)}"
        return f"SELECT * REPLACE ({replaced}){raw} FROM {self.source.relation}"


def _with_doubt(system: System, error: np.ndarray) -> System:
    """Rows of residuals a hair tighter, by what rounding may have done to the targets' means."""
    plan, rows = system.view.plan, system.rows
    of_cell = np.bincount(system.cell, weights=error, minlength=len(system.weight))
    doubt = cell_totals(rows, of_cell, absolute=True) * plan.residual
    compared = np.where(plan.kind == EACH, 1.0, 2.0)
    off = compared * np.maximum.reduceat(doubt, plan.first[:-1])
    off = np.minimum(off, 0.25 * (rows.upper - rows.lower))
    return system._replace(rows=rows.between(rows.lower + off, rows.upper - off))
