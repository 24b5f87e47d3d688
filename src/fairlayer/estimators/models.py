"""Tables as they come (numbers, text, missing entries): their columns, as arrays of numbers, and models for them.

The models need no tuning; `fairlayer fit --model` chooses from them by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairlayer.errors import InputError
from fairlayer.extras import needs
from fairlayer.frames import frame_columns, is_frame
from fairlayer.problem.groups import is_missing

with needs("fairlayer.sklearn", "scikit-learn"):
    from sklearn.base import BaseEstimator, TransformerMixin  # type: ignore[import-untyped]
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor  # type: ignore[import-untyped]
    from sklearn.impute import SimpleImputer  # type: ignore[import-untyped]
    from sklearn.linear_model import LogisticRegression, RidgeCV  # type: ignore[import-untyped]
    from sklearn.pipeline import Pipeline, make_pipeline  # type: ignore[import-untyped]
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler  # type: ignore[import-untyped]

TITLES = {
    "boosting": "gradient boosted trees",
    "network": "a network with two hidden layers",
    "linear": "linear regression with a ridge",
    "logistic": "logistic regression",
}
FOR_CLASSES = ("boosting", "network", "logistic")
FOR_NUMBERS = ("boosting", "network", "linear")
PENALTIES = tuple(np.logspace(-3, 4, 15).tolist())
MOST_CATEGORIES = 100  # of a column; beyond, the rarest share one


def columns_of(X: Any) -> dict[Any, Any]:
    """A table's columns by name, or by position where they have no names."""
    if isinstance(X, Mapping) or is_frame(X):
        return frame_columns(X)
    table = np.asarray(X)
    if table.ndim != 2:
        raise InputError(f"X has shape {table.shape}: a table has rows and columns.")
    return {j: table[:, j] for j in range(table.shape[1])}


def columns_within(X: Any, names: Sequence[Any], asked: str) -> dict[Any, Any]:
    """Some columns of a table. asked: who names them, in the error where X does not have them."""
    columns = columns_of(X)
    absent = [name for name in names if name not in columns]
    if absent:
        raise InputError(f"{asked} names {absent}, which X does not have; it has {list(columns)[:20]}.")
    return {name: columns[name] for name in names}


def as_text(column: Any) -> list[str]:
    """Categories of any type as text, so that they sort; a missing entry is one of them."""
    values = np.asarray(column, dtype=object).tolist()
    return ["missing" if is_missing(value) else str(value) for value in values]


class _TableTransformer(TransformerMixin, BaseEstimator):
    """A table as an array: a frame of any library, a mapping of columns, or an array; its numbers, then the rest."""

    def _steps(self) -> tuple[Any, Any]:
        """What is made of numbers, nan where one is missing, and what of text."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn from a table."""
        columns = columns_of(X)
        self.numbers_ = [name for name, column in columns.items() if is_number(column)]
        self.texts_ = [name for name in columns if name not in self.numbers_]
        of_numbers, of_texts = self._steps()
        self.of_numbers_ = of_numbers.fit(_numbers(columns, self.numbers_)) if self.numbers_ else None
        self.of_texts_ = of_texts.fit(_texts(columns, self.texts_)) if self.texts_ else None
        return self

    def transform(self, X: Any) -> np.ndarray:
        """(n, width) float64."""
        columns, parts = columns_within(X, [*self.numbers_, *self.texts_], "fit"), []
        if self.of_numbers_ is not None:
            parts.append(self.of_numbers_.transform(_numbers(columns, self.numbers_)))
        if self.of_texts_ is not None:
            parts.append(self.of_texts_.transform(_texts(columns, self.texts_)))
        return np.hstack(parts)


class TableNumbers(_TableTransformer):
    """For networks and linear models: numbers scaled, missing ones filled in and marked; a column for each category.

    A category that was not known goes to those that share a column, where some do, and otherwise to none.
    """

    def _steps(self) -> tuple[Any, Any]:
        filled = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
        one_hot = OneHotEncoder(
            max_categories=MOST_CATEGORIES, handle_unknown="infrequent_if_exist", sparse_output=False
        )
        return make_pipeline(filled, StandardScaler()), one_hot


class TableCodes(_TableTransformer):
    """For trees: numbers as they are, then a code for each category, nan for one that was not known."""

    def _steps(self) -> tuple[Any, Any]:
        unknown = {"handle_unknown": "use_encoded_value", "unknown_value": np.nan}
        return FunctionTransformer(), OrdinalEncoder(max_categories=MOST_CATEGORIES, **unknown)


def is_number(column: Any) -> bool:
    """Whether a column holds numbers or truth values, and not categories."""
    return getattr(column.dtype, "kind", "O") in "biuf"


def _numbers(columns: Mapping[Any, Any], names: Sequence[Any]) -> np.ndarray:
    """(n, names) some columns as floats, nan where one is missing."""
    table = []
    for name in names:
        column = columns[name]
        try:
            values = column if isinstance(column, np.ndarray) else column.to_numpy(np.float64, na_value=np.nan)
            table.append(values.astype(np.float64))
        except (TypeError, ValueError) as error:
            raise InputError(f"Column {name!r} of X held numbers in fit, and now does not: {error}.") from error
        if np.isinf(table[-1]).any():
            raise InputError(f"Column {name!r} of X contains infinity: leave these rows out, or mark them missing.")
    return np.column_stack(table)


def _texts(columns: Mapping[Any, Any], names: Sequence[Any]) -> np.ndarray:
    """(n, names) some columns as text."""
    return np.array([as_text(columns[name]) for name in names], dtype=object).T


def make_estimator(name: str, X: Any, classify: bool, seed: int) -> Any:
    """An estimator, not yet fitted, for tables like X; None for the network, which `FairEstimator` has itself."""
    known = FOR_CLASSES if classify else FOR_NUMBERS
    if name not in known:
        what = "classes" if classify else "numbers"
        raise InputError(f"model must be one of {list(known)} to predict {what}; got {name!r}.")
    if name == "network":
        return None
    if name in ("logistic", "linear"):
        model = LogisticRegression(max_iter=1000) if name == "logistic" else RidgeCV(PENALTIES)
        return Pipeline([("numbers", TableNumbers()), ("model", model)])
    columns = columns_of(X).values()
    numbers = sum(map(is_number, columns))
    kind = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
    trees = kind(
        early_stopping=True,
        learning_rate=0.1,
        max_iter=300,
        random_state=seed,
        categorical_features=list(range(numbers, len(columns))) or None,
    )
    return Pipeline([("codes", TableCodes()), ("model", trees)])
