"""FairClassifier and FairRegressor around models of other libraries: fair in a batch, in a stream, and frozen."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import lightgbm
import numpy as np
import pytest
import xgboost
from applicants import exact_gap, people
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairlayer import InputError, MeanParity, RateParity, project
from fairlayer.metrics import mean_parity_difference
from fairlayer.sklearn import FairClassifier, FairRegressor

CLASSIFIERS = {
    "histogram": HistGradientBoostingClassifier(max_iter=15),
    "lightgbm": lightgbm.LGBMClassifier(n_estimators=15, verbose=-1, n_jobs=1),
    "xgboost": xgboost.XGBClassifier(n_estimators=15, n_jobs=1),
    "forest": RandomForestClassifier(20, random_state=0),
    "logistic": make_pipeline(StandardScaler(), LogisticRegression()),
}
REGRESSORS = {
    "histogram": HistGradientBoostingRegressor(max_iter=15),
    "lightgbm": lightgbm.LGBMRegressor(n_estimators=15, verbose=-1, n_jobs=1),
    "xgboost": xgboost.XGBRegressor(n_estimators=15, n_jobs=1),
    "ridge": make_pipeline(StandardScaler(), Ridge()),
}


@pytest.mark.filterwarnings("ignore:Fitted without sensitive_features")
@parametrize_with_checks([FairClassifier(estimator=LogisticRegression()), FairRegressor(estimator=Ridge())])
def test_scikit_learn_compatible(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(
    ("name", "labels"), [*((name, "numbers") for name in CLASSIFIERS), ("xgboost", "words"), ("histogram", "words")]
)
def test_a_classifier_is_fair_in_batches_streams_and_frozen(name: str, labels: str) -> None:
    X, y, _, A = people()
    new, _, _, B = people(seed=1)
    if labels == "words":
        y = np.array(["no", "yes"])[y]
    model = FairClassifier([MeanParity(0.02)], estimator=CLASSIFIERS[name]).fit(X, y, sensitive_features=A)
    raw, fair = model.outputs(new, sensitive_features=B)
    assert max(exact_gap(raw, B["sex"]), exact_gap(raw, B["region"])) > 0.05
    for attribute in B.values():
        assert exact_gap(fair, attribute) <= Fraction(0.02)
    assert (fair == project(raw, B, [MeanParity(0.02)], bounds=(0, 1)).value).all()  # as by hand
    assert (model.classes_ == np.unique(y)).all()
    assert (model.predict(new, sensitive_features=B) == model.classes_[(fair >= 0.5).astype(int)]).all()
    alone = clone(CLASSIFIERS[name]).fit(X, (y == model.classes_[1]).astype(int))
    np.testing.assert_allclose(raw, alone.predict_proba(new)[:, 1], atol=1e-6)

    stream = model.stream(each_batch=True)
    kept = [
        stream.update(raw[i : i + 100], {k: v[i : i + 100] for k, v in B.items()}).value for i in range(0, 600, 100)
    ]
    for attribute in B.values():
        assert exact_gap(np.concatenate(kept), attribute) <= Fraction(0.02)
        assert all(exact_gap(part, attribute[100 * i : 100 * i + 100]) <= Fraction(0.02) for i, part in enumerate(kept))

    model.set_params(serving="frozen")
    together = model.predict_proba(new, sensitive_features=B)
    one = model.predict_proba(new[:1], sensitive_features={k: v[:1] for k, v in B.items()})
    assert one[0, 1] == together[0, 1]
    in_fit = model.predict_proba(X, sensitive_features=A)[:, 1]
    assert mean_parity_difference(None, in_fit, sensitive_features=A) <= 0.02 + 1e-9


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_regressor_is_fair(name: str) -> None:
    X, _, wage, A = people()
    new, _, _, B = people(seed=1)
    model = FairRegressor([MeanParity(0.3)], estimator=REGRESSORS[name], bounds=(1.0, 100.0))
    model.fit(X, wage, sensitive_features=A)
    raw, fair = model.outputs(new, sensitive_features=B)
    assert mean_parity_difference(None, raw, sensitive_features=B) > 0.5
    for attribute in B.values():
        assert exact_gap(fair, attribute) <= Fraction(0.3)
    np.testing.assert_allclose(raw, clone(REGRESSORS[name]).fit(X, wage).predict(new), rtol=1e-6)


def test_a_model_that_is_fitted_already_stays_as_it_is() -> None:
    X, y, _, A = people()
    calibration, answers, _, C = people(seed=2)
    fitted = HistGradientBoostingClassifier(max_iter=10).fit(X, y)
    model = FairClassifier([MeanParity(0.02)], estimator=FrozenEstimator(fitted), serving="frozen")
    model.fit(calibration, answers, sensitive_features=C)
    assert model.estimator_.estimator is fitted
    assert (model.raw_outputs(X) == fitted.predict_proba(X)[:, 1]).all()
    p = model.predict_proba(calibration, sensitive_features=C)[:, 1]
    assert mean_parity_difference(None, p, sensitive_features=C) <= 0.02 + 1e-9
    model.calibrate(*people(4000, seed=3)[:2], sensitive_features=people(4000, seed=3)[3])
    assert model.frozen_.certificate.confidence == 0.95
    other = FrozenEstimator(LogisticRegression().fit(X, np.array(["a", "b"])[y]))
    with pytest.raises(InputError, match=r"knows the classes \['a', 'b'\]; y has \[0, 1\]"):
        FairClassifier(estimator=other).fit(X, y, sensitive_features=A)


def test_weights_go_to_the_model_and_to_the_frozen_shifts() -> None:
    X, y, _, A = people()
    weights = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    twice = np.repeat(np.arange(len(y)), weights.astype(int))
    repeated = {name: labels[twice] for name, labels in A.items()}
    fair = FairClassifier([MeanParity(0.02)], estimator=LogisticRegression(tol=1e-10, max_iter=5000), serving="frozen")
    weighted = clone(fair).fit(X, y, sensitive_features=A, sample_weight=weights)
    by_rows = clone(fair).fit(X[twice], y[twice], sensitive_features=repeated)
    p, q = (m.predict_proba(X, sensitive_features=A)[:, 1] for m in (weighted, by_rows))
    np.testing.assert_allclose(p, q, atol=1e-5)
    plain = clone(fair).fit(X, y, sensitive_features=A).predict_proba(X, sensitive_features=A)[:, 1]
    assert abs(p - plain).max() > 1e-4
    piped = FairClassifier([MeanParity(0.02)], estimator=CLASSIFIERS["logistic"])
    piped.fit(X, y, sensitive_features=A, sample_weight=weights)
    alone = clone(CLASSIFIERS["logistic"]).fit(X, y, logisticregression__sample_weight=weights)
    assert (piped.raw_outputs(X) == alone.predict_proba(X)[:, 1]).all()
    network = FairClassifier([MeanParity(0.02)], max_epochs=2, random_state=0)
    p, q = (
        clone(network).fit(X, y, sensitive_features=A, sample_weight=w).raw_outputs(X)
        for w in (weights, weights * 0 + 1)
    )
    assert abs(p - q).max() > 1e-4
    for inner, given, message in (
        (KNeighborsClassifier(), weights, "KNeighborsClassifier takes no sample_weight"),
        (LogisticRegression(), weights[:5], "sample_weight has shape"),
        (LogisticRegression(), -weights, "sample_weight has shape"),
    ):
        with pytest.raises(InputError, match=message):
            FairClassifier(estimator=inner).fit(X, y, sensitive_features=A, sample_weight=given)


def test_class_weights_and_thresholds_mean_what_they_say() -> None:
    X, y, _, A = people()
    words = np.array(["no", "yes"])[y]
    heavy = LogisticRegression(class_weight={"no": 1.0, "yes": 5.0})
    model = FairClassifier([MeanParity(0.1)], estimator=heavy).fit(X, words, sensitive_features=A)
    assert (model.raw_outputs(X) == clone(heavy).fit(X, words).predict_proba(X)[:, 1]).all()
    for threshold in (0.3, 0.7):
        model = FairClassifier([MeanParity(0.1)], estimator=LogisticRegression(), threshold=threshold)
        model.fit(X, words, sensitive_features=A)
        p = model.predict_proba(X, sensitive_features=A)[:, 1]
        said = model.predict(X, sensitive_features=A)
        assert (said == np.where(p >= threshold, "yes", "no")).all()
        assert ((model.decision_function(X, sensitive_features=A) > 0) == (said == "yes")).all()
    for rules, message in (
        ([RateParity(0.1, threshold=0.4)], "threshold=0.3 is not that of the constraints on decisions, 0.4"),
        ([RateParity(0.1, threshold=0.4), RateParity(0.1, threshold=0.3)], "different thresholds"),
    ):
        with pytest.raises(InputError, match=message):
            FairClassifier(rules, estimator=LogisticRegression(), threshold=0.3).fit(X, y, sensitive_features=A)
    # right at the threshold is a yes, as in constraints on decisions
    level = FairClassifier([MeanParity(0.0)], estimator=FrozenEstimator(_Half().fit(X, y))).fit(
        X, y, sensitive_features=A
    )
    assert (level.predict(X, sensitive_features=A) == 1).all()
    assert (level.decision_function(X, sensitive_features=A) > 0).all()


class _Half(LogisticRegression):
    """Undecided about everybody."""

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.full((len(X), 2), 0.5)


def test_sensitive_columns_of_an_array_and_of_a_frame() -> None:
    pd = pytest.importorskip("pandas")
    X, y, _, A = people()
    sex = (A["sex"] == "m").astype(float)
    table = np.column_stack([X, sex])
    inner = HistGradientBoostingClassifier(max_iter=10)
    model = FairClassifier([MeanParity(0.01)], estimator=inner, sensitive_columns=[3]).fit(table, y)
    p = model.predict_proba(table)[:, 1]
    assert exact_gap(p, A["sex"]) <= Fraction(0.01)  # the batch, exactly: no frozen shift
    assert (model.predict_proba(table, sensitive_features={3: sex})[:, 1] == p).all()
    frame = pd.DataFrame(X, columns=["skill", "years", "luck"]).assign(sex=A["sex"])
    blind = make_pipeline(_Without("sex"), inner)
    model = FairClassifier([MeanParity(0.01)], estimator=blind, sensitive_columns="sex").fit(frame, y)
    assert exact_gap(model.predict_proba(frame)[:, 1], A["sex"]) <= Fraction(0.01)
    swapped = frame.assign(sex=np.where(frame["sex"] == "f", "m", "f"))
    assert (model.raw_outputs(frame) == model.raw_outputs(swapped)).all()
    with pytest.raises(InputError, match=r"sensitive_columns names \['sex'\], which X does not have"):
        model.predict_proba(frame.drop(columns="sex"))
    with pytest.raises(InputError, match="drop one"):
        model.fit(frame, y, sensitive_features=A)
    with pytest.raises(InputError, match="names"):
        FairClassifier(estimator=inner, sensitive_columns=["age"]).fit(frame, y)


class _Without(StandardScaler):
    """Drops a column."""

    def __init__(self, name: str):
        self.name = name

    def fit(self, X: Any, y: Any = None) -> Any:
        return self

    def transform(self, X: Any) -> Any:
        return X.drop(columns=self.name)


def test_what_cannot_be_done_is_refused() -> None:
    X, y, wage, A = people(100)
    given = {"sensitive_features": A}
    for model, message in (
        (FairClassifier(estimator=RidgeClassifier()), "predicts no probabilities"),
        (FairClassifier(estimator=Ridge()), "Ridge is not a classifier"),
        (FairRegressor(estimator=LogisticRegression()), "LogisticRegression is not a regressor"),
        (FairClassifier(estimator="boosting"), "estimator must be an estimator"),
        (FairClassifier(estimator=LogisticRegression), "estimator must be an estimator"),
        (
            FairClassifier(estimator=LogisticRegression(), hidden=(8,), max_epochs=3),
            "hidden, max_epochs describe a network, and estimator takes its place: leave them out",
        ),
        (FairClassifier(estimator=LogisticRegression(), serving="blind-ish"), "serving must be one of"),
    ):
        with pytest.raises(InputError, match=message):
            model.fit(X, wage if isinstance(model, FairRegressor) else y, **given)
    with pytest.raises(InputError, match="which are for an estimator"):
        FairClassifier(max_epochs=1).fit(X, y, eval_set=[], **given)


def test_sparse_tables_and_texts_go_through() -> None:
    from scipy import sparse
    from sklearn.feature_extraction.text import CountVectorizer

    X, y, _, A = people(200)
    model = FairClassifier([MeanParity(0.02)], estimator=LogisticRegression())
    model.fit(sparse.csr_matrix(X), y, sensitive_features=A)
    p = model.predict_proba(sparse.csr_matrix(X), sensitive_features=A)[:, 1]
    assert mean_parity_difference(None, p, sensitive_features=A) <= 0.02 + 1e-12
    texts = [f"{'good' if t else 'bad'} {s} word{i % 7}" for i, (t, s) in enumerate(zip(y, A["sex"], strict=True))]
    model = FairClassifier([MeanParity(0.02)], estimator=make_pipeline(CountVectorizer(), LogisticRegression()))
    p = model.fit(texts, y, sensitive_features=A).predict_proba(texts, sensitive_features=A)[:, 1]
    assert mean_parity_difference(None, p, sensitive_features=A) <= 0.02 + 1e-12
