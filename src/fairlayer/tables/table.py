"""A table of any size, wherever it is, and what can be asked of it: totals, labels, and a sample of its rows.

Totals are counts, sums of whole numbers, least and greatest values: those of parts of a table add up to those of the
whole. So a file is asked at once, and a dataset that many workers hold is asked block by block, in the same SQL.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairlayer.errors import InputError
from fairlayer.nearest import nearest
from fairlayer.tables.duckdb_table import named, select_list

if TYPE_CHECKING:
    import numpy as np

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
    def totals(self, asked: Totals, parameters: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
        """The answer, a column each; missing entries are masked."""

    @abstractmethod
    def distinct(self, values: Mapping[str, str], most: int) -> dict[str, list[Any]]:
        """The different values of each of several SQL expressions, sorted; one too many where more than `most`."""

    @abstractmethod
    def sample(
        self, values: Mapping[str, str], rows: int, of: int, seed: int, parameters: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """SQL expressions of at most `rows` rows of the `of` that there are: of all, or of some drawn at random."""

    def require(self, name: str, argument: str) -> str:
        """The name, where there is such a column."""
        if name in self.columns:
            return name
        where = f"which {self.title} does not have"
        raise InputError(f"{argument} names column {name!r}, {where}. {near_names(str(name), self.columns)}")


def near_names(name: str, known: Iterable[str]) -> str:
    """Did you mean ...?"""
    listed = list(known)
    near = nearest(name, listed)
    if near is not None:
        return f"Did you mean {near!r}?"
    more = f" and {len(listed) - 12} more" if len(listed) > 12 else ""
    return f"It has {', '.join(map(repr, listed[:12]))}{more}."
