"""Training as `fit`, `--compare` and the demo do it: parts of a table, estimators by method, scores."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numba.core.event import TimingListener, install_listener

from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.constraints import GroupConstraint
from fairlayer.estimators import models
from fairlayer.estimators.estimator import FairEstimator, Outputs
from fairlayer.estimators.models import make_estimator
from fairlayer.estimators.serving import NEW_LABELS
from fairlayer.gaps import Gaps, measure
from fairlayer.sklearn import FairClassifier, FairRegressor
from fairlayer.training import AugmentedLagrangian, Penalty, select_strength

STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # of the penalty, in standard deviations of the target
CURVATURES = (1.0, 10.0)  # of the augmented Lagrangian
VALIDATION = 0.2  # of the training rows, to choose a model on
TITLES = {
    "unconstrained": "unconstrained",
    "projection": "projection afterwards",
    "penalty": "penalty",
    "lagrangian": "augmented Lagrangian",
    "layer": "fairness layer",
}


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of a table: features, targets as numbers, and the labels of every protected attribute."""

    X: Any
    y: np.ndarray  # (n,) float64; 0 and 1 for classes, or the number of one of several
    groups: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, positions: np.ndarray) -> Part:
        """Some of them."""
        groups = {name: labels[positions] for name, labels in self.groups.items()}
        return Part(self.X.iloc[positions].reset_index(drop=True), self.y[positions], groups)


@dataclass(frozen=True)
class Setting:
    """What all methods of a comparison share."""

    constraints: Sequence[GroupConstraint]
    classify: bool
    bounds: Any = None
    seed: int = 0
    epochs: int = 200
    patience: int = 8
    max_minutes: float | None = None
    verbose: bool = False
    model: str = "network"
    confidence: float | None = None
    serving: str = "batch"
    classes: tuple[str, ...] = ()  # their names, where there are three or more

    def fit(self, method: Any, part: Part) -> FairEstimator:
        """A fitted estimator."""
        options: dict[str, Any] = {
            "method": method,
            "random_state": self.seed,
            "confidence": self.confidence if method in ("layer", "projection") else None,
            "serving": self.serving if method in ("layer", "projection") else "batch",
            "estimator": make_estimator(self.model, part.X, self.classify, self.seed),
        }
        if self.model == "network":
            options |= {
                "max_epochs": self.epochs,
                "patience": self.patience,
                "max_minutes": self.max_minutes,
                "verbose": self.verbose,
            }
        if self.classify:
            classifier = FairClassifier(list(self.constraints), **options)
            return classifier.fit(part.X, part.y.astype(np.int64), sensitive_features=part.groups)
        regressor = FairRegressor(list(self.constraints), bounds=self.bounds, **options)
        return regressor.fit(part.X, part.y, sensitive_features=part.groups)

    @property
    def threshold(self) -> float:
        """The probability from which on a prediction is a yes."""
        return next((float(c.threshold) for c in self.constraints if c.quantity == "decision"), 0.5)  # type: ignore[attr-defined]

    @property
    def methods(self) -> list[str]:
        """The methods that can make such a model fair, from the plainest on."""
        impossible: set[str] = set()
        if self.model != "network":
            impossible |= {"penalty", "lagrangian", "layer"}
        if self.classes or any(constraint.quantity == "decision" for constraint in self.constraints):
            impossible |= {"penalty", "lagrangian"}  # of one output, and of means: decisions have no gradient
        if not all(constraint.serves_unknown_targets for constraint in self.constraints):
            impossible |= {"projection", "layer"}  # rows of like target are compared, which is unknown when predicting
        return [name for name in TITLES if name not in impossible]

    def measure(self, outputs: np.ndarray, part: Part) -> Gaps:
        """The rows of the constraints, in exact arithmetic."""
        named = [f"class {name}" for name in self.classes]
        rules = ConstraintSet(list(self.constraints))
        return measure(outputs, rules, part.groups, part.y, part.X, columns=named)


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


