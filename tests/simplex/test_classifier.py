"""`FairClassifier` of three and more classes: every class fair in every batch; what it cannot do it says."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from class_oracle import largest_gap
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from fairlayer import EqualizedResiduals, InputError, MeanParity, RateParity
from fairlayer.estimators.folder import save
from fairlayer.sklearn import FairClassifier

RNG = np.random.default_rng(0)
SEX = RNG.integers(0, 2, 400)
X = RNG.normal(size=(400, 4)) + 1.5 * SEX[:, None] * np.array([1.0, 0.0, -0.5, 0.0])
Y = np.array(["high", "low", "middle"])[np.argmax(X[:, :3] + RNG.normal(size=(400, 3)), axis=1)]


def fitted(estimator, **options):
    return FairClassifier([MeanParity(0.02)], estimator=estimator, **options).fit(X, Y, sensitive_features=SEX)


@pytest.mark.parametrize(
    "estimator",
    [LogisticRegression(), RandomForestClassifier(20, max_depth=4, random_state=0)],
    ids=lambda e: str(e)[:6],
)
def test_every_class_is_fair_in_a_batch(estimator):
    model = fitted(estimator)
    new, sex = X[:150], SEX[:150]
    p = model.predict_proba(new, sensitive_features=sex)
    raw = model.raw_outputs(new)
    assert p.shape == raw.shape == (150, 3)
    masks = [[sex == 0, sex == 1]]
    assert largest_gap(raw, masks) > 0.1
    assert largest_gap(p, masks) <= Fraction(0.02)
    assert (p >= 0).all()
    assert np.abs(p.sum(axis=1) - 1).max() < 1e-14
    np.testing.assert_array_equal(model.predict(new, sensitive_features=sex), model.classes_[p.argmax(axis=1)])
    assert model.score(new, Y[:150], sensitive_features=sex) > 0.45


def test_classes_are_in_the_order_of_the_labels():
    model = fitted(LogisticRegression(), method="unconstrained")
    alone = LogisticRegression().fit(X, Y)
    np.testing.assert_allclose(model.predict_proba(X, sensitive_features=SEX), alone.predict_proba(X))
    assert model.classes_.tolist() == ["high", "low", "middle"]


def test_what_it_cannot_do_is_refused(tmp_path):
    with pytest.raises(ValueError, match="estimator="):
        fitted(None)
    with pytest.raises(InputError, match="cannot be frozen"):
        fitted(LogisticRegression(), serving="frozen")
    with pytest.raises(InputError, match=r"threshold=0\.3"):
        fitted(LogisticRegression(), threshold=0.3)
    with pytest.raises(InputError, match="confidence"):
        fitted(LogisticRegression(), confidence=0.9)
    for constraint in (RateParity(0.1), EqualizedResiduals(0.1)):
        with pytest.raises(InputError, match="does not go with simplex"):
            FairClassifier([constraint], estimator=LogisticRegression()).fit(X, Y, sensitive_features=SEX)
    model = fitted(LogisticRegression())
    with pytest.raises(InputError, match="one output per row"):
        model.stream()
    with pytest.raises(InputError, match="keep it with joblib"):
        save(model, tmp_path / "model")
    with pytest.raises(InputError, match="cannot be frozen"):
        model.calibrate(X, Y, sensitive_features=SEX)
