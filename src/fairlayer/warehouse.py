"""The projection of a table that a database holds: it takes the sums, in its own SQL, and moves the scores.

The solver asks for sums of cells at given shifts, a few times; whoever has an engine that can group and add, Spark,
BigQuery, Snowflake, DuckDB, answers with one query each, and moves the scores with a last one. No row leaves it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fairlayer.binding.bounds import read_bounds
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.exact_sums import UNIT
from fairlayer.binding.groups import is_missing
from fairlayer.binding.system import bind
from fairlayer.errors import InputError
from fairlayer.frames import frame_columns
from fairlayer.solution import Facts, Status
from fairlayer.solve.files import Change, PassSums, project_passes

__all__ = ["CellShifts", "project_sums"]

COUNT, LOW, HIGH, TOTAL, FREE, ERROR = "n", "low", "high", "total", "free", "error"  # columns that have a meaning
_COUNTS = {COUNT: "count(*)", LOW: "min(score)", HIGH: "max(score)"}  # what is known of each cell beforehand
_SUMS = (TOTAL, FREE)
Quote = Literal['"', "`"] | None
_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")


@dataclass(eq=False, repr=False)
class CellShifts:
    """What a projection does to each cell: y = clip(score - shift, lo, hi). As a table, and in SQL.

    quote: what the engine puts around names of columns. facts: what is known of the outputs; None while the solver is
    still asking.
    """

    labels: Mapping[str, list[Any]]
    shift: np.ndarray
    lo: float
    hi: float
    quote: Quote = None
    facts: Facts | None = None

    @property
    def status(self) -> Status:
        """How far the promise holds."""
        assert self.facts is not None, "the solver is still asking"
        return self.facts.status

    @property
    def gaps(self) -> dict[str, float]:
        """The value of each row of the constraints, by its name."""
        assert self.facts is not None, "the solver is still asking"
        return dict(zip(self.facts.rows, self.facts.gaps.tolist(), strict=True))

    def table(self) -> dict[str, list[Any]]:
        """The labels of each cell and its `shift`, column by column, to be written to the engine and joined with."""
        return {**self.labels, "shift": self.shift.tolist()}

    def sql(self, score: str) -> str:
        """The moved score in standard SQL. score: an expression, such as the name of the column."""
        moved = self._moved(score)
        if self.lo > -math.inf:
            moved = f"GREATEST({moved}, {_number(self.lo)})"
        return f"LEAST({moved}, {_number(self.hi)})" if self.hi < math.inf else moved

    def free_sql(self, score: str) -> str:
        """1 where no bound holds the moved score, else 0."""
        return f"CASE WHEN {self.sql(score)} = {self._moved(score)} THEN 1 ELSE 0 END"

    def _moved(self, score: str) -> str:
        return f"({score} - {self.shift_sql()})"

    def shift_sql(self) -> str:
        """The shift of a row, by its labels."""
        cases, columns = [], {name: _column(name, self.quote) for name in self.labels}
        for c, shift in enumerate(self.shift.tolist()):
            met = " AND ".join(_equals(columns[name], values[c]) for name, values in self.labels.items())
            cases.append(f"WHEN {met} THEN {_number(shift)}")
        return f"CASE {' '.join(cases)} END"


def project_sums(
    cells: Any,
    sums: Callable[[CellShifts], Any],
    constraints: Any,
    bounds: Any = None,
    quote: Quote = None,
) -> CellShifts:
    """Project the scores of a table by sums that a database takes.

    cells: one row for each combination of labels, as `SELECT sex, race, count(*) AS n, min(p) AS low, max(p) AS high
    FROM people GROUP BY sex, race` gives: a frame, or columns by name. What is not called n, low or high is a protected
    attribute. sums: a function of shifts that returns, for the same labels in any order, `total`, the sum of
    `shifts.sql("p")`, and `free`, the sum of `shifts.free_sql("p")`. quote: what the engine puts around names, for
    columns that are called by reserved words or have blanks in their names: `"` in standard SQL, a backtick in Spark,
    BigQuery and MySQL, where what stands between `"` is text.

    The rows hold in exact arithmetic for the outputs as the database computes them. Sums of floating-point numbers are
    off by no more than n 2^-53 times the sum of their absolute values, in whatever order they are taken: so much is
    taken off the tolerances. Whoever takes sums exactly, as DECIMAL or as whole numbers, returns a column `error`
    besides, a bound on what each total is off by.
    """
    labels, counts = _read_cells(cells)
    if quote not in (None, '"', "`"):
        raise InputError(f"quote must be None, '\"' or '`'; got {quote!r}.")
    rules = ConstraintSet(constraints)
    _check(rules)
    box = read_bounds(bounds, 1, np.float64)
    rules.check_bounds(box.lowest)
    attributes = {
        name: np.array(["missing" if value is None else str(value) for value in values], dtype=object)
        for name, values in labels.items()
    }
    system = bind(rules, len(counts[COUNT]), groups=attributes, weights=counts[COUNT])
    passes = _QueryPasses(labels, counts, np.asarray(system.cell), len(system.weight), sums, quote)
    found = project_passes(passes, system, bounds)
    return CellShifts(labels, found.shift[passes.cell], found.lo, found.hi, quote, found.facts)


@dataclass(eq=False)
class _QueryPasses:
    """Passes that a database makes. A cell of the solver may be several rows of the table of cells."""

    labels: Mapping[str, list[Any]]
    counts: Mapping[str, np.ndarray]
    cell: np.ndarray
    cells: int
    ask: Callable[[CellShifts], Any]
    quote: Quote

    def extent(self) -> tuple[float, float]:
        """The least and the greatest score."""
        return float(self.counts[LOW].min()), float(self.counts[HIGH].max())

    def sums(self, shift: np.ndarray, lo: float, hi: float, absolute: bool) -> PassSums:
        """One query."""
        of_row, n = shift[self.cell], self.counts[COUNT]
        found = self._answered(self.ask(CellShifts(self.labels, of_row, lo, hi, self.quote)))
        ends = np.stack([np.clip(self.counts[end] - of_row, lo, hi) for end in (LOW, HIGH)])
        most = n * np.abs(ends).max(axis=0)  # of the sum of |y|
        # Sums of several rows are rounded once more each.
        error = found.get(ERROR, 1.01 * n * UNIT * most) + UNIT * len(n) * most
        total, error, free, most = map(self._by_cell, (found[TOTAL], error, found[FREE], most))
        return PassSums(total, error, free, most, Change(0, 0.0, 0.0))  # changes are not asked for

    def _by_cell(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.cell, weights=values, minlength=self.cells)

    def _answered(self, answer: Any) -> dict[str, np.ndarray]:
        """Columns in the order of the table of cells."""
        columns = _columns(answer, "sums")
        missing = [name for name in (*self.labels, *_SUMS) if name not in columns]
        if missing:
            raise InputError(f"sums must return a column {missing[0]!r}; it returned {list(columns)}.")
        place = {key: row for row, key in enumerate(zip(*self.labels.values(), strict=True))}
        keys = list(zip(*(map(_plain, columns[name]) for name in self.labels), strict=True))
        if sorted(map(repr, keys)) != sorted(map(repr, place)):
            odd = next(iter({*keys} ^ {*place}), keys[:1])
            raise InputError(
                f"sums must return one row for each row of cells; they differ in {odd!r}. Group by the same columns, "
                "of a table that does not change meanwhile."
            )
        order = np.empty(len(keys), dtype=np.int64)
        order[[place[key] for key in keys]] = np.arange(len(keys))
        return {name: _numbers(columns[name], name)[order] for name in (*_SUMS, ERROR) if name in columns}


def _read_cells(cells: Any) -> tuple[dict[str, list[Any]], dict[str, np.ndarray]]:
    columns = _columns(cells, "cells")
    for name, sql in _COUNTS.items():
        if name not in columns:
            raise InputError(f"cells needs a column {name!r}: select {sql} AS {name}.")
    counts = {name: _numbers(columns.pop(name), name) for name in _COUNTS}
    if not columns or not len(counts[COUNT]):
        raise InputError("cells needs a column for each protected attribute, and a row for each combination of labels.")
    return {name: [_plain(value) for value in values] for name, values in columns.items()}, counts


def _columns(table: Any, what: str) -> dict[str, Any]:
    try:
        return {str(name): list(np.asarray(column, dtype=object)) for name, column in frame_columns(table).items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{what} must be a frame, or columns by name: {error}") from error


def _numbers(values: Any, name: str) -> np.ndarray:
    try:
        numbers = np.array([float(value) for value in values])
    except (TypeError, ValueError) as error:
        raise InputError(f"Column {name!r} must hold numbers: {error}.") from error
    if not np.isfinite(numbers).all():
        raise InputError(f"Column {name!r} holds {numbers[~np.isfinite(numbers)][0]}: leave rows without scores out.")
    return numbers


def _check(rules: ConstraintSet) -> None:
    """Refuse what cells of labels do not tell."""
    for constraint in rules.constraints:
        if not constraint.needs_groups or constraint.quantity != "output" or constraint.conditions:
            raise InputError(
                f"{type(constraint).__name__} compares more than means of scores between groups of labels: use "
                "MeanParity or RatioParity here, or fairlayer.ray.project."
            )


def _plain(value: Any) -> Any:
    """A label as Python has it; None where it is missing."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if is_missing(value) else value


def _column(name: str, quote: Quote) -> str:
    """SQL of the name of a column."""
    if quote is None:
        if not _PLAIN.fullmatch(name):
            raise InputError(
                f"The column {name!r} has a name that has to be quoted, which engines do differently: pass "
                "quote='\"' (standard SQL) or quote='`' (Spark, BigQuery, MySQL), or call the column otherwise."
            )
        return name
    if quote in name or "\\" in name:
        raise InputError(f"The column {name!r} has a {quote} or a backslash in its name: call it otherwise.")
    return f"{quote}{name}{quote}"


def _equals(column: str, value: Any) -> str:
    """SQL of whether a column has a label."""
    if value is None:
        return f"{column} IS NULL"
    if isinstance(value, bool):
        return f"{column} = {'TRUE' if value else 'FALSE'}"
    if isinstance(value, int | float):
        return f"{column} = {value!r}"
    text = str(value)
    if "'" in text or "\\" in text:
        raise InputError(
            f"The label {text!r} of {column} has a quote or a backslash, which engines spell differently: join with "
            "shifts.table() instead of shifts.sql(...)."
        )
    return f"{column} = '{text}'"


def _number(value: float) -> str:
    """A float64 that every engine reads as the same."""
    return f"({value:.17e})"
