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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from fairlayer.errors import InputError
from fairlayer.nearest import nearest
from fairlayer.tables.entries import Attribute, decimal_commas, label, select_list, text_literal, with_point
from fairlayer.tables.table import LocalTable, connect, described, find_column, plain_errors

CSV = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")
_SEPARATORS = ",;\t|"


@dataclass(frozen=True)
class Source:
    """A file that can be read: where it is, and the columns it has."""

    path: Path
    columns: dict[str, str]  # name -> DuckDB's type; text for those of a CSV file, unless others are asked for
    relation: str = ""  # what stands after FROM
    repeated: dict[str, str] = field(default_factory=dict)  # stands for a column whose name another has -> its name
    decimal_commas: bool = False  # whether the file has them; points stand in the relation

    def replacing(self, values: Mapping[str, str], kind: str = "VARCHAR") -> Source:
        """The file with SQL expressions of a type in place of columns."""
        if not values:
            return self
        relation = f"(SELECT * REPLACE ({select_list(values)}) FROM {self.relation} AS data)"
        return replace(self, relation=relation, columns={**self.columns, **dict.fromkeys(values, kind)})

    def cut_by(self, attributes: Sequence[Attribute]) -> Source:
        """The file with groups in place of the columns that have cut points."""
        return self.replacing({one.column: one.label("") for one in attributes if one.cuts})

    def counting(self, column: str, positive: str) -> Source:
        """The file with 1 in a column where its label is `positive`, and 0 where it is another."""
        is_positive = f"{label(column, self.columns[column])} = {text_literal(positive)}"
        return self.replacing({column: f"CAST(CAST({is_positive} AS INTEGER) AS VARCHAR)"})

    def check(self, name: str, option: str) -> str:
        """A column that an option names, or a sentence on which the file has."""
        return find_column(name, option, str(self.path), self.columns, self.repeated)


class TableFile(ExitStack, LocalTable):
    """A file that is open. Queries read it under the name `data`; the whole of it is never in memory.

    memory: what DuckDB may use; beyond it, intermediate results go to a temporary folder, within `folder` if named.
    """

    def __init__(self, source: Source | str | Path, memory: str = "1GB", folder: Path | None = None):
        ExitStack.__init__(self)
        self.source = source if isinstance(source, Source) else open_source(Path(source))
        self.repeated = self.source.repeated
        connection = self.enter_context(connect(memory, folder))
        LocalTable.__init__(self, connection, repr(self.source.path.name), self.source.relation, self.source.columns)


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
    _check_file(path)
    with plain_errors(str(path)), connect() as connection:
        if is_csv(path):
            separator, header = _header(path)
            names, repeated = _told_apart(path, header, may_repeat)
            source = known_source(path, dict.fromkeys(names, "VARCHAR"), separator)
            commas = [] if separator == "," else _with_decimal_commas(source, connection, decimal_commas)
            if not as_text:
                # Types are those of all rows, and words such as "yes" and "no" stay what they are.
                kinds = "sample_size=-1, auto_type_candidates=['BIGINT', 'DOUBLE', 'DATE', 'TIMESTAMP', 'VARCHAR']"
                found = described(connection, _csv_relation(path, separator, kinds)).values()
                columns = {**dict(zip(names, found, strict=True)), **dict.fromkeys(commas, "VARCHAR")}
                source = known_source(path, columns, separator)
            kind = "VARCHAR" if as_text else "DOUBLE"
            source = source.replacing({name: f"CAST({with_point(name)} AS {kind})" for name in commas}, kind)
            source = replace(source, repeated=repeated, decimal_commas=bool(commas))
        else:
            source = known_source(path, {})
            source = replace(source, columns=described(connection, source.relation))
        if not connection.execute(f"SELECT count(*) FROM (SELECT 1 FROM {source.relation} LIMIT 1)").fetchone()[0]:
            raise InputError(f"{path} has a header but no rows.")
    return source


def known_source(path: Path, columns: dict[str, str], separator: str | None = None) -> Source:
    """A file of columns that are known. separator: what parts them in a CSV file, as its name says if None."""
    if not is_csv(path):
        # Folders may be called what they like: one named `sex=f` says nothing about a column.
        return Source(path, columns, f"read_parquet({_literal(path)}, hive_partitioning=false)")
    kinds = ", ".join(f"{text_literal(name)}: {text_literal(kind)}" for name, kind in columns.items())
    known = f"auto_detect=false, columns={{{kinds}}}"
    return Source(path, columns, _csv_relation(path, separator or _delimiter(path), known))


