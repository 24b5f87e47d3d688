"""From a table to a fair model, its predictions and an audit of them, with no code."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from people import people, write

from fairlayer import MeanParity
from fairlayer.estimators.estimator import FairEstimator
from fairlayer.estimators.folder import load
from fairlayer.gaps import measure
from fairlayer.problem.constraint_set import ConstraintSet

PROTECTED = ["--protected", "sex", "--protected", "race", "--protected", "disabled"]


def test_fit_writes_model_report_and_card(classifier):
    names = {path.name for path in classifier.iterdir()}
    assert names == {
        "model.json",
        "model.safetensors",
        "estimator.skops",
        "report.html",
        "report.json",
        "model-card.md",
    }
    report = json.loads((classifier / "report.json").read_text())
    assert report["satisfied"] is True
    assert report["settings"]["attributes"] == ["sex", "race", "disabled"]
    assert report["history"]
    assert report["overall"]["change"]
    card = (classifier / "model-card.md").read_text()
    assert "people.csv" in card
    assert "<html" in (classifier / "report.html").read_text()
    schema = json.loads((classifier / "model.json").read_text())["table"]["schema"]
    assert schema["task"] == "classification"
    assert schema["positive"] == "yes"
    assert schema["numbers"] == ["income", "age"]
    assert "name" not in schema["categories"]  # every entry is different
    assert [entry["known"] for entry in schema["labels"]][2] == ["missing", "no", "yes"]


def test_predict_and_audit(run, classifier, tmp_path):
    data = write(people(500, seed=1), tmp_path / "new.csv")
    out = tmp_path / "out.csv"
    result = run("predict", classifier, data, "-o", out, code=0)
    assert "batch" in result.stdout
    new, done = (pd.read_csv(path, dtype=str, keep_default_na=False) for path in (data, out))
    assert done[new.columns.tolist()].equals(new)  # every entry as it was
    assert list(done.columns[-3:]) == ["prediction", "probability", "raw"]
    p = done["probability"].astype(float).to_numpy()
    groups = {name: new[name].replace("", "missing").to_numpy() for name in ("sex", "race", "disabled")}
    assert measure(p, ConstraintSet([MeanParity(0.05)]), groups).satisfied
    assert not measure(done["raw"].astype(float).to_numpy(), ConstraintSet([MeanParity(0.05)]), groups).satisfied
    assert (done["prediction"] == np.where(p > 0.5, "yes", "no")).all()

    page = tmp_path / "report.html"
    arguments = ["audit", out, "--prediction", "probability", "--raw", "raw", *PROTECTED, "--parity", "0.05"]
    (tmp_path / "facts.json").write_text('{"name": "Approvals of spring"}')
    cards = ["--card", tmp_path / "card.md", "--facts", tmp_path / "facts.json"]
    run(*arguments, "-o", page, *cards, code=0)
    assert json.loads(page.with_suffix(".json").read_text())["satisfied"] is True
    assert "Approvals of spring" in (tmp_path / "card.md").read_text()
    result = run("audit", out, "--prediction", "raw", *PROTECTED, "--parity", "0.05", code=1)
    assert "raw" not in result.stderr


def test_a_stream_goes_on_where_it_stood(run, classifier, tmp_path):
    new = people(300, seed=3)
    state = tmp_path / "decisions.db"
    emitted = []
    for number, part in enumerate((new.iloc[:100], new.iloc[100:101], new.iloc[101:])):
        write(part, tmp_path / "part.csv")
        arguments = ["--mode", "stream", "--state", state, "--stream", "loans", "--batch-id", f"b{number}"]
        result = run("predict", classifier, tmp_path / "part.csv", "-o", tmp_path / "out.csv", *arguments, code=0)
        emitted.append(pd.read_csv(tmp_path / "out.csv")["probability"])
    assert "300 decisions" in result.stdout
    groups = {name: new[name].replace("", "missing").to_numpy() for name in ("sex", "race", "disabled")}
    assert measure(pd.concat(emitted).to_numpy(), ConstraintSet([MeanParity(0.05)]), groups).satisfied
    again = run("predict", classifier, tmp_path / "part.csv", "-o", tmp_path / "out.csv", *arguments)
    assert "300 decisions" in again.stdout  # counted once
    assert pd.read_csv(tmp_path / "out.csv")["probability"].equals(emitted[-1])


def test_parquet_in_and_out(run, classifier, tmp_path):
    import duckdb

    frame = people(200, seed=5)
    write(frame, tmp_path / "new.csv")
    duckdb.sql(f"COPY (SELECT * FROM frame) TO '{tmp_path / 'new.parquet'}'")
    for kind in ("csv", "parquet"):
        run("predict", classifier, tmp_path / f"new.{kind}", "-o", tmp_path / f"{kind}.parquet", code=0)
    a, b = (
        duckdb.sql(f"SELECT probability FROM '{tmp_path / name}'").fetchnumpy()["probability"]
        for name in ("csv.parquet", "parquet.parquet")
    )
    assert np.array_equal(a, b)


def test_regression_with_cut_points_regions_and_bounds(run, table, tmp_path):
    run(
        *("fit", table, "--target", "amount", "--ignore", "approved", "-o", tmp_path / "model", "--epochs", "3"),
        *("--protected", "sex", "--protected", "age=30,50", "--bounds", "0", "400"),
        *("--parity", "10", "--conditional", "15:town", "--conditional", "20:age=40"),
        code=0,
    )
    model = load(tmp_path / "model")
    assert model.bounds == (0.0, 400.0)
    assert [type(c).__name__ for c in model.constraints] == ["MeanParity", "ConditionalParity", "ConditionalParity"]
    run("predict", tmp_path / "model", table, "-o", tmp_path / "out.csv", "--prefix", "fair_", code=0)
    out = tmp_path / "out.csv"
    asked = ["--protected", "sex", "--protected", "age=30,50", "--parity", "10"]
    result = run("audit", out, "--prediction", "fair_prediction", "--target", "amount", *asked, code=0)
    assert "30 to 50" in result.stdout


def test_fit_from_parquet(run, tmp_path):
    import duckdb

    frame = people(200).assign(
        sex=lambda table: (table["sex"] == "male").astype(int), race=lambda table: table["age"] > 40
    )
    duckdb.sql(f"COPY (SELECT * FROM frame) TO '{tmp_path / 'people.parquet'}'")
    asked = ["--protected", "sex", "--protected", "race", "--parity", "0.1", "--model", "logistic"]
    run("fit", tmp_path / "people.parquet", "--target", "approved", *asked, "-o", tmp_path / "model", code=0)
    schema = json.loads((tmp_path / "model" / "model.json").read_text())["table"]["schema"]
    assert [entry["known"] for entry in schema["labels"]] == [["0", "1"], ["false", "true"]]
    write(frame, tmp_path / "new.csv")
    result = run("predict", tmp_path / "model", tmp_path / "new.csv", "-o", tmp_path / "out.csv", "--mode", "frozen")
    assert result.exit_code == 0, result.stderr


def test_residuals(run, table, tmp_path):
    asked = ["--protected", "sex", "--model", "linear", "--ignore", "approved"]
    result = run("fit", table, "--target", "amount", "--residuals", "25", *asked, "-o", tmp_path / "residuals")
    assert result.exit_code in (0, 1), result.stderr
    assert "Residuals are known only once targets are" in result.stderr
    result = run("predict", tmp_path / "residuals", table, "-o", tmp_path / "out.csv", code=0)
    assert "Mode: frozen" in result.stdout
    assert "In this file" in result.stdout  # it has targets
    write(people().drop(columns="amount"), tmp_path / "new.csv")
    result = run("predict", tmp_path / "residuals", tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    assert "once they are known" in result.stdout
    result = run("predict", tmp_path / "residuals", tmp_path / "new.csv", "-o", tmp_path / "o.csv", "--mode", "batch")
    assert result.exit_code == 2
    assert "which are known only later: use --mode frozen" in result.stderr


def test_the_same_seed_gives_the_same_model(run, table, tmp_path):
    asked = ["--target", "approved", "--protected", "sex", "--parity", "0.1", "--epochs", "1", "--seed", "7", "-o"]
    weights = []
    for name in ("a", "b"):
        run("fit", table, *asked, tmp_path / name, code=0)
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_a_real_process(table):
    command = [sys.executable, "-m", "fairlayer", "audit", table, "--protected", "sex", "--parity", "0.001"]
    for column, code, told in (
        ("amount", 1, ""),
        ("amuont", 2, f"fairlayer: --prediction: {table} has no column 'amuont'. Did you mean 'amount'?\n"),
    ):
        done = subprocess.run([*command, "--prediction", column], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (code, told)
        assert bool(done.stdout) == (code == 1)


def test_frozen_rows_do_not_depend_on_each_other_and_the_gap_they_leave_is_said(run, classifier, tmp_path):
    new = people(120, seed=8)
    write(new, tmp_path / "new.csv")
    write(new.iloc[:1], tmp_path / "one.csv")
    told, p = [], []
    for name in ("new", "one"):
        asked = [classifier, tmp_path / f"{name}.csv", "-o", tmp_path / "out.csv", "--mode", "frozen"]
        told.append(run("predict", *asked, code=0).stdout)
        p.append(pd.read_csv(tmp_path / "out.csv")["probability"].to_numpy())
    assert p[0][0] == pytest.approx(p[1][0], abs=1e-12)
    assert "no groups to compare" in told[1]
    groups = {name: new[name].replace("", "missing").to_numpy() for name in ("sex", "race", "disabled")}
    gaps = measure(p[0], ConstraintSet([MeanParity(0.05)]), groups)
    assert not gaps.satisfied
    assert "nothing is guaranteed for a single file" in told[0]
    beyond = int((np.abs(gaps.values) > 0.05).sum())
    assert f"In this file {beyond} of {len(gaps.names)} gaps exceed their tolerances: at worst, " in told[0]
    assert f"{gaps.largest:.4g} for a tolerance of 0.05" in told[0]


@pytest.mark.parametrize("mode", [["batch"], ["stream", "--state", "s.db"]])
def test_new_groups_are_accepted_where_they_are_asked_for(run, classifier, tmp_path, monkeypatch, mode):
    monkeypatch.chdir(tmp_path)
    new = people(300, seed=9)
    new.loc[:60, "race"] = "martian"
    write(new, tmp_path / "new.csv")
    asked = ["predict", classifier, tmp_path / "new.csv", "-o", tmp_path / "out.csv", "--mode", *mode]
    run(*asked, code=2)
    assert not (tmp_path / "out.csv").exists()
    result = run(*asked, "--new-groups", code=0)
    assert "race 'martian' is new to the model" in result.stderr
    p = pd.read_csv(tmp_path / "out.csv")["probability"].to_numpy()
    assert measure(p, ConstraintSet([MeanParity(0.05)]), {"race": new["race"].to_numpy()}).satisfied


def test_stopping_on_purpose_is_recorded(run, table, tmp_path):
    asked = ["--protected", "sex", "--parity", "0.05", "--epochs", "100", "--max-minutes", "1e-6", "--ignore", "amount"]
    result = run("fit", table, "--target", "approved", *asked, "-o", tmp_path / "model", code=0)
    model = load(tmp_path / "model")
    assert (model.stopped_, model.n_iter_, model.max_minutes) == ("time", 1, 1e-6)
    for text in (result.stderr, *((tmp_path / "model" / name).read_text() for name in ("report.json", "report.html"))):
        assert "was stopped on purpose" in text
    assert "was stopped on purpose" in (tmp_path / "model" / "model-card.md").read_text()


def test_intersections_and_tolerances_of_their_own(run, table, tmp_path):
    asked = ["--protected", "sex,race", "--parity", "sex+race=0.05,sex=0.02", "--merge-rare", "100", "--hide-protected"]
    result = run("fit", table, "--target", "approved", *asked, "--model", "logistic", "-o", tmp_path / "model")
    assert result.exit_code in (0, 1), result.stderr
    assert "become 'other'" in result.stderr
    assert "race" not in json.loads((tmp_path / "model" / "model.json").read_text())["table"]["schema"]["categories"]
    new = people(400, seed=4)
    write(new, tmp_path / "new.csv")
    run("predict", tmp_path / "model", tmp_path / "new.csv", "-o", tmp_path / "out.csv", code=0)
    done = pd.read_csv(tmp_path / "out.csv")
    race = np.where(new["race"].isin(["white", "black"]), new["race"], "other")
    rules = ConstraintSet([MeanParity(0.05, over=("sex", "race")), MeanParity(0.02, over="sex")])
    assert measure(done["probability"].to_numpy(), rules, {"sex": new["sex"].to_numpy(), "race": race}).satisfied
    done.assign(race=race).to_csv(tmp_path / "done.csv", index=False)
    both = ["--protected", "sex,race", "--parity", "0.05", "--over", "sex+race"]
    run("audit", tmp_path / "done.csv", "--prediction", "probability", *both, code=0)
    result = run("audit", tmp_path / "done.csv", "--prediction", "raw", *both, code=1)
    assert "sex & race" in result.stdout
    asked = ["--score", "raw", *both, "-o", tmp_path / "fair.csv"]
    run("project", tmp_path / "done.csv", *asked, code=0)
    run("audit", tmp_path / "fair.csv", "--prediction", "raw", *both, code=0)


def test_a_combination_of_groups_that_training_did_not_have(run, tmp_path):
    frame = people(300)
    seen = frame[~((frame["sex"] == "female") & (frame["race"] == "other"))]
    data = write(seen, tmp_path / "people.csv")
    asked = ["--protected", "sex,race,disabled", "--parity", "0.1", "--over", "sex+race", "--model", "logistic"]
    result = run("fit", data, "--target", "approved", *asked, "-o", tmp_path / "model")
    assert result.exit_code in (0, 1), result.stderr
    assert "disabled is protected, but no constraint compares its groups" in result.stderr
    write(frame.assign(race="other"), tmp_path / "new.csv")
    asked = ["-o", tmp_path / "out.csv", "--mode"]
    result = run("predict", tmp_path / "model", tmp_path / "new.csv", *asked, "frozen", code=2)
    assert "sex female & race other: the model was not trained with this combination" in result.stderr
    run("predict", tmp_path / "model", tmp_path / "new.csv", *asked, "batch", code=0)


def test_the_mean_of_residuals(run, table, tmp_path):
    asked = ["--protected", "sex", "--residual-mean", "0.5", "--target", "amount"]
    result = run("project", table, "--score", "age", *asked, "-o", tmp_path / "fair.csv", code=0)
    assert "residual mean, sex: female" in result.stdout
    run("audit", tmp_path / "fair.csv", "--prediction", "age", *asked, code=0)
    run("audit", table, "--prediction", "age", *asked, code=1)
    result = run("fit", table, *asked, "--model", "linear", "--ignore", "approved", "-o", tmp_path / "model")
    assert result.exit_code in (0, 1), result.stderr
    assert type(load(tmp_path / "model").constraints[0]).__name__ == "ResidualMean"


def test_decimal_commas_are_numbers(run, tmp_path):
    frame = people(200)
    for name in ("income", "amount"):
        frame[name] = frame[name].astype(str).str.replace(".", ",")
    frame["rent"] = [f"{1 + i % 9}.{i % 1000:03}" for i in range(200)]  # 1.234 is more than a thousand here
    frame.to_csv(tmp_path / "people.csv", sep=";", index=False)
    asked = ["--protected", "sex", "--parity", "5", "--epochs", "1", "--ignore", "approved"]
    result = run("fit", tmp_path / "people.csv", "--target", "amount", *asked, "-o", tmp_path / "model")
    assert result.exit_code in (0, 1), result.stderr
    assert "Commas are read as decimal commas" in result.stderr
    content = json.loads((tmp_path / "model" / "model.json").read_text())
    assert content["table"]["schema"]["numbers"] == ["income", "age", "rent"]
    encoder = load(tmp_path / "model").preprocessing_
    assert dict(zip(encoder.numbers_, encoder.of_numbers_[0].statistics_, strict=True))["rent"] > 1000
    frame.to_csv(tmp_path / "new.csv", sep=";", index=False)
    points = people(200).assign(rent=frame["rent"].str.replace(".", ""))
    points.to_csv(tmp_path / "points.csv", index=False)
    written = []
    for name in ("new", "points"):
        out = tmp_path / f"{name}-out.csv"
        run("predict", tmp_path / "model", tmp_path / f"{name}.csv", "-o", out, code=0)
        written.append(pd.read_csv(out, dtype=str))
    assert (written[0]["raw"] == written[1]["raw"]).all()
    # The output parts its columns by commas: there 1.234 would be little more than one.
    assert written[0]["rent"].tolist() == written[1]["rent"].tolist() == frame["rent"].str.replace(".", "").tolist()
    raw = {}
    for name, table in (("new", frame), ("points", points)):  # a row without a decimal is read as the model's file was
        table.assign(income="7", amount="7").iloc[:1].to_csv(tmp_path / "one.csv", sep=";", index=False)
        asked = ["predict", tmp_path / "model", tmp_path / "one.csv", "-o", tmp_path / "out.csv", "--mode", "frozen"]
        run(*asked, code=0)
        raw[name] = pd.read_csv(tmp_path / "out.csv")["raw"].iloc[0]
    assert raw["new"] == raw["points"]
    past = ["--mode", "stream", "--state", tmp_path / "a.db", "--warm-start", tmp_path / "new.csv"]
    result = run("predict", tmp_path / "model", tmp_path / "new.csv", "-o", tmp_path / "out.csv", *past, code=0)
    assert "decimal commas are written as points" in result.stderr


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_decimal_commas_are_numbers_to_every_command(run, tmp_path, ending):
    frame = people(200)[["sex", "amount", "income"]].assign(paid=np.linspace(20.5, 90.25, 200))
    frame.to_csv(tmp_path / "points.csv", index=False)
    frame.to_csv(tmp_path / "commas.csv", index=False, sep=";", decimal=",")
    told, written = {}, {}
    for name in ("points", "commas"):
        data, out = tmp_path / f"{name}.csv", tmp_path / f"{name}-out.{ending}"
        asked = ["--protected", "sex,income=2500", "--residuals", "1", "--target", "paid"]
        told[name] = run("audit", data, "--prediction", "amount", *asked).stdout
        assert "equalized residuals" in told[name]
        result = run("project", data, "--score", "amount", *asked, "--keep-raw", "before", "-o", out, code=0)
        written[name] = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
        assert ("decimal commas are written as points" in result.stderr) is (name == "commas")
    assert told["points"] == told["commas"]
    pd.testing.assert_frame_equal(written["points"], written["commas"], check_dtype=False)


def test_columns_of_one_name_do_no_harm_where_they_are_ignored(run, tmp_path):
    frame = people(200)
    twice = pd.concat([frame, frame[["job", "name"]].rename(columns={"name": "Job"})], axis=1)
    data = write(twice, tmp_path / "people.csv")
    asked = ["--target", "approved", "--protected", "sex", "--parity", "0.1", "--model", "logistic"]
    result = run("fit", data, *asked, "-o", tmp_path / "model", code=2)
    assert "job" in result.stderr
    run("fit", data, *asked, "--ignore", "job", "--ignore", "Job", "-o", tmp_path / "model", code=0)
    assert "job" not in json.loads((tmp_path / "model" / "model.json").read_text())["table"]["schema"]["categories"]
    run("predict", tmp_path / "model", data, "-o", tmp_path / "out.csv", code=0)
    header = (tmp_path / "out.csv").read_text().splitlines()[0].split(",")
    assert header[:-3] == twice.columns.tolist()
    asked = ["audit", data, "--protected", "sex", "--parity", "1000", "--prediction"]
    run(*asked, "amount", code=0)
    assert "has two columns 'job': rename one" in run(*asked, "job").stderr


def test_the_network_sees_every_row_once(run, table, classifier, tmp_path, monkeypatch):
    """Fitting takes the rows held out through it once, and predicting takes each once."""
    seen = []
    scores = FairEstimator._scores
    monkeypatch.setattr(FairEstimator, "_scores", lambda self, X: seen.append(len(X)) or scores(self, X))
    asked = ["--protected", "sex", "--parity", "0.1", "--epochs", "1"]
    run("fit", table, "--target", "approved", *asked, "-o", tmp_path / "model", code=0)
    assert sorted(seen) == [120, 480]  # the latter to freeze what training found
    for mode in ("batch", "frozen"):
        seen.clear()
        run("predict", classifier, table, "-o", tmp_path / "out.csv", "--mode", mode, code=0)
        assert seen == [600]
