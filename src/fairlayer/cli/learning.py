"""Fitting models to a table: parts of it, a model of a kind, and the choice between kinds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.constraints import GroupConstraint
from fairlayer.estimators import models
from fairlayer.estimators.estimator import FairEstimator, Outputs
from fairlayer.estimators.serving import NEW_LABELS
from fairlayer.gaps import Gaps, measure
from fairlayer.sklearn import FairClassifier, FairRegressor

VALIDATION = 0.2  # of the training rows, to choose a model on


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of a table: features, targets as numbers, and the labels of every protected attribute."""

    X: Any
    y: Any  # (n,) float64; 0 and 1 for two classes, the number of the class for several; None where unknown
    groups: Any  # labels (n,) by name; None where unknown

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, positions: np.ndarray) -> Part:
        """The rows at these positions."""
        groups = {name: labels[positions] for name, labels in self.groups.items()}
        return Part(self.X.iloc[positions].reset_index(drop=True), self.y[positions], groups)


def split(part: Part, share: float, seed: int) -> tuple[Part, Part]:
    """Two parts, the second with about `share` of the rows of every combination of labels; no label only in it."""
    n = len(part)
    random = np.random.default_rng(seed)
    labels_of_row = np.stack([labels.astype(str) for labels in part.groups.values()])
    _, combination = np.unique(labels_of_row, axis=1, return_inverse=True)
    order = np.lexsort((random.random(n), combination.reshape(-1)))
    held = np.zeros(n, dtype=bool)
    held[order[np.unique((np.arange(round(share * n)) / share).astype(int))]] = True
    for labels in part.groups.values():
        for label in set(labels.tolist()) - set(labels[~held].tolist()):
            held[labels == label] = False
    return part.rows(np.flatnonzero(~held)), part.rows(np.flatnonzero(held))


def outputs(model: FairEstimator, X: Any, groups: Any, serving: Literal["batch", "frozen"] | None = None) -> Outputs:
    """Raw and fair outputs, without the warnings about groups: commands report those in their own words."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some groups are absent")
        warnings.filterwarnings("ignore", message=NEW_LABELS)
        return model.outputs(X, sensitive_features=groups, serving=serving)


@dataclass(frozen=True)
class Learner:
    """How models are fitted. classes: their names, where there are three or more."""

    constraints: Sequence[GroupConstraint]
    classify: bool
    classes: tuple[str, ...] = ()
    bounds: Any = None
    method: str = "layer"  # of the network
    serving: str = "batch"
    confidence: float | None = None
    seed: int = 0
    epochs: int = 200
    max_minutes: float | None = None
    verbose: bool = False

    def fit(self, kind: str, part: Part) -> FairEstimator:
        """A fitted model of a kind, one of `estimators.models`."""
        settings: dict[str, Any] = {
            "estimator": models.make_estimator(kind, part.X, self.classify, self.seed),
            "serving": self.serving,
            "confidence": self.confidence,
            "random_state": self.seed,
        }
        if kind == "network":
            settings |= {"method": self.method, "max_epochs": self.epochs, "max_minutes": self.max_minutes}
            settings |= {"verbose": self.verbose}
        if self.classify:
            classifier = FairClassifier(list(self.constraints), **settings)
            return classifier.fit(part.X, part.y.astype(np.int64), sensitive_features=part.groups)
        regressor = FairRegressor(list(self.constraints), bounds=self.bounds, **settings)
        return regressor.fit(part.X, part.y, sensitive_features=part.groups)

    @property
    def threshold(self) -> float:
        """An output of this or more is a yes."""
        return next((float(c.threshold) for c in self.constraints if c.quantity == "decision"), 0.5)  # type: ignore[attr-defined]

    def measure(self, predicted: np.ndarray, part: Part) -> Gaps:
        """The gaps of the constraints, in exact arithmetic."""
        named = [f"class {name}" for name in self.classes]
        return measure(predicted, ConstraintSet(list(self.constraints)), part.groups, part.y, part.X, columns=named)

    def score(self, predicted: np.ndarray, part: Part) -> dict[str, Any]:
        """How accurate and how fair outputs are."""
        gaps = self.measure(predicted, part)
        actual = np.eye(len(self.classes))[part.y.astype(int)] if self.classes else part.y
        error = float(np.sqrt(np.mean((predicted - actual) ** 2)))
        scores = {"rmse": error, "gap": gaps.largest, "in these data": "satisfied" if gaps.satisfied else "violated"}
        if not self.classify:
            return scores
        right = (predicted >= self.threshold) == (part.y > 0.5)
        if self.classes:
            right = predicted.argmax(axis=1) == part.y
        return {"accuracy": float(right.mean()), **scores}


class Choice(NamedTuple):
    """Kinds of models compared on rows kept from their training, a row of a table each, and the best of them."""

    best: str
    rows: list[dict[str, Any]]
    text: str  # which was chosen, and how


def choose_model(learner: Learner, train: Part, tell: Callable[[str], None]) -> Choice:
    """Fit every kind of model on some of the training rows, and compare their fair predictions on the others."""
    used, held = split(train, VALIDATION, learner.seed)
    rows = {}
    for kind in models.FOR_CLASSES if learner.classify else models.FOR_NUMBERS:
        tell(f"Trying: {models.TITLES[kind]} ...")
        began = time.perf_counter()
        model = learner.fit(kind, used)
        seconds = round(time.perf_counter() - began, 1)
        scores = learner.score(outputs(model, held.X, held.groups).fair, held)
        rows[kind] = {"model": models.TITLES[kind], **scores, "seconds": seconds}
    best = min(rows, key=lambda kind: rows[kind]["rmse"])
    text = (
        f"Chosen: {models.TITLES[best]}, of {', '.join(row['model'] for row in rows.values())}: the least squared "
        f"error of predictions under the constraints, on {len(held):,} training rows that were kept back for this."
    )
    return Choice(best, list(rows.values()), text)
