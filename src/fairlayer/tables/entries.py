"""Entries of tables in the SQL of DuckDB: as numbers, as text, as labels, or missing. The one reader of them.

Names of columns are quoted identifiers and values are parameters: nothing of the data becomes SQL text.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairlayer.errors import InputError
from fairlayer.extras import needs

MISSING = "missing"  # the label of those whose label is missing
# Text that stands for a missing entry, to every command and in every file: what pandas takes for one, and "?".
# fmt: off
_MARKS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "?", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)
# fmt: on
_MARKS_SQL = ", ".join(f"'{mark}'" for mark in _MARKS)
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


def select_list(values: Mapping[str, str]) -> str:
    """What stands after SELECT: SQL expressions, each under its name."""
    return ", ".join(f"{sql} AS {named(name)}" for name, sql in values.items())


def number(name: str) -> str:
    """SQL of a column as numbers; NULL where it is missing, infinite or no number."""
    return f"CASE WHEN isfinite({_value(name)}) AND {_is_plain(name)} THEN {_value(name)} END"


def spells_number(name: str) -> str:
    """SQL of whether an entry is a number, infinity among them. A truth value is none: it is a category, as in CSV."""
    return f"coalesce(NOT isnan({_value(name)}) AND {_is_plain(name)} AND typeof({quote(name)}) <> 'BOOLEAN', false)"


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
    return f"CASE WHEN {entry} NOT IN ({_MARKS_SQL}) THEN {entry} END"


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
    return f"CASE WHEN {entry} IN ('True', 'TRUE', 'False', 'FALSE') THEN lower({entry}) ELSE {entry} END"


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
    entry = named(name)
    point = f"replace(replace({entry}, '.', ''), ',', '.')"
    return f"CASE WHEN regexp_full_match({entry}, '{_DECIMAL_COMMA}') THEN {point} ELSE {entry} END"


def used(sql: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that the query mentions: others are an error to DuckDB."""
    return {name: parameters[name] for name in re.findall(r"\$(\w+)", sql) if name in parameters}


@contextmanager
def connect(memory: str = "1GB", folder: Path | None = None) -> Iterator[Any]:
    """A database in memory, of bounded size; what does not fit goes to a temporary folder, within `folder` if named."""
    with tempfile.TemporaryDirectory(prefix=".fairlayer-", dir=folder) as spill:
        settings = {
            "memory_limit": memory,
            "temp_directory": spill,
            "autoinstall_known_extensions": False,  # reading a file needs no network
            "autoload_known_extensions": False,
        }
        try:
            connection = driver().connect(":memory:", config=settings)
        except driver().Error as error:
            raise InputError(f"memory must be a size such as '1GB'; got {memory!r}.") from error
        with connection:
            _take_text_as_text(connection)
            yield connection


def _take_text_as_text(connection: Any) -> None:
    """Keep DuckDB from reading a column of text as numbers where all that is asked of it is TRY_CAST to a number.

    As a shortcut it fails at the first entry that is no number, where TRY_CAST gives NULL. Older releases have none.
    """
    shortcut = "type_pushdown"
    if (shortcut,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall():
        connection.execute(f"SET disabled_optimizers = '{shortcut}'")


def driver() -> Any:
    """DuckDB, or a sentence on how to get it."""
    with needs("Reading a file", "duckdb"):
        import duckdb
    return duckdb
