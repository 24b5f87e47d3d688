"""A table of any size, wherever it is, and what can be asked of it.

Totals are counts, sums of whole numbers, least and greatest values: those of parts of a table add up to those of the
whole. So a file is asked at once, and a dataset that many workers hold is asked block by block, in the same SQL.
"""

from __future__ import annotations

import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fairlayer.errors import InputError
from fairlayer.extras import needs
from fairlayer.nearest import nearest
from fairlayer.plural import plural
from fairlayer.tables.entries import (
    MISSING,
    Attribute,
    group_label,
    holds_numbers,
    named,
    number,
    number_text,
    select_list,
    spells_number,
)

if TYPE_CHECKING:
    import numpy as np

Parameters = Mapping[str, Any]
MOST_LABELS = 1000  # of an attribute

# How totals of parts become those of the whole.
_MERGED = {
    "count": "CAST(sum({0}) AS BIGINT)",
    "count_if": "CAST(sum({0}) AS BIGINT)",
    "sum": "CAST(sum({0}) AS HUGEINT)",
    "min": "min({0})",
    "max": "max({0})",
}


@dataclass(frozen=True)
class Totals:
    """A query for totals: of whole numbers where they are sums, so that parts add up without rounding."""

    totals: Mapping[str, str] = field(default_factory=dict)  # name -> SQL, a call of a function of `_MERGED`
    by: Mapping[str, str] = field(default_factory=dict)  # name -> SQL of what rows have in common
    rows: str = "data"  # what stands after FROM
    where: str = ""
    most: int | None = None  # groups, of which any are given

    @property
    def sql(self) -> str:
        """Of a table, or of a part of it, which is called `data`."""
        where = f" WHERE {self.where}" if self.where else ""
        return f"SELECT {select_list({**self.by, **self.totals})} FROM {self.rows}{where}{self._end}"

    @property
    def merging(self) -> str:
        """Of what parts answered, which is called `parts`."""
        merged = {name: _MERGED[sql.partition("(")[0]].format(named(name)) for name, sql in self.totals.items()}
        by = {name: named(name) for name in self.by}
        return f"SELECT {select_list({**by, **merged})} FROM parts{self._end}"

    @property
    def _end(self) -> str:
        return (" GROUP BY ALL" if self.by else "") + ("" if self.most is None else f" LIMIT {self.most}")


