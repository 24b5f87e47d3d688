"""The projection of a file of any size: bound as a whole, moved by SQL, written, and checked as it was written.

Means are moved by a shift for each cell, which is found in passes. Rates of decisions need the scores of a cell in
order, and people with the same score may get different ones: they are solved with all scores in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from fairlayer.constraints import Constraint
from fairlayer.decisions.project import measure_rates, project_decisions, read_threshold
from fairlayer.errors import FairlayerError, InputError
from fairlayer.extras import needs
from fairlayer.problem.bounds import read_bounds
from fairlayer.problem.system import System
from fairlayer.solution import Solution
from fairlayer.tables.attribute import Attribute
from fairlayer.tables.entries import named, quote
from fairlayer.tables.passes import Change, TablePasses, certify_passes
from fairlayer.tables.scored import Bound, ScoredTable
from fairlayer.tables.table import LocalTable
from fairlayer.tables.table_io import Source, TableFile, copy_options, replacing

MOST_DECISIONS = 50_000_000  # rows, of which some 100 bytes each are in memory
FLOATS = ("FLOAT", "DOUBLE")
OPTIONS = {"score": "--score", "target": "--target", "protected": "--protected"}


class ProjectedFile(NamedTuple):
    """What was written, and what is true of it in exact arithmetic."""

    solution: Solution
    change: Change
    system: System


def project_file(
    source: Source,
    score: str,
    attributes: Sequence[Attribute],
    constraints: Sequence[Constraint],
    output: Path,
    *,
    target: str | None = None,
    bounds: Any = None,
    keep_raw: str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> ProjectedFile:
    """Write a file with its scores moved so that the constraints hold. keep_raw: a column for the scores as they were.

    Scores and cells are kept beside the output meanwhile, up to 12 bytes a row. The output appears whole or not at all.
    """
    progress("Reading")
    with TableFile(source, folder=output.absolute().parent) as table:
        cells = ScoredTable(table, score, attributes, constraints, target, bounds, OPTIONS)
        kept = table.keep(cells.values, cells.code.parameters)
        bound = cells.bind(kept)
        progress("Solving")
        moves = (_ByDecisions if cells.rules.about_decisions else _ByShifts)(cells, bound, kept)
        progress("Writing")
        with replacing(output) as temporary:
            raw = "" if keep_raw is None else f", {quote(score)} AS {named(keep_raw)}"
            sql = f"SELECT data.* REPLACE ({moves.sql} AS {named(score)}){raw} FROM {moves.relation}"
            known = {**moves.parameters, **source.parameters, "target": str(temporary)}
            with table.errors():
                table.connection.execute(f"COPY ({sql}) TO $target ({copy_options(temporary)})", known)
            progress("Checking what was written")
            # Floats stay what they are, as labels of groups have them in one way; anything else is text again.
            columns = {name: kind if kind in FLOATS else "VARCHAR" for name, kind in table.columns.items()}
            columns |= {} if keep_raw is None else {keep_raw: "VARCHAR"}
            with TableFile(Source(temporary, columns), folder=output.absolute().parent) as written:
                again = {name: sql for name, sql in cells.values.items() if name != "t"}
                found = moves.certify(written.keep(again, cells.code.parameters))
            if found.missed.max(initial=0.0) > 0.0 >= moves.solution.missed.max(initial=0.0):
                raise FairlayerError(f"{output} does not hold what was computed; nothing was kept. Please report it.")
    return ProjectedFile(found, moves.change, bound.system)


class _ByShifts:
    """Means: a shift for each cell, as SQL of a row."""

    def __init__(self, cells: ScoredTable, bound: Bound, kept: LocalTable):
        shifts = bound.solve(cells.bounds)
        self.solution, self.bound, self.change = shifts.solution, bound, bound.passes.change(shifts)
        self.sql, self.parameters = cells.moved(shifts, bound.cell_of_code)
        self.relation = cells.table.relation  # type: ignore[attr-defined]

    def certify(self, written: LocalTable) -> Solution:
        """In one pass."""
        found, system = TablePasses(written), self.bound.system
        return certify_passes(found.grouped(self.bound.cell_of_code[found.code], len(system.weight)), system)


class _ByDecisions:
    """Rates of decisions: each score by itself, as a column beside the table."""

    sql = "moved.y"
    parameters: ClassVar[dict[str, Any]] = {}

    def __init__(self, cells: ScoredTable, bound: Bound, kept: LocalTable):
        rows = int(bound.system.weight.sum())
        if rows > MOST_DECISIONS:
            raise InputError(
                f"The table has {rows:,} rows, and decisions are compared with all scores in memory, up to "
                f"{MOST_DECISIONS:,} rows: project parts of the table one by one, which keeps the tolerance within "
                "each of them, or decide by `fairlayer predict --mode stream`."
            )
        self.bound, self.threshold = bound, read_threshold(cells.rules)
        z, system = self._rows(kept)
        self.solution = project_decisions(
            torch.from_numpy(z), system, cells.rules, read_bounds(cells.bounds, rows, z.dtype)
        )
        value = self.solution.value.numpy()
        by = np.abs(value - z)
        self.change = Change(int(np.count_nonzero(by)), float(by.max(initial=0.0)), float(by.sum()))
        with needs("Writing a table", "pandas"):
            import pandas as pd
        kept.connection.register("moved", pd.DataFrame({"y": value}))
        self.relation = f"(SELECT * FROM {cells.table.relation}) AS data POSITIONAL JOIN moved"  # type: ignore[attr-defined]

    def _rows(self, kept: LocalTable) -> tuple[np.ndarray, System]:
        """All scores in their order, and the system with a cell for every row in place of one for every code."""
        found = kept.query(f"SELECT {quote('z')}, {quote('code')} FROM data")
        cell, system = self.bound.cell_of_code[found["code"]], self.bound.system
        samples = np.bincount(cell, minlength=len(system.weight)).astype(system.samples.dtype)
        z = np.ascontiguousarray(found["z"], dtype=np.float64)
        return z, system._replace(cell=cell, samples=samples, weights=np.zeros(0))

    def certify(self, written: LocalTable) -> Solution:
        """By counts."""
        y, system = self._rows(written)
        rates, missed = measure_rates(y >= self.threshold, system)
        nobody, found = np.zeros(len(rates)), self.solution  # has a multiplier
        return Solution(None, system.view, rates, nobody, missed, found.excess, found.optimality_gap, found.ties)
