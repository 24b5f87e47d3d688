"""The scores of a file with the cells of its rows, to be projected: read in parts, bound as a whole, written again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.exact_sums import LIMBS, accumulate, round_sums
from fairlayer.binding.system import System, bind, less_targets
from fairlayer.constraints import Constraint
from fairlayer.errors import InputError
from fairlayer.tables.attribute import Attribute
from fairlayer.tables.duckdb_table import named, number, quote
from fairlayer.tables.sql_cells import MOST_LABELS, CellCode
from fairlayer.tables.table_io import Source, TableFile, connect, plain_errors


class Counts:
    """What one pass over the rows finds of each code: how many there are, and the exact sum of their targets."""

    def __init__(self, codes: int, with_targets: bool):
        self.rows = np.zeros(codes, dtype=np.int64)
        self.targets = np.zeros((codes if with_targets else 0, LIMBS), dtype=np.int64)  # as `exact_sums` has them

    def add(self, code: np.ndarray, targets: Any) -> None:
        """Count some rows."""
        self.rows += np.bincount(code, minlength=len(self.rows))
        if len(self.targets):
            accumulate(np.ascontiguousarray(targets, dtype=np.float64), code, np.zeros(0), self.targets)


class ScoredRows:
    """The rows of a table: their scores, and the codes of their cells."""

    def __init__(
        self,
        source: Source,
        score: str,
        attributes: Sequence[Attribute],
        constraints: Sequence[Constraint],
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
        if targets is None and self.needs_target_sums:
            targets = np.zeros(len(codes))  # their sums are put in below
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
        return _with_targets(system, counts.targets[codes]) if self.needs_target_sums else system

    def parts(self, source: Source, *more: str, vectors: int) -> Any:
        """Frames with the columns z and code, and more, in the order of a file."""
        asked = ", ".join([f"{number(self.score)} AS z", f"{self.code.sql} AS code", *more])
        with plain_errors(source.path), connect() as connection:
            sql = f"SELECT {asked} FROM {source.relation}"
            result = connection.execute(sql, {**self.parameters, **source.parameters})
            while len(frame := result.fetch_df_chunk(vectors)):
                yield frame

    def shifted_sql(self, keep_raw: str | None) -> str:
        """The table with the score moved by $shift, a list by code, and kept between $lo and $hi."""
        moved = f"{number(self.score)} - list_extract($shift, {self.code.sql} + 1)"
        return self._copy_sql(f"least(greatest({moved}, $lo), $hi)", keep_raw, self.source.relation)

    def beside_sql(self, keep_raw: str | None, table: str, column: str) -> str:
        """The table with the score replaced by a column of another table, row by row."""
        beside = f"(SELECT * FROM {self.source.relation}) AS data POSITIONAL JOIN {table}"
        return self._copy_sql(f"{table}.{column}", keep_raw, beside)

    def _copy_sql(self, score: str, keep_raw: str | None, relation: str) -> str:
        raw = "" if keep_raw is None else f", {quote(self.score)} AS {named(keep_raw)}"
        return f"SELECT data.* REPLACE ({score} AS {named(self.score)}){raw} FROM {relation}"


def _with_targets(system: System, limbs: np.ndarray) -> System:
    """The system with targets whose sums are known for each of its samples, in place of those it was bound to."""
    of_cell = np.zeros((len(system.weight), LIMBS), dtype=np.int64)
    np.add.at(of_cell, system.cell, limbs)
    sums, error = np.zeros((2, len(of_cell)))
    round_sums(of_cell, sums, error)
    stated = system.rows.between(*system.stated)
    return system._replace(rows=less_targets(stated, system.view.plan, sums, error), targets=None)
