"""Real tables in a pipeline with boosted trees: every batch within tolerance, as good as projecting by hand."""

from __future__ import annotations

import os
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sklearn
from applicants import exact_gap
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

from experiments import datasets
from fairlayer import MeanParity, project
from fairlayer.sklearn import FairClassifier, fair_scorer

TOLERANCE, BATCH = 0.02, 250
SCORERS = ("accuracy", "roc_auc", "neg_log_loss", "neg_brier_score", "f1", "average_precision", "balanced_accuracy")
pytestmark = pytest.mark.skipif("FAIRLAYER_DATA" not in os.environ, reason="FAIRLAYER_DATA names no folder of data")


def trees() -> Any:
    words = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    columns = make_column_transformer(
        (words, make_column_selector(dtype_exclude="number")), remainder="passthrough", verbose_feature_names_out=False
    )
    return make_pipeline(columns, HistGradientBoostingClassifier(max_iter=40, random_state=0))


@pytest.mark.parametrize("name", ["adult", "german", "credit_card"])
def test_a_pipeline_on_a_real_table(name: str) -> None:
    data = getattr(datasets, name)(fetch=False)
    order = np.random.default_rng(0).permutation(len(data))[:4000]
    rows = data.rows(order)
    X, y, A = rows.features, rows.target.to_numpy().astype(int), rows.protected
    n = len(y) // 2
    preprocess, boost = trees().steps
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some groups are absent")
        pipe = make_pipeline(preprocess[1], FairClassifier([MeanParity(TOLERANCE)], estimator=boost[1]))
        pipe.fit(X[:n], y[:n], sensitive_features=A[:n])
        p = pipe.predict_proba(X[n:], sensitive_features=A[n:])[:, 1]
        for start in range(n, len(y), BATCH):
            part = slice(start, start + BATCH)
            fair = pipe.predict_proba(X[part], sensitive_features=A[part])[:, 1]
            assert all(exact_gap(fair, A[part][column]) <= Fraction(TOLERANCE) for column in A)
        params = {"sensitive_features": A[:n]}
        scoring = {name: fair_scorer(name) for name in SCORERS}
        scores = cross_validate(pipe, X[:n], y[:n], scoring=scoring, params=params, cv=2, error_score="raise")
        assert all(np.isfinite(column).all() for column in scores.values())
    raw = clone(trees()).fit(X[:n], y[:n]).predict_proba(X[n:])[:, 1]
    by_hand = project(raw, A[n:], [MeanParity(TOLERANCE)], bounds=(0, 1)).value
    accuracy, expected = (((values >= 0.5) == y[n:]).mean() for values in (p, by_hand))
    assert abs(accuracy - expected) <= 0.005
    assert exact_gap(raw, A[n:].iloc[:, 0]) > Fraction(TOLERANCE) or name != "adult"
