"""`fair_scorer`: any of scikit-learn's scorers, with the sensitive features on their way to the model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

from fairlayer.extras import needs

with needs("fairlayer.sklearn", "scikit-learn"):
    from sklearn.metrics import get_scorer  # type: ignore[import-untyped]
    from sklearn.utils.metadata_routing import MetadataRequest  # type: ignore[import-untyped]


def fair_scorer(scoring: str | Callable[..., float]) -> FairScorer:
    """A scorer for cross-validation and searches, where sensitive features are not columns of X.

        cross_val_score(model, X, y, scoring=fair_scorer("roc_auc"), params={"sensitive_features": A})

    scikit-learn's own scorers pass what is routed to them to the metric, and call the model with X alone. This one
    asks for `sensitive_features` and passes them to the model's predictions. scoring: the name of a scorer, or one.
    """
    return FairScorer(scoring)


class FairScorer:
    """A scorer that passes sensitive features to the model. Made by `fair_scorer`."""

    def __init__(self, scoring: str | Callable[..., float]):
        self.scoring = scoring
        self.scorer = get_scorer(scoring)

    def __call__(self, estimator: Any, X: Any, y: Any, *, sensitive_features: Any = None, **options: Any) -> float:
        """The score of a fitted model."""
        model = estimator if sensitive_features is None else _Informed(estimator, sensitive_features)
        return self.scorer(model, X, y, **options)

    def __repr__(self) -> str:
        return f"fair_scorer({self.scoring!r})"

    def get_metadata_routing(self) -> MetadataRequest:
        """Asks for the sensitive features."""
        request = MetadataRequest(owner=self)
        request.score.add_request(param="sensitive_features", alias=True)
        return request


class _Informed:
    """A fitted model that knows the sensitive features of the rows it is asked about."""

    def __init__(self, model: Any, sensitive_features: Any):
        self._model = model
        self._sensitive_features = sensitive_features

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._model, name)
        asked = name in ("predict", "predict_proba", "decision_function")
        known = partial(found, sensitive_features=self._sensitive_features)
        return update_wrapper(known, found) if asked else found
