"""`fairlayer fit --model`: boosted trees, linear models, and the choice between them."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from people import people, write

from fairlayer import MeanParity
from fairlayer.estimators.folder import load
from fairlayer.gaps import measure
from fairlayer.problem.constraint_set import ConstraintSet

ASKED = ["--protected", "sex", "--protected", "race", "--parity", "0.05", "--merge-rare", "30"]
CLASSES = ["--target", "approved", "--ignore", "amount"]
NUMBERS = ["--target", "amount", "--ignore", "approved"]


@pytest.fixture(scope="module")
def boosted(run, tmp_path_factory):
    """A folder of boosted trees."""
    folder = tmp_path_factory.mktemp("boosted")
    data = write(people(), folder / "people.csv")
    result = run("fit", data, *CLASSES, *ASKED, "--model", "boosting", "-o", folder / "model", code=0)
    assert "estimator.skops" in result.stderr
    return folder / "model"


def test_a_folder_of_boosted_trees_predicts_in_every_mode(run, boosted, tmp_path):
    assert "gradient boosted trees" in (boosted / "model-card.md").read_text()
    frame = people(500, seed=1)
    frame.loc[:3, "town"] = "a town never seen before"
    data = write(frame, tmp_path / "new.csv")
    raw = []
    for mode, more in (("batch", []), ("frozen", []), ("stream", ["--state", tmp_path / "s.db", "--batch-size", "50"])):
        out = tmp_path / f"{mode}.csv"
        run("predict", boosted, data, "-o", out, "--mode", mode, *more, code=0)
        done = pd.read_csv(out)
        raw.append(done["raw"].to_numpy())
        assert (done["prediction"] == np.where(done["probability"] >= 0.5, "yes", "no")).all()
        if mode != "frozen":
            groups = {name: done[name].to_numpy() for name in ("sex", "race")}
            assert measure(done["probability"].to_numpy(), ConstraintSet([MeanParity(0.05)]), groups).satisfied
        asked = ["audit", out, "--prediction", "probability", "--raw", "raw", "--protected", "sex", "--parity", "0.05"]
        assert run(*asked, "-o", tmp_path / f"{mode}.html").exit_code in ((0, 1) if mode == "frozen" else (0,))
    assert (raw[0] == raw[1]).all()
    assert (raw[0] == raw[2]).all()


@pytest.mark.parametrize("model", ["linear", "boosting"])
def test_models_of_numbers(run, table, tmp_path, model):
    asked = ["--protected", "sex", "--parity", "5", "--model", model, "-o", tmp_path / "model"]
    run("fit", table, *NUMBERS, *asked, code=0)
    assert "fairness by projection after training" in (tmp_path / "model" / "model-card.md").read_text()
    run("predict", tmp_path / "model", table, "-o", tmp_path / "out.csv", code=0)


@pytest.mark.parametrize("target", [CLASSES, NUMBERS], ids=["classes", "numbers"])
def test_auto_keeps_the_best_and_says_so(run, tmp_path, target):
    data = write(people(), tmp_path / "people.csv")
    tolerance = "0.05" if target is CLASSES else "5"
    asked = ["--protected", "sex", "--parity", tolerance, "--epochs", "1", "--model", "auto"]
    result = run("fit", data, *target, *asked, "-o", tmp_path / "model", code=0)
    assert "On the rows kept to choose a model" in result.stdout
    assert "Chosen: " in result.stderr
    named = result.stderr.partition("Chosen: ")[2].partition(",")[0]
    assert named != "a network with two hidden layers"  # which had one epoch
    notes = json.loads((tmp_path / "model" / "report.json").read_text())["notes"]
    assert any(note.startswith(f"Chosen: {named}") for note in notes)
    assert f"Chosen: {named}" in (tmp_path / "model" / "model-card.md").read_text()
    assert f"Chosen: {named}" in (tmp_path / "model" / "report.html").read_text()
    step = load(tmp_path / "model").estimator_.steps[-1][1]
    kinds = {"gradient boosted trees": "HistGradient", "logistic regression": "Logistic", "linear regression": "Ridge"}
    assert type(step).__name__.startswith(next(kind for name, kind in kinds.items() if named.startswith(name)))
