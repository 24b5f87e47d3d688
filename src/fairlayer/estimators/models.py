"""Models that need no tuning, by name, for tables as they come: what `fairlayer fit --model` chooses from."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairlayer.errors import InputError
from fairlayer.estimators.encoder import Encoder
from fairlayer.extras import needs

with needs("fairlayer.sklearn", "scikit-learn"):
    from sklearn.base import BaseEstimator, TransformerMixin  # type: ignore[import-untyped]
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor  # type: ignore[import-untyped]
    from sklearn.linear_model import LogisticRegression, RidgeCV  # type: ignore[import-untyped]
    from sklearn.pipeline import Pipeline  # type: ignore[import-untyped]

TITLES = {
    "boosting": "gradient boosted trees",
    "network": "a network with two hidden layers",
    "linear": "linear regression with a ridge",
    "logistic": "logistic regression",
}
FOR_CLASSES = ("boosting", "network", "logistic")
FOR_NUMBERS = ("boosting", "network", "linear")
PENALTIES = tuple(np.logspace(-3, 4, 15).tolist())


class _TableTransformer(TransformerMixin, BaseEstimator):
    """A table as an array of numbers; what is learned of it is kept as plain data."""

    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn from a table."""
        self.encoder_ = Encoder.fit(X).to_data()
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "encoder_")


class TableNumbers(_TableTransformer):
    """Numbers scaled, missing ones filled in and marked; categories as one column each. For linear models."""

    def transform(self, X: Any) -> np.ndarray:
        """(n, width)."""
        return Encoder.from_data(self.encoder_).transform(X)


class TableCodes(_TableTransformer):
    """Numbers as they are, then the codes of categories. For trees."""

    def transform(self, X: Any) -> np.ndarray:
        """(n, columns)."""
        return Encoder.from_data(self.encoder_).codes(X)


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
    learned = Encoder.fit(X)
    codes = list(range(len(learned.numbers), len(learned.numbers) + len(learned.categories)))
    kind = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
    trees = kind(
        early_stopping=True, learning_rate=0.1, max_iter=300, random_state=seed, categorical_features=codes or None
    )
    return Pipeline([("codes", TableCodes()), ("model", trees)])
