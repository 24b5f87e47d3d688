"""From a file to a report on decisions in three commands, checked with the csv module and fractions alone."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import pytest
from people import people, write

LOGISTIC = ["--model", "logistic", "--protected", "sex"]


def counts(path, group, score, threshold=0.5, among=lambda row: True):
    """Rows and yeses of each group of a file."""
    found = {}
    with Path(path).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file, skipinitialspace=True):
            if among(row):
                n, yes = found.get(row[group], (0, 0))
                found[row[group]] = n + 1, yes + (float(row[score]) >= threshold)
    return found


def gap(found):
    rates = [Fraction(yes, n) for n, yes in found.values()]
    return max(rates) - min(rates)


def keeps(found, rule, slack=0):
    """Whether counts keep a tolerance or a ratio; slack: decisions, of each group, that may be off."""
    option, number = rule
    highest = max(Fraction(yes - slack) / n for n, yes in found.values())
    lowest = min(Fraction(yes + slack) / n for n, yes in found.values())
    if option == "--rate":
        return highest - lowest <= Fraction(float(number))
    return lowest >= Fraction(float(number)) * highest


@pytest.fixture(scope="module", params=[("--rate", "0.02"), ("--rate-ratio", "0.8")], ids=["rate", "ratio"])
def rule(request):
    """What is asked for."""
    return request.param


@pytest.fixture(scope="module")
def small(run, rule, tmp_path_factory):
    """A folder with a model, and rows to predict."""
    folder = tmp_path_factory.mktemp("decisions")
    data = write(people(), folder / "people.csv")
    write(people(400, seed=1).drop(columns="approved"), folder / "new.csv")
    asked = ["--target", "approved", "--positive", "yes", "--ignore", "amount", *LOGISTIC, *rule]
    result = run("fit", data, *asked, "-o", folder / "model", code=0)
    assert "female - male  rate parity, sex" in result.stdout
    return folder


def check_flow(run, rule, model, new, out, *mode):
    """Predict and audit; the verdict is that of the counts, which are returned."""
    run("predict", model, new, "-o", out, *mode, code=0)
    found = counts(out, "sex", "probability")
    with Path(out).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, skipinitialspace=True))
    said = {row["prediction"] for row in rows if float(row["probability"]) >= 0.5}
    assert len(said) == 1
    assert said.isdisjoint(row["prediction"] for row in rows if float(row["probability"]) < 0.5)
    audit = run("audit", out, "--prediction", "probability", "--protected", "sex", *rule, "-o", f"{out}.html")
    assert audit.exit_code == (0 if keeps(found, rule) else 1), audit.stdout
    return found


def test_a_file_as_one_batch(run, rule, small, tmp_path):
    found = check_flow(run, rule, small / "model", small / "new.csv", tmp_path / "out.csv")
    assert keeps(found, rule)
    assert not keeps(counts(tmp_path / "out.csv", "sex", "raw"), rule)  # there was something to do


def test_a_stream(run, rule, small, tmp_path):
    mode = ["--mode", "stream", "--state", tmp_path / "x.db", "--batch-size", "7"]
    found = check_flow(run, rule, small / "model", small / "new.csv", tmp_path / "out.csv", *mode)
    assert keeps(found, rule, slack=Fraction(1, 2))


def test_frozen_thresholds(run, rule, small, tmp_path):
    result = run("predict", small / "model", small / "new.csv", "-o", tmp_path / "a.csv", "--mode", "frozen")
    assert "decided by the threshold" in result.stdout
    found = check_flow(run, rule, small / "model", small / "new.csv", tmp_path / "out.csv", "--mode", "frozen")
    before = counts(tmp_path / "out.csv", "sex", "raw")
    assert gap(found) < gap(before)
    text = "every gap is within its tolerance" if keeps(found, rule) else "exceeds its tolerance"
    assert text in " ".join(result.stdout.split())


@pytest.fixture
def scores(tmp_path):
    """A file of scores with many ties."""
    frame = people(1500)
    frame["p"] = (0.2 + 0.3 * (frame["sex"] == "male") + 0.003 * frame["age"]).round(2)
    return write(frame, tmp_path / "scores.csv")


@pytest.mark.parametrize("after", ["csv", "parquet"])
def test_project(run, rule, scores, tmp_path, after):
    out = tmp_path / f"fair.{after}"
    result = run("project", scores, "--score", "p", "--protected", "sex", *rule, "--keep-raw", "before", "-o", out)
    assert result.exit_code == 0, result.stderr
    if after == "parquet":
        import duckdb

        duckdb.sql(f"COPY (SELECT * FROM '{out}') TO '{tmp_path / 'fair.csv'}' (HEADER)")
    with Path(scores).open(newline="") as old, (tmp_path / "fair.csv").open(newline="") as new:
        pairs = list(zip(csv.DictReader(old), csv.DictReader(new), strict=True))
    assert all(a["name"] == b["name"] and float(a["p"]) == float(b["before"]) for a, b in pairs)
    changed = [(a, b) for a, b in pairs if float(a["p"]) != float(b["p"])]
    assert all((float(a["p"]) >= 0.5) != (float(b["p"]) >= 0.5) for a, b in changed)  # and nobody else was moved
    assert f"{len(changed):,} of 1,500 scores were changed" in " ".join(result.stdout.split())
    assert keeps(counts(tmp_path / "fair.csv", "sex", "p"), rule)
    assert not keeps(counts(scores, "sex", "p"), rule)
    run("audit", out, "--prediction", "p", "--protected", "sex", *rule, code=0)


def test_project_within_a_class_at_another_threshold(run, scores, tmp_path):
    asked = ["--protected", "sex", "--rate", "0.05", "--threshold", "0.4", "--target", "approved", "--given", "yes"]
    run("project", scores, "--score", "p", *asked, "-o", tmp_path / "fair.csv", code=0)
    found = counts(tmp_path / "fair.csv", "sex", "p", 0.4, lambda row: row["approved"] == "yes")
    assert gap(found) <= Fraction(0.05)
    assert gap(counts(scores, "sex", "p", 0.4, lambda row: row["approved"] == "yes")) > Fraction(0.05)
    run("audit", tmp_path / "fair.csv", "--prediction", "p", *asked, code=0)


def test_project_of_a_ratio_of_means(run, scores, tmp_path):
    asked = ["--score", "p", "--protected", "sex", "--ratio", "0.9", "-o", tmp_path / "fair.csv"]
    run("project", scores, *asked, "--bounds", "0", "1", code=0)
    sums = {}
    with (tmp_path / "fair.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            n, total = sums.get(row["sex"], (0, Fraction(0)))
            sums[row["sex"]] = n + 1, total + Fraction(float(row["p"]))
    means = [total / n for n, total in sums.values()]
    assert min(means) >= Fraction(0.9) * max(means)


def test_equal_opportunity(run, tmp_path):
    """Thresholds found among rows of one class serve everybody."""
    data = write(people(), tmp_path / "people.csv")
    write(people(400, seed=1).drop(columns="approved"), tmp_path / "new.csv")
    asked = ["--target", "approved", "--positive", "yes", *LOGISTIC, "--ignore", "amount", "--rate", "0.05"]
    result = run("fit", data, *asked, "--given", "yes", "-o", tmp_path / "model")
    assert result.exit_code in (0, 1), result.stderr
    assert "once targets are" in " ".join(result.stderr.split())
    done = run("predict", tmp_path / "model", tmp_path / "new.csv", "-o", tmp_path / "out.csv", code=0)
    assert "Mode: frozen" in done.stdout