class Table(ABC):
    """Rows of which the whole is never in memory."""

    title: str  # what errors call it
    columns: dict[str, str]  # name -> DuckDB's type
    repeated: Mapping[str, str] = MappingProxyType({})  # what a column is called whose name another has -> its name

    @abstractmethod
    def totals(self, asked: Totals, parameters: Parameters | None = None, fetch: str = "fetchnumpy") -> Any:
        """The answer, a column each; missing entries are masked. fetch: `fetchall` for rows, of exact whole numbers."""

    @abstractmethod
    def sample(
        self, values: Mapping[str, str], rows: int, of: int, seed: int, parameters: Parameters
    ) -> dict[str, np.ndarray]:
        """SQL expressions of at most `rows` rows of the `of` that there are: of all, or of some drawn at random."""

    @abstractmethod
    def keep(self, values: Mapping[str, str], parameters: Parameters) -> Table:
        """SQL expressions of every row as a table of its own, which many passes may read."""

    def one(self, totals: Mapping[str, str]) -> dict[str, Any]:
        """Totals of the whole table, None where one is missing."""
        return {name: values[:1].tolist()[0] for name, values in self.totals(Totals(totals)).items()}

    def distinct(self, values: Mapping[str, str], most: int | None) -> dict[str, list[Any]]:
        """The different values of each of several SQL expressions, sorted; one too many where more than `most`."""
        limit = None if most is None else most + 1
        listed = [
            f"(SELECT {j} AS which, entry FROM ({Totals(by={'entry': value}, most=limit).sql}))"
            for j, value in enumerate(values.values())
        ]
        found = self.totals(Totals(by={"which": "which", "entry": "entry"}, rows=f"({' UNION ALL '.join(listed)})"))
        return {name: sorted(found["entry"][found["which"] == j].tolist())[:limit] for j, name in enumerate(values)}

    def require(self, name: str, argument: str) -> str:
        """The name, where there is such a column."""
        return find_column(name, argument, self.title, self.columns, self.repeated)

    def check_numbers(self, full: Mapping[str, str], gaps: Mapping[str, str] | None = None) -> None:
        """Refuse columns that hold anything but numbers, in one pass. full, gaps: columns, and the argument that names
        each; those of `gaps` may have missing entries, and infinite ones."""
        wrong = {name: (argument, f"{number(name)} IS NULL") for name, argument in full.items()}
        for name, argument in (gaps or {}).items():
            odd = f"{number_text(name)} IS NOT NULL AND NOT {spells_number(name)}"
            wrong.setdefault(name, (argument, odd))
        found = self.one({name: f"count_if({is_wrong})" for name, (_, is_wrong) in wrong.items()}) if wrong else {}
        for name, (argument, is_wrong) in wrong.items():
            if count := int(found[name]):
                what = plural(count, "1 entry that is not a number", f"{count:,} entries that are not numbers")
                raise InputError(
                    f"{argument}: column {name!r} has {what}, such as {self._example(name, is_wrong)}: correct "
                    f"{plural(count, 'it', 'them')}, or leave {plural(count, 'this row', 'these rows')} out."
                )

    def check_groups(self, attributes: Sequence[Attribute], argument: str) -> dict[str, list[str]]:
        """The labels of attributes, of which there must be two or more; and all that cut points make.

        argument: what names the attributes, an option of a command or an argument of a function.
        """
        found = {one.column: [*one.groups, MISSING] for one in attributes if one.cuts}
        plain = {one.column: one.label(self.columns[one.column]) for one in attributes if not one.cuts}
        for name, labels in (self.distinct(plain, MOST_LABELS) if plain else {}).items():
            if len(labels) > MOST_LABELS:
                cuts = f"{argument} {name}=30,50" if argument.startswith("-") else f"{argument}={{{name!r}: (30, 50)}}"
                raise InputError(
                    f"{argument}: column {name!r} has more than {MOST_LABELS} groups: give cut points, such as {cuts}, "
                    "or choose another column."
                )
            if len(labels) < 2:
                raise InputError(
                    f"{argument}: column {name!r} has only one group, {labels[0]!r}: there is nothing to compare it "
                    "with."
                )
            found[name] = labels
        return found

    def _example(self, name: str, is_wrong: str) -> str:
        """An entry of a column for which a condition holds."""
        return repr(self.one({"entry": f"min(CASE WHEN {is_wrong} THEN {_entry(name)} END)"})["entry"])


