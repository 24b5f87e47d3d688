"""The scores of a file with the cells of its rows, to be projected: read in parts, bound as a whole, written again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fairlayer.binding.block_sums import OUTPUT, BlockSums
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.exact_sums import LIMBS, round_sums
from fairlayer.binding.system import System, bind, less_targets
from fairlayer.constraints import Constraint
from fairlayer.errors import InputError
from fairlayer.tables.attribute import Attribute
from fairlayer.tables.duckdb_table import named, number, quote, select_list
from fairlayer.tables.sql_cells import MOST_LABELS, CellCode
from fairlayer.tables.table import Table
from fairlayer.tables.table_io import Source, TableFile, connect, plain_errors


class ScoredTable:
    """A table whose scores are projected: SQL of the score and of the code of its cell, and the meaning of codes."""

    def __init__(
        self,
        table: Table,
        score: str,
        attributes: Sequence[Attribute],
        constraints: Sequence[Constraint],
        target: str | None,
        option: str = "--protected",
    ):
        """option: what errors call that which names the attributes."""
        self.table = table
        self.score = score
        self.constraints = constraints
        self.target = target
        self.code = CellCode(table, constraints, target)
        known = self.code.labels([attribute.column for attribute in attributes if not attribute.cuts])
        for attribute in attributes:
            name = attribute.column
            if attribute.cuts:
                self.code.add_cuts(name, attribute.cuts, attribute.groups)
                continue
            labels = known[name]
            if len(labels) > MOST_LABELS:
                cuts = f"{option} {name}=30,50" if option.startswith("-") else f"{option}={{{name!r}: (30, 50)}}"
                raise InputError(
                    f"{option}: column {name!r} has more than {MOST_LABELS} groups: give cut points, such as {cuts}, "
                    "or choose another column."
                )
            if len(labels) < 2:
                raise InputError(
                    f"{option}: column {name!r} has only one group, {labels[0]!r}: there is nothing to compare it with."
                )
            self.code.add_labels(name, labels)
        self.cell_of_code = np.zeros(0, dtype=np.int32)

    @property
    def needs_target_sums(self) -> bool:
        """Whether means of residuals are compared."""
        return any(constraint.quantity == "residual" for constraint in self.constraints)

    @property
    def values(self) -> dict[str, str]:
        """SQL of what a pass takes from every row: the score z, the code and, where it is needed, the target t."""
        more = {"t": number(str(self.target))} if self.needs_target_sums else {}
        return {"z": number(self.score), "code": self.code.sql, **more}

    def bind(self, scores: BlockSums, target_sums: BlockSums | None) -> System:
        """Constraints bound to the whole table, by one row for each code that occurs, which counts as many.

        scores, target_sums: by code; of the first, only how many there are of each.
        """
        codes = np.flatnonzero(scores.rows)
        groups, features, targets = self.code.meanings(codes)
        weight = scores.rows[codes].astype(np.float64)
        if targets is None and self.needs_target_sums:
            targets = np.zeros(len(codes))  # their sums are put in below
        rules = ConstraintSet(list(self.constraints))
        system = bind(rules, len(codes), groups=groups, features=features, targets=targets, weights=weight)
        self.cell_of_code = np.zeros(self.code.size, dtype=np.int32)
        self.cell_of_code[codes] = system.cell
        return system if target_sums is None else _with_targets(system, target_sums.limbs[OUTPUT, codes])


class ScoredRows(ScoredTable):
    """The same of a file, which is read in parts and written again."""

    table: TableFile  # which need not stay open

    def parts(self, source: Source, *, vectors: int, only: Sequence[str] | None = None) -> Any:
        """Frames with the columns of `values`, or only some of them, in the order of a file."""
        values = {name: sql for name, sql in self.values.items() if only is None or name in only}
        with plain_errors(source.path), connect() as connection:
            sql = f"SELECT {select_list(values)} FROM {source.relation}"
            result = connection.execute(sql, {**self.code.parameters, **source.parameters})
            while len(frame := result.fetch_df_chunk(vectors)):
                yield frame

    def copy_sql(self, score: str, keep_raw: str | None, beside: str | None = None) -> str:
        """The table with SQL in place of the score. beside: a table whose rows stand beside those of the file."""
        raw = "" if keep_raw is None else f", {quote(self.score)} AS {named(keep_raw)}"
        relation = self.table.source.relation
        if beside is not None:
            relation = f"(SELECT * FROM {relation}) AS data POSITIONAL JOIN {beside}"
        return f"SELECT data.* REPLACE ({score} AS {named(self.score)}){raw} FROM {relation}"


def _with_targets(system: System, limbs: np.ndarray) -> System:
    """The system with targets whose sums are known for each of its samples, in place of those it was bound to."""
    of_cell = np.zeros((len(system.weight), LIMBS), dtype=np.int64)
    np.add.at(of_cell, system.cell, limbs)
    sums, error = np.zeros((2, len(of_cell)))
    round_sums(of_cell, sums, error)
    stated = system.rows.between(*system.stated)
    return system._replace(rows=less_targets(stated, system.view.plan, sums, error), targets=None)
