"""A constraint that the library has never heard of goes everywhere, knowing nothing but how to describe itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pd = pytest.importorskip("pandas")

from conformance import MadeUp  # noqa: E402
from fairlayer import FairLayer, Stream, audit, freeze  # noqa: E402

N = 400
RNG = np.random.default_rng(0)
SEX = np.where(RNG.random(N) < 0.4, "f", "m")
X = RNG.random(N)
Z = (0.3 * (SEX == "m") + 0.5 * X * RNG.random(N)).clip(0.0, 1.0)
FIELD = MadeUp(0.05, over="sex", share=0.5)


def gap(y: np.ndarray, share: float = 0.5, rows: slice = slice(None)) -> float:
    """What it bounds."""
    sex, x = SEX[rows], X[rows]
    return abs(y[(sex == "f") & (x >= share)].mean() - y[(sex == "m") & (x >= share)].mean())


def test_layer():
    y = FairLayer(FIELD, bounds=(0.0, 1.0))(torch.tensor(Z), {"sex": SEX}, features={"x": X}).numpy()
    assert gap(y) == pytest.approx(0.05, abs=1e-9)
    assert gap(y, 0.0) > 0.1
    assert np.array_equal(y[X < 0.5], Z[X < 0.5])


def test_stream(tmp_path):
    path = tmp_path / "decisions.db"
    emitted = []
    for start in range(0, N, 50):
        rows = slice(start, start + 50)
        stream = Stream(FIELD, bounds=(0.0, 1.0), store=str(path), name="made up")
        emitted.append(stream.update(Z[rows], {"sex": SEX[rows]}, features={"x": X[rows]}).value)
        assert max(map(abs, stream.gaps().values())) <= 0.05
        assert stream.verify()
        stream.close()
    assert gap(np.concatenate(emitted)) <= 0.05 + 1e-12
    with pytest.raises(ValueError, match=r"share|constraint"):
        Stream(MadeUp(0.05, over="sex", share=0.25), bounds=(0.0, 1.0), store=str(path), name="made up")


def test_freeze():
    layer = FairLayer(FIELD, bounds=(0.0, 1.0))
    frozen = freeze(layer, torch.tensor(Z), {"sex": SEX}, features={"x": X}, confidence=None)
    y = frozen.predict(Z, {"sex": SEX}, {"x": X})
    assert gap(np.asarray(y)) == pytest.approx(0.05, abs=1e-6)
    assert np.asarray(y)[X < 0.5] == pytest.approx(Z[X < 0.5], abs=1e-9)


def test_model_folder(tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("safetensors")
    from fairlayer.estimators.folder import load, save
    from fairlayer.sklearn import FairClassifier

    frame = pd.DataFrame({"x": X, "z": Z})
    model = FairClassifier([FIELD], hidden=(8,), max_epochs=1, random_state=0)
    model.fit(frame, (Z + 0.2 * RNG.random(N) > 0.4).astype(int), sensitive_features=pd.DataFrame({"sex": SEX}))
    expected = model.predict_proba(frame, sensitive_features=pd.DataFrame({"sex": SEX}))
    assert gap(expected[:, 1]) <= 0.05 + 1e-6
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    (kept,) = again.constraints
    assert type(kept) is MadeUp
    assert kept.settings() == FIELD.settings()
    assert np.array_equal(again.predict_proba(frame, sensitive_features=pd.DataFrame({"sex": SEX})), expected)


@pytest.mark.parametrize("satisfied", [True, False])
def test_audit(satisfied):
    y = FairLayer(FIELD)(torch.tensor(Z), {"sex": SEX}, features={"x": X}).numpy() if satisfied else Z
    result = audit(y, {"sex": SEX}, FIELD, features={"x": X})
    assert result.satisfied is satisfied
    assert "made-up parity" in str(result.table())


def test_audit_of_a_file(tmp_path):
    pytest.importorskip("duckdb")
    table = tmp_path / "table.csv"
    pd.DataFrame({"sex": SEX, "x": X, "p": Z}).to_csv(table, index=False)
    from_file = audit(str(table), ["sex"], FIELD, prediction="p")
    from_arrays = audit(Z, {"sex": SEX}, FIELD, features={"x": X})
    assert from_file.satisfied is from_arrays.satisfied is False


def test_commands(tmp_path):
    pytest.importorskip("typer")
    pytest.importorskip("duckdb")
    from typer.testing import CliRunner

    from fairlayer.cli.app import app

    def run(command, *options):
        result = CliRunner().invoke(app, [*command.split(), *map(str, options)], catch_exceptions=False)
        assert result.exit_code == (command == "audit"), result.output
        return result.output

    table, fair, model = (tmp_path / name for name in ("table.csv", "fair.csv", "model"))
    label = np.where(Z + 0.2 * np.random.default_rng(1).random(N) > 0.4, "yes", "no")
    pd.DataFrame({"sex": SEX, "x": X, "z": Z, "label": label}).to_csv(table, index=False)
    words = "--protected", "sex", "--constraint", "MadeUp(0.05, share=0.5)"
    run("project", table, "--score", "z", *words, "-o", fair)
    assert gap(pd.read_csv(fair)["z"].to_numpy()) <= 0.05 + 1e-12
    assert "made-up parity" in run("audit", table, "--prediction", "z", *words)
    run("fit", table, "--target", "label", *words, "--epochs", 1, "-o", model)
    run("predict", model, table, "--mode", "batch", "-o", tmp_path / "out.csv")
