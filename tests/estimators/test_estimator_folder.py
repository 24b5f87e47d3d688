"""Folders of models of other libraries: the same bits again, no pickle, and refusals that say why."""

from __future__ import annotations

import json
import shutil
import zipfile
from typing import Any

import lightgbm
import numpy as np
import pytest
import xgboost
from applicants import people
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from fairlayer import InputError, MeanParity
from fairlayer.estimators.folder import FolderError, load, save
from fairlayer.estimators.safe import TRUSTED, pack, unpack
from fairlayer.sklearn import FairClassifier, FairRegressor

CLASSIFIERS = {
    "histogram": HistGradientBoostingClassifier(max_iter=10, categorical_features=[3]),
    "lightgbm": lightgbm.LGBMClassifier(n_estimators=10, verbose=-1, n_jobs=1),
    "xgboost": xgboost.XGBClassifier(n_estimators=10, n_jobs=1),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "calibrated": CalibratedClassifierCV(DecisionTreeClassifier(max_depth=3), cv=2),
}


def table(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    X, y, wage, A = people(300, seed)
    return np.column_stack([X, np.arange(300) % 4]), y, wage, A


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_predict_the_same_bits(name: str, tmp_path: Any) -> None:
    X, y, _, A = table()
    words = np.array(["no", "yes"])[y]
    model = FairClassifier([MeanParity(0.02)], estimator=CLASSIFIERS[name], threshold=0.4)
    model.fit(X, words, sensitive_features=A)
    save(model, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["estimator.skops", "model.json", "model.safetensors"]
    again = load(tmp_path)
    new, _, _, B = table(seed=1)
    for serving in ("batch", "frozen"):
        both = [m.set_params(serving=serving).predict_proba(new, sensitive_features=B) for m in (model, again)]
        assert (both[0] == both[1]).all()
    assert (model.predict(new, sensitive_features=B) == again.predict(new, sensitive_features=B)).all()
    assert again.threshold_ == 0.4
    assert again.raw_outputs(new).tolist() == model.raw_outputs(new).tolist()


def test_regressors_frozen_models_and_columns(tmp_path: Any) -> None:
    X, _, wage, A = table()
    X[:, 3] = A["sex"] == "m"
    forest = FrozenEstimator(RandomForestRegressor(5, random_state=0).fit(X, wage))
    for inner in (forest, make_pipeline(StandardScaler(), Ridge())):
        model = FairRegressor([MeanParity(0.3)], estimator=inner, bounds=(0.0, 100.0), sensitive_columns=[3])
        model.fit(X, wage)
        again = load(save(model, tmp_path))
        assert (again.predict(X) == model.predict(X)).all()
    network = FairRegressor([MeanParity(0.3)], max_epochs=1, hidden=(4,)).fit(X, wage, sensitive_features=A)
    assert not (save(network, tmp_path) / "estimator.skops").exists()  # nor what was there before


def test_what_holds_code_is_refused(tmp_path: Any) -> None:
    X, y, _, A = table()
    for inner, named in (
        (make_pipeline(FunctionTransformer(_doubled), LogisticRegression()), "_doubled"),
        (make_pipeline(_OfOnesOwn(), LogisticRegression()), "_OfOnesOwn"),
    ):
        model = FairClassifier([MeanParity(0.02)], estimator=inner).fit(abs(X), y, sensitive_features=A)
        with pytest.raises(InputError, match=rf"{named}.*a folder holds no code|{named}.*no model folder may hold"):
            save(model, tmp_path / "model")
        assert not (tmp_path / "model").exists()
    assert not any(name.startswith(("builtins", "os", "subprocess", "operator")) for name in TRUSTED)


def _doubled(X: Any) -> Any:
    return 2 * X


class _OfOnesOwn(StandardScaler):
    """A transformer that nobody else has."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Any:
    X, y, _, A = table()
    model = FairClassifier([MeanParity(0.02)], estimator=CLASSIFIERS["pipeline"]).fit(X, y, sensitive_features=A)
    return save(model, tmp_path_factory.mktemp("saved"))


def test_damage_is_named(folder: Any, tmp_path: Any) -> None:
    for number, (damage, sentence) in enumerate(
        (
            (lambda path: path.unlink(), "has no estimator.skops"),
            (lambda path: path.write_bytes(b"x"), "is not the file"),
        )
    ):
        copy = tmp_path / str(number)
        shutil.copytree(folder, copy)
        damage(copy / "estimator.skops")
        with pytest.raises(FolderError, match=sentence):
            load(copy)


def test_a_forged_file_makes_nothing_that_is_not_trusted(folder: Any, tmp_path: Any) -> None:
    packed = (folder / "estimator.skops").read_bytes()
    (tmp_path / "good").write_bytes(packed)
    with zipfile.ZipFile(tmp_path / "good") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(parts["schema.json"])
    text = (
        json.dumps(schema)
        .replace("sklearn.linear_model._logistic", "subprocess")
        .replace("LogisticRegression", "Popen")
    )
    with zipfile.ZipFile(tmp_path / "forged", "w") as archive:
        for name, part in (parts | {"schema.json": text.encode()}).items():
            archive.writestr(name, part)
    with pytest.raises(Exception, match=r"subprocess\.Popen"):
        unpack((tmp_path / "forged").read_bytes())


@pytest.mark.parametrize("kind", ["tree", "boosting"])
def test_trees_that_lead_nowhere_are_refused(kind: str) -> None:
    X, y, _, _ = table()
    if kind == "tree":
        model = DecisionTreeClassifier(max_depth=3).fit(X, y)
        state = model.tree_.__getstate__()
        state["nodes"]["left_child"][0] = 10_000
        model.tree_.__setstate__(state)
    else:
        model = HistGradientBoostingClassifier(max_iter=2).fit(X, y)
        model._predictors[0][0].nodes["right"][0] = 10_000
    packed = pack(model)
    with pytest.raises(ValueError, match="lead nowhere"):
        unpack(packed)
