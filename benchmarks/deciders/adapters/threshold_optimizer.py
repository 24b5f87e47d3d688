"""fairlearn's ThresholdOptimizer: randomised thresholds of greatest accuracy on the rows for thresholds."""

from collections.abc import Callable
from typing import Any

import numpy as np
from fairlearn.postprocessing import ThresholdOptimizer
from sklearn.base import BaseEstimator

from deciders.splits import People, Split


class Scores(BaseEstimator):  # type: ignore[misc]
    """Scores as an estimator, for what wants one: the same numbers as for the others, computed beforehand."""

    def fit(self, x: Any, y: Any) -> Any:
        """Nothing to learn."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, x: Any) -> np.ndarray:
        """The scores themselves."""
        return np.asarray(x)[:, 0]


def fit(split: Split, tolerance: float) -> Callable[[People], np.ndarray]:
    model = ThresholdOptimizer(
        estimator=Scores(), constraints="demographic_parity", prefit=True, predict_method="predict", tol=tolerance
    )
    rows = split.fitting
    model.fit(rows.scores[:, None], rows.target, sensitive_features=rows.groups)

    def decide(people: People) -> np.ndarray:
        # The probability that it draws a yes with; `predict` draws.
        return model._pmf_predict(people.scores[:, None], sensitive_features=people.groups)[:, 1]

    return decide
