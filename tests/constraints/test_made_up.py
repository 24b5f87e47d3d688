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
    model = FairClassifier([FIELD], hidden=(8,), max_epochs=3, random_state=0)
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


class TestCommands:
    @pytest.fixture
    def run(self):
        pytest.importorskip("typer")
        pytest.importorskip("duckdb")
        from typer.testing import CliRunner

        from fairlayer.cli.app import app

        def invoke(*arguments):
            result = CliRunner().invoke(app, [str(argument) for argument in arguments])
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise result.exception
            return result

        return invoke

    @pytest.fixture
    def table(self, tmp_path):
        path = tmp_path / "table.csv"
        label = np.where(Z + 0.2 * np.random.default_rng(1).random(N) > 0.4, "yes", "no")
        pd.DataFrame({"sex": SEX, "x": X, "z": Z, "label": label}).to_csv(path, index=False)
        return path

    def test_project(self, run, table, tmp_path):
        out = tmp_path / "fair.csv"
        words = 'MadeUp(0.05, over="sex", share=0.5)'
        done = run("project", table, "--score", "z", "--protected", "sex", "--constraint", words, "-o", out)
        assert done.exit_code == 0, done.stderr
        frame = pd.read_csv(out)
        assert gap(frame["z"].to_numpy()) <= 0.05 + 1e-12

    def test_audit(self, run, table):
        words = "MadeUp(0.05, share=0.5)"
        done = run("audit", table, "--prediction", "z", "--protected", "sex", "--constraint", words)
        assert "made-up parity" in done.stdout, done.stderr
        assert done.exit_code == 1

    def test_fit_and_predict(self, run, table, tmp_path):
        words, model = "MadeUp(0.05, share=0.5)", tmp_path / "model"
        done = run(
            *(
                "fit",
                table,
                "--target",
                "label",
                "--protected",
                "sex",
                "--constraint",
                words,
                "--epochs",
                3,
                "-o",
                model,
            )
        )
        assert done.exit_code == 0, done.stderr
        out = tmp_path / "out.csv"
        done = run("predict", model, table, "--mode", "batch", "-o", out)
        assert done.exit_code == 0, done.stderr
