"""Fitting models to a table: parts of it, a model of a kind, and the choice between kinds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from fairlayer.constraints import GroupConstraint
from fairlayer.estimators import models
from fairlayer.estimators.estimator import NEW_LABELS, FairEstimator, Outputs
from fairlayer.gaps import measure
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.sklearn import FairClassifier, FairRegressor
from fairlayer.tables.schema import Rows

VALIDATION = 0.2  # of the training rows, to choose a model on


def split(part: Rows, share: float, seed: int) -> tuple[Rows, Rows]:
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
    return part.take(np.flatnonzero(~held)), part.take(np.flatnonzero(held))


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
    classes: tuple[str, ...]
    bounds: Any
    seed: int
    settings: dict[str, Any]  # of every estimator
    network: dict[str, Any]  # of the network alone

    def fit(self, kind: str, part: Rows) -> FairEstimator:
        """A fitted model of a kind, one of `estimators.models`."""
        settings = {**self.settings, **(self.network if kind == "network" else {}), "random_state": self.seed}
        settings["estimator"] = models.make_estimator(kind, part.X, self.classify, self.seed)
        if self.classify:
            classifier = FairClassifier(list(self.constraints), **settings)
            return classifier.fit(part.X, part.y.astype(np.int64), sensitive_features=part.groups)
        regressor = FairRegressor(list(self.constraints), bounds=self.bounds, **settings)
        return regressor.fit(part.X, part.y, sensitive_features=part.groups)

    @property
    def threshold(self) -> float:
        """An output of this or more is a yes."""
        return next((float(c.threshold) for c in self.constraints if c.quantity == "decision"), 0.5)  # type: ignore[attr-defined]

    def score(self, predicted: np.ndarray, part: Rows) -> dict[str, Any]:
        """How accurate and how fair outputs are."""
        rules, named = ConstraintSet(list(self.constraints)), [f"class {name}" for name in self.classes]
        gaps = measure(predicted, rules, part.groups, part.y, part.X, columns=named)
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


def choose_model(learner: Learner, train: Rows, tell: Callable[[str], None]) -> Choice:
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
