"""CSV and Parquet files of any size, through DuckDB: by queries, never the whole file in memory.

Names of columns are quoted identifiers and values are parameters: nothing of the data becomes SQL text.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from fairlayer.errors import InputError
from fairlayer.extras import needs

Parameters = Sequence[Any] | Mapping[str, Any]  # of a query: for every `?`, or by name for `$name`

MISSING = "missing"  # the label of those whose label is missing
# What pandas reads as missing too, so that a file means the same everywhere.
_MISSING_TEXTS = "|#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan|null"
_SEPARATORS = ",;\t|"


def is_table(source: Any) -> bool:
    """Whether `source` is the path of a file, rather than data."""
    return isinstance(source, str | Path)


def literal(path: str | Path) -> str:
    """A path that DuckDB takes for one file: `*`, `?` and `[` in a name are characters, not patterns."""
    return re.sub(r"([*?\[])", r"[\1]", os.path.abspath(path))


def quote(name: str) -> str:
    """A column of the file as an SQL identifier, which no alias of a query can be mistaken for."""
    return 'data."' + name.replace('"', '""') + '"'


def number(name: str) -> str:
    """SQL of a column as numbers; NULL where it is missing or no number."""
    value = f"TRY_CAST({quote(name)} AS DOUBLE)"
    return f"CASE WHEN isfinite({value}) THEN {value} END"


def text(name: str) -> str:
    """SQL of a column as text."""
    return f"CAST({quote(name)} AS VARCHAR)"


class Table:
    """A file. Queries read it under the name `data`.

    memory: what DuckDB may use; beyond it, intermediate results go to a temporary folder. The columns of a CSV file are
    text, so that a late surprise in one of them is no error of the reader: see `number`.
    """

    def __init__(self, path: str | Path, memory: str = "1GB"):
        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(f"There is no file {str(path)!r}: check the path.")
        self._driver = driver()
        self._spill = tempfile.TemporaryDirectory(prefix="fairlayer-")
        try:
            self._connection = connect(memory, self._spill.name)
        except self._driver.Error as error:
            self._spill.cleanup()
            raise InputError(f"memory must be a size such as '1GB'; got {memory!r}.") from error
        try:
            relation = self._open()
            relation.create_view("data")
        except self._driver.Error as error:
            self.close()
            raise InputError(f"{str(path)!r} cannot be read: {_first_line(error)}") from error
        except BaseException:
            self.close()
            raise
        self.columns: tuple[str, ...] = tuple(relation.columns)
        self.types: dict[str, str] = dict(zip(self.columns, map(str, relation.types), strict=True))

    @property
    def is_csv(self) -> bool:
        """Whether it is text; otherwise it is Parquet."""
        return self.path.suffix.lower() not in (".parquet", ".pq")

    def _open(self) -> Any:
        # Folders may be called what they like: one named `sex=f` says nothing about a column.
        if not self.is_csv:
            return self._connection.read_parquet(literal(self.path), hive_partitioning=False)
        return self._connection.read_csv(
            literal(self.path),
            hive_partitioning=False,
            header=True,
            all_varchar=True,
            sep=separator(self.path),
            quotechar='"',
            escapechar='"',
            na_values=_MISSING_TEXTS.split("|"),
        )

    def require(self, name: str, argument: str) -> str:
        """The name, where the file has such a column."""
        if name not in self.columns:
            near = get_close_matches(str(name), self.columns, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f": it has {list(self.columns)[:20]}."
            raise InputError(f"{argument} names column {name!r}, which {self.path.name!r} does not have{hint}")
        return name

    def query(self, sql: str, parameters: Parameters = ()) -> dict[str, np.ndarray]:
        """The result of a query, a column each; missing entries are masked."""
        try:
            return self._connection.execute(sql, _used(sql, parameters)).fetchnumpy()
        except self._driver.Error as error:
            raise InputError(f"{str(self.path)!r} cannot be read: {_first_line(error)}") from error

    def close(self) -> None:
        """Let go of the file and of what was spilled."""
        self._connection.close()
        self._spill.cleanup()

    def __enter__(self) -> Table:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):  # type: ignore[no-untyped-def]
        self.close()


def connect(memory: str, spill: str) -> Any:
    """A database in memory, of bounded size; what does not fit goes to the folder `spill`."""
    settings = {
        "memory_limit": memory,
        "temp_directory": spill,
        "autoinstall_known_extensions": False,  # reading a file needs no network
        "autoload_known_extensions": False,
    }
    connection = driver().connect(":memory:", config=settings)
    _take_text_as_text(connection)
    return connection


def _take_text_as_text(connection: Any) -> None:
    """Keep DuckDB from reading a column of text as numbers where all that is asked of it is TRY_CAST to a number.

    As a shortcut it fails at the first entry that is no number, where TRY_CAST gives NULL. Older releases have none.
    """
    shortcut = "type_pushdown"
    if (shortcut,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall():
        connection.execute(f"SET disabled_optimizers = '{shortcut}'")


def _used(sql: str, parameters: Parameters) -> Any:
    """The parameters that the query mentions: others are an error to DuckDB."""
    if not isinstance(parameters, Mapping):
        return list(parameters)
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


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].removesuffix(".") + "." if lines else type(error).__name__


def driver() -> Any:
    """DuckDB, or a sentence on how to get it."""
    with needs("Reading a file", "duckdb"):
        import duckdb
    return duckdb
