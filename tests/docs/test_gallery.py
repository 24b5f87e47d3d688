"""The scripts of the gallery run, and are shown as they are. Each asserts what it claims."""

from __future__ import annotations

import importlib.util
import runpy
import sys

import pytest
import torch
from built import ROOT, read

EXAMPLES = ROOT / "examples"
RUN_HERE = (
    *("audit_predictions", "boosting_through_the_layer", "conic_layer", "counts", "four_classes", "frozen_onnx"),
    *("hugging_face_trainer", "mlflow_run", "portfolio", "resource_allocation", "robot_control"),
    *("soft_groups", "stream_sqlite", "table"),
)
RUN_ELSEWHERE = (
    *("lightning_module", "plain_loop"),
    "torchrun_layer",
)
NEEDS = {
    "audit_predictions": "jinja2",
    "boosting_through_the_layer": "xgboost",
    "conic_layer": "cvxpylayers",
    "frozen_onnx": "onnxruntime",
    "hugging_face_trainer": "transformers",
    "mlflow_run": "mlflow",
    "table": "sklearn",
}


def run(name, monkeypatch):
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


@pytest.mark.parametrize("name", RUN_HERE)
def test_script_runs(name, capsys, monkeypatch):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    run(name, monkeypatch)
    assert len(capsys.readouterr().out.splitlines()) >= 2


def test_first_steps_run(capsys, monkeypatch):
    source = importlib.util.spec_from_file_location("first_steps", EXAMPLES / "first_steps.py")
    script = importlib.util.module_from_spec(source)
    source.loader.exec_module(script)
    everybody = script.applicants
    monkeypatch.setattr(script, "applicants", lambda n, seed: everybody(n // 10, seed))  # a tenth will do
    threads = torch.get_num_threads()
    script.main()
    torch.set_num_threads(threads)
    assert "ledger" in capsys.readouterr().out


def test_no_script_is_left_out():
    assert {script.stem for script in EXAMPLES.glob("*.py")} == {"first_steps", *RUN_HERE, *RUN_ELSEWHERE}


def test_every_script_is_shown(site):
    index = read(site / "gallery" / "index.html").links
    for script in EXAMPLES.glob("*.py"):
        assert f"{script.stem}.html" in index
        shown = "".join("".join(read(site / "gallery" / f"{script.stem}.html").text).split())
        code = script.read_text().split('"""', 2)[2]
        assert "".join(code.split()) in shown
