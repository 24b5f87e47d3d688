"""The scores of a table with the cells of its rows: constraints bound to them, and their projection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fairlayer.constraints import Constraint
from fairlayer.errors import InputError
from fairlayer.problem.bounds import read_bounds
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.system import System, bind, less_targets
from fairlayer.tables import moved_sql
from fairlayer.tables.attribute import Attribute
from fairlayer.tables.entries import number
from fairlayer.tables.passes import Shifts, TablePasses, project_passes
from fairlayer.tables.sql_cells import CellCode
from fairlayer.tables.table import Table

ARGUMENTS = {"score": "score", "target": "target", "protected": "protected"}


class Bound(NamedTuple):
    """Constraints bound to the rows of a table, and who takes sums of their scores."""

    system: System
    cell_of_code: np.ndarray
    passes: TablePasses

    def solve(self, bounds: Any) -> Shifts:
        """The projection."""
        return project_passes(self.passes, self.system, bounds)


class ScoredTable:
    """A table whose scores are projected: SQL of the score and of the code of its cell, and the meaning of codes.

    arguments: what errors call the arguments score, target and protected.
    """

    def __init__(
        self,
        table: Table,
        score: str,
        attributes: Sequence[Attribute],
        constraints: Sequence[Constraint] | Constraint,
        target: str | None = None,
        bounds: Any = None,
        arguments: dict[str, str] = ARGUMENTS,
    ):
        self.table, self.score, self.target, self.bounds = table, score, target, bounds
        self.rules = ConstraintSet(constraints)
        self.box = read_bounds(bounds, 1, np.float64)
        if self.rules.matrices:
            name = type(self.rules.matrices[0]).__name__
            raise InputError(f"{name} is about single outputs, not about groups: leave it out.")
        if self.rules.needs_targets is not None and target is None:
            raise InputError(
                f"{arguments['target']} is missing: {self.rules.needs_targets} compares with it; name its column."
            )
        self.rules.check_bounds(self.box.lowest)
        self.takes_residuals = any(one.quantity == "residual" for one in self.rules.constraints)
        full = {table.require(score, arguments["score"]): arguments["score"]}
        if target is not None:
            table.require(target, arguments["target"])
            if self.takes_residuals:
                full.setdefault(target, arguments["target"])
        named = arguments["protected"]
        table.check_numbers(full, {one.column: named for one in attributes if one.cuts})
        self.code = CellCode(table, self.rules.constraints, target)
        labels = table.check_groups(attributes, named)
        for attribute in attributes:
            self.code.add_group(attribute, labels[attribute.column])

    @property
    def values(self) -> dict[str, str]:
        """SQL of what a pass takes from every row: the score z, the code and, where it is needed, the target t."""
        more = {"t": number(str(self.target))} if self.takes_residuals else {}
        return {"z": number(self.score), "code": self.code.sql, **more}

    def bind(self, kept: Table) -> Bound:
        """Bind the constraints to `values` that were kept, by one sample for each code that occurs, of its weight."""
        passes = TablePasses(kept)
        codes = passes.code
        if not len(codes):
            raise InputError(f"{self.table.title} has no rows: there is nothing to compare.")
        groups, features, targets = self.code.meanings(codes)
        if targets is None and self.takes_residuals:
            targets = np.zeros(len(codes))  # their sums are put in below
        system = bind(self.rules, len(codes), groups=groups, features=features, targets=targets, weights=passes.n)
        if not system.view.names:
            raise InputError(f"{self.table.title} has nothing to compare: every comparison has one group only.")
        cell, cells = np.asarray(system.cell), len(system.weight)
        if self.takes_residuals:
            found = TablePasses(kept, "t").grouped(cell, cells).sums(np.zeros(cells), -np.inf, np.inf)
            stated = system.rows.between(*system.stated)
            rows = less_targets(stated, system.view.plan, found.outputs, found.error)
            system = system._replace(rows=rows, targets=None)
        cell_of_code = np.zeros(self.code.size, dtype=np.int32)
        cell_of_code[codes] = cell
        return Bound(system, cell_of_code, passes.grouped(cell, cells))

    def moved(self, shifts: Shifts, cell_of_code: np.ndarray) -> tuple[str, dict[str, Any]]:
        """SQL of the moved score, from the columns of the table, and its parameters."""
        of_row = f"list_extract($shift, {self.code.sql} + 1)"
        sql = moved_sql.moved(number(self.score), of_row, shifts.lo, shifts.hi)
        return sql, {**self.code.parameters, "shift": shifts.shift[cell_of_code].tolist()}