class LocalTable(Table):
    """A table that a connection to DuckDB can read. Queries know it as `data`."""

    def __init__(self, connection: Any, title: str, relation: str, columns: dict[str, str] | None = None):
        """relation: what stands after FROM."""
        self.connection, self.title, self.relation = connection, title, relation
        self.columns = described(connection, relation) if columns is None else columns

    def reading(self, select: str) -> str:
        """A query that may read `data`, as this connection takes it."""
        return f"WITH data AS (SELECT * FROM {self.relation}) {select}"

    def execute(self, sql: str, parameters: Parameters | None = None, fetch: str = "fetchall") -> Any:
        """The result of SQL, as a method of DuckDB's connection fetches it."""
        with plain_errors(self.title):
            return getattr(self.connection.execute(sql, used(sql, parameters or {})), fetch)()

    def query(self, select: str, parameters: Parameters | None = None, fetch: str = "fetchnumpy") -> Any:
        """The result of a query: a column each, missing entries masked, unless it is fetched otherwise."""
        return self.execute(self.reading(select), parameters, fetch)

    def frame(self, values: Mapping[str, str]) -> Any:
        """SQL expressions of every row, in their order, as a frame of pandas."""
        return self.query(f"SELECT {select_list(values)} FROM data", fetch="df")

    def restrict(self, condition: str) -> None:
        """Leave out the rows for which a condition does not hold."""
        self.relation = f"(SELECT * FROM {self.relation} AS data WHERE {condition})"

    def totals(self, asked: Totals, parameters: Parameters | None = None, fetch: str = "fetchnumpy") -> Any:
        """In one query."""
        return self.query(asked.sql, parameters, fetch)

    def sample(
        self, values: Mapping[str, str], rows: int, of: int, seed: int, parameters: Parameters
    ) -> dict[str, np.ndarray]:
        """All of them in their order, or a random sample."""
        # The seed and the number are made integers: DuckDB takes no parameters here.
        some = f" USING SAMPLE reservoir({int(rows)} ROWS) REPEATABLE ({int(seed)})" if of > rows else ""
        return self.query(f"SELECT {select_list(values)} FROM data{some}", parameters)

    def keep(self, values: Mapping[str, str], parameters: Parameters) -> LocalTable:
        """As a temporary table of the same connection, on disk where it is larger than memory."""
        select = self.reading(f"SELECT {select_list(values)} FROM data")
        self.execute(f"CREATE OR REPLACE TEMP TABLE kept AS {select}", parameters)
        return LocalTable(self.connection, self.title, "kept")

    def is_number(self, column: str) -> bool:
        """Whether every entry that is not missing is a number, and there is one."""
        return bool(self.query(f"SELECT {holds_numbers(column)} FROM data", fetch="fetchall")[0][0])

    def values(self, column: str, most: int | None) -> list[str]:
        """The different values as text, sorted, a missing one among them; one more than `most` where there are more."""
        return self.distinct({column: group_label(column, self.columns[column])}, most)[column]

    def quartiles(self, column: str) -> str:
        """Cut points that make four parts of about the same size, as the options take them."""
        found = self.query(f"SELECT unnest(quantile_cont({number(column)}, [0.25, 0.5, 0.75])) AS cut FROM data")
        return ",".join(f"{cut:g}" for cut in sorted(set(found["cut"].tolist())))

    def _example(self, name: str, is_wrong: str) -> str:
        sql = f"SELECT row_number() OVER () AS place, {_entry(name)} AS entry FROM data QUALIFY {is_wrong} LIMIT 1"
        place, entry = self.query(sql, fetch="fetchall")[0]
        return f"{entry!r} in row {place:,}"


def _entry(name: str) -> str:
    """SQL of an entry as errors show it."""
    return f"coalesce({number_text(name)}, 'no entry')"


def find_column(name: str, argument: str, title: str, columns: Mapping[str, str], repeated: Mapping[str, str]) -> str:
    """The name, where a table has one such column."""
    if name in columns:
        return name
    if name in repeated.values():
        raise InputError(f"{argument}: {title} has two columns {name!r}: rename one.")
    near = nearest(str(name), columns)
    more = f" and {len(columns) - 12} more" if len(columns) > 12 else ""
    listed = f"It has {', '.join(map(repr, [*columns][:12]))}{more}."
    raise InputError(f"{argument}: {title} has no column {name!r}. {f'Did you mean {near!r}?' if near else listed}")


def described(connection: Any, relation: str) -> dict[str, str]:
    """The columns of what stands after FROM: name -> DuckDB's type."""
    return {row[0]: row[1] for row in connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()}


def used(sql: str, parameters: Parameters) -> Parameters:
    """The parameters that SQL mentions: others are an error to DuckDB."""
    mentioned = re.findall(r"\$(\w+)", re.sub(r"(['\"]).*?\1", "", sql, flags=re.DOTALL))  # not those in quotes
    return {name: parameters[name] for name in mentioned if name in parameters}


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
            # Where all that is asked of a column of text is TRY_CAST to a number, DuckDB would read it as numbers, and
            # fail at the first entry that is none, where TRY_CAST gives NULL. Older releases have no such shortcut.
            shortcut = "type_pushdown"
            if (shortcut,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall():
                connection.execute(f"SET disabled_optimizers = '{shortcut}'")
            yield connection


@contextmanager
def plain_errors(title: str) -> Iterator[None]:
    """Turn what DuckDB says of a table into one sentence."""
    try:
        yield
    except driver().Error as error:
        if "unicode" in str(error).lower() or "utf-8" in str(error).lower():
            raise InputError(f"{title} is not in UTF-8: save it so.") from error
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise InputError(f"{title} cannot be read: {' '.join(lines[:3])}") from error


def driver() -> Any:
    """DuckDB, or a sentence on how to get it."""
    with needs("Reading a file", "duckdb"):
        import duckdb
    return duckdb
