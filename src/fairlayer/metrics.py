"""Fairness metrics of predictions, with the signature of scikit-learn's and fairlearn's metrics.

`demographic_parity_difference` and `equalized_odds_difference` mean what they mean in fairlearn: about decisions 0 and
1, and, of several sensitive features, about their intersections. `mean_parity_difference` is what `MeanParity` bounds:
about scores, and about every sensitive feature by itself. A group without samples to compare is left out; where fewer
than two remain the difference is nan, not 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fairlayer.problem.groups import SoftGroup, read_groups

__all__ = ["demographic_parity_difference", "equalized_odds_difference", "mean_parity_difference"]


def mean_parity_difference(y_true: Any, y_pred: Any, *, sensitive_features: Any) -> float:
    """Largest difference of mean predictions between groups of one sensitive feature. y_true is not looked at."""
    values = np.asarray(y_pred, dtype=np.float64).reshape(-1)
    return max(_difference(values, codes) for codes in _codes(sensitive_features, len(values)).T)


def demographic_parity_difference(y_true: Any, y_pred: Any, *, sensitive_features: Any) -> float:
    """Largest difference of the share of decisions 1 between intersectional groups. y_true is not looked at."""
    decisions = _decisions(y_pred, "y_pred")
    return _difference(decisions, _codes(sensitive_features, len(decisions)))


def equalized_odds_difference(y_true: Any, y_pred: Any, *, sensitive_features: Any) -> float:
    """The larger of the differences in true and in false positive rates between intersectional groups."""
    decisions, targets = _decisions(y_pred, "y_pred"), _decisions(y_true, "y_true")
    codes = _codes(sensitive_features, len(decisions))
    return max(_difference(decisions[targets == t], codes[targets == t]) for t in (0.0, 1.0))


def _decisions(values: Any, what: str) -> np.ndarray:
    decisions = np.asarray(values, dtype=np.float64).reshape(-1)
    if not np.isin(decisions, (0.0, 1.0)).all():
        raise ValueError(f"{what} must hold 0 and 1 only: apply a threshold first.")
    return decisions


def _codes(sensitive_features: Any, n: int) -> np.ndarray:
    """(n, features): the group of each sample as a number."""
    columns = read_groups(sensitive_features, n)
    soft = next((name for name, column in columns.items() if isinstance(column, SoftGroup)), None)
    if soft is not None:
        raise ValueError(f"sensitive_features[{soft!r}] holds probabilities: metrics need labels.")
    return np.stack([np.asarray(column.values) for column in columns.values()], axis=1)  # type: ignore[union-attr]


def _difference(values: np.ndarray, codes: np.ndarray) -> float:
    """Between the largest and the least mean of those whose codes, (n,) or (n, features), are alike."""
    _, group, count = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
    means = np.bincount(group.reshape(-1), weights=values) / count
    return float(np.ptp(means)) if len(means) > 1 else math.nan
