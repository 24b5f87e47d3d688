"""A model folder gives back the model that was saved, to the bit and without pickle; a bad one is refused by name."""

from __future__ import annotations

import json
import resource
import shutil
import zipfile
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
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
from torch import nn

from fairlayer import ConditionalParity, EqualizedResiduals, InputError, MeanParity
from fairlayer.estimators.folder import FolderError, _digest, load, read_table, save
from fairlayer.estimators.safe import TRUSTED, pack, unpack
from fairlayer.sklearn import FairClassifier, FairRegressor

CLASSIFIERS = {
    "histogram": HistGradientBoostingClassifier(max_iter=10, categorical_features=[3]),
    "lightgbm": lightgbm.LGBMClassifier(n_estimators=10, verbose=-1, n_jobs=1),
    "xgboost": xgboost.XGBClassifier(n_estimators=10, n_jobs=1),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "calibrated": CalibratedClassifierCV(DecisionTreeClassifier(max_depth=3), cv=2),
}
FILES = ["estimator.skops", "model.json", "model.safetensors"]


def table(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """People as an array of numbers, the last of which is a category."""
    X, y, wage, A = people(300, seed)
    return np.column_stack([X, np.arange(300) % 4]), y, wage, A


def frame(n: int = 300, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers with missing ones, whole numbers, truth values, text with missing entries, and a crowd of categories."""
    random = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "income": np.where(random.random(n) < 0.1, np.nan, random.lognormal(3, 1, n)),
            "age": random.integers(18, 80, n),
            "member": random.random(n) < 0.5,
            "town": random.choice(["A", "B", "Ö", None], n, p=[0.5, 0.3, 0.1, 0.1]),
            "street": [f"street {k}" for k in random.integers(0, 150, n)],
            "sex": random.choice(["f", "m"], n),
            "race": random.choice(["w", "b", "o"], n, p=[0.6, 0.3, 0.1]),
        }
    )
    target = (X["age"] / 80 + (X["sex"] == "m") + random.normal(0, 0.5, n) > 1).map({True: "yes", False: "no"})
    return X, target.to_numpy(dtype=object)


def small(kind: Any, constraints: Any, **options: Any) -> Any:
    """A small network, not yet fitted."""
    return kind(constraints, hidden=(8,), max_epochs=2, random_state=0, **options)


@pytest.mark.parametrize("method", ["layer", "projection"])
def test_a_network_predicts_the_same_bits(tmp_path: Any, method: str) -> None:
    X, y = frame()
    groups = X[["sex", "race"]]
    model = small(FairClassifier, [MeanParity(0.02, over=["sex", ("sex", "race")])], method=method)
    model.fit(X, y, sensitive_features=groups)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    fresh, _ = frame(200, seed=1)
    fresh.loc[:5, "street"] = "never seen before"
    for rows in (X, fresh):
        expected = model.predict_proba(rows, sensitive_features=rows[["sex", "race"]])
        assert np.array_equal(again.predict_proba(rows, sensitive_features=rows[["sex", "race"]]), expected)
        assert np.array_equal(again.predict_proba(rows), model.predict_proba(rows))
    assert again.predict(X, sensitive_features=groups).tolist() == model.predict(X, sensitive_features=groups).tolist()
    assert again.history_.keys() == model.history_.keys()
    assert again.get_params()["hidden"] == (8,)


def test_regressor_with_regions_bounds_and_certificate(tmp_path: Any) -> None:
    X, _ = frame()
    y = X["age"] * 1.5 + (X["sex"] == "m") * 10.0
    constraints = [ConditionalParity(3.0, regions={"age": [(None, 40), (40, None)], "town": [{"A", "B"}]})]
    X = X.assign(town=X["town"].fillna("none"))
    model = small(FairRegressor, constraints, bounds=(0.0, 150.0)).fit(X, y, sensitive_features=X[["sex"]])
    model.calibrate(X, y, sensitive_features=X[["sex"]])
    save(model, tmp_path, table={"target": "y"})
    again = load(tmp_path)
    expected = model.predict(X, sensitive_features=X[["sex"]])
    assert np.array_equal(again.predict(X, sensitive_features=X[["sex"]]), expected)
    model.serving = again.serving = "frozen"
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.frozen_.certificate == model.frozen_.certificate
    assert again.bounds == (0.0, 150.0)
    assert read_table(tmp_path) == {"target": "y"}


def test_arrays_and_single_precision(tmp_path: Any) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 3)).astype(np.float32)
    X[::7, 1] = np.nan
    sex = random.integers(0, 2, 200)
    y = np.nan_to_num(X).sum(axis=1) + sex
    model = small(FairRegressor, [EqualizedResiduals(0.1)]).fit(X, y, sensitive_features=sex)
    save(model, tmp_path)
    again = load(tmp_path)
    assert np.array_equal(again.predict(X, sensitive_features=sex), model.predict(X, sensitive_features=sex))


def test_without_groups(tmp_path: Any) -> None:
    X, y = frame(100)
    with pytest.warns(UserWarning, match="no constraint"):
        model = small(FairClassifier, None).fit(X, y)
    save(model, tmp_path)
    assert np.array_equal(load(tmp_path).predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_any_classifier_predicts_the_same_bits(name: str, tmp_path: Any) -> None:
    X, y, _, A = table()
    words = np.array(["no", "yes"])[y]
    model = FairClassifier([MeanParity(0.02)], estimator=CLASSIFIERS[name], threshold=0.4)
    model.fit(X, words, sensitive_features=A)
    save(model, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
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


def test_a_network_of_ones_own_is_refused(tmp_path: Any) -> None:
    X, y = frame(100)
    model = small(FairClassifier, [MeanParity(0.1)], module=lambda k: nn.Linear(k, 1))
    model.fit(X, y, sensitive_features=X[["sex"]])
    with pytest.raises(InputError, match="holds no code"):
        save(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Any:
    X, y = frame(100)
    model = small(FairClassifier, [MeanParity(0.1)]).fit(X, y, sensitive_features=X[["sex"]])
    return save(model, tmp_path_factory.mktemp("saved"))


def write(content: str) -> Any:
    return lambda folder: (folder / "model.json").write_text(content)


def change(forged: bool = False, **changes: Any) -> Any:
    """Another description. forged: with a digest that goes with it."""

    def damage(folder: Any) -> None:
        content = json.loads((folder / "model.json").read_text()) | changes
        content["digest"] = _digest(content) if forged else content["digest"]
        (folder / "model.json").write_text(json.dumps(content))

    return damage


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda f: (f / "model.json").unlink(), "has no model.json"),
        (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors"),
        (lambda f: (f / "estimator.skops").unlink(), "has no estimator.skops"),
        (write("{"), "cannot be read"),
        (write('{"format": 3, "table": NaN}'), "cannot be read"),
        (write("[" * 100_000), "cannot be read"),
        (write("[]"), "not the description of a model"),
        (change(format=4), "has format 4, and this release reads 3"),
        (change(table=9), "was changed"),
        (change(forged=True, labels={"set": ["a", "b"]}), "cannot be read as a model"),
        (change(forged=True, sha256={}), "cannot be read as a model"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x"), "is not the file"),
        (lambda f: (f / "estimator.skops").write_bytes(b"x"), "is not the file"),
        (shutil.rmtree, "is not a model folder"),
    ],
)
def test_damage_is_named(folder: Any, tmp_path: Any, damage: Any, sentence: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    damage(copy)
    with pytest.raises(FolderError, match=sentence):
        load(copy)


def test_what_a_forged_folder_says_of_itself_takes_no_memory(folder: Any, tmp_path: Any) -> None:
    content = json.loads((folder / "model.json").read_text())
    crowd = {"mapping": [[name, {"tuple": list(range(300))}] for name in ("sex", "race", "age", "town")]}
    wide = [{**content["constraints"][0], "over": {"tuple": ["sex", "race", "age", "town"]}}]
    for number, forged in enumerate(
        (
            {"settings": {**content["settings"], "hidden": {"tuple": [16_000, 16_000]}}},
            {"labels": crowd, "constraints": wide},
        )
    ):
        copy = shutil.copytree(folder, tmp_path / str(number))
        change(forged=True, **forged)(copy)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(FolderError, match=r"size mismatch|combinations of labels"):
            load(copy)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_a_table_that_is_no_json_leaves_the_folder_as_it_was(folder: Any, tmp_path: Any) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    model = load(copy)
    with pytest.raises(InputError, match="table must be plain data"):
        save(model, copy, table={"rows": float("nan")})
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before
    save(model, copy, table={"codes": {10: "a", 9: "b"}})
    assert read_table(copy) == {"codes": {"10": "a", "9": "b"}}


def test_a_forged_file_makes_nothing_that_is_not_trusted(folder: Any, tmp_path: Any) -> None:
    with zipfile.ZipFile(folder / "estimator.skops") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    text = parts["schema.json"].decode()
    text = text.replace("sklearn.preprocessing._data", "subprocess").replace("StandardScaler", "Popen")
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