def _csv_relation(path: Path, separator: str, more: str) -> str:
    """A CSV file, of which nothing is left to the reader's guess: it may skip lines that it does not like."""
    dialect = f"""header=true, skip=0, delim='{separator}', quote='"', escape='"'"""
    return f"read_csv({_literal(path)}, hive_partitioning=false, {dialect}, {more})"


def _literal(path: Path) -> str:
    """A path that DuckDB takes for one file: `*`, `?` and `[` in a name are characters, not patterns."""
    return text_literal(re.sub(r"([*?\[])", r"[\1]", os.path.abspath(path)))


def _check_file(path: Path) -> None:
    """Refuse what is no file that could hold a table."""
    check_format(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a CSV or Parquet file.")
    if not path.exists():
        raise InputError(f"{path} does not exist. {_neighbour(path)}".strip())
    if not os.access(path, os.R_OK):
        raise InputError(f"{path} cannot be read: you have no permission.")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty: it needs a header and rows.")


def _neighbour(path: Path) -> str:
    """A file of nearly that name in the same folder."""
    if not path.parent.is_dir():
        return f"There is no folder {path.parent}."
    near = nearest(path.name, [entry.name for entry in path.parent.iterdir() if entry.is_file()])
    return f"Did you mean {path.parent / near}?" if near is not None else ""


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


def _header(path: Path) -> tuple[str, list[str]]:
    """What parts the columns of a CSV file, and their names.

    The first line, outside of quotes, has more of it than of any other candidate. The reader's own guess is too clever:
    it takes a file with one broken line for a file of one column.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            line = file.readline()
            separator = max(_SEPARATORS, key=re.sub('"[^"]*"', "", line).count)
            names = next(csv.reader(chain([line], file), delimiter=separator), [])
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not in UTF-8: save it so.") from error
    if not line.strip():
        raise InputError(f"{str(path)!r} has no header: its first line must name the columns.")
    return separator, [name or f"column{j}" for j, name in enumerate(names)]


def _told_apart(path: Path, names: list[str], may_repeat: Callable[[str], bool]) -> tuple[list[str], dict[str, str]]:
    """Names, with another one for every column that nobody asks for and that has the name of another column.

    Letters of either case are the same to queries.
    """
    found = Counter(name.lower() for name in names)
    needed = Counter(name.lower() for name in names if not may_repeat(name))
    told, repeated = [], {}
    for place, name in enumerate(names, 1):
        if needed[name.lower()] > 1:
            one, other = [one for one in names if one.lower() == name.lower()][:2]
            both = f"two columns {one!r}" if one == other else f"columns {one!r} and {other!r}"
            raise InputError(f"{path} has {both}: rename one.")
        if found[name.lower()] > 1 and may_repeat(name):
            repeated[f"{name} (column {place})"] = name
            name = f"{name} (column {place})"
        told.append(name)
    return told, repeated


def _with_decimal_commas(source: Source, connection: Any, expected: bool) -> list[str]:
    """The columns of numbers in a file that writes them as 1.234,5, which it can where commas do not part its columns.

    In such a file 1.234 is more than a thousand in every column.
    """
    asked = [f"({', '.join(decimal_commas(name))})" for name in source.columns]
    found = connection.execute(f"SELECT {', '.join(asked)} FROM {source.relation} AS data").fetchone()
    numbers = {name: has_comma for name, (is_number, has_comma) in zip(source.columns, found, strict=True) if is_number}
    return list(numbers) if expected or any(numbers.values()) else []


def points_for_commas(source: Source) -> str:
    """What to say of a file with decimal commas whose rows were written."""
    return " Its decimal commas are written as points." if source.decimal_commas else ""


def save_frame(frame: Any, path: Path) -> None:
    """Write a frame as CSV or Parquet, by the name of the file."""
    if is_csv(path):  # in which several columns may have one name
        frame.to_csv(path, index=False, sep=_delimiter(path))
        return
    with connect("8GB") as connection:
        connection.register("frame", frame)
        connection.execute(f"COPY (SELECT * FROM frame) TO $target ({copy_options(path)})", {"target": str(path)})


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
    """A place for a file that is to be `path`: it is, once the block ends well, and vanishes otherwise."""
    with _folder_beside(path) as folder:
        yield folder / path.name
        (folder / path.name).replace(path)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A folder that becomes `path` when the block ends well.

    What was there before goes only when the new one is whole.
    """
    with _folder_beside(path) as folder:
        temporary = folder / path.name
        temporary.mkdir()
        yield temporary
        old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
        if path.exists():
            path.replace(old / "old")
        temporary.replace(path)
        shutil.rmtree(old)


@contextmanager
def _folder_beside(path: Path) -> Iterator[Path]:
    """A temporary folder in that of a file, which can be moved to its place at once."""
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.absolute().parent) as folder:
        yield Path(folder)
