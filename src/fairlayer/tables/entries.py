"""Entries of tables in the SQL of DuckDB: as numbers, as text, as labels of groups, or missing. The one reader of them.

Names of columns are quoted identifiers and values are parameters, or literals of `text_literal`: nothing of the data
becomes SQL.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

from fairlayer.errors import InputError

MISSING = "missing"  # the label of those whose label is missing
# Text that stands for a missing entry, to every command and in every file: what pandas takes for one, and "?".
# fmt: off
_MARKS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "?", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)
# fmt: on
_TRUTHS = ("True", "TRUE", "False", "FALSE")  # are labels in lower case
_BLANKS_SQL = r" \t\r\n\f\x0B"
# 1.234,5 and 12,5 and 1.234 and 12, where decimals have commas: points part thousands.
_DECIMAL_COMMA = r"\s*[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?([eE][+-]?\d+)?\s*"
_DATE = r"\s*(\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}( .*)?)\s*"


def named(column: str) -> str:
    """What stands after AS to give a column this name; `quote` is for columns that are read."""
    return '"' + column.replace('"', '""') + '"'


def quote(name: str) -> str:
    """A column of the table as an SQL identifier, which no alias of a query can be mistaken for."""
    return f"data.{named(name)}"


def text_literal(value: str) -> str:
    """Text in SQL."""
    return "'" + value.replace("'", "''") + "'"


def select_list(values: Mapping[str, str]) -> str:
    """What stands after SELECT: SQL expressions, each under its name."""
    return ", ".join(f"{sql} AS {named(name)}" for name, sql in values.items())


def number(name: str) -> str:
    """SQL of a column as numbers; NULL where it is missing, infinite or no number."""
    return f"CASE WHEN isfinite({_value(name)}) AND {_is_plain(name)} THEN {_value(name)} END"


def spells_number(name: str) -> str:
    """SQL of whether an entry is a number, infinity among them. A truth value is none: it is a category, as in CSV."""
    return f"coalesce(NOT isnan({_value(name)}) AND {_is_plain(name)} AND typeof({quote(name)}) <> 'BOOLEAN', false)"


def holds_numbers(name: str) -> str:
    """SQL of whether every entry of a column that is not missing is a number, and there is one."""
    numbers = f"count_if({spells_number(name)})"
    return f"({numbers} > 0 AND {numbers} = count({number_text(name)}))"


def _value(name: str) -> str:
    return f"TRY_CAST({quote(name)} AS DOUBLE)"


def _is_plain(name: str) -> str:
    """Not 1_000 nor +-1, which only DuckDB takes for numbers; a column of numbers is not looked at again."""
    entry = f"CAST({quote(name)} AS VARCHAR)"
    return f"(typeof({quote(name)}) <> 'VARCHAR' OR NOT (contains({entry}, '_') OR contains({entry}, '+-')))"


def text(name: str) -> str:
    """SQL of a column as text; NULL where it is missing."""
    return _unless_missing(f"CAST({quote(name)} AS VARCHAR)")


def number_text(name: str) -> str:
    """SQL of a column that may hold numbers, as text without the blanks around them; NULL where it is missing."""
    return _unless_missing(f"trim(CAST({quote(name)} AS VARCHAR), e'{_BLANKS_SQL}')")


def _unless_missing(entry: str) -> str:
    return f"CASE WHEN {entry} NOT IN {_MARKS} THEN {entry} END"


def label(name: str, kind: str) -> str:
    """SQL of a column as labels of groups, which are text; NULL where one is missing.

    Whole numbers have no point and truth values are in lower case, so that a group is the same group in a CSV and in a
    Parquet file. kind: DuckDB's type of the column.
    """
    entry = text(name)
    if kind in ("FLOAT", "DOUBLE"):
        value = quote(name)
        whole = f"isfinite({value}) AND {value} = trunc({value}) AND abs({value}) < 1e18"
        return f"CASE WHEN {whole} THEN CAST(CAST({value} AS BIGINT) AS VARCHAR) ELSE {entry} END"
    return f"CASE WHEN {entry} IN {_TRUTHS} THEN lower({entry}) ELSE {entry} END"


def label_of(value: Any) -> str:
    """A label in memory as `label` has it in tables."""
    if isinstance(value, Real) and not isinstance(value, Integral) and float(value).is_integer():
        return str(int(float(value)))
    return str(value).lower() if str(value) in _TRUTHS else str(value)


def group_label(name: str, kind: str) -> str:
    """SQL of labels of groups, with one of their own, `missing`, for those whose label is missing."""
    return f"coalesce({label(name, kind)}, '{MISSING}')"


def decimal_commas(name: str) -> tuple[str, str]:
    """SQL of whether every entry is a number if commas are decimal commas, and of whether one has a comma."""
    entry = number_text(name)
    return f"bool_and(regexp_full_match({entry}, '{_DECIMAL_COMMA}'))", f"bool_or(contains({entry}, ','))"


def dates(name: str) -> str:
    """SQL of whether every entry is a date or a time."""
    return f"bool_and(regexp_full_match({text(name)}, '{_DATE}'))"


def with_point(name: str) -> str:
    """SQL of a column with decimal points in place of its decimal commas; what marks a missing entry stays."""
    point = f"replace(replace({quote(name)}, '.', ''), ',', '.')"
    return f"CASE WHEN regexp_full_match({quote(name)}, '{_DECIMAL_COMMA}') THEN {point} ELSE {quote(name)} END"


@dataclass(frozen=True)
class Attribute:
    """A protected attribute: a column, and the cut points that make groups of it where it holds numbers.

    `age=30,50` makes three groups: below 30, from 30 to below 50, and from 50 on.
    """

    column: str
    cuts: tuple[float, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups that the cut points make, in their order."""
        if not self.cuts:
            return ()
        inner = [f"{low:g} to {high:g}" for low, high in pairwise(self.cuts)]
        return (f"below {self.cuts[0]:g}", *inner, f"{self.cuts[-1]:g} or more")

    def label(self, kind: str) -> str:
        """SQL of the group of a row, `missing` where it has no entry. kind: DuckDB's type of the column."""
        if not self.cuts:
            return group_label(self.column, kind)
        value, (*inner, last) = number(self.column), self.groups
        below = zip(self.cuts, inner, strict=True)
        cases = " ".join(f"WHEN {value} < '{cut!r}'::DOUBLE THEN '{group}'" for cut, group in below)
        return f"CASE WHEN {value} IS NULL THEN '{MISSING}' {cases} ELSE '{last}' END"


def read_cuts(text: str, option: str) -> tuple[float, ...]:
    """Cut points in increasing order."""
    try:
        cuts = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option}: {text!r} are not cut points: give numbers, such as 30,50.") from None
    if any(not math.isfinite(cut) for cut in cuts) or any(a >= b for a, b in pairwise(cuts)):
        raise InputError(f"{option}: cut points must be finite and increase; got {text}.")
    return cuts
