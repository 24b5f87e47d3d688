"""Raw outputs from any estimator of scikit-learn's kind: fitted here, or before."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairlayer.errors import InputError
from fairlayer.extras import needs

with needs("fairlayer.sklearn", "scikit-learn"):
    import sklearn  # type: ignore[import-untyped]
    from sklearn.base import clone, is_classifier, is_regressor  # type: ignore[import-untyped]
    from sklearn.pipeline import Pipeline  # type: ignore[import-untyped]
    from sklearn.utils.validation import has_fit_parameter  # type: ignore[import-untyped]


class EstimatorScores:
    """Raw outputs of a fitted estimator: columns of its probabilities, or its predictions."""

    def __init__(self, estimator: Any, column: int | list[int] | None):
        """column: of the probabilities, one of them or several; None for predictions."""
        self.estimator = estimator
        self.column = column

    def __call__(self, X: Any) -> np.ndarray:
        """(n,) float64, or (n, d) of several columns."""
        if self.column is not None:
            found = np.asarray(self.estimator.predict_proba(X))[:, self.column]
        else:
            found = np.asarray(self.estimator.predict(X))
            if found.ndim == 2 and found.shape[1] == 1:
                found = found[:, 0]
        if found.ndim != 1 and not isinstance(self.column, list):
            raise InputError(f"The estimator predicts an array of shape {found.shape}: one number per row is needed.")
        return np.ascontiguousarray(found, dtype=np.float64)


def check_kind(estimator: Any, classify: bool) -> None:
    """Refuse what has no outputs to make fair."""
    name = type(estimator).__name__
    if isinstance(estimator, type) or not hasattr(estimator, "fit") or not hasattr(estimator, "get_params"):
        raise InputError(f"estimator must be an estimator of scikit-learn's kind, or None; got {estimator!r}.")
    if not (is_classifier if classify else is_regressor)(estimator):
        other = "FairRegressor" if classify else "FairClassifier"
        raise InputError(f"{name} is not a {'classifier' if classify else 'regressor'}: see {other}.")
    if classify and not hasattr(estimator, "predict_proba"):
        raise InputError(
            f"{name} predicts no probabilities, which are what is made fair: wrap it in "
            "sklearn.calibration.CalibratedClassifierCV, or set its option for them."
        )


def fit_estimator(
    estimator: Any, X: Any, y: np.ndarray, classes: np.ndarray | None, weights: Any, options: dict[str, Any]
) -> EstimatorScores:
    """Fit a copy; one that is frozen (`FrozenEstimator`) stays as it is. classes: those of y; None for a regressor.

    A classifier gets the labels as they are, so that class weights by label mean what they say. Where it refuses them,
    as XGBoost does with words, it gets 0, 1 and so on. Of two classes the scores are those of the second, otherwise of
    all.
    """
    fitted, given = clone(estimator), {**options, **_weights(estimator, weights)}
    if classes is None:
        fitted.fit(X, y, **given)
        return EstimatorScores(fitted, None)
    codes, numbers = np.searchsorted(classes, y).astype(np.int64), list(range(len(classes)))
    try:
        fitted.fit(X, y, **given)
    except (ValueError, TypeError):
        if np.array_equal(classes, numbers):
            raise
        fitted = clone(estimator)
        try:
            fitted.fit(X, codes, **given)
        except (ValueError, TypeError):
            fitted = None
        if fitted is None:
            raise
    known = np.asarray(fitted.classes_).tolist()
    for names in (classes.tolist(), numbers):
        if len(known) == len(names) and all(name in known for name in names):
            columns = [known.index(name) for name in names]
            return EstimatorScores(fitted, columns[1] if len(columns) == 2 else columns)
    raise InputError(f"The estimator knows the classes {known}; y has {classes.tolist()}. Fit it with the same ones.")


def _weights(estimator: Any, weights: Any) -> dict[str, Any]:
    """Sample weights as the estimator takes them: through a pipeline, to its last step."""
    if weights is None:
        return {}
    if isinstance(estimator, Pipeline) and not sklearn.get_config()["enable_metadata_routing"]:
        name, last = estimator.steps[-1]
        return {f"{name}__{key}": value for key, value in _weights(last, weights).items()}
    if not isinstance(estimator, Pipeline) and not has_fit_parameter(estimator, "sample_weight"):
        raise InputError(f"{type(estimator).__name__} takes no sample_weight: leave it out, or use another estimator.")
    return {"sample_weight": weights}
