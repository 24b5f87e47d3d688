"""`Encoder`: a table as numbers for a network, or any other model; what it has learned is plain data.

Numbers: missing ones become the median, with a column that marks them; then mean 0 and standard deviation 1.
Anything else: one column per category, a missing entry being one; beyond MOST_CATEGORIES the rarest share one, which
those first seen later go to as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlayer.constraints.plain_data import record_from_plain, record_to_plain
from fairlayer.errors import InputError
from fairlayer.estimators.inputs import columns_of
from fairlayer.problem.groups import is_missing

MOST_CATEGORIES = 100


@dataclass(frozen=True)
class Number:
    """A column of numbers: what stands in for a missing one, and whether a further column marks those."""

    column: Any
    fill: float
    marked: bool


@dataclass(frozen=True)
class Category:
    """A column of anything else: the values that have a column of their own, and whether the rest share one."""

    column: Any
    values: tuple[str, ...]
    rest: bool


@dataclass(frozen=True)
class Encoder:
    """What was learned of a table, and what it does to tables like it.

    means, scales: of the numbers, and after them of the columns that mark missing ones.
    """

    numbers: tuple[Number, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    categories: tuple[Category, ...]

    @classmethod
    def fit(cls, X: Any) -> Encoder:
        """Learn from a table: a frame of any library, a mapping of columns, or an array of numbers."""
        columns = columns_of(X)
        numeric = [name for name, column in columns.items() if _is_number(column)]
        values = _numbers(columns, numeric)
        missing = np.isnan(values)
        fills = [float(np.median(v[~m])) if not m.all() else 0.0 for v, m in zip(values.T, missing.T, strict=True)]
        marked = missing.any(axis=0).tolist()
        numbers = tuple(Number(*entry) for entry in zip(numeric, fills, marked, strict=True))
        table = _filled(values, numbers)
        varies = (table != table[:1]).any(axis=0)
        spread = table.std(axis=0)
        scales = np.where(varies & (spread > 0), spread, 1.0)
        categories = tuple(_category(name, column) for name, column in columns.items() if name not in numeric)
        return cls(numbers, tuple(table.mean(axis=0).tolist()), tuple(scales.tolist()), categories)

    @property
    def width(self) -> int:
        """Number of columns of what `transform` returns."""
        return len(self.means) + sum(len(entry.values) + entry.rest for entry in self.categories)

    def transform(self, X: Any) -> np.ndarray:
        """(n, width): numbers scaled, categories as one column each."""
        columns = columns_of(X)
        values = _numbers(columns, [number.column for number in self.numbers])
        scaled = (_filled(values, self.numbers) - self.means) / self.scales
        return np.hstack([scaled, *(_one_hot(columns, entry) for entry in self.categories)])

    def codes(self, X: Any) -> np.ndarray:
        """(n, columns): numbers as they are, nan where one is missing, then a code for each category, for trees.

        A category that was not known has the code of the rest where there is one, and otherwise none: nan.
        """
        columns = columns_of(X)
        numbers = _numbers(columns, [number.column for number in self.numbers])
        codes = [_codes(columns, entry).astype(np.float64) for entry in self.categories]
        return np.column_stack([numbers, *(np.where(code < 0, np.nan, code) for code in codes)])

    def to_data(self) -> dict[str, Any]:
        """For JSON."""
        for column in [number.column for number in self.numbers] + [entry.column for entry in self.categories]:
            if not isinstance(column, str | int):
                raise InputError(
                    f"Column {column!r} has a name that is neither text nor a whole number: rename it to save."
                )
        return record_to_plain(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Encoder:
        """What `to_data` gave."""
        return record_from_plain(cls, data)


def _is_number(column: Any) -> bool:
    return getattr(column.dtype, "kind", "O") in "biuf"


def _numbers(columns: Mapping[Any, Any], names: list[Any]) -> np.ndarray:
    """(n, names) some columns as floats, nan where one is missing."""
    n = len(next(iter(columns.values()), ()))
    table = np.empty((n, len(names)))
    for j, name in enumerate(names):
        column = columns[name]
        try:
            table[:, j] = column if isinstance(column, np.ndarray) else column.to_numpy(np.float64, na_value=np.nan)
        except (TypeError, ValueError) as error:
            raise InputError(f"Column {name!r} of X held numbers in fit, and now does not: {error}.") from error
        if np.isinf(table[:, j]).any():
            raise InputError(f"Column {name!r} of X contains infinity: leave these rows out, or mark them missing.")
    return table


def _filled(values: np.ndarray, numbers: tuple[Number, ...]) -> np.ndarray:
    """Numbers with missing ones filled in, and after them the columns that mark these."""
    missing = np.isnan(values)
    marks = [j for j, number in enumerate(numbers) if number.marked]
    return np.hstack([np.where(missing, [number.fill for number in numbers], values), missing[:, marks]])


def _texts(column: Any) -> list[str]:
    """Categories of any type as text, so that they sort."""
    values = np.asarray(column, dtype=object).tolist()
    return ["missing" if is_missing(value) else str(value) for value in values]


def _category(name: Any, column: Any) -> Category:
    """The values that get a column of their own: all, or the most frequent where they are too many."""
    found = Counter(_texts(column))
    if len(found) <= MOST_CATEGORIES:
        return Category(name, tuple(sorted(found)), False)
    often = sorted(found, key=lambda value: (-found[value], value))[: MOST_CATEGORIES - 1]
    return Category(name, tuple(sorted(often)), True)


def _codes(columns: Mapping[Any, Any], entry: Category) -> np.ndarray:
    """(n,) the position of each value; the rest share the last, or have -1 where there is none for them."""
    place = {value: j for j, value in enumerate(entry.values)}
    other = len(entry.values) if entry.rest else -1
    return np.array([place.get(value, other) for value in _texts(columns[entry.column])], dtype=np.intp)


def _one_hot(columns: Mapping[Any, Any], entry: Category) -> np.ndarray:
    """One column per value, and one for the rest where they share one; a value not known may have none."""
    return (_codes(columns, entry)[:, None] == np.arange(len(entry.values) + entry.rest)).astype(np.float64)
