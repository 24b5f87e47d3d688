"""The projection of a file of any size: bound as a whole, moved by SQL, written, and checked as it was written.

Means are moved by a shift for each cell, which is found in passes. Rates of decisions need the scores of a cell in
order, and people with the same score may get different ones: they are solved with all scores in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fairlayer.constraints import Constraint
from fairlayer.decisions.project import measure_rates, project_decisions, read_threshold
from fairlayer.errors import FairlayerError, InputError
from fairlayer.problem.bounds import read_bounds
from fairlayer.problem.system import System
from fairlayer.solution import Solution
from fairlayer.tables.entries import Attribute, named, quote
from fairlayer.tables.passes import Change, TablePasses, certify_passes
from fairlayer.tables.sql_cells import ScoredTable
from fairlayer.tables.table import LocalTable
from fairlayer.tables.table_io import Source, TableFile, copy_options, known_source, replacing

MOST_DECISIONS = 50_000_000  # rows, of which some 100 bytes each are in memory
FLOATS = ("FLOAT", "DOUBLE")


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
    folder = output.absolute().parent
    with TableFile(source, folder=folder) as table:
        options = "--score", "--target", "--protected"
        cells = ScoredTable(table, score, attributes, constraints, target, bounds, options)
        cells.bind()
        progress("Solving")
        rows, sql, parameters = "data POSITIONAL JOIN moved", "moved.y", dict[str, Any]()
        if cells.rules.about_decisions:
            solution, change = _decide(cells)
        else:
            solution = shifts = cells.project()
            change, (sql, parameters), rows = cells.passes.change(shifts), cells.moved(shifts), "data"
        progress("Writing")
        with replacing(output) as temporary:
            raw = "" if keep_raw is None else f", {quote(score)} AS {named(keep_raw)}"
            select = table.reading(f"SELECT data.* REPLACE ({sql} AS {named(score)}){raw} FROM {rows}")
            known = {**parameters, "target": str(temporary)}
            table.execute(f"COPY ({select}) TO $target ({copy_options(output)})", known)
            progress("Checking what was written")
            # Floats stay what they are, as labels of groups have them in one way; anything else is text again.
            columns = {name: kind if kind in FLOATS else "VARCHAR" for name, kind in table.columns.items()}
            columns |= {} if keep_raw is None else {keep_raw: "VARCHAR"}
            with TableFile(known_source(temporary, columns), folder=folder) as written:
                again = {name: sql for name, sql in cells.values.items() if name != "t"}
                found = _certify(cells, written.keep(again, cells.code.parameters), solution)
            if found.missed.max(initial=0.0) > 0.0 >= solution.missed.max(initial=0.0):
                raise FairlayerError(f"{output} does not hold what was computed; nothing was kept. Please report it.")
    return ProjectedFile(found, change, cells.system)


def _certify(cells: ScoredTable, written: LocalTable, solution: Solution) -> Solution:
    """What is true of scores and codes that were written: means in one pass, rates of decisions by counts."""
    if not cells.rules.about_decisions:
        found = TablePasses(written)
        return certify_passes(found.grouped(cells.cell_of_code[found.code], len(cells.system.weight)), cells.system)
    y, system = _rows(cells, written)
    rates, missed = measure_rates(y >= read_threshold(cells.rules), system)
    multipliers, known = np.zeros(len(rates)), (solution.excess, solution.optimality_gap, solution.ties)
    return Solution(None, system.view, rates, multipliers, missed, *known)


def _decide(cells: ScoredTable) -> tuple[Solution, Change]:
    """Project rates of decisions: each score by itself, as a column beside the table, which is called `moved`."""
    rows = int(cells.system.weight.sum())
    if rows > MOST_DECISIONS:
        raise InputError(
            f"The table has {rows:,} rows, and decisions are compared with all scores in memory, up to "
            f"{MOST_DECISIONS:,} rows: project parts of the table one by one, which keeps the tolerance within "
            "each of them, or decide by `fairlayer predict --mode stream`."
        )
    z, system = _rows(cells, cells.kept)
    solution = project_decisions(torch.from_numpy(z), system, cells.rules, read_bounds(cells.bounds, rows, z.dtype))
    value = solution.value.numpy()
    cells.kept.connection.register("moved", {"y": value})
    by = np.abs(value - z)
    return solution, Change(int(np.count_nonzero(by)), float(by.max(initial=0.0)), float(by.sum()))


def _rows(cells: ScoredTable, kept: LocalTable) -> tuple[np.ndarray, System]:
    """All scores in their order, and the system with a cell for every row in place of one for every code."""
    found = kept.query("SELECT z, code FROM data")
    cell, system = cells.cell_of_code[found["code"]], cells.system
    samples = np.bincount(cell, minlength=len(system.weight)).astype(system.samples.dtype)
    z = np.ascontiguousarray(found["z"], dtype=np.float64)
    return z, system._replace(cell=cell, samples=samples, weights=np.zeros(0))
