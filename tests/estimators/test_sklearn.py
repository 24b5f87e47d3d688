"""The estimators are scikit-learn's in every respect, and their predictions are fair."""

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairlayer import ConditionalParity, EqualizedOdds, InputError, MeanParity, ResidualMean, SoftGroup, project
from fairlayer.metrics import demographic_parity_difference, equalized_odds_difference, mean_parity_difference
from fairlayer.sklearn import FairClassifier, FairRegressor

# Without sensitive features, as scikit-learn calls them: plain estimators. The one skip is scikit-learn's own: its
# check of array API input needs SCIPY_ARRAY_API to be set before SciPy is imported.
QUICK = {"hidden": (16,), "learning_rate": 0.02, "max_epochs": 15}


@pytest.mark.filterwarnings("ignore:Fitted without sensitive_features")
@parametrize_with_checks([FairClassifier(**QUICK), FairRegressor(**QUICK)])
def test_scikit_learn_compatible(estimator: Any, check: Any) -> None:
    check(estimator)


def people(n: int = 1200, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """A frame with a category and missing values, a class, a number, and two protected attributes."""
    random = np.random.default_rng(seed)
    sex = random.choice(["female", "male"], n, p=[0.4, 0.6])
    region = random.choice(["north", "south", "west"], n)
    skill = random.normal(size=n)
    years = random.gamma(2.0, 4.0, n) + 6.0 * (sex == "male")
    score = skill + 0.1 * years + 0.5 * (region == "north") - 1.5
    X = pd.DataFrame({"skill": skill, "years": years, "job": np.where(skill > 0.5, "clerk", "cook")})
    X["sex"] = sex
    X.loc[random.random(n) < 0.1, "skill"] = np.nan
    X.loc[random.random(n) < 0.1, "job"] = None
    y = pd.Series(np.where(score + random.logistic(0, 0.3, n) > 0, "yes", "no"), name="hired")
    wage = pd.Series(20 + 5 * score + random.normal(size=n), name="wage")
    return X, y, wage, pd.DataFrame({"sex": sex, "region": region})


@pytest.fixture(scope="module")
def fair() -> FairClassifier:
    """Fitted through the layer, on all people."""
    X, y, _, A = people()
    return FairClassifier([MeanParity(0.02)], **QUICK, random_state=0).fit(X, y, sensitive_features=A)


@pytest.fixture(scope="module")
def plain() -> FairClassifier:
    """Fitted without constraints."""
    X, y, _, _ = people()
    return FairClassifier([], **QUICK, random_state=0).fit(X, y)


def test_probabilities_meet_the_constraint_exactly_and_classify(fair: Any, plain: Any) -> None:
    test_X, test_y, _, test_A = people(seed=1)
    p = fair.predict_proba(test_X, sensitive_features=test_A)
    assert p.shape == (1200, 2)
    assert (p >= 0).all()
    assert (p <= 1).all()
    assert p.sum(axis=1) == pytest.approx(1.0)
    assert mean_parity_difference(None, p[:, 1], sensitive_features=test_A) <= 0.02 * (1 + 1e-12)
    assert mean_parity_difference(None, plain.predict_proba(test_X)[:, 1], sensitive_features=test_A) > 0.1
    assert set(fair.predict(test_X, sensitive_features=test_A)) == {"no", "yes"}
    assert fair.score(test_X, test_y, sensitive_features=test_A) > 0.75
    assert plain.score(test_X, test_y) > 0.8
    decision = fair.decision_function(test_X, sensitive_features=test_A)
    assert ((decision > 0) == (fair.predict(test_X, sensitive_features=test_A) == "yes")).all()


def test_a_regressor_keeps_units_bounds_and_constraints() -> None:
    X, _, wage, A = people()
    test_X, _, test_wage, test_A = people(seed=1)
    model = FairRegressor([MeanParity(0.5)], bounds=(10.0, 40.0), **QUICK, random_state=0)
    model.fit(X, wage, sensitive_features=A)
    predicted = model.predict(test_X, sensitive_features=test_A)
    assert predicted.min() >= 10.0
    assert predicted.max() <= 40.0
    assert mean_parity_difference(None, predicted, sensitive_features=test_A) <= 0.5 * (1 + 1e-12)
    assert model.score(test_X, test_wage, sensitive_features=test_A) > 0.5
    plain = FairRegressor([], **QUICK, random_state=0).fit(X, wage)
    assert plain.score(test_X, test_wage) > model.score(test_X, test_wage, sensitive_features=test_A)


def test_the_same_seed_gives_the_same_model_and_leaves_global_generators_alone() -> None:
    X, y, _, A = people(400)
    torch.manual_seed(7)
    np.random.seed(7)
    expected = torch.rand(1).item(), np.random.rand()
    torch.manual_seed(7)
    np.random.seed(7)
    first = FairClassifier(max_epochs=5, random_state=3).fit(X, y, sensitive_features=A)
    assert (torch.rand(1).item(), np.random.rand()) == expected
    second = clone(first).fit(X, y, sensitive_features=A)
    other = clone(first).set_params(random_state=4).fit(X, y, sensitive_features=A)
    p, same, differs = (m.predict_proba(X, sensitive_features=A) for m in (first, second, other))
    assert (p == same).all()
    assert not (p == differs).all()
    again = pickle.loads(pickle.dumps(first))
    assert (again.predict_proba(X, sensitive_features=A) == p).all()
    assert (again.predict_proba(X.iloc[:5], sensitive_features=A.iloc[:5]).shape) == (5, 2)


def test_without_sensitive_features_the_frozen_shift_serves_or_says_why_not() -> None:
    X, y, _, A = people(400)
    options: Any = {"hidden": (8,), "max_epochs": 3, "random_state": 0}
    fair = FairClassifier([MeanParity(0.02)], **options).fit(X, y, sensitive_features=A[["sex"]])
    alone = fair.predict_proba(X.iloc[:1])
    assert alone[0, 1] == pytest.approx(fair.predict_proba(X)[0, 1], abs=1e-12)
    together = fair.predict_proba(X, sensitive_features=A[["sex"]])
    np.testing.assert_allclose(fair.predict_proba(X), together, atol=1e-6)  # the sample it was learned from
    elsewhere = FairClassifier(**options).fit(X.drop(columns="sex"), y, sensitive_features=A)
    with pytest.raises(InputError, match=r"fitted with \['sex', 'region'\], which are not columns of X"):
        elsewhere.predict(X.drop(columns="sex"))
    frozen = FairClassifier(serving="frozen", **options).fit(X, y, sensitive_features=A)
    one = frozen.predict_proba(X.iloc[:1], sensitive_features=A.iloc[:1])
    assert one[0, 1] == pytest.approx(frozen.predict_proba(X, sensitive_features=A)[0, 1], abs=1e-12)
    with pytest.warns(UserWarning, match="absent from this batch"):
        fair.predict_proba(X.iloc[:1], sensitive_features=A[["sex"]].iloc[:1])


def test_calibration_makes_a_statement() -> None:
    X, y, _, A = people(600)
    fair = FairClassifier([MeanParity(0.02, over="sex")], max_epochs=5, random_state=0).fit(X, y, sensitive_features=A)
    new_X, _, _, new_A = people(4000, seed=2)
    fair.calibrate(new_X, sensitive_features=new_A, confidence=0.9)
    certificate = fair.frozen_.certificate
    assert certificate.confidence == 0.9
    assert 0.02 < certificate.gap < 0.2
    test_X, _, _, test_A = people(4000, seed=3)
    served = fair.set_params(serving="frozen").predict_proba(test_X, sensitive_features=test_A)[:, 1]
    assert mean_parity_difference(None, served, sensitive_features=test_A["sex"]) <= certificate.gap


def test_without_constraints_there_is_nothing_to_keep(plain: Any) -> None:
    for nothing in (plain.stream, lambda: plain.calibrate(people(20)[0])):
        with pytest.raises(InputError, match="fitted without constraints"):
            nothing()


def test_fit_without_sensitive_features_says_so() -> None:
    X, y, _, A = people(300)
    with pytest.warns(UserWarning, match="no constraint is applied"):
        plain = FairClassifier(max_epochs=2).fit(X, y)
    assert plain.predict(X).shape == (300,)
    with pytest.raises(InputError, match="the model was fitted with none"):
        plain.predict(X, sensitive_features=A)
    with pytest.raises(InputError, match="sensitive_features is missing"):
        FairClassifier([MeanParity(0.1)]).fit(X, y)
    with pytest.raises(InputError, match="method must be one of"):
        FairClassifier(method="penalty").fit(X, y, sensitive_features=A)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        FairClassifier().fit(X, y, sensitive_features=A.iloc[:10])
    with pytest.raises(InputError, match="unknown when predicting"):
        FairClassifier([EqualizedOdds(0.1)]).fit(X, y, sensitive_features=A)


def test_sensitive_features_in_any_form() -> None:
    X, y, _, A = people(400)
    X = X[["years"]]
    forms = (A, A["sex"], A["sex"].to_numpy(), A["sex"].tolist(), {"sex": A["sex"].to_numpy()}, A.to_numpy())
    for given in (*forms, {"sex": SoftGroup(pd.get_dummies(A["sex"]).to_numpy(float), ["female", "male"])}):
        fair = FairClassifier([MeanParity(0.01)], estimator=LogisticRegression()).fit(X, y, sensitive_features=given)
        p = fair.predict_proba(X, sensitive_features=given)[:, 1]
        assert mean_parity_difference(None, p, sensitive_features=A["sex"]) <= 0.01 * (1 + 1e-12)
    with pytest.raises(InputError, match="missing labels"):
        fair.fit(X, y, sensitive_features=A["sex"].where(A["sex"] == "male"))


def test_a_network_that_is_projected_after_training_is_trained_without_constraints() -> None:
    X, y, _, A = people(400)
    options = {"max_epochs": 3, "random_state": 0}
    after = FairClassifier([MeanParity(0.02)], method="projection", **options).fit(X, y, sensitive_features=A)
    free = FairClassifier([], **options).fit(X, y, sensitive_features=A)
    through = FairClassifier([MeanParity(0.02)], **options).fit(X, y, sensitive_features=A)
    assert (after.raw_outputs(X) == free.raw_outputs(X)).all()
    assert not (through.raw_outputs(X) == free.raw_outputs(X)).all()
    raw, fair = after.outputs(X, sensitive_features=A)
    assert (fair == project(raw, A, [MeanParity(0.02)], bounds=(0, 1)).value).all()
    raw, fair = free.outputs(X, sensitive_features=A)
    assert (raw == fair).all()


def test_modules_and_other_constraints() -> None:
    X, y, wage, A = people(600)
    module = torch.nn.Linear(3, 1)  # two numbers, and a mark for missing skills
    before = module.weight.clone()
    given = FairClassifier(module=module, max_epochs=3).fit(X[["skill", "years"]], y, sensitive_features=A)
    assert isinstance(given.model_.backbone.inner, torch.nn.Linear)
    assert (module.weight == before).all()
    made = FairClassifier(module=lambda inputs: torch.nn.Linear(inputs, 1), max_epochs=3)
    assert made.fit(X, y, sensitive_features=A).predict(X, sensitive_features=A).shape == (600,)
    by_age = ConditionalParity(0.05, over="sex", regions={"years": [(None, 8), (8, None)]})
    model = FairClassifier([by_age], max_epochs=5, random_state=0).fit(X, y, sensitive_features=A)
    p = model.predict_proba(X, sensitive_features=A)[:, 1]
    young = (X["years"] < 8).to_numpy()
    assert mean_parity_difference(None, p[young], sensitive_features=A["sex"][young]) <= 0.05 * (1 + 1e-12)
    residual = FairRegressor([ResidualMean(0.1)], max_epochs=5, random_state=0).fit(X, wage, sensitive_features=A)
    error = residual.predict(X, sensitive_features=A) - wage
    assert all(abs(error[A["sex"] == sex].mean()) <= 0.1 + 1e-6 for sex in ("female", "male"))


@pytest.fixture
def routing() -> Any:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_metadata_routing_through_pipeline_search_and_cross_validation() -> None:
    X, y, _, A = people(500)
    fair = FairClassifier([MeanParity(0.05)], max_epochs=4, random_state=0)
    pipe = make_pipeline(FunctionTransformer(), fair)
    pipe.fit(X, y, sensitive_features=A)
    p = pipe.predict_proba(X, sensitive_features=A)[:, 1]
    assert mean_parity_difference(None, p, sensitive_features=A) <= 0.05 * (1 + 1e-12)
    scores = cross_validate(pipe, X, y, cv=3, params={"sensitive_features": A}, error_score="raise")
    assert scores["test_score"].shape == (3,)
    grid = {"constraints": [[MeanParity(0.02)], [MeanParity(0.2)]], "hidden": [(8,)]}
    search = GridSearchCV(fair, grid, cv=2, error_score="raise").fit(X, y, sensitive_features=A)
    assert search.best_estimator_.hidden == (8,)
    assert search.best_estimator_.predict(X, sensitive_features=A).shape == (500,)


def test_predictions_go_into_fairlearn(fair: Any) -> None:
    fairlearn = pytest.importorskip("fairlearn.metrics", reason="fairlearn is absent")
    X, y, _, A = people()
    p = fair.predict_proba(X, sensitive_features=A)[:, 1]
    means = fairlearn.MetricFrame(
        metrics=lambda y_true, y_pred: np.mean(y_pred),
        y_true=(y == "yes").astype(int),
        y_pred=p,
        sensitive_features=A["sex"],
    )
    assert means.difference() <= 0.02 * (1 + 1e-12)
    decided = (fair.predict(X, sensitive_features=A) == "yes").astype(int)
    truth = (y == "yes").astype(int)
    for ours, theirs in (
        (demographic_parity_difference, fairlearn.demographic_parity_difference),
        (equalized_odds_difference, fairlearn.equalized_odds_difference),
    ):
        assert ours(truth, decided, sensitive_features=A) == pytest.approx(theirs(truth, decided, sensitive_features=A))
        assert ours(truth, decided, sensitive_features=A["sex"]) == pytest.approx(
            theirs(truth, decided, sensitive_features=A["sex"])
        )


def test_metrics_refuse_what_they_cannot_measure() -> None:
    with pytest.raises(ValueError, match="apply a threshold first"):
        demographic_parity_difference([0, 1], [0.2, 0.7], sensitive_features=["a", "b"])
    assert np.isnan(mean_parity_difference(None, [0.2, 0.7], sensitive_features=["a", "a"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mean_parity_difference(None, [0.2, 0.7], sensitive_features=["a", "b"]) == pytest.approx(0.5)


def test_labels_that_fit_never_saw_are_told() -> None:
    X, labels = np.arange(60.0)[:, None], np.array(["f", "m"] * 30)
    model = FairClassifier([MeanParity(0.1)], estimator=LogisticRegression())
    model.fit(X, np.arange(60) // 30, sensitive_features={"sex": labels})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_proba(X, sensitive_features={"sex": labels})
    labels[0] = "F"
    with pytest.warns(UserWarning, match="not fitted with sex 'F'; it knows 'f', 'm'") as caught:
        model.predict_proba(X, sensitive_features={"sex": labels})
    assert caught[0].filename == __file__
