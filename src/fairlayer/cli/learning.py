"""Fitting models to a table: parts of it, a model of a kind, and the choice between kinds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fairlayer.cli.output import note, show_table
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

    def score(self, model: FairEstimator, part: Rows) -> dict[str, Any]:
        """How accurate and how fair a model's outputs are."""
        fair = outputs(model, part.X, part.groups).fair
        rules, named = ConstraintSet(list(self.constraints)), [f"class {name}" for name in self.classes]
        gaps = measure(fair, rules, part.groups, part.y, part.X, columns=named)
        actual = np.eye(len(self.classes))[part.y.astype(int)] if self.classes else part.y
        error = float(np.sqrt(np.mean((fair - actual) ** 2)))
        scores = {"rmse": error, "gap": gaps.largest, "in these data": "satisfied" if gaps.satisfied else "violated"}
        if not self.classify:
            return scores
        predicted = fair.argmax(axis=1) if self.classes else fair >= model.threshold_
        return {"accuracy": float((predicted == part.y).mean()), **scores}


def choose_model(learner: Learner, train: Rows) -> tuple[str, str]:
    """Fit every kind of model on some of the training rows, compare them on the others, and show that as a table.

    Returns the best kind, and a sentence on how it was chosen.
    """
    used, held = split(train, VALIDATION, learner.seed)
    rows = {}
    for kind in models.FOR_CLASSES if learner.classify else models.FOR_NUMBERS:
        note(f"Trying: {models.TITLES[kind]} ...")
        began = time.perf_counter()
        model = learner.fit(kind, used)
        seconds = round(time.perf_counter() - began, 1)
        rows[kind] = {"model": models.TITLES[kind], **learner.score(model, held), "seconds": seconds}
    best = min(rows, key=lambda kind: rows[kind]["rmse"])
    show_table(list(rows[best]), [list(row.values()) for row in rows.values()], "On the rows kept to choose a model")
    return best, (
        f"Chosen: {models.TITLES[best]}, of {', '.join(row['model'] for row in rows.values())}: the least squared "
        f"error of predictions under the constraints, on {len(held):,} training rows that were kept back for this."
    )
