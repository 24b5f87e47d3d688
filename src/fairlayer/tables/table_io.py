"""Tables in files, in and out: the one reader for every command. Whatever is written appears whole or not at all.

Every entry of a CSV file is text as it stands, so that what a command does not change can be written again as it was;
what it means, as a number, a label or a missing entry, is said in `entries`.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairlayer.errors import InputError
from fairlayer.nearest import nearest
from fairlayer.tables.attribute import Attribute
from fairlayer.tables.entries import connect, decimal_commas, driver, label, select_list, with_point
from fairlayer.tables.table import LocalTable, near_names

CSV = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")
# Folders may be called what they like: one named `sex=f` says nothing about a column.
_PARQUET = "read_parquet($path, hive_partitioning=false)"
_SEPARATORS = ",;\t|"


@dataclass(frozen=True)
class Source:
    """A file that can be read: where it is, and the columns it has."""

    path: Path
    columns: dict[str, str]  # name -> DuckDB's type; text for those of a CSV file, unless others are asked for
    repeated: dict[str, str] = field(default_factory=dict)  # stands for a column whose name another has -> its name
    decimal_commas: tuple[str, ...] = ()  # columns of a CSV file that have them; points stand in the relation
    replaced: dict[str, str] = field(default_factory=dict)  # column -> SQL of what the relation has in its place
    positive: str = ""  # a parameter of that

    @property
    def relation(self) -> str:
        """What stands after FROM, under the name `data`; takes `parameters`."""
        relation = f"{_PARQUET} AS data"
        if is_csv(self.path):
            relation = f"read_csv($path, {_dialect(self.path)}, auto_detect=false, columns=$columns) AS data"
        points = {name: f"CAST({with_point(name)} AS {self.columns[name]})" for name in self.decimal_commas}
        for replaced in (points, self.replaced):
            if replaced:
                relation = f"(SELECT * REPLACE ({select_list(replaced)}) FROM {relation}) AS data"
        return relation

    @property
    def parameters(self) -> dict[str, Any]:
        """Of the relation."""
        known: dict[str, Any] = {"path": _literal(self.path)}
        if is_csv(self.path):
            known["columns"] = {**self.columns, **dict.fromkeys(self.decimal_commas, "VARCHAR")}
        return {**known, "positive": self.positive} if self.positive else known

    def cut_by(self, attributes: Sequence[Attribute]) -> Source:
        """The file with groups in place of the columns that have cut points."""
        return self._replacing({one.column: one.label("") for one in attributes if one.cuts})

    def counting(self, column: str, positive: str) -> Source:
        """The file with 1 in a column where its label is `positive`, and 0 where it is another."""
        is_positive = f"CAST({label(column, self.columns[column])} = $positive AS INTEGER)"
        return replace(self._replacing({column: f"CAST({is_positive} AS VARCHAR)"}), positive=positive)

    def _replacing(self, replaced: dict[str, str]) -> Source:
        columns = {**self.columns, **dict.fromkeys(replaced, "VARCHAR")}
        return replace(self, columns=columns, replaced={**self.replaced, **replaced})

    def check(self, name: str, option: str) -> str:
        """A column that an option names, or a sentence on which the file has."""
        if name in self.repeated.values():
            raise InputError(f"{option}: {self.path} has two columns {name!r}: rename one.")
        if name not in self.columns:
            raise InputError(f"{option}: {self.path} has no column {name!r}. {near_names(name, self.columns)}")
        return name


def _literal(path: Path) -> str:
    """A path that DuckDB takes for one file: `*`, `?` and `[` in a name are characters, not patterns."""
    return re.sub(r"([*?\[])", r"[\1]", os.path.abspath(path))


def _separator(path: Path) -> str:
    """What separates the columns: the candidate that the first line has most of, outside of quotes.

    The reader's own guess is too clever: it takes a file with one broken line for a file of one column.
    """
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        header = file.readline()
    if not header.strip():
        raise InputError(f"{str(path)!r} has no header: its first line must name the columns.")
    return max(_SEPARATORS, key=re.sub('"[^"]*"', "", header).count)


def is_csv(path: Path) -> bool:
    """Whether a file is text by its name; otherwise it is Parquet."""
    return not path.name.lower().endswith(PARQUET)


def check_format(path: Path, option: str = "") -> None:
    """Refuse files of other kinds, by their names."""
    if not path.name.lower().endswith(CSV + PARQUET):
        where = f"{option}: " if option else ""
        raise InputError(
            f"{where}{path} is not named as a CSV or Parquet file: use a name that ends in .csv or .parquet."
        )


def _dialect(path: Path) -> str:
    """How a CSV file is written; nothing is left to the reader's guess, which may skip lines that it does not like."""
    return f"""hive_partitioning=false, header=true, skip=0, delim='{_separator(path)}', quote='"', escape='"'"""


