"""`--constraint`: any constraint, written as in Python, also one of the user's own."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from people import FIT, people, write

from fairlayer import EqualizedOdds, EqualizedResiduals, MeanParity, project
from fairlayer.estimators.folder import read

OWN = '''
from dataclasses import dataclass
from typing import ClassVar

from fairlayer.constraints import Condition, GroupConstraint


@dataclass(frozen=True, eq=False)
class AmongAdults(GroupConstraint):
    """Mean parity among those of a given age."""

    title: ClassVar[str] = "parity among adults"

    @property
    def conditions(self):
        return (Condition("feature", "age", ((40, None),)),)
'''

# Runs commands in a process of its own: the constraint would stay known in this one.
ALL = """
import json, sys
from typer.testing import CliRunner
from fairlayer.cli.app import app
done = [CliRunner().invoke(app, ["--import", "own", *words]) for words in json.loads(sys.argv[1])]
print(json.dumps([[one.exit_code for one in done], [one.output for one in done]]))
"""


def scores(n, seed=0):
    frame = people(n, seed)
    frame["p"] = 0.3 * np.random.default_rng(seed).random(n) + 0.3 * (frame["sex"] == "male") + 0.003 * frame["age"]
    return frame


@pytest.mark.parametrize(
    ("words", "target", "constraints"),
    [
        (['MeanParity(0.01, over="sex")'], None, [MeanParity(0.01, over="sex")]),
        (
            ['MeanParity(0.02, over=("sex", "race"))', "MeanParity(0.01, over='sex')"],
            None,
            [MeanParity(0.02, over=("sex", "race")), MeanParity(0.01, over="sex")],
        ),
        (
            ["EqualizedOdds(0.05, regions=[(None, 150), (150, None)])", "EqualizedResiduals(15, over='sex')"],
            "amount",
            [EqualizedOdds(0.05, regions=[(None, 150), (150, None)]), EqualizedResiduals(15, over="sex")],
        ),
    ],
)
def test_project_onto_what_is_written(run, tmp_path, words, target, constraints):
    frame = scores(1000)
    data, out = write(frame, tmp_path / "scores.csv"), tmp_path / "o.csv"
    asked = [part for text in words for part in ("--constraint", text)]
    asked += [] if target is None else ["--target", target]
    run("project", data, "--score", "p", "--protected", "sex,race", *asked, "-o", out, code=0)
    groups = {name: frame[name].to_numpy() for name in ("sex", "race")}
    targets = None if target is None else frame[target].to_numpy()
    expected = project(frame["p"].to_numpy(copy=True), groups, constraints, targets=targets)
    assert np.abs(pd.read_csv(out)["p"] - expected.value).max() < 1e-9


def test_over_is_for_what_names_no_groups(run, tmp_path):
    data = write(scores(400), tmp_path / "scores.csv")
    asked = ["--prediction", "p", "--protected", "sex,race", "--over", "sex"]
    shown = run("audit", data, *asked, "--constraint", "MeanParity(1)").stdout
    assert "mean parity, sex" in shown
    assert "mean parity, race" not in shown
    assert "mean parity, race" in run("audit", data, *asked, "--constraint", "MeanParity(1, over='race')").stdout


def test_fit_keeps_it_in_the_folder(run, table, tmp_path):
    words = 'MeanParity(0.1, over=["sex", ("sex", "disabled")], name="alike")'
    options = [*FIT[:-4], "--model", "logistic", "--constraint", words]
    run("fit", table, "--target", "approved", "--ignore", "amount", *options, "-o", tmp_path / "model", code=0)
    (kept,) = read(tmp_path / "model")["constraints"]
    assert kept == MeanParity(0.1, over=["sex", ("sex", "disabled")], name="alike").to_data()
    result = run("predict", tmp_path / "model", table, "-o", tmp_path / "out.csv", code=0)
    assert "alike, sex & disabled" in result.stdout


def test_a_constraint_of_ones_own(tmp_path):
    """Imported from the working folder, for every command, and to read it from a model folder."""
    (tmp_path / "own.py").write_text(OWN)
    frame = scores(600)
    write(frame, tmp_path / "scores.csv")
    asked = ["--protected", "sex", "--constraint", "AmongAdults(0.01)"]
    commands = [
        ["project", "scores.csv", "--score", "p", *asked, "-o", "fair.csv"],
        ["audit", "fair.csv", "--prediction", "p", *asked],
        ["fit", "scores.csv", "--target", "approved", "--ignore", "amount", "--model", "logistic", *asked, "-o", "m"],
        ["predict", "m", "scores.csv", "-o", "out.csv"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", ALL, json.dumps(commands)], capture_output=True, text=True, cwd=tmp_path
    )
    codes, said = json.loads(done.stdout)
    assert codes[0] == codes[1] == codes[3] == 0, done.stderr + str(said)
    assert "parity among adults, sex" in said[1]
    fair = pd.read_csv(tmp_path / "fair.csv")
    old = fair[frame["age"] >= 40].groupby("sex")["p"].mean()
    assert abs(old["male"] - old["female"]) <= 0.01 + 1e-12
    assert fair["p"][frame["age"] < 40].equals(frame["p"][frame["age"] < 40])
