"""Every built-in scorer, searches and pipelines, with the sensitive features inside X and outside."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from applicants import people
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import get_scorer_names
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from fairlayer import InputError, MeanParity
from fairlayer.metrics import mean_parity_difference
from fairlayer.sklearn import FairClassifier, FairRegressor, fair_scorer

OF_LABEL_SETS = {name for name in get_scorer_names() if name.endswith("_samples")}  # f1_samples and the like
OF_NUMBERS = {
    *("explained_variance", "r2", "d2_absolute_error_score", "neg_max_error", "neg_mean_absolute_error"),
    *("neg_mean_absolute_percentage_error", "neg_mean_gamma_deviance", "neg_mean_poisson_deviance"),
    *("neg_mean_squared_error", "neg_mean_squared_log_error", "neg_median_absolute_error"),
    *("neg_root_mean_squared_error", "neg_root_mean_squared_log_error"),
}
OF_CLASSES = set(get_scorer_names()) - OF_NUMBERS - OF_LABEL_SETS


@pytest.fixture(autouse=True)
def routing() -> Any:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def table(seed: int = 0) -> tuple[Any, Any, Any, Any]:
    X, y, wage, A = people(300, seed)
    groups = pd.DataFrame(A)
    return pd.DataFrame(X, columns=["skill", "years", "luck"]), y, wage, groups


def encoded() -> Any:
    """Preprocessing that leaves neither names nor labels of the sensitive columns."""
    return make_column_transformer((OneHotEncoder(), ["sex", "region"]), remainder=StandardScaler())


@pytest.mark.filterwarnings("ignore:'k' .2. greater than or equal")
@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_every_scorer_with_sensitive_features_outside_and_inside_the_table(kind: str) -> None:
    X, y, wage, A = table()
    inner, names, target = (LogisticRegression(), OF_CLASSES, y) if kind == "classes" else (Ridge(), OF_NUMBERS, wage)
    fair: Any = partial(FairClassifier, [MeanParity(0.05)])
    if kind == "numbers":
        fair = partial(FairRegressor, [MeanParity(0.3)], bounds=(0.1, 1000.0))
    score = partial(cross_validate, y=target, cv=2, error_score="raise")
    given = {"sensitive_features": A}
    outside = make_pipeline(StandardScaler(), fair(estimator=inner))
    found = score(outside, X, scoring={name: fair_scorer(name) for name in names}, params=given)
    inside = fair(estimator=make_pipeline(encoded(), inner), sensitive_columns=["sex", "region"])
    plain = score(inside, X.join(A), scoring=sorted(names))
    for name in names:
        assert np.isfinite([found[f"test_{name}"], plain[f"test_{name}"]]).all(), name


def test_a_scorer_scores_what_is_predicted_with_the_sensitive_features() -> None:
    X, y, _, A = table()
    pipe = make_pipeline(StandardScaler(), FairClassifier([MeanParity(0.0)], estimator=LogisticRegression()))
    pipe.fit(X, y, sensitive_features=A)
    p = pipe.predict_proba(X, sensitive_features=A)[:, 1]
    assert fair_scorer("roc_auc")(pipe, X, y, sensitive_features=A) == sklearn.metrics.roc_auc_score(y, p)
    assert fair_scorer("neg_brier_score")(pipe, X, y, sensitive_features=A) == pytest.approx(-((p - y) ** 2).mean())
    assert fair_scorer("roc_auc")(LogisticRegression().fit(X, y), X, y) > 0.8  # any other model is scored as ever
    with pytest.raises(InputError, match=r"fair_scorer\('roc_auc'\)"):
        sklearn.metrics.get_scorer("roc_auc")(pipe, X, y)
    with pytest.raises(ValueError, match="not a valid scoring value"):
        fair_scorer("rok_auc")


def test_a_sensitive_column_found_in_the_table_serves_plain_scorers_by_frozen_shifts() -> None:
    X, y, _, A = table()
    fair = FairClassifier([MeanParity(0.05)], estimator=make_pipeline(encoded(), LogisticRegression()))
    given = {"sensitive_features": A}
    scores = cross_val_score(fair, X.join(A), y, scoring="roc_auc", params=given, cv=3, error_score="raise")
    assert (scores > 0.7).all()


def test_search_over_the_model_inside_and_its_constraint() -> None:
    X, y, _, A = table()
    pipe = make_pipeline(StandardScaler(), FairClassifier(estimator=LogisticRegression()))
    grid = {
        "fairclassifier__estimator__C": [0.01, 1.0],
        "fairclassifier__constraints": [[MeanParity(0.02)], [MeanParity(0.2)]],
    }
    search = GridSearchCV(pipe, grid, cv=2, scoring=fair_scorer("neg_log_loss"), error_score="raise")
    search.fit(X, y, sensitive_features=A)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_["fairclassifier__constraints"][0].tolerance == 0.2
    p = search.best_estimator_.predict_proba(X, sensitive_features=A)[:, 1]
    assert mean_parity_difference(None, p, sensitive_features=A) <= 0.2 + 1e-12


def test_weights_are_routed_where_they_are_asked_for() -> None:
    X, y, _, A = table()
    weights = np.where(A["sex"] == "f", 5.0, 1.0)
    fair = FairClassifier([MeanParity(0.05)], estimator=LogisticRegression()).set_fit_request(sample_weight=True)
    pipe = make_pipeline(FunctionTransformer(), fair)
    with_weights = pipe.fit(X, y, sensitive_features=A, sample_weight=weights)[-1].estimator_.coef_
    without = pipe.fit(X, y, sensitive_features=A)[-1].estimator_.coef_
    assert abs(with_weights - without).max() > 1e-3