def _header(path: Path) -> list[str]:
    """The names in the first line of a CSV file."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            names = next(csv.reader(file, delimiter=_separator(path)), [])
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not in UTF-8: save it so.") from error
    return [name or f"column{j}" for j, name in enumerate(names)]


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Turn what DuckDB says of a file into one sentence."""
    try:
        yield
    except driver().Error as error:
        if "unicode" in str(error).lower() or "utf-8" in str(error).lower():
            raise InputError(f"{path} is not in UTF-8: save it so.") from error
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise InputError(f"{path} cannot be read: {' '.join(lines[:3])}") from error


class TableFile(ExitStack, LocalTable):
    """A file that is open. Queries read it under the name `data`; the whole of it is never in memory.

    memory: what DuckDB may use; beyond it, intermediate results go to a temporary folder, within `folder` if named.
    """

    def __init__(self, source: Source | str | Path, memory: str = "1GB", folder: Path | None = None):
        ExitStack.__init__(self)
        self.source = source if isinstance(source, Source) else open_source(Path(source))
        connection = self.enter_context(connect(memory, folder))
        LocalTable.__init__(self, connection, repr(self.source.path.name), self.source.columns, self.source.relation)

    @property
    def parameters(self) -> dict[str, Any]:
        """Of the relation."""
        return self.source.parameters

    def errors(self) -> AbstractContextManager[None]:
        """What DuckDB says of the file becomes one sentence."""
        return plain_errors(self.source.path)

    def require(self, name: str, argument: str) -> str:
        """The name, where the file has such a column."""
        if name not in self.columns and name in self.source.repeated.values():
            raise InputError(f"{argument} names column {name!r}, of which {self.title} has two: rename one.")
        return super().require(name, argument)


def open_source(
    path: Path,
    *,
    as_text: bool = True,
    may_repeat: Callable[[str], bool] = lambda _: False,
    decimal_commas: bool = False,
) -> Source:
    """Look at a file: that it is there, that it is a table, and which columns it has.

    as_text: take every entry of a CSV file as text, so that it can be written again as it was; otherwise numbers and
    dates get their types. may_repeat: whether nobody asks for a column, so that several may have its name in a CSV
    file; they go by others, see `Source.repeated`. decimal_commas: what to take a CSV file for whose columns commas do
    not part, where none of its numbers has a decimal.
    """
    check_format(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a CSV or Parquet file.")
    if not path.exists():
        raise InputError(f"{path} does not exist. {_neighbour(path)}".strip())
    if not os.access(path, os.R_OK):
        raise InputError(f"{path} cannot be read: you have no permission.")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty: it needs a header and rows.")
    with plain_errors(path), connect() as connection:
        source = Source(path, *_columns(path, as_text, connection, may_repeat))
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {source.relation} LIMIT 1)"
        if not connection.execute(sql, source.parameters).fetchone()[0]:
            raise InputError(f"{path} has a header but no rows.")
        commas = _decimal_commas(source, connection, decimal_commas)
        if not commas:
            return source
        types = {name: source.columns[name] if as_text else "DOUBLE" for name in commas}
        return replace(source, columns={**source.columns, **types}, decimal_commas=commas)


def _decimal_commas(source: Source, connection: Any, expected: bool) -> tuple[str, ...]:
    """The columns of numbers in a file that writes them as 1.234,5, which it can where commas do not part its columns.

    In such a file 1.234 is more than a thousand in every column.
    """
    names = [name for name, kind in source.columns.items() if kind == "VARCHAR"]
    if not is_csv(source.path) or _separator(source.path) == "," or not names:
        return ()
    asked = [f"({', '.join(decimal_commas(name))})" for name in names]
    found = connection.execute(f"SELECT {', '.join(asked)} FROM {source.relation}", source.parameters).fetchone()
    numbers = {name: has_comma for name, (is_number, has_comma) in zip(names, found, strict=True) if is_number}
    return tuple(numbers) if expected or any(numbers.values()) else ()


