"""The projection of a table that a database holds: it takes the sums, in its own SQL, and moves the scores.

    from fairlayer.warehouse import project
    shifts = project(query, "people", "p", ["sex", "race"], [MeanParity(0.02)], bounds=(0, 1))
    query(f"CREATE TABLE fair AS SELECT *, {shifts.sql} AS fair FROM people")

The solver asks for sums of cells at given shifts, a few times. Any engine that can group and add answers with one query
each: Spark, BigQuery, Snowflake, PostgreSQL, DuckDB. No row leaves it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fairlayer.errors import InputError
from fairlayer.frames import frame_columns
from fairlayer.problem.bounds import read_bounds
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.exact_sums import UNIT
from fairlayer.problem.groups import is_missing
from fairlayer.problem.system import bind
from fairlayer.tables.entries import MISSING, label_of
from fairlayer.tables.passes import Passes, PassSums, Shifts, free, literal, moved, project_passes

__all__ = ["CellShifts", "project"]

Query = Callable[[str], Any]  # runs SQL, and returns a frame or columns by name
Quote = Literal['"', "`"] | None
_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class CellShifts(Shifts):
    """What a projection does to each combination of labels. As a table, and in SQL.

    sql: the moved score in standard SQL, an expression of the columns of the table.
    """

    def __init__(self, shifts: Shifts, passes: _QueryPasses):
        self.__dict__.update(vars(shifts))
        self.shift, self._labels = shifts.shift[passes.cell], passes.labels
        self.sql = moved(passes.score, passes.case(self.shift), self.lo, self.hi)

    def table(self) -> dict[str, list[Any]]:
        """The labels of each cell and its `shift`, column by column, to be written to the engine and joined with."""
        return {**self._labels, "shift": self.shift.tolist()}


def project(
    query: Query,
    table: str,
    score: str,
    protected: Sequence[str] | str,
    constraints: Any,
    bounds: Any = None,
    *,
    quote: Quote = None,
) -> CellShifts:
    """Project the scores of a table that a database holds.

    query: a function that runs SQL and returns the answer, a frame or columns by name, in the order of the SELECT.
    table: what stands after FROM, such as a name or `(SELECT ...) AS people`. score: the column of scores, or an
    expression. protected: the columns of groups; a missing label is a group of its own. quote: what the engine puts
    around names, for columns that are called by reserved words or have blanks in their names: `"` in standard SQL, a
    backtick in Spark, BigQuery and MySQL, where what stands between `"` is text.

    The rows hold in exact arithmetic for the outputs as the database computes them. Sums of floating-point numbers are
    off by no more than n 2^-53 times the sum of their absolute values, in whatever order they are taken: so much is
    taken off the tolerances.
    """
    if quote not in (None, '"', "`"):
        raise InputError(f"quote must be None, '\"' or '`'; got {quote!r}.")
    rules, box = ConstraintSet(constraints), read_bounds(bounds, 1, np.float64)
    for constraint in rules.constraints:
        if not constraint.needs_groups or constraint.quantity != "output" or constraint.conditions:
            raise InputError(
                f"{type(constraint).__name__} compares more than means of scores between groups of labels: use "
                "MeanParity or RatioParity here, or fairlayer.ray.project."
            )
    rules.check_bounds(box.lowest)
    names = [protected] if isinstance(protected, str) else list(protected)
    passes = _QueryPasses(query, table, score, {name: _column(name, quote) for name in names})
    groups = {
        name: np.array([MISSING if label is None else label_of(label) for label in labels], dtype=object)
        for name, labels in passes.labels.items()
    }
    system = bind(rules, len(passes.n), groups=groups, weights=passes.n)
    passes.cell, passes.cells = np.asarray(system.cell), len(system.weight)
    return CellShifts(project_passes(passes, system, bounds), passes)


class _QueryPasses(Passes):
    """Passes that a database makes. A cell of the solver may be several combinations of labels."""

    cell: np.ndarray
    cells: int

    def __init__(self, query: Query, table: str, score: str, protected: Mapping[str, str]):
        """protected: SQL of the columns of groups, by their names."""
        if not protected:
            raise InputError("protected is empty: name the columns of groups, such as protected=['sex'].")
        self.query, self.from_, self.score, self.names = query, table, score, list(protected.values())
        labels, counts = self._ask("count(*)", f"count({score})", f"min({score})", f"max({score})")
        n, scored = (_numbers(column, "The count of rows") for column in counts[:2])
        missing, rows = int(n.sum() - scored.sum()), int(n.sum())
        if missing:
            raise InputError(
                f"score: {missing:,} of {rows:,} rows have no {score}: leave them out, with "
                f"table='(SELECT * FROM {table} WHERE {score} IS NOT NULL) AS scored', or fill them in."
            )
        if not rows:
            raise InputError(f"table: {table} has no rows: there is nothing to compare.")
        super().__init__(n, *(_numbers(column, f"score: {score}") for column in counts[2:]))
        self.labels = dict(zip(protected, map(list, zip(*labels, strict=True)), strict=True))  # of each combination
        self.place = {key: row for row, key in enumerate(labels)}

    def case(self, values: np.ndarray) -> str:
        """SQL of a number for each combination of labels."""
        cases = []
        for value, *row in zip(values.tolist(), *self.labels.values(), strict=True):
            met = " AND ".join(_equals(name, label) for name, label in zip(self.names, row, strict=True))
            cases.append(f"WHEN {met} THEN {literal(value)}")
        return f"CASE {' '.join(cases)} END"

    def sums(self, shift: np.ndarray, lo: float, hi: float) -> PassSums:
        """One query."""
        of_row = shift[self.cell]
        of_label = self.case(of_row)
        moving = (self.score, of_label, lo, hi)
        asked = (f"count({of_label})", f"sum({moved(*moving)})", f"sum({free(*moving)})")
        labels, (n, total, unbound) = self._ask(*asked)
        order = [self.place.get(key, -1) for key in labels]
        if sorted(order) != list(range(len(self.n))) or (_numbers(n, "count") != self.n[order]).any():
            raise InputError(
                f"table: {self.from_} changed between two queries, or has labels that are equal to none, such as nan: "
                "project a copy of it, with such labels replaced."
            )
        sums = np.empty((2, len(order)))
        sums[:, order] = _numbers(total, "The sum of scores"), _numbers(unbound, "Their count")
        most = self.n * self.magnitude(of_row, lo, hi)
        error = (1.01 * self.n + len(self.n)) * UNIT * most  # sums of several combinations are rounded once more each
        by_cell = [np.bincount(self.cell, values, self.cells) for values in (sums[0], error, sums[1], most)]
        return PassSums._make([*by_cell, None])

    def _ask(self, *totals: str) -> tuple[list[tuple[Any, ...]], list[Any]]:
        """Labels of each combination, and totals of its rows."""
        names = ", ".join(self.names)
        listed = ", ".join(f"{sql} AS total_{j}" for j, sql in enumerate(totals))
        answer = self.query(f"SELECT {names}, {listed} FROM {self.from_} GROUP BY {names}")
        try:  # by their order, as some engines write names in capitals
            columns = [list(np.asarray(column, dtype=object)) for column in frame_columns(answer).values()]
        except (TypeError, ValueError, AttributeError) as error:
            raise InputError(f"query must return a frame, or columns by name: {error}") from error
        width = len(self.names)
        if len(columns) != width + len(totals):
            raise InputError(f"query must return the {width + len(totals)} columns asked for; got {len(columns)}.")
        return list(zip(*(map(_plain, column) for column in columns[:width]), strict=True)), columns[width:]


def _numbers(values: Any, what: str) -> np.ndarray:
    try:
        numbers = np.array([float(value) for value in values])
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be a number: {error}.") from error
    if not np.isfinite(numbers).all():
        raise InputError(
            f"{what} is {numbers[~np.isfinite(numbers)][0]} in some rows: leave them out, or fill them in."
        )
    return numbers


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
            f"The label {text!r} of {column} has a quote or a backslash, which engines spell differently: replace it, "
            "for instance in a view."
        )
    return f"{column} = '{text}'"
