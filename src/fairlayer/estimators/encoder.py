"""`Encoder`: what the preprocessing of a fitted estimator does, as plain data.

The estimators prepare tables with scikit-learn's transformers, which can be kept only by pickling them: that is code,
and changes with the library. All that prediction needs of them are a few numbers per column.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fairlayer.errors import InputError
from fairlayer.estimators.preprocessing import as_text, is_frame


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
    """Does to a table what the preprocessing it was made from does, to the last bit.

    means, scales: of the numbers, and after them of the columns that mark missing ones.
    """

    numbers: tuple[Number, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    categories: tuple[Category, ...]

    @classmethod
    def of(cls, preprocessing: Any) -> Encoder:
        """Read a fitted transformer made by `fairlayer.tabular.preprocessing`."""
        if isinstance(preprocessing, Encoder):
            return preprocessing
        numbers: list[Number] = []
        means = scales = np.zeros(0)
        categories: list[Category] = []
        for name, transformer, columns in preprocessing.transformers_:
            if not len(columns) or name not in ("numbers", "categories"):
                continue
            if name == "numbers":
                imputer, scaler = (step for _, step in transformer.steps)
                marked = set(imputer.indicator_.features_.tolist())
                filled = zip(columns, imputer.statistics_.tolist(), strict=True)
                numbers = [Number(_plain(c), float(fill), j in marked) for j, (c, fill) in enumerate(filled)]
                means, scales = scaler.mean_, scaler.scale_
            else:
                encode = transformer.steps[-1][1]
                for column, known, rare in zip(columns, encode.categories_, encode.infrequent_categories_, strict=True):
                    shared = set() if rare is None else set(rare.tolist())
                    kept = tuple(str(value) for value in known.tolist() if value not in shared)
                    categories.append(Category(_plain(column), kept, rare is not None))
        return cls(tuple(numbers), tuple(map(float, means)), tuple(map(float, scales)), tuple(categories))

    @property
    def width(self) -> int:
        """Number of columns of what `transform` returns."""
        return len(self.means) + sum(len(entry.values) + entry.rest for entry in self.categories)

    def transform(self, X: Any) -> np.ndarray:
        """(n, width) inputs for the network."""
        parts = [self._scaled(X)] if self.numbers else []
        return np.hstack([*parts, *(_one_hot(X, entry) for entry in self.categories)])

    def _scaled(self, X: Any) -> np.ndarray:
        values = _numbers(X, [number.column for number in self.numbers])
        missing = np.isnan(values)
        marks = [j for j, number in enumerate(self.numbers) if number.marked]
        fill = np.array([number.fill for number in self.numbers], dtype=values.dtype)
        filled = np.where(missing, fill, values)
        table = np.hstack([filled, missing[:, marks].astype(values.dtype)])
        table -= np.array(self.means).astype(table.dtype)
        table /= np.array(self.scales).astype(table.dtype)
        return table

    def to_data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Encoder:
        """What `to_data` gave."""
        return cls(
            tuple(Number(**entry) for entry in data["numbers"]),
            tuple(data["means"]),
            tuple(data["scales"]),
            tuple(
                Category(entry["column"], tuple(entry["values"]), bool(entry["rest"])) for entry in data["categories"]
            ),
        )


def _plain(column: Any) -> Any:
    """A column's name or position as JSON can keep it."""
    column = column.item() if isinstance(column, np.generic) else column
    if not isinstance(column, str | int):
        raise InputError(f"Column {column!r} has a name that is neither text nor a whole number: rename it to save.")
    return column


def _numbers(X: Any, columns: list[Any]) -> np.ndarray:
    """Some columns as floats; in single precision where all of them are, as scikit-learn takes them."""
    if not is_frame(X):
        table = np.asarray(X)[:, columns]
        return table if table.dtype in (np.float32, np.float64) else table.astype(np.float64)
    part = X[columns]
    single = all(dtype == np.float32 for dtype in part.dtypes)
    return np.array(part.to_numpy(dtype=np.float32 if single else np.float64, na_value=np.nan))


def _one_hot(X: Any, entry: Category) -> np.ndarray:
    """One column per value, and one for the rest where they share one; a value not known may have none."""
    place = {value: j for j, value in enumerate(entry.values)}
    other = len(entry.values) if entry.rest else -1
    codes = np.array([place.get(value, other) for value in as_text(X[[entry.column]])[:, 0].tolist()], dtype=np.intp)
    return (codes[:, None] == np.arange(len(entry.values) + entry.rest)).astype(np.float64)
