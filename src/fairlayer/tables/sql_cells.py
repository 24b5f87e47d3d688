"""The cells of a file: everything that constraints look at, as one number per row, in SQL.

Each attribute, each feature of a region and the target is a *digit*: an expression with few values. Digits side by side
make the *code* of a row. Only the counts of codes are needed to bind constraints to a table of any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.system import System, bind
from fairlayer.constraints import ConditionalParity, EqualizedOdds, GroupConstraint
from fairlayer.errors import InputError
from fairlayer.tables.attribute import Attribute
from fairlayer.tables.duckdb_table import MISSING, number, quote, text
from fairlayer.tables.entries import MISSING_MARKS
from fairlayer.tables.table_io import Source, connect, named, plain_errors

MOST_LABELS = 1000
MOST_CODES = 1_000_000
_NOWHERE = "\0 in no region"  # stands for all text that no region lists


@dataclass(frozen=True)
class Digit:
    """An expression with values 0 to len(meaning) - 1, and something that each of them stands for."""

    sql: str
    meaning: list[Any]


@dataclass
class Counts:
    """What one pass over the rows finds of each code: rows, the sum of their targets, and a bound on its error."""

    rows: np.ndarray
    targets: np.ndarray
    error: np.ndarray


@dataclass
class Cells:
    """The codes of a table's rows. Its SQL takes `parameters`, and those of the source."""

    source: Source
    score: str
    attributes: Sequence[Attribute]
    constraints: Sequence[GroupConstraint]
    target: str | None
    parameters: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Digit] = field(default_factory=dict)
    features: dict[str, Digit] = field(default_factory=dict)
    of_target: Digit | None = None
    cell_of_code: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int32))

    def __post_init__(self) -> None:
        for attribute in self.attributes:
            self.groups[attribute.column] = self._group_digit(attribute)
        regions: dict[str, list[Any]] = {}
        for constraint in self.constraints:
            if isinstance(constraint, ConditionalParity):
                for name, listed in constraint.regions.items():
                    regions.setdefault(str(name), []).extend(listed)
        for name, listed in regions.items():
            self.features[name] = self._feature_digit(name, listed)
        self.of_target = self._target_digit()
        if self.size > MOST_CODES:
            raise InputError(
                f"Attributes and regions have {self.size:,} combinations, more than {MOST_CODES:,}: constrain fewer."
            )

    @property
    def digits(self) -> list[Digit]:
        """All of them, in the order of their weight in the code."""
        target = [self.of_target] if self.of_target is not None else []
        return [*self.groups.values(), *self.features.values(), *target]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of each digit."""
        return tuple(len(digit.meaning) for digit in self.digits)

    @property
    def size(self) -> int:
        """Number of codes."""
        return int(np.prod(self.shape, dtype=object))

    @property
    def needs_target_sums(self) -> bool:
        """Whether means of residuals are compared."""
        return any(constraint.residual for constraint in self.constraints)

    @property
    def code_sql(self) -> str:
        """The code of a row."""
        sql = "0"
        for digit in self.digits:
            sql = f"({sql} * {len(digit.meaning)} + {digit.sql})"
        return sql

    @property
    def score_sql(self) -> str:
        """The score of a row."""
        return number(self.score)

    def bind(self, counts: Counts) -> System:
        """Constraints bound to the whole table, by one row for each code that occurs, which counts as many."""
        codes = np.flatnonzero(counts.rows)
        values = dict(zip(map(id, self.digits), np.unravel_index(codes, self.shape), strict=True))

        def meaning(digit: Digit) -> np.ndarray:
            return _array([digit.meaning[value] for value in values[id(digit)].tolist()])

        weight = counts.rows[codes].astype(np.float64)
        targets: Any = None if self.of_target is None else meaning(self.of_target)
        if self.needs_target_sums:
            targets = counts.targets[codes] / weight
        system = bind(
            ConstraintSet(list(self.constraints)),
            len(codes),
            groups={name: meaning(digit) for name, digit in self.groups.items()},
            features={name: meaning(digit) for name, digit in self.features.items()},
            targets=targets,
            weights=weight,
        )
        self.cell_of_code = np.zeros(self.size, dtype=np.int32)
        self.cell_of_code[codes] = system.cell
        return _with_doubt(system, self.constraints, counts.error[codes]) if self.needs_target_sums else system

    def _parameter(self, value: Any) -> str:
        name = f"p{len(self.parameters)}"
        self.parameters[name] = value
        return f"${name}"

    def _group_digit(self, attribute: Attribute) -> Digit:
        if attribute.cuts:
            place = self._place_sql(number(attribute.column), attribute.cuts)
            known = f"CASE WHEN {number(attribute.column)} IS NULL THEN {len(attribute.groups)} ELSE {place} END"
            return Digit(known, [*attribute.groups, MISSING])
        label = self._label_sql(attribute.column)
        labels = self._distinct(label, MOST_LABELS)
        if len(labels) > MOST_LABELS:
            raise InputError(
                f"--protected: column {attribute.column!r} has more than {MOST_LABELS} groups: give cut points, such "
                f"as --protected {attribute.column}=30,50, or choose another column."
            )
        return Digit(f"(list_position({self._parameter(labels)}, {label}) - 1)", labels)

    def _feature_digit(self, name: str, regions: list[Any]) -> Digit:
        """One that tells all regions of a feature apart: intervals between cut points, or listed values."""
        if isinstance(regions[0], frozenset | set):
            listed = sorted({value for region in regions for value in region})
            place = f"coalesce(list_position({self._parameter(listed)}, {self._label_sql(name)}), 0)"
            return Digit(place, [_NOWHERE, *listed])
        return self._interval_digit(number(name), regions)

    def _target_digit(self) -> Digit | None:
        odds = next((c for c in self.constraints if isinstance(c, EqualizedOdds)), None)
        if odds is None or self.target is None:
            return None
        if odds.regions is not None:
            return self._interval_digit(number(self.target), list(odds.regions))
        label = self._label_sql(self.target)
        classes = self._distinct(label, odds.most_classes)
        if len(classes) > odds.most_classes:
            example = "--odds 0.05:20,40"
            raise InputError(f"--odds: column {self.target!r} has many values: give cut points, such as {example}.")
        return Digit(f"(list_position({self._parameter(classes)}, {label}) - 1)", classes)

    def _interval_digit(self, value: str, regions: list[Any]) -> Digit:
        cuts = sorted({side for region in regions for side in region if side is not None})
        below = np.nextafter(cuts[0], -np.inf)
        return Digit(self._place_sql(value, cuts), [float(below), *cuts])

    def _place_sql(self, value: str, cuts: Sequence[float]) -> str:
        """How many cut points a value has reached."""
        return "(" + " + ".join(f"CAST({value} >= {self._parameter(float(cut))} AS INTEGER)" for cut in cuts) + ")"

    def _label_sql(self, name: str) -> str:
        """A column as text, `missing` where there is no entry."""
        label = text(name)
        absent = f"{label} IS NULL OR {label} = ''"
        if self.source.is_csv:
            if "marks" not in self.parameters:
                self.parameters["marks"] = sorted(MISSING_MARKS)
            absent += f" OR list_contains($marks, {label})"
        return f"CASE WHEN {absent} THEN '{MISSING}' ELSE {label} END"

    def _distinct(self, label: str, most: int) -> list[str]:
        """The labels that occur, sorted."""
        used = {name: value for name, value in self.parameters.items() if name == "marks" and "$marks" in label}
        sql = f"SELECT DISTINCT {label} AS label FROM {self.source.relation} LIMIT {most + 1}"
        with plain_errors(self.source.path), connect() as connection:
            found = connection.execute(sql, {**used, **self.source.parameters}).fetchall()
        return sorted(row[0] for row in found)

    def rows(self, source: Source, *more: str, vectors: int) -> Any:
        """Frames with the columns z and code, and more, in the order of a file."""
        asked = ", ".join([f"{self.score_sql} AS z", f"CAST({self.code_sql} AS INTEGER) AS code", *more])
        with plain_errors(source.path), connect() as connection:
            sql = f"SELECT {asked} FROM {source.relation}"
            result = connection.execute(sql, {**self.parameters, **source.parameters})
            while len(frame := result.fetch_df_chunk(vectors)):
                yield frame

    def copy_sql(self, keep_raw: str | None) -> str:
        """The table with the score moved by $shift, a list by code, and kept between $lo and $hi."""
        moved = f"{self.score_sql} - list_extract($shift, {self.code_sql} + 1)"
        raw = "" if keep_raw is None else f", {quote(self.score)} AS {named(keep_raw)}"
        replaced = f"least(greatest({moved}, $lo), $hi) AS {named(self.score)}"
        return f"SELECT * REPLACE ({replaced}){raw} FROM {self.source.relation}"


def _array(values: list[Any]) -> np.ndarray:
    """Text as objects, numbers as they are."""
    return np.array(values, dtype=object if values and isinstance(values[0], str) else None)


def _with_doubt(system: System, constraints: Sequence[GroupConstraint], error: np.ndarray) -> System:
    """Rows of residuals a hair tighter, by what rounding may have done to the targets' means."""
    rows = system.rows
    of_cell = np.bincount(system.cell, weights=error, minlength=len(system.weight))
    of_statistic = np.append(of_cell @ np.abs(rows.M), 0.0)
    residual = np.array([constraints[owner].residual for owner in system.view.owner.tolist()])
    off = np.where(residual, of_statistic[rows.plus] + of_statistic[rows.minus], 0.0)
    off = np.minimum(off, 0.25 * (rows.upper - rows.lower))
    return system._replace(rows=rows._replace(lower=rows.lower + off, upper=rows.upper - off))
