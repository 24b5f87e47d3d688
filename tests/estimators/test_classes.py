"""`FairClassifier` of three and more classes: every class fair in every batch; what it cannot do it says."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from class_oracle import largest_gap
from fairlayer import EqualizedResiduals, InputError, MeanParity, RateParity
from fairlayer.estimators.folder import load, save
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
    model = FairClassifier([], estimator=LogisticRegression()).fit(X, Y)
    alone = LogisticRegression().fit(X, Y)
    np.testing.assert_allclose(model.predict_proba(X), alone.predict_proba(X))
    assert model.classes_.tolist() == ["high", "low", "middle"]


@pytest.mark.parametrize("discrepancy", ["squared", "entropy"])
def test_the_network_learns_classes_through_the_layer(discrepancy):
    options = {"hidden": (16,), "max_epochs": 12, "learning_rate": 0.03, "batch_size": 100, "random_state": 0}
    model = fitted(None, discrepancy=discrepancy, **options)
    p = model.predict_proba(X, sensitive_features=SEX)
    assert p.shape == (400, 3)
    assert largest_gap(p, [[SEX == 0, SEX == 1]]) <= Fraction(0.02)
    assert (p > 0).all() or discrepancy == "squared"
    assert model.score(X, Y, sensitive_features=SEX) > 0.5
    assert model.history_["train_loss"][-1] < model.history_["train_loss"][0]
    chance = FairClassifier([], hidden=(16,), max_epochs=1, random_state=0)
    assert chance.fit(X, Y).predict_proba(X).shape == (400, 3)


def test_a_row_by_itself_with_frozen_shifts_and_a_statement():
    model = fitted(LogisticRegression(), serving="frozen", discrepancy="entropy")
    p = model.predict_proba(X, sensitive_features=SEX)
    alone = model.predict_proba(X[:1], sensitive_features=SEX[:1])
    np.testing.assert_allclose(alone, p[:1], atol=1e-12)
    gaps = p[SEX == 0].mean(axis=0) - p[SEX == 1].mean(axis=0)
    assert np.abs(gaps).max() <= 0.02 + 1e-9  # of the rows it was fitted on
    model.calibrate(X, Y, sensitive_features=SEX)
    assert len(model.frozen_.certificate.rows) == 3
    assert "class 2" in model.frozen_.certificate.rows[2].row


def test_a_stream_of_its_outputs():
    model = fitted(LogisticRegression(), discrepancy="entropy")
    stream, emitted = model.stream(), []
    for i in range(0, 60, 4):
        part = slice(i, i + 4)
        emitted.append(stream.update(model.raw_outputs(X[part]), {"sex": SEX[part]}).value)
        assert largest_gap(np.concatenate(emitted), [[SEX[: i + 4] == 0, SEX[: i + 4] == 1]]) <= Fraction(0.02)
    assert stream.settings.simplex
    assert stream.settings.discrepancy == "entropy"


@pytest.mark.parametrize("estimator", [LogisticRegression(), None], ids=["estimator", "network"])
@pytest.mark.parametrize("serving", ["batch", "frozen"])
def test_a_folder_gives_it_back_to_the_bit(tmp_path, estimator, serving):
    options = {} if estimator is not None else {"max_epochs": 2, "hidden": (8,), "random_state": 0}
    model = fitted(estimator, serving=serving, discrepancy="entropy", **options)
    again = load(save(model, tmp_path / "model"))
    assert again.classes_.tolist() == model.classes_.tolist()
    one, other = (m.predict_proba(X[:50], sensitive_features=SEX[:50]) for m in (model, again))
    np.testing.assert_array_equal(one, other)
    assert (
        again.predict(X[:5], sensitive_features=SEX[:5]).tolist()
        == model.predict(X[:5], sensitive_features=SEX[:5]).tolist()
    )


def test_two_classes_by_relative_entropy():
    y = (Y == "high").astype(int)
    model = FairClassifier([MeanParity(0.02)], estimator=LogisticRegression(), discrepancy="entropy")
    p = model.fit(X, y, sensitive_features=SEX).predict_proba(X, sensitive_features=SEX)[:, 1]
    assert abs(p[SEX == 0].mean() - p[SEX == 1].mean()) <= 0.02 + 1e-12
    raw = model.raw_outputs(X)
    moved = np.log(p / (1 - p)) - np.log(raw / (1 - raw))  # a shift of the logit in each group
    assert max(np.ptp(moved[g == SEX]) for g in (0, 1)) < 1e-6
    network = FairClassifier([MeanParity(0.02)], discrepancy="entropy", max_epochs=3, random_state=0)
    p = network.fit(X, y, sensitive_features=SEX).predict_proba(X, sensitive_features=SEX)[:, 1]
    assert (p > 0).all()
    assert (p < 1).all()


def test_what_it_cannot_do_is_refused():
    with pytest.raises(InputError, match=r"threshold=0\.3"):
        fitted(LogisticRegression(), threshold=0.3)
    with pytest.raises(InputError, match="confidence"):
        fitted(LogisticRegression(), confidence=0.9)
    with pytest.raises(InputError, match="serving='blind' is of two classes"):
        fitted(LogisticRegression(), serving="blind")
    with pytest.raises(InputError, match="discrepancy must be one of"):
        fitted(LogisticRegression(), discrepancy="kl")
    for constraint in (RateParity(0.1), EqualizedResiduals(0.1)):
        with pytest.raises(InputError, match="does not go with 3 classes"):
            FairClassifier([constraint], estimator=LogisticRegression()).fit(X, Y, sensitive_features=SEX)
