"""`FairClassifier` and `FairRegressor`: fair predictions behind scikit-learn's interface, around any model.

    model = FairClassifier(estimator=HistGradientBoostingClassifier(), constraints=[MeanParity(0.05)])
    model.fit(X, y, sensitive_features=A)
    model.predict_proba(X_new, sensitive_features=A_new)

Predictions for a batch with its sensitive features satisfy the constraints exactly, in that batch. With
serving="frozen", or where the sensitive features are columns of X and not passed, every sample is instead moved by the
shift of its groups that was learned in `fit`: no batch effect, and a statistical promise, which `calibrate` makes. With
serving="blind" predictions look at X alone, and the statistical promise is about the true groups.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from functools import partial, update_wrapper
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fairlayer.core.classes import KINDS, check_class_rules
from fairlayer.errors import InputError
from fairlayer.estimators.estimator import FairEstimator
from fairlayer.estimators.scores import Probability, Rescaled
from fairlayer.extras import needs
from fairlayer.problem.constraint_set import ConstraintSet

with needs("fairlayer.sklearn", "scikit-learn"):
    from sklearn.base import ClassifierMixin, RegressorMixin  # type: ignore[import-untyped]
    from sklearn.metrics import accuracy_score, get_scorer, r2_score  # type: ignore[import-untyped]
    from sklearn.utils.metadata_routing import MetadataRequest  # type: ignore[import-untyped]
    from sklearn.utils.multiclass import check_classification_targets, type_of_target  # type: ignore[import-untyped]

__all__ = ["FairClassifier", "FairRegressor", "fair_scorer"]


@dataclass(eq=False, repr=False)
class FairClassifier(ClassifierMixin, FairEstimator):
    """A classifier whose probabilities satisfy group-fairness constraints.

    Constraints are about the probability of the second class, `classes_[1]`, which is kept within [0, 1]. Of three and
    more classes every class satisfies them. threshold: `predict` returns the second class where its probability is
    at least this; None for that of the constraints on decisions, or 0.5 where there are none. Of three and more classes
    it returns the likeliest.

    discrepancy: what "nearest" means of probabilities, "squared" or "entropy". With "squared" the network is trained
    on the squared error of the probabilities (Brier score), a proper score that stays finite where the projection makes
    a probability 0 or 1. With "entropy" probabilities stay inside (0, 1), and the network is trained on the log loss;
    an estimator must not predict 0 or 1. Other arguments: see `FairEstimator`.
    """

    __metadata_request__predict_proba: ClassVar = {"sensitive_features": True}
    __metadata_request__decision_function: ClassVar = {"sensitive_features": True}

    threshold: float | None = field(default=None, kw_only=True)
    discrepancy: Literal["squared", "entropy"] = field(default="squared", kw_only=True)

    def _learn_targets(self, y: Any) -> np.ndarray:
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        if kind not in ("binary", "multiclass"):
            raise ValueError(f"y must hold one of the classes for every row. The type of the target is {kind}.")
        if self.discrepancy not in KINDS:
            raise InputError(f"discrepancy must be one of {list(KINDS)}; got {self.discrepancy!r}.")
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has only one class, {self.classes_.tolist()}: a classifier needs samples of two.")
        of_two = (
            (f"threshold={self.threshold}", self.threshold is not None, "leave it out"),
            ("confidence", self.confidence is not None, "leave it out"),
            ("serving='blind'", self.serving == "blind", "use 'frozen'"),
        )
        for what, asked, remedy in of_two if self._several else ():
            if asked:
                raise InputError(f"{what} is of two classes, and y has {len(self.classes_)}: {remedy}.")
        self.bounds_ = None if self._several else (0.0, 1.0)
        self.threshold_ = self._find_threshold()
        return codes.astype(np.float64)

    @property
    def _several(self) -> bool:
        """Whether there are three and more classes, each with an output of its own."""
        return self._width > 1

    def _layer_options(self, rules: ConstraintSet) -> dict[str, Any]:
        if self._several:
            check_class_rules(rules, f"{len(self.classes_)} classes")
        return {"discrepancy": self.discrepancy, "simplex": self._several}

    def _find_threshold(self) -> float:
        """From where on a probability is a yes: where constraints on decisions say, which all share one threshold."""
        rules = () if self.constraints is None else ConstraintSet(self.constraints).constraints
        asked = [float(c.threshold) for c in rules if c.quantity == "decision"]  # type: ignore[attr-defined]
        if asked and self.threshold not in (None, *asked):
            raise InputError(
                f"threshold={self.threshold} is not that of the constraints on decisions, {asked[0]:g}: the decisions "
                "of predict would not be those they bound. Leave it out, or change theirs."
            )
        return float(self.threshold) if self.threshold is not None else asked[0] if asked else 0.5

    def _wrap(self, inner: nn.Module) -> nn.Module:
        return Probability(inner, self.discrepancy == "entropy")

    def _loss(self, output: Tensor, target: Tensor) -> Tensor:
        if output.ndim == 2:
            told = nn.functional.one_hot(target.long(), output.shape[1])
            right = output.gather(1, target.long()[:, None])[:, 0]
            return -torch.log(right) if self.discrepancy == "entropy" else ((output - told) ** 2).sum(dim=1)
        if self.discrepancy == "entropy":
            return nn.functional.binary_cross_entropy(output, target, reduction="none")
        return (output - target) ** 2

    def _targets(self, y: Any) -> np.ndarray:
        if self._several:
            return np.searchsorted(self.classes_, np.asarray(y)).astype(np.float64)
        return (np.asarray(y) == self.classes_[1]).astype(np.float64)

    def predict_proba(self, X: Any, *, sensitive_features: Any = None) -> np.ndarray:
        """(n, d): probabilities of the classes."""
        p = self.outputs(X, sensitive_features=sensitive_features).fair
        return p if p.ndim == 2 else np.stack([1.0 - p, p], axis=1)

    def decision_function(self, X: Any, *, sensitive_features: Any = None) -> np.ndarray:
        """(n,): above 0 where the second class is predicted; the probability less the threshold, up to rounding.

        Of three and more classes, (n, d): their probabilities.
        """
        p = self.outputs(X, sensitive_features=sensitive_features).fair
        if p.ndim == 2:
            return p
        return p - np.nextafter(self.threshold_, -np.inf)  # a probability right at the threshold is a yes

    def predict(self, X: Any, *, sensitive_features: Any = None) -> np.ndarray:
        """(n,): the second class where its probability is at least the threshold; of three and more, the likeliest."""
        values = self.decision_function(X, sensitive_features=sensitive_features)
        return self.classes_[values.argmax(axis=1) if values.ndim == 2 else (values > 0).astype(np.intp)]

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None) -> float:
        """Accuracy."""
        predicted = self.predict(X, sensitive_features=sensitive_features)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))


@dataclass(eq=False, repr=False)
class FairRegressor(RegressorMixin, FairEstimator):
    """A regressor whose predictions satisfy group-fairness constraints, in the units of the target.

    bounds: (lo, hi) that predictions are kept within; None for none. Other arguments: see `FairEstimator`.
    """

    bounds: tuple[float | None, float | None] | None = field(default=None, kw_only=True)

    def _learn_targets(self, y: Any) -> np.ndarray:
        targets = self._targets(y)
        if not len(targets):
            raise ValueError("y is empty: 0 sample(s) were found, at least 1 is required.")
        if not np.isfinite(targets).all():
            raise ValueError("Input y contains NaN or infinity: leave these rows out.")
        self.bounds_, self.mean_, self.scale_ = self.bounds, float(targets.mean()), float(targets.std()) or 1.0
        return targets

    def _wrap(self, inner: nn.Module) -> nn.Module:
        return Rescaled(inner, self.mean_, self.scale_)

    def _loss(self, output: Tensor, target: Tensor) -> Tensor:
        return ((output - target) / self.scale_) ** 2

    def predict(self, X: Any, *, sensitive_features: Any = None) -> np.ndarray:
        """(n,): predictions in the units of the target."""
        return self.outputs(X, sensitive_features=sensitive_features).fair

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None) -> float:
        """Share of the variance explained, R^2."""
        predicted = self.predict(X, sensitive_features=sensitive_features)
        return float(r2_score(y, predicted, sample_weight=sample_weight))


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
        informed = copy(estimator)
        for name in ("predict", "predict_proba", "decision_function") if sensitive_features is not None else ():
            if hasattr(estimator, name):
                method = getattr(estimator, name)
                setattr(informed, name, update_wrapper(partial(method, sensitive_features=sensitive_features), method))
        return self.scorer(informed, X, y, **options)

    def __repr__(self) -> str:
        return f"fair_scorer({self.scoring!r})"

    def get_metadata_routing(self) -> MetadataRequest:
        """Asks for the sensitive features."""
        request = MetadataRequest(owner=self)
        request.score.add_request(param="sensitive_features", alias=True)
        return request
