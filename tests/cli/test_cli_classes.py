"""Targets of three and more classes: fit, predict in every mode, audit, with no code."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest

from fairlayer import MeanParity
from fairlayer.gaps import measure
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.tables.schema import tells

NAMES = ["high", "low", "middle"]
COLUMNS = [f"probability_{name}" for name in NAMES]
FIT = ["--target", "grade", "--protected", "sex", "--parity", "0.03"]


def pupils(n, seed):
    """A table in which sexes differ, and grades depend on two numbers."""
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(n) < 0.5, "f", "m")
    x, y = rng.normal(size=n) + (sex == "f"), rng.normal(size=n)
    grade = np.array(NAMES)[np.stack([x, -x, y], axis=1).argmax(axis=1)]
    return pd.DataFrame({"sex": sex, "x": x.round(4), "y": y.round(4), "grade": grade})


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, run):
    """Models of three classes by their kind, each with what fitting it printed."""

    @cache
    def fit(kind):
        folder = tmp_path_factory.mktemp("graded")
        pupils(600, 0).to_csv(folder / "pupils.csv", index=False)
        asked = [*FIT, "--ignore", "sex", "--model", kind, "--epochs", "5"]
        return folder / "model", run("fit", folder / "pupils.csv", *asked, "-o", folder / "model", code=0)

    return fit


@pytest.fixture
def graded(fitted):
    """The folder of a model of three classes."""
    return fitted("logistic")[0]


@pytest.mark.parametrize("kind", ["logistic", "network"])
def test_fit_reports_by_class(fitted, kind):
    model, result = fitted(kind)
    assert "the probabilities of the classes of grade, high, low, middle" in result.stderr
    assert "class middle" in result.stdout
    report = json.loads((model / "report.json").read_text())
    assert report["satisfied"] is True
    assert list(report["classes"]) == NAMES
    assert "class middle" in (model / "report.html").read_text()
    assert json.loads((model / "model.json").read_text())["table"]["schema"]["classes"] == NAMES


@pytest.mark.parametrize(("kind", "mode"), [("network", "batch"), ("logistic", "frozen"), ("logistic", "stream")])
def test_predict_and_audit(run, fitted, tmp_path, kind, mode):
    model, _ = fitted(kind)
    data, out = tmp_path / "new.csv", tmp_path / "out.csv"
    pupils(300, 1).to_csv(data, index=False)
    state = ["--state", tmp_path / "s.db", "--batch-size", "50"] if mode == "stream" else []
    result = run("predict", model, data, "-o", out, "--mode", mode, *state, code=0)
    done = pd.read_csv(out)
    assert list(done.columns[4:]) == ["prediction", *COLUMNS, *(f"raw_{name}" for name in NAMES)]
    P = done[COLUMNS].to_numpy()
    assert np.abs(P.sum(axis=1) - 1.0).max() < 1e-9
    assert (done["prediction"] == np.array(NAMES)[P.argmax(axis=1)]).all()
    if mode != "frozen":
        assert measure(P, ConstraintSet([MeanParity(0.03)]), {"sex": done["sex"]}).satisfied
        assert "class" in result.stdout

    asked = ["--prediction", ",".join(COLUMNS), "--raw", ",".join(f"raw_{name}" for name in NAMES)]
    page = tmp_path / "report.html"
    result = run(
        "audit", out, *asked, "--protected", "sex", "--parity", "0.03", "--target", "grade", "-o", page,
        "--card", tmp_path / "card.md",
    )  # fmt: skip
    assert result.exit_code == (0 if mode != "frozen" else result.exit_code), result.stderr + result.stdout
    assert "class high" in result.stdout
    assert "The predicted class is right for" in result.stdout
    assert "class high" in page.read_text()
    result = run("audit", out, "--prediction", ",".join(COLUMNS[:2]), "--protected", "sex", "--parity", "0.03", code=2)
    assert "add up to 1" in result.stderr
    run("audit", out, "--prediction", asked[3], "--protected", "sex", "--parity", "0.03", code=1)


def test_what_is_refused(run, graded, tmp_path):
    table = pupils(300, 1)
    table.to_csv(tmp_path / "a.csv", index=False)
    many = table.assign(grade=[f"g{i % 60}" for i in range(300)])
    many.to_csv(tmp_path / "many.csv", index=False)
    result = run("fit", tmp_path / "many.csv", *FIT, "-o", tmp_path / "m", code=2)
    assert "60 classes" in result.stderr
    assert "--positive 'g0'" in result.stderr
    result = run("fit", tmp_path / "a.csv", *FIT, "--confidence", "0.9", "-o", tmp_path / "m", code=2)
    assert "of two classes" in result.stderr
    for option in ("--rate", "--residuals", "--rate-ratio"):
        result = run("fit", tmp_path / "a.csv", *FIT[:4], option, "0.1", "-o", tmp_path / "m", code=2)
        assert "grade has 3 classes" in result.stderr
        assert "--positive 'high'" in result.stderr
        assert "Training" not in result.stderr
    run("predict", graded, tmp_path / "a.csv", "-o", tmp_path / "o.csv", "--prefix", "", code=0)
    again = run("predict", graded, tmp_path / "o.csv", "-o", tmp_path / "p.csv", code=2)
    assert "--prefix" in again.stderr
    asked = ["--prediction", ",".join(COLUMNS), "--protected", "sex", "--parity", "0.1", "--format", "ll144"]
    result = run("audit", tmp_path / "o.csv", *asked, code=2)
    assert "one prediction" in result.stderr


def test_streams_name_their_classes(run, graded, tmp_path):
    pupils(60, 2).to_csv(tmp_path / "new.csv", index=False)
    asked = ["--mode", "stream", "--state", tmp_path / "s.db"]
    said = [run("predict", graded, tmp_path / "new.csv", "-o", tmp_path / "out.csv", *asked).stdout for _ in range(2)]
    page = tmp_path / "certificate.html"
    said.append(run("stream", "show", tmp_path / "s.db").stdout)
    said.append(run("stream", "certificate", tmp_path / "s.db", "-o", page).stdout)
    for text in (*said, page.read_text()):
        assert all(f"f, class {name}" in text for name in NAMES)
        assert "class 0" not in text
    assert "probabilities of classes high, low, middle" in said[2]
    run("stream", "verify", tmp_path / "s.db", code=0)


def test_a_first_decision_breaks_no_promise(run, graded, tmp_path):
    pupils(1, 3).to_csv(tmp_path / "one.csv", index=False)
    asked = ["--mode", "stream", "--state", tmp_path / "s.db"]
    result = run("predict", graded, tmp_path / "one.csv", "-o", tmp_path / "out.csv", *asked, code=0)
    assert "nothing to compare" in result.stdout


def test_a_column_is_no_copy_of_a_target_of_several_classes():
    kinds = pd.Series(["a", "b", "c"] * 40, name="kind")
    assert tells(kinds, np.arange(120) % 3.0)
    assert not tells(kinds, np.arange(120) % 4.0)
    assert not tells(kinds, np.zeros(120))
