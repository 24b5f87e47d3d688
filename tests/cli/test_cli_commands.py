"""Help for everything, and the commands that are not about a table of one's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pandas as pd
import pytest
import typer

from fairlayer.cli.app import app, sentence
from fairlayer.cli.commands import described, read_options
from fairlayer.errors import InputError
from fairlayer.nearest import nearest

COMMAND = typer.main.get_command(app)
NAMES = ["fit", "predict", "audit", "project", "demo", "reproduce", "bench", "warm-up", "stream"]


def test_the_commands():
    assert list(COMMAND.commands) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_option_has_help(run, name):
    command = COMMAND.commands[name]
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), parameter.name
    result = run(name, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.stdout
    for parameter in command.params:
        for option in parameter.opts:
            if option.startswith("--"):
                assert option in result.stdout


def test_options_are_read_from_a_docstring():
    prose, options = read_options(
        """What it does: this.

        DATA: A file.
        --output, -o FILE: Where to: here,
        or there.

        More of it:
        --odds TOL[:CUTS]: Equal odds.
        --seed N >= 3: A number.
        --quick: Be quick.
        """
    )
    assert prose == "What it does: this."
    assert list(options) == ["data", "output", "odds", "seed", "quick"]
    assert (options["output"].default, *options["output"].param_decls) == ("--output", "-o")
    assert options["output"].help == "Where to: here, or there."
    assert [one.metavar for one in options.values()] == ["DATA", "FILE", "TOL[:CUTS]", "N", None]
    assert [one.rich_help_panel for one in options.values()] == [None, None, *["More of it"] * 3]
    assert options["seed"].min == 3


def test_an_option_that_is_not_described_is_an_error():
    def command(number: int = 0) -> int:
        """What it does."""
        return number

    with pytest.raises(KeyError, match="number"):
        described(command)


def test_help_and_version(run):
    assert run("--version").stdout.startswith("fairlayer 0")
    result = run("--help")
    assert result.exit_code == 0
    for name in NAMES:
        assert name in result.stdout
    assert "Exit codes" in result.stdout


def test_no_arguments_shows_help(run):
    result = run()
    assert result.exit_code == 2
    assert "Usage" in result.stdout


def process(*arguments, **environment):
    """A command as a terminal runs it."""
    command = [sys.executable, "-m", "fairlayer", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


def test_help_loads_little():
    """What is slow is imported when a command runs."""
    result = process("--help", PYTHONPROFILEIMPORTTIME="1")
    loaded = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines() if line.startswith("import time:")}
    assert "fairlayer.cli.fit" in loaded
    assert not {"torch", "numba", "sklearn", "scipy", "numpy", "pandas", "duckdb", "jinja2"} & loaded
    ours = {name for name in loaded if name.startswith("fairlayer")}
    assert len(ours) < 30, sorted(ours)


@pytest.mark.parametrize("name", NAMES)
def test_flags_take_no_value(run, name):
    assert "bool" not in run(name, "--help").stdout
    assert "bool" not in run("--help").stdout


def test_shells_complete():
    def completed(words):
        asked = {"_FAIRLAYER_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return process(**asked).stdout.split()

    assert completed("fairlayer pr") == ["predict", "project"]
    assert completed("fairlayer fit --residuals") == ["--residuals"]
    assert completed("fairlayer fit --method lag") == ["lagrangian"]
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # there may be no shell to be found
    assert "_FAIRLAYER_COMPLETE" in process("--show-completion", "bash", **named).stdout


@pytest.mark.parametrize(
    ("typed", "known", "meant"),
    [
        ("fti", ["fit", "predict"], "fit"),
        ("bla", ["fit", "audit", "bench"], None),
        ("race", ["grade", "rate_of_pay"], None),
        ("Sexe", ["sex", "age"], "sex"),
        ("condit", ["conditional", "seed"], "conditional"),
        ("protcetde", ["protected"], "protected"),
        ("y", ["x", "z"], None),
        ("id", ["odds"], None),
    ],
)
def test_only_what_is_near_is_suggested(typed, known, meant):
    assert nearest(typed, known) == meant


def test_options_that_are_not_there(run):
    assert "--zzz. See" in run("fit", "--zzz").stderr
    assert "There is no option --sax. See" in run("fit", "--sax").stderr
    assert "Did you mean --parity?" in run("fit", "--prity", "1").stderr


def test_errors_are_one_line():
    assert sentence(InputError("two\n  lines")) == "two lines"
    assert sentence(OSError(2, "No such file", "x")) == "x: No such file."
    assert sentence(ZeroDivisionError("a fault of ours")) is None


def test_demo(run, monkeypatch, tmp_path):
    monkeypatch.setenv("FAIRLAYER_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr("fairlayer.cli.demo.EPOCHS", 4)
    result = run("demo", "-o", tmp_path / "demo")
    assert result.exit_code == 0, result.stdout + result.stderr
    for name in ("boosted trees", "network", "satisfied", "ledger", "female", "95 % confidence"):
        assert name in result.stdout
    report = json.loads((tmp_path / "demo" / "report.json").read_text())
    assert report["satisfied"] is True
    assert report["verdict"] == "satisfied"  # for the population, too
    assert len(report["comparison"]) == 3
    predictions = pd.read_csv(tmp_path / "demo" / "predictions.csv")
    assert list(predictions.columns) == ["sex", "age", "repaid", "raw", "prediction"]
    asked = ["--prediction", "prediction", "--raw", "raw", "--target", "repaid", "--protected", "sex,age"]
    assert run("audit", tmp_path / "demo" / "predictions.csv", *asked, "--parity", "0.08").exit_code == 0


@pytest.mark.parametrize(("command", "folder"), [("reproduce", "experiments"), ("bench", "benchmarks")])
def test_outside_a_checkout(run, monkeypatch, tmp_path, command, folder):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fairlayer.cli.checkout.__file__", str(tmp_path / "a" / "b" / "c" / "checkout.py"))
    result = run(command, "loan")
    assert result.exit_code == 2
    assert f"The folder {folder}/ is part of the repository" in result.stderr


def test_bench_and_reproduce_run_in_the_checkout(run, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr("fairlayer.cli.checkout.run", lambda root, arguments: calls.append(arguments) or 0)
    assert run("bench", "floor", "--quick", "--sizes", "16").exit_code == 0
    assert calls == [["benchmarks/run.py", "floor", "--quick", "--seed", "20000", "--sizes", "16"]]
    assert run("reproduce", "loan", "--profile", "quick", "--resume").exit_code == 0
    assert calls[1][:5] == ["-m", "experiments", "loan", "--profile", "quick"]
    assert calls[1][-1] == "--resume"
    monkeypatch.chdir(tmp_path)
    assert run("reproduce", "loan", "--folder", "mine").exit_code == 0
    assert calls[2][-2:] == ["--folder", str(tmp_path / "mine")]


def test_a_file_is_read_by_its_name_and_no_other(run, tmp_path):
    """Neither patterns in its name nor the names of its folders are anything but names."""
    place = tmp_path / "sex=f"
    place.mkdir()
    for name, shift in (("a*b.csv", 0.0), ("axb.csv", 9.0)):
        rows = [f"{sex},{shift + k}" for k in range(6) for sex in ("f", "m")]
        (place / name).write_text("sex,p\n" + "\n".join(rows) + "\n")
    asked = ["--score", "p", "--protected", "sex", "--parity", "0.1"]
    assert run("project", place / "a*b.csv", *asked, "-o", place / "fair.csv").exit_code == 0
    fair = pd.read_csv(place / "fair.csv")
    assert len(fair) == 12
    assert set(fair["sex"]) == {"f", "m"}
    assert fair["p"].max() < 9


def test_a_fault_of_the_program_is_no_verdict(run, monkeypatch, tmp_path):
    def broken(*arguments, **options):
        raise RuntimeError("boom")

    monkeypatch.setattr("fairlayer.cli.audit.open_source", broken)
    result = run("audit", tmp_path / "x.csv", "--prediction", "p", "--protected", "sex", "--parity", "0.1")
    assert result.exit_code == 2
