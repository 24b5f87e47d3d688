"""Which class counts as positive, and what is aimed at for the population: terminal, report and card say so."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from people import people, write

FIT = ["--target", "approved", "--ignore", "amount", "--protected", "sex", "--model", "logistic"]


@pytest.fixture
def ja_nein(tmp_path):
    """A table whose classes sort the wrong way round."""
    frame = people()
    frame["approved"] = frame["approved"].map({"yes": "ja", "no": "nicht gut"})
    return write(frame, tmp_path / "people.csv")


def test_a_guessed_class_is_named_as_a_guess(run, ja_nein, tmp_path):
    result = run("fit", ja_nein, *FIT, "--rate-ratio", "0.8", "-o", tmp_path / "m")
    guess = "approved = nicht gut, which is a guess"
    assert guess in result.stderr
    assert "add --positive ja." in result.stderr
    assert "Decision counted as positive: approved = nicht gut." in result.stdout
    for name in ("report.html", "model-card.md"):
        text = (tmp_path / "m" / name).read_text()
        assert guess in text
        assert "Decision counted as positive" in text[: len(text) // 2]
    assert json.loads((tmp_path / "m" / "report.json").read_text())["settings"]["positive"] == "approved = nicht gut"


def test_a_class_that_was_named_is_no_guess(run, ja_nein, tmp_path):
    result = run("fit", ja_nein, *FIT, "--positive", "ja", "--rate-ratio", "0.8", "-o", tmp_path / "m")
    assert "guess" not in result.stderr + result.stdout
    assert "Decision counted as positive: approved = ja." in result.stdout
    assert "Decision counted as positive: **approved = ja**" in (tmp_path / "m" / "model-card.md").read_text()


def test_comparisons_have_the_words_of_the_target(run, ja_nein, tmp_path):
    model, out = tmp_path / "m", tmp_path / "out.csv"
    rate = ["--rate", "0.05", "--given", "ja"]
    said = [run("fit", ja_nein, *FIT, *rate, "--positive", "ja", "-o", model).stdout]
    said.append(run("predict", model, ja_nein, "-o", out).stdout)
    asked = ["audit", out, "--prediction", "probability", "--protected", "sex", "--target", "approved", *rate]
    said += [run(*asked, *more).stdout for more in ([], ["--positive", "ja"])]
    for text in (*said, (model / "report.html").read_text(), (model / "model-card.md").read_text()):
        assert "sex within target in {ja}" in text
        assert "target in {1}" not in text


def test_audit_counts_the_class_that_is_named(run, ja_nein, tmp_path):
    frame = pd.read_csv(ja_nein, keep_default_na=False)
    frame["p"] = (frame["age"] / 100).round(2)
    frame["truth"] = (frame["approved"] == "ja").astype(int)
    for data in (tmp_path / "p.csv", tmp_path / "p.parquet"):
        frame.to_csv(data, index=False) if data.suffix == ".csv" else frame.to_parquet(data)
        asked = ["audit", data, "--prediction", "p", "--protected", "sex", "--odds", "0.5", "--target"]
        words, numbers = run(*asked, "approved", "--positive", "ja"), run(*asked, "truth")
        assert words.exit_code == numbers.exit_code == 0, words.stderr
        assert "Decision counted as positive: approved = ja." in words.stdout
        assert "true positive" in words.stdout
        assert "within target ja" in words.stdout
        assert "within target nicht gut" in words.stdout
        same = [line for line in words.stdout.splitlines() if line.startswith(("everybody", "sex:"))]
        assert same == [line for line in numbers.stdout.splitlines() if line.startswith(("everybody", "sex:"))]
    assert "by --positive" in run(*asked, "approved").stdout


def test_confidence_says_what_was_aimed_at(run, ja_nein, tmp_path):
    few = run("fit", ja_nein, *FIT, "--parity", "0.05", "--confidence", "0.95", "-o", tmp_path / "few", code=0)
    enough = run("fit", ja_nein, *FIT, "--parity", "0.13", "--confidence", "0.95", "-o", tmp_path / "enough")
    for model, result, words in (
        ("few", few, "Aimed at the tolerances as stated. At 95 % confidence, too few samples to settle: mean parity"),
        ("enough", enough, "for 0.13. The population keeps the tolerance, at 95 % confidence."),
    ):
        assert words in result.stdout
        assert words in (tmp_path / model / "model-card.md").read_text()
        assert words in (tmp_path / model / "report.html").read_text()
        assert "aim for" not in result.stdout + (tmp_path / model / "model-card.md").read_text()
    said = run("predict", tmp_path / "few", ja_nein, "-o", tmp_path / "out.csv").stdout
    assert "for 0.05. The population keeps the tolerance, at 95 % confidence." in said
