"""Entries of CSV and Parquet files in the SQL of DuckDB: as numbers, as text, as labels, or missing.

Names of columns are quoted identifiers and values are parameters: nothing of the data becomes SQL text.
"""

from __future__ import annotations

import os
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
MISSING_MARKS = frozenset([
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "?", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
])
# fmt: on
_MARKS_SQL = ", ".join(f"'{mark}'" for mark in sorted(MISSING_MARKS))
_BLANKS_SQL = r" \t\r\n\f\x0B"
BLANKS = " \t\r\n\f\v"  # around a number, which they do not change
# 1.234,5 and 12,5 and 1.234 and 12, where decimals have commas: points part thousands.
DECIMAL_COMMA = r"\s*[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?([eE][+-]?\d+)?\s*"
_SEPARATORS = ",;\t|"


def is_table(source: Any) -> bool:
    """Whether `source` is the path of a file, rather than data."""
    return isinstance(source, str | Path)


def literal(path: str | Path) -> str:
    """A path that DuckDB takes for one file: `*`, `?` and `[` in a name are characters, not patterns."""
    return re.sub(r"([*?\[])", r"[\1]", os.path.abspath(path))


def quote(name: str) -> str:
    """A column of the file as an SQL identifier, which no alias of a query can be mistaken for."""
    return f"data.{named(name)}"


def number(name: str) -> str:
    """SQL of a column as numbers; NULL where it is missing, infinite or no number."""
    return f"CASE WHEN isfinite({_value(name)}) AND {_is_plain(name)} THEN {_value(name)} END"


def spells_number(name: str) -> str:
    """SQL of whether an entry is a number, infinity among them."""
    return f"coalesce(NOT isnan({_value(name)}) AND {_is_plain(name)}, false)"


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
    """The same of a column that may hold numbers, which blanks around them do not change."""
    return _unless_missing(f"trim(CAST({quote(name)} AS VARCHAR), e'{_BLANKS_SQL}')")


def _unless_missing(entry: str) -> str:
    return f"CASE WHEN {entry} NOT IN ({_MARKS_SQL}) THEN {entry} END"


def decimal_comma_sql(name: str) -> str:
    """SQL of two facts: whether every entry is a number if commas are decimal commas, and whether one has a comma."""
    entry = number_text(name)
    return f"(bool_and(regexp_full_match({entry}, '{DECIMAL_COMMA}')), bool_or(contains({entry}, ',')))"


def with_point(name: str) -> str:
    """SQL of a column with decimal points in place of its decimal commas; what marks a missing entry stays."""
    entry = named(name)
    point = f"replace(replace({entry}, '.', ''), ',', '.')"
    return f"CASE WHEN regexp_full_match({entry}, '{DECIMAL_COMMA}') THEN {point} ELSE {entry} END"


def named(column: str) -> str:
    """What stands after AS to give a column this name; `quote` is for columns that are read."""
    return '"' + column.replace('"', '""') + '"'


def select_list(values: Mapping[str, str]) -> str:
    """What stands after SELECT: SQL expressions, each under its name."""
    return ", ".join(f"{sql} AS {named(name)}" for name, sql in values.items())


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
    """The same, with a label of their own for those whose label is missing."""
    return f"coalesce({label(name, kind)}, '{MISSING}')"


@contextmanager
def connect(memory: str = "1GB") -> Iterator[Any]:
    """A database in memory, of bounded size; what does not fit goes to a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="fairlayer-") as spill:
        settings = {
            "memory_limit": memory,
            "temp_directory": spill,
            "autoinstall_known_extensions": False,  # reading a file needs no network
            "autoload_known_extensions": False,
        }
        with driver().connect(":memory:", config=settings) as connection:
            _take_text_as_text(connection)
            yield connection


def _take_text_as_text(connection: Any) -> None:
    """Keep DuckDB from reading a column of text as numbers where all that is asked of it is TRY_CAST to a number.

    As a shortcut it fails at the first entry that is no number, where TRY_CAST gives NULL. Older releases have none.
    """
    shortcut = "type_pushdown"
    if (shortcut,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall():
        connection.execute(f"SET disabled_optimizers = '{shortcut}'")


def used(sql: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that the query mentions: others are an error to DuckDB."""
    return {name: parameters[name] for name in re.findall(r"\$(\w+)", sql) if name in parameters}


def separator(path: Path) -> str:
    """What separates the columns: the candidate that the first line has most of, outside of quotes.

    The reader's own guess is too clever: it takes a file with one broken line for a file of one column.
    """
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        header = file.readline()
    if not header.strip():
        raise InputError(f"{str(path)!r} has no header: its first line must name the columns.")
    return max(_SEPARATORS, key=re.sub('"[^"]*"', "", header).count)


def driver() -> Any:
    """DuckDB, or a sentence on how to get it."""
    with needs("Reading a file", "duckdb"):
        import duckdb
    return duckdb
