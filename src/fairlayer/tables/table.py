"""A table of any size, wherever it is, and what can be asked of it.

Totals are counts, sums of whole numbers, least and greatest values: those of parts of a table add up to those of the
whole. So a file is asked at once, and a dataset that many workers hold is asked block by block, in the same SQL.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairlayer.errors import InputError
from fairlayer.nearest import nearest
from fairlayer.plural import plural
from fairlayer.tables.attribute import Attribute
from fairlayer.tables.entries import MISSING, group_label, named, number, number_text, select_list, spells_number, used

if TYPE_CHECKING:
    import numpy as np

Parameters = Mapping[str, Any]
MOST_LABELS = 1000  # of an attribute

# How totals of parts become those of the whole. The largest estimate is below the whole's: good to refuse too many.
_MERGED = {
    "count": "CAST(sum({0}) AS BIGINT)",
    "count_if": "CAST(sum({0}) AS BIGINT)",
    "sum": "CAST(sum({0}) AS HUGEINT)",
    "min": "min({0})",
    "max": "max({0})",
    "approx_count_distinct": "max({0})",
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

    def one(self, totals: Mapping[str, str], where: str = "", parameters: Parameters | None = None) -> dict[str, Any]:
        """Totals of the whole table, None where one is missing."""
        found = self.totals(Totals(totals, where=where), parameters)
        return {name: values[:1].tolist()[0] for name, values in found.items()}

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
        if name in self.columns:
            return name
        where = f"which {self.title} does not have"
        raise InputError(f"{argument} names column {name!r}, {where}. {near_names(str(name), self.columns)}")

    def is_number(self, column: str) -> bool:
        """Whether every entry that is not missing is a number, and there is one."""
        asked = {"entries": f"count({number_text(column)})", "numbers": f"count_if({spells_number(column)})"}
        found = self.one(asked)
        return bool(found["entries"] == found["numbers"] > 0)

    def values(self, column: str, most: int | None) -> list[str]:
        """The different values as text, sorted, a missing one among them; one more than `most` where there are more."""
        label = group_label(column, self.columns[column])
        return [str(entry) for entry in self.distinct({column: label}, most)[column]]

    def check_numbers(self, full: Mapping[str, str], gaps: Mapping[str, str] | None = None) -> None:
        """Refuse columns that hold anything but numbers, in one pass. full, gaps: columns, and the argument that names
        each; those of `gaps` may have missing entries, and infinite ones."""
        wrong = {name: (argument, f"{number(name)} IS NULL") for name, argument in full.items()}
        for name, argument in (gaps or {}).items():
            odd = f"{number_text(name)} IS NOT NULL AND NOT {spells_number(name)}"
            wrong.setdefault(name, (argument, odd))
        asked: dict[str, str] = {}
        for j, (name, (_, is_wrong)) in enumerate(wrong.items()):
            entry = f"CASE WHEN {is_wrong} THEN coalesce({number_text(name)}, 'no entry') END"
            asked |= {f"n{j}": f"count({entry})", f"such{j}": f"min({entry})"}
        found = self.one(asked) if asked else {}
        for j, (name, (argument, is_wrong)) in enumerate(wrong.items()):
            if count := int(found[f"n{j}"]):
                what = plural(count, "1 entry that is not a number", f"{count:,} entries that are not numbers")
                entry, place = self._first(name, is_wrong) or (found[f"such{j}"], "")
                raise InputError(
                    f"{argument}: column {name!r} has {what}, such as {entry!r}{place}: correct "
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

    def _first(self, name: str, is_wrong: str) -> tuple[str, str] | None:
        """The first entry of a column for which a condition holds and where it is, if rows have an order."""
        return None


class LocalTable(Table):
    """A table that a connection to DuckDB can read under the name `data`."""

    def __init__(self, connection: Any, title: str, columns: dict[str, str], relation: str):
        self.connection, self.title, self.columns, self.relation = connection, title, columns, relation

    @property
    def parameters(self) -> dict[str, Any]:
        """Of the relation."""
        return {}

    def errors(self) -> AbstractContextManager[None]:
        """Stands around every query."""
        return nullcontext()

    def run(self, sql: str, parameters: Parameters | None = None, fetch: str = "fetchall") -> Any:
        """The result of a query, as a method of DuckDB's connection fetches it."""
        full = f"WITH data AS (SELECT * FROM {self.relation}) {sql}"
        with self.errors():
            result = self.connection.execute(full, used(full, {**(parameters or {}), **self.parameters}))
            return getattr(result, fetch)()

    def query(self, sql: str, parameters: Parameters | None = None) -> dict[str, np.ndarray]:
        """The result of a query, a column each; missing entries are masked."""
        return self.run(sql, parameters, "fetchnumpy")

    def frame(self, values: Mapping[str, str], parameters: Parameters | None = None) -> Any:
        """SQL expressions of every row, in their order, as a frame of pandas."""
        return self.run(f"SELECT {select_list(values)} FROM data", parameters, "df")

    def restrict(self, condition: str) -> None:
        """Leave out the rows for which a condition does not hold."""
        self.relation = f"(SELECT * FROM {self.relation} WHERE {condition}) AS data"

    def totals(self, asked: Totals, parameters: Parameters | None = None, fetch: str = "fetchnumpy") -> Any:
        """In one query."""
        return self.run(asked.sql, parameters, fetch)

    def sample(
        self, values: Mapping[str, str], rows: int, of: int, seed: int, parameters: Parameters
    ) -> dict[str, np.ndarray]:
        """All of them in their order, or a random sample."""
        # The seed and the number are made integers: DuckDB takes no parameters here.
        some = f" USING SAMPLE reservoir({int(rows)} ROWS) REPEATABLE ({int(seed)})" if of > rows else ""
        return self.query(f"SELECT {select_list(values)} FROM data{some}", parameters)

    def keep(self, values: Mapping[str, str], parameters: Parameters) -> LocalTable:
        """As a temporary table of the same connection, on disk where it is larger than memory."""
        sql = f"SELECT {select_list(values)} FROM {self.relation}"
        known = used(sql, {**parameters, **self.parameters})
        with self.errors():
            self.connection.execute(f"CREATE OR REPLACE TEMP TABLE kept AS {sql}", known)
        described = self.connection.execute("DESCRIBE kept").fetchall()
        return LocalTable(self.connection, self.title, {row[0]: row[1] for row in described}, "kept")

    def quartiles(self, column: str) -> str:
        """Cut points that make four parts of about the same size, as the options take them."""
        found = self.query(f"SELECT unnest(quantile_cont({number(column)}, [0.25, 0.5, 0.75])) AS cut FROM data")
        return ",".join(f"{cut:g}" for cut in sorted(set(found["cut"].tolist())))

    def _first(self, name: str, is_wrong: str) -> tuple[str, str] | None:
        sql = f"SELECT row_number() OVER () AS place, {number_text(name)} AS entry FROM data QUALIFY {is_wrong} LIMIT 1"
        place, entry = self.run(sql)[0]
        return ("no entry" if entry is None else entry), f" in row {place:,}"


def near_names(name: str, known: Iterable[str]) -> str:
    """Did you mean ...?"""
    listed = list(known)
    near = nearest(name, listed)
    if near is not None:
        return f"Did you mean {near!r}?"
    more = f" and {len(listed) - 12} more" if len(listed) > 12 else ""
    return f"It has {', '.join(map(repr, listed[:12]))}{more}."
