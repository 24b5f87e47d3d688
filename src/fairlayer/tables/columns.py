"""Columns of a file that is too large to read: what the options need to know of them, by queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlayer.errors import InputError
from fairlayer.plural import plural
from fairlayer.tables.attribute import Attribute
from fairlayer.tables.duckdb_table import group_label, number, number_text, spells_number
from fairlayer.tables.table_io import TableFile


class FileColumns(TableFile):
    """The columns of a file, as `Wanted.constraints` asks for them."""

    def is_number(self, column: str) -> bool:
        """Whether every entry that is not missing is a number, and there is one."""
        asked = f"count({number_text(column)}) AS entries, count_if({spells_number(column)}) AS numbers"
        found = self._one(f"SELECT {asked} FROM data")
        return found["entries"] == found["numbers"] > 0

    def quartiles(self, column: str) -> str:
        """Cut points that make four parts of about the same size, as the options take them."""
        found = self._one(f"SELECT approx_quantile({number(column)}, [0.25, 0.5, 0.75]) AS cuts FROM data")
        return ",".join(f"{cut:g}" for cut in sorted(set(found["cuts"])))

    def values(self, column: str, most: int | None) -> list[str]:
        """The different values as text, sorted, a missing one among them; one more than `most` where there are more."""
        limit = "" if most is None else f" LIMIT {most + 1}"
        label = group_label(column, self.columns[column])
        found = self.query(f"SELECT DISTINCT {label} AS entry FROM data ORDER BY 1{limit}")
        return [str(entry) for entry in found["entry"].tolist()]

    def check_number(self, column: str, option: str) -> None:
        """Refuse a column in which an entry is missing or is no finite number."""
        found = self._one(f"SELECT count(*) AS n, count({number(column)}) AS known FROM data")
        if found["known"] < found["n"]:
            wrong = self._one(
                f"SELECT row_number() OVER () AS place, {number_text(column)} AS entry FROM data "
                f"QUALIFY {number(column)} IS NULL LIMIT 1"
            )
            entry = "no entry" if wrong["entry"] is None else repr(str(wrong["entry"]))
            count = int(found["n"] - found["known"])
            what = plural(count, "1 entry that is not a number,", f"{count:,} entries that are not numbers, the first")
            raise InputError(
                f"{option}: column {column!r} has {what} in row {int(wrong['place']):,} ({entry}): leave "
                f"{plural(count, 'this row', 'these rows')} out, or name another column."
            )

    def check_groups(self, attributes: Sequence[Attribute]) -> None:
        """Refuse an attribute with one group only."""
        for attribute in attributes:
            if attribute.cuts:
                self._check_cuts(attribute.column)
                continue
            entry = group_label(attribute.column, self.columns[attribute.column])
            found = self._one(f"SELECT min({entry}) AS low, max({entry}) AS high FROM data")
            if found["low"] == found["high"]:
                raise InputError(
                    f"--protected: column {attribute.column!r} has only one group, {str(found['low'])!r}: there is "
                    "nothing to compare it with."
                )

    def _check_cuts(self, column: str) -> None:
        """Refuse entries that no cut point puts in a group: neither numbers nor missing."""
        entry = number_text(column)
        odd = f"{entry} IS NOT NULL AND NOT {spells_number(column)}"
        found = self._one(f"SELECT count(*) AS n, any_value({entry}) AS entry FROM data WHERE {odd}")
        if found["n"]:
            raise InputError(
                f"--protected: column {column!r} has cut points, but {found['n']:,} of its entries "
                f"{plural(found['n'], 'is not a number', 'are not numbers')}, "
                f"such as {found['entry']!r}: correct them, or leave them empty."
            )

    def _one(self, sql: str) -> dict[str, Any]:
        """The first row of a result; None for missing entries."""
        found = self.query(sql)
        return {name: values[:1].tolist()[0] for name, values in found.items()}
