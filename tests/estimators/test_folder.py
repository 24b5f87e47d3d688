"""A model folder gives back the estimator that was saved, and says plainly what is wrong with a bad one."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from torch import nn

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("safetensors")

from fairlayer import ConditionalParity, EqualizedResiduals, MeanParity  # noqa: E402
from fairlayer.errors import InputError  # noqa: E402
from fairlayer.estimators.folder import FolderError, load, read_table, save  # noqa: E402
from fairlayer.sklearn import FairClassifier, FairRegressor  # noqa: E402


def people(n=400, seed=0):
    """Numbers with missing ones, whole numbers, truth values, text with missing entries, and a crowd of categories."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
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
    target = (frame["age"] / 80 + (frame["sex"] == "m") + random.normal(0, 0.5, n) > 1).map({True: "yes", False: "no"})
    return frame, target.to_numpy(dtype=object)


def small(kind, constraints, **options):
    return kind(constraints, hidden=(8,), max_epochs=2, random_state=0, **options)


@pytest.mark.parametrize("method", ["layer", "projection"])
def test_classifier_predicts_the_same_bits(tmp_path, method):
    X, y = people()
    groups = X[["sex", "race"]]
    model = small(FairClassifier, [MeanParity(0.02, over=["sex", ("sex", "race")])], method=method)
    model.fit(X, y, sensitive_features=groups)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    fresh, _ = people(300, seed=1)
    fresh.loc[:5, "street"] = "never seen before"
    for frame in (X, fresh):
        expected = model.predict_proba(frame, sensitive_features=frame[["sex", "race"]])
        assert np.array_equal(again.predict_proba(frame, sensitive_features=frame[["sex", "race"]]), expected)
        assert np.array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert again.predict(X, sensitive_features=groups).tolist() == model.predict(X, sensitive_features=groups).tolist()
    assert again.history_.keys() == model.history_.keys()
    assert again.get_params()["hidden"] == (8,)


def test_regressor_with_regions_bounds_and_certificate(tmp_path):
    X, _ = people()
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


def test_arrays_and_single_precision(tmp_path):
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 3)).astype(np.float32)
    X[::7, 1] = np.nan
    sex = random.integers(0, 2, 200)
    y = np.nan_to_num(X).sum(axis=1) + sex
    model = small(FairRegressor, [EqualizedResiduals(0.1)]).fit(X, y, sensitive_features=sex)
    save(model, tmp_path)
    again = load(tmp_path)
    assert np.array_equal(again.predict(X, sensitive_features=sex), model.predict(X, sensitive_features=sex))
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = small(FairRegressor, [MeanParity(0.1)]).fit(frame, y, sensitive_features=sex)
    save(model, tmp_path)
    assert np.array_equal(
        load(tmp_path).predict(frame, sensitive_features=sex), model.predict(frame, sensitive_features=sex)
    )


def test_without_groups(tmp_path):
    X, y = people(100)
    with pytest.warns(UserWarning, match="no constraint"):
        model = small(FairClassifier, None).fit(X, y)
    save(model, tmp_path)
    assert np.array_equal(load(tmp_path).predict_proba(X), model.predict_proba(X))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    X, y = people(100)
    model = small(FairClassifier, [MeanParity(0.1)]).fit(X, y, sensitive_features=X[["sex"]])
    return save(model, tmp_path_factory.mktemp("saved"))


def test_the_folder_holds_data_only(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.safetensors"]
    assert json.loads((folder / "model.json").read_text())["format"] == 2


def write(content):
    return lambda folder: (folder / "model.json").write_text(content)


def change(**changes):
    def damage(folder):
        content = json.loads((folder / "model.json").read_text())
        (folder / "model.json").write_text(json.dumps({**content, **changes}))

    return damage


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda f: (f / "model.json").unlink(), "has no model.json"),
        (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors"),
        (write("{"), "cannot be read"),
        (write('{"format": 2, "table": NaN}'), "cannot be read"),
        (write("[]"), "not the description of a model"),
        (change(format=3), "has format 3, and this release reads 2"),
        (change(table=9), "was changed"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x"), "is not the file"),
        (shutil.rmtree, "is not a model folder"),
    ],
)
def test_damage_is_named(folder, tmp_path, damage, sentence):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    damage(copy)
    with pytest.raises(FolderError, match=sentence):
        load(copy)


def test_a_table_that_is_no_json_leaves_the_folder_as_it_was(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    model = load(copy)
    with pytest.raises(InputError, match="table must be plain data"):
        save(model, copy, table={"rows": float("nan")})
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before
    save(model, copy, table={"codes": {10: "a", 9: "b"}})
    assert read_table(copy) == {"codes": {"10": "a", "9": "b"}}


def test_a_network_of_ones_own_is_refused(tmp_path):
    X, y = people(100)
    model = small(FairClassifier, [MeanParity(0.1)], module=lambda k: nn.Linear(k, 1))
    model.fit(X, y, sensitive_features=X[["sex"]])
    with pytest.raises(InputError, match="holds no code"):
        save(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()
