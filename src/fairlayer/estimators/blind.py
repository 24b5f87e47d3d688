"""Blind serving: predictions that look at no protected attribute, chosen so that the true groups agree all the same.

The groups are known in `fit` only, which splits the rows. Some train the model, and a second one that predicts the
probability of each group from X. The others choose the shifts with which these probabilities keep the gaps of the true
groups within the tolerances (frozen/blind.py), and support a statement on the population.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from fairlayer.errors import InputError
from fairlayer.estimators.models import as_text, columns_of, make_estimator
from fairlayer.extras import needs
from fairlayer.problem.groups import SoftGroup
from fairlayer.training.batches import Batch, take

with needs("fairlayer.sklearn", "scikit-learn"):
    from sklearn.calibration import CalibratedClassifierCV  # type: ignore[import-untyped]
    from sklearn.utils import _safe_indexing  # type: ignore[import-untyped]

CALIBRATION = 0.4  # of the rows: half of them to choose the shifts, half for the statement
STATED = 0.95  # confidence of the statement where none is asked for
FOLDS = 3  # to calibrate probabilities on rows that they were not learned from
FEWEST = 20  # rows of a group, below which its probabilities cannot be learned


def part_rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from, and rows to choose the shifts on, at random: the statement is about independent draws."""
    order = np.random.default_rng(seed).permutation(n)
    kept = round(CALIBRATION * n)
    return np.sort(order[kept:]), np.sort(order[:kept])


def rows_of(sample: Batch, rows: np.ndarray) -> Batch:
    """Some rows of what `fit` was given, whose x may be of any kind that estimators take."""
    return Batch(_safe_indexing(sample.x, rows), *(take(part, rows) for part in sample[1:]))


def check_blind(estimator: Any, X: Any, groups: Any, rules: Any, options: Mapping[str, Any]) -> None:
    """Refuse what cannot be served blind."""
    why, bounds = None, estimator.bounds_
    if groups is None or rules is None:
        why = "needs sensitive_features in fit"
    elif any(isinstance(labels, SoftGroup) for labels in groups.values()):
        why = "needs the labels of groups in fit: pass no SoftGroup"
    elif rules.about_decisions or rules.needs_targets:
        why = "is for constraints on the means of outputs: use MeanParity, RatioParity or ConditionalParity"
    elif estimator.sensitive_columns is not None:
        why = "must not see the sensitive features: leave them out of X, and pass them to fit as sensitive_features"
    elif (told := _told_by(X, groups)) is not None:
        why = (
            f"must not see the sensitive features: leave out column {told[0]!r}, which is {told[1]!r}, by whatever name"
        )
    elif bounds is None or any(side is None or not np.isfinite(side) for side in bounds):
        why = "states what is known of the population, for which outputs must be bounded: pass bounds=(lo, hi)"
    elif options:
        why = (
            f"trains on some of the rows, and so takes no {', '.join(options)} in fit: fit the model beforehand and "
            "pass estimator=FrozenEstimator(model)"
        )
    if why is not None:
        raise InputError(f"serving='blind' {why}.")


def _told_by(X: Any, groups: Mapping[Any, Any]) -> tuple[Any, Any] | None:
    """A column of X, and the attribute that it is, whatever it calls the groups."""
    try:
        columns = columns_of(X)
    except InputError:  # texts, or a sparse matrix
        return None
    for (name, labels), (column, values) in product(groups.items(), columns.items()):
        known, found = np.asarray(labels), np.asarray(values)
        for rows in (FEWEST, len(known)):  # most columns part ways early
            pairs = set(zip(as_text(found[:rows]), as_text(known[:rows]), strict=True))
            met, groups_met = ({pair[side] for pair in pairs} for side in (0, 1))
            same = len(met) == len(groups_met) == len(pairs)
            if not same:
                break
        if same and len(pairs) > 1:
            return column, name
    return None


class GroupModel:
    """How likely a row belongs to each group, by X alone: boosted trees for every attribute, calibrated."""

    def __init__(self, models: Mapping[Any, Any]):
        self.models = dict(models)

    @classmethod
    def fit(cls, X: Any, groups: Mapping[Any, Any], names: Sequence[Any], seed: int) -> GroupModel:
        """Learn from rows whose groups are known; names: of the attributes that constraints compare."""
        return cls({name: _learn(X, name, np.asarray(groups[name]), seed) for name in names})

    def __call__(self, X: Any) -> dict[Any, SoftGroup]:
        """Probabilities of the labels of every attribute."""
        return {
            name: SoftGroup(model.predict_proba(X), np.asarray(model.classes_).tolist())
            for name, model in self.models.items()
        }


def _learn(X: Any, name: Any, labels: np.ndarray, seed: int) -> Any:
    known, counts = np.unique(labels, return_counts=True)
    if len(known) < 2 or counts.min() < FEWEST:
        found = ", ".join(f"{count} of {label!r}" for label, count in zip(known.tolist(), counts.tolist(), strict=True))
        raise InputError(
            f"serving='blind': of {name!r}, the {len(labels)} rows to learn from have {found}. At least two groups, "
            f"each with {FEWEST} rows, are needed: merge rare groups, or bring more rows."
        )
    trees = make_estimator("boosting", X, True, seed)
    return CalibratedClassifierCV(trees, method="sigmoid", cv=FOLDS, ensemble=False).fit(X, labels)
