"""Help for everything, and what all commands have in common."""

from __future__ import annotations

import subprocess
import sys

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from fairlayer.cli.app import app, sentence
from fairlayer.errors import InputError
from fairlayer.nearest import nearest

COMMANDS = typer.main.get_command(app).commands
STREAM = COMMANDS["stream"].commands
NAMES = ["fit", "predict", "audit", "project", "stream"]
ALL = [*((name,) for name in NAMES), *(("stream", name) for name in STREAM)]


def test_the_commands():
    assert list(COMMANDS) == NAMES
    assert list(STREAM) == ["list", "show", "verify", "certificate", "export"]


@pytest.mark.parametrize("name", ALL, ids=" ".join)
def test_every_option_is_a_sentence_in_help(run, name):
    command = COMMANDS[name[0]] if len(name) == 1 else STREAM[name[1]]
    assert command.help
    result = run(*name, "--help", code=0)
    assert "Usage" in result.stdout
    assert "bool" not in result.stdout  # flags take no value
    for parameter in command.params:
        assert parameter.help[0].isupper(), parameter.name
        assert parameter.help.endswith((".", "...")), parameter.name
        assert all(option in result.stdout for option in parameter.opts if option.startswith("--"))


def test_help_and_version(run):
    assert run("--version").stdout.startswith("fairlayer 0")
    result = run("--help", code=0)
    assert all(name in result.stdout for name in NAMES)
    assert "Exit codes" in result.stdout
    assert "bool" not in result.stdout


@pytest.mark.parametrize("words", [[], ["stream"]])
def test_no_command_shows_help(run, words):
    result = run(*words, code=2)
    assert "Usage" in result.stdout


def test_help_loads_little():
    """What is slow is imported when a command runs."""
    command = [sys.executable, "-X", "importtime", "-m", "fairlayer", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    loaded = {line.rpartition("|")[2].strip() for line in told.splitlines() if line.startswith("import time:")}
    assert "fairlayer.cli.fit" in loaded
    assert not {"torch", "sklearn", "scipy", "numpy", "pandas", "duckdb", "jinja2"} & loaded
    ours = {name for name in loaded if name.startswith("fairlayer")}
    assert len(ours) < 30, sorted(ours)


def test_shells_complete():
    def completed(words):
        asked = {"_FAIRLAYER_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return CliRunner().invoke(app, prog_name="fairlayer", env=asked).stdout.split()

    assert completed("fairlayer pr") == ["predict", "project"]
    assert completed("fairlayer fit --residuals") == ["--residuals"]
    assert completed("fairlayer fit --method pro") == ["projection"]


@pytest.mark.parametrize(
    ("typed", "known", "meant"),
    [
        ("fti", ["fit", "predict"], "fit"),
        ("race", ["grade", "rate_of_pay"], None),
        ("Sexe", ["sex", "age"], "sex"),
        ("condit", ["conditional", "seed"], "conditional"),
        ("y", ["x", "z"], None),
        ("id", ["odds"], None),
    ],
)
def test_only_what_is_near_is_suggested(typed, known, meant):
    assert nearest(typed, known) == meant


def test_errors_are_one_line():
    assert sentence(InputError("two\n  lines")) == "two lines"
    assert sentence(OSError(2, "No such file", "x")) == "x: No such file."
    assert sentence(ZeroDivisionError("a fault of ours")) is None


def test_a_file_is_read_by_its_name_and_no_other(run, tmp_path):
    """Neither patterns in its name nor the names of its folders are anything but names."""
    place = tmp_path / "sex=f"
    place.mkdir()
    for name, shift in (("a*b.csv", 0.0), ("axb.csv", 9.0)):
        rows = [f"{sex},{shift + k}" for k in range(6) for sex in ("f", "m")]
        (place / name).write_text("sex,p\n" + "\n".join(rows) + "\n")
    asked = ["--score", "p", "--protected", "sex", "--parity", "0.1"]
    run("project", place / "a*b.csv", *asked, "-o", place / "fair.csv", code=0)
    fair = pd.read_csv(place / "fair.csv")
    assert len(fair) == 12
    assert set(fair["sex"]) == {"f", "m"}
    assert fair["p"].max() < 9


def test_a_fault_of_the_program_is_no_verdict(run, monkeypatch, tmp_path):
    def broken(*arguments, **options):
        raise RuntimeError("boom")

    monkeypatch.setattr("fairlayer.cli.audit.open_source", broken)
    result = run("audit", tmp_path / "x.csv", "--prediction", "p", "--protected", "sex", "--parity", "0.1", code=2)
    assert "please report it" in result.stderr
