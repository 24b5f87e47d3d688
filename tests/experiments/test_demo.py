"""`./dev demo`: every promise kept, and files that the command line takes."""

from __future__ import annotations

import json

import pandas as pd
import pytest

pytest.importorskip("typer")
pytest.importorskip("jinja2")

from typer.testing import CliRunner

from experiments import demo
from fairlayer.cli.app import app


def test_demo(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(demo, "EPOCHS", 4)
    assert demo.main(["-o", str(tmp_path / "demo")]) == 0
    said = capsys.readouterr().out
    for name in ("boosted trees", "network", "ledger", "female", "95 % confidence"):
        assert name in said
    report = json.loads((tmp_path / "demo" / "report.json").read_text())
    assert report["satisfied"] is True
    assert report["verdict"] == "satisfied"  # for the population, too
    predictions = pd.read_csv(tmp_path / "demo" / "predictions.csv")
    assert list(predictions.columns) == ["sex", "age", "repaid", "raw", "prediction"]
    asked = ["--prediction", "prediction", "--raw", "raw", "--target", "repaid", "--protected", "sex,age"]
    audit = ["audit", str(tmp_path / "demo" / "predictions.csv"), *asked, "--parity", "0.08"]
    assert CliRunner().invoke(app, audit).exit_code == 0


def test_a_file_is_no_folder(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert demo.main(["-o", str(tmp_path / "file")]) == 2
    assert "is a file" in capsys.readouterr().err