def _columns(
    path: Path, as_text: bool, connection: Any, may_repeat: Callable[[str], bool]
) -> tuple[dict[str, str], dict[str, str]]:
    """Names and types of the columns, and which of them are repeated."""
    relation = _PARQUET
    repeated: dict[str, str] = {}
    if is_csv(path):
        names, repeated = _told_apart(_header(path), may_repeat)
        _check_names(path, names)
        if as_text:
            return dict.fromkeys(names, "VARCHAR"), repeated
        # Types are those of all rows, and words such as "yes" and "no" stay what they are.
        kinds = "['BIGINT', 'DOUBLE', 'DATE', 'TIMESTAMP', 'VARCHAR']"
        relation = f"read_csv($path, {_dialect(path)}, sample_size=-1, auto_type_candidates={kinds})"
    described = connection.execute(f"DESCRIBE SELECT * FROM {relation}", {"path": _literal(path)}).fetchall()
    if not is_csv(path):
        names = [row[0] for row in described]
        _check_names(path, names)
    return dict(zip(names, [row[1] for row in described], strict=True)), repeated


def _told_apart(names: list[str], may_repeat: Callable[[str], bool]) -> tuple[list[str], dict[str, str]]:
    """Names, with another one for every column that nobody asks for and that has the name of another column."""
    lower = Counter(name.lower() for name in names)
    told, repeated = [], {}
    for place, name in enumerate(names, 1):
        if lower[name.lower()] > 1 and may_repeat(name):
            repeated[f"{name} (column {place})"] = name
            name = f"{name} (column {place})"
        told.append(name)
    return told, repeated


def _check_names(path: Path, names: list[str]) -> None:
    """Refuse columns that queries cannot tell apart: letters of either case are the same to them."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            other = seen[name.lower()]
            both = f"two columns {name!r}" if other == name else f"columns {other!r} and {name!r}"
            raise InputError(f"{path} has {both}: rename one.")
        seen[name.lower()] = name


def _neighbour(path: Path) -> str:
    """A file of nearly that name in the same folder."""
    folder = path.parent
    if not folder.is_dir():
        return f"There is no folder {folder}."
    names = [entry.name for entry in folder.iterdir() if entry.is_file()]
    near = nearest(path.name, names)
    return f"Did you mean {folder / near}?" if near is not None else ""


def read_frame(source: Source) -> Any:
    """The whole table as a frame: text from CSV, as it stands in the file; types as they are from Parquet."""
    with plain_errors(source.path), connect("8GB") as connection:
        return connection.execute(f"SELECT * FROM {source.relation}", source.parameters).df()


def points_for_commas(source: Source) -> str:
    """What to say of a file with decimal commas whose rows were written."""
    return " Its decimal commas are written as points." if source.decimal_commas else ""


def save_frame(frame: Any, path: Path) -> None:
    """Write a frame as CSV or Parquet, by the name of the file."""
    if is_csv(path):
        frame.to_csv(path, index=False, sep=_delimiter(path))
        return
    with connect("8GB") as connection:
        connection.register("frame", frame)
        connection.execute("COPY (SELECT * FROM frame) TO $target (FORMAT parquet)", {"target": str(path)})


def copy_options(path: Path) -> str:
    """How COPY ... TO writes a file of this name."""
    return f"FORMAT csv, HEADER true, DELIMITER '{_delimiter(path)}'" if is_csv(path) else "FORMAT parquet"


def _delimiter(path: Path) -> str:
    """What separates the columns of a CSV file to be written."""
    return "\t" if ".tsv" in path.name.lower() else ","


def check_output(path: Path, *inputs: Path, option: str = "-o") -> None:
    """Refuse a place that cannot be written to, before any work."""
    if path.is_dir():
        raise InputError(f"{option}: {path} is a folder: name a file.")
    if any(path.exists() and path.samefile(source) for source in inputs if source.exists()):
        raise InputError(f"{option}: {path} is the input itself: name another file.")
    check_parent(path, option)


def check_parent(path: Path, option: str = "-o") -> None:
    """Refuse a file or folder that could not be made where it is to be."""
    parent = path.absolute().parent
    if not parent.is_dir():
        raise InputError(f"{option}: there is no folder {parent} to write {path.name} to: make it first.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"{option}: {parent} cannot be written to: you have no permission.")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, which takes its place when the block ends well and vanishes otherwise."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.absolute().parent)
    os.close(handle)
    temporary = Path(name)
    temporary.chmod(0o666 & ~_umask())
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path`, which takes its place when the block ends well.

    What was there before goes only when the new one is whole.
    """
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
    temporary.chmod(0o777 & ~_umask())
    try:
        yield temporary
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
            path.replace(old / "old")
            temporary.replace(path)
            shutil.rmtree(old)
        else:
            temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