def outputs(model: FairEstimator, X: Any, groups: Any) -> Outputs:
    """What the model says, and what is made of it; what is absent from the rows is told elsewhere."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some groups are absent")
        warnings.filterwarnings("ignore", message=NEW_LABELS)
        return model.outputs(X, sensitive_features=groups)


def scores(setting: Setting, predicted: np.ndarray, part: Part) -> dict[str, Any]:
    """How good, and how fair, outputs are."""
    gaps = setting.measure(predicted, part)
    told = np.eye(len(setting.classes))[part.y.astype(int)] if setting.classes else part.y
    error = float(np.sqrt(np.mean((predicted - told) ** 2)))
    quality = {"rmse": error, "gap": gaps.largest, "in these data": "satisfied" if gaps.satisfied else "violated"}
    if not setting.classify:
        return quality
    if setting.classes:
        right = predicted.argmax(axis=1) == part.y
    else:
        right = (predicted >= setting.threshold) == (part.y > 0.5)
    return {"accuracy": float(right.mean()), **quality}


def fit_method(setting: Setting, method: str, train: Part) -> FairEstimator:
    """Fit by the name of a method; what a penalty or a Lagrangian needs is chosen on a tenth of the rows."""
    if method not in ("penalty", "lagrangian"):
        return setting.fit(method, train)
    used, held = split(train, 0.1, setting.seed)
    fitted: dict[float, FairEstimator] = {}
    scale = 1.0 if setting.classify else float(train.y.std()) or 1.0

    def attempt(value: float) -> Any:
        make: Any = (
            partial(Penalty, strength=value / scale)
            if method == "penalty"
            else partial(AugmentedLagrangian, curvature=value / scale, rate=0.1 / scale)
        )
        fitted[value] = setting.fit(make, used)
        predicted = outputs(fitted[value], held.X, held.groups).fair
        gaps = setting.measure(predicted, held)
        return SimpleNamespace(loss=float(np.mean((predicted - held.y) ** 2)), gap=gaps.largest, excess=gaps.excess)

    grid = STRENGTHS if method == "penalty" else CURVATURES
    return fitted[select_strength(attempt, grid, rule="smallest", fallback="gap", lazy=True).strength]


@contextmanager
def without_compiling() -> Iterator[Callable[[], float]]:
    """A clock: the seconds that a block took, less those that went into compiling for the first time.

    The method that happens to come first would be charged with them otherwise.
    """
    compiling = TimingListener()
    began = time.perf_counter()
    ended = None

    def seconds() -> float:
        total = (ended or time.perf_counter()) - began
        return total - (compiling.duration if compiling.done else 0.0)

    with install_listener("numba:compile", compiling):
        yield seconds
    ended = time.perf_counter()


class Trial(NamedTuple):
    """A model fitted by a method, its outputs on the rows held out, and what they are worth, as a row of a table."""

    model: FairEstimator
    outputs: Outputs
    row: dict[str, Any]


def trial(setting: Setting, method: str, train: Part, test: Part) -> Trial:
    """Fit a method, and judge it on rows it has not seen."""
    with without_compiling() as seconds:
        model = fit_method(setting, method, train)
    found = outputs(model, test.X, test.groups)
    row = {"method": TITLES[method], **scores(setting, found.fair, test), "seconds": round(seconds(), 1)}
    return Trial(model, found, row)


class Choice(NamedTuple):
    """Models that were compared on rows kept from their training, as rows of a table, and the best of them."""

    best: str
    rows: list[dict[str, Any]]
    text: str  # what was chosen, and how


def choose_model(setting: Setting, train: Part, tell: Callable[[str], None]) -> Choice:
    """Fit every kind of model on some of the training rows, and compare their fair predictions on the others."""
    used, held = split(train, VALIDATION, setting.seed)
    errors, rows = {}, []
    for name in models.FOR_CLASSES if setting.classify else models.FOR_NUMBERS:
        tell(f"Trying: {models.TITLES[name]} ...")
        one = replace(setting, model=name)
        found = trial(one, one.methods[-1], used, held)
        errors[name] = found.row["rmse"]
        worth = {key: value for key, value in found.row.items() if key != "method"}
        rows.append({"model": models.TITLES[name], **worth})
    best = min(errors, key=errors.__getitem__)
    text = (
        f"Chosen: {models.TITLES[best]}, of {', '.join(row['model'] for row in rows)}: the least squared error of "
        f"predictions under the constraints, on {len(held):,} training rows that were kept back for this."
    )
    return Choice(best, rows, text)
