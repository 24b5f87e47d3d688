"""Names with commas and blanks in them, in every option that takes several names."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fairlayer.cli.options import split_list

CLASSES = ["A, very good", "B", "C, poor"]
SIZE = "Größe, cm"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A table whose names and labels have commas."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    frame = pd.DataFrame(
        {
            SIZE: rng.choice([1, 3], 400),
            "sex": rng.choice(["f", "m"], 400),
            "town": rng.choice(["Rome, Italy", "Paris"], 400),
            "x, y": x[:, 0].round(3),
            "z": x[:, 1].round(3),
            "Datum des Antrags": [f"{i % 300}" for i in range(400)],
            "grade": np.array(CLASSES)[x.argmax(axis=1)],
        }
    )
    path = tmp_path_factory.mktemp("names") / "data.csv"
    frame.to_csv(path, index=False)
    return path


def test_lists_take_names_whole():
    known = {"a, b", "a", "c", " d"}.__contains__
    assert split_list(["a, b,c", "c, a", " d", "x,y"], known) == ["a, b", "c", "c", "a", " d", "x", "y"]


def test_from_fit_to_audit(run, data, tmp_path):
    asked = ["fit", data, "--target", "grade", "--protected", f"{SIZE}=2,sex", "--parity", f"{SIZE}=0.1,sex=0.2"]
    more = ["--ignore", "Datum des Antrags,x, y", "--model", "logistic", "-o", tmp_path / "m"]
    result = run(*asked, *more, code=0)
    assert "x, y is left out: as --ignore asks" in result.stderr
    assert "Datum des Antrags is left out: as --ignore asks" in result.stderr
    out = tmp_path / "out.csv"
    run("predict", tmp_path / "m", data, "-o", out, code=0)
    columns = [f"probability_{name}" for name in CLASSES]
    raw = ["--raw", ",".join(f"raw_{name}" for name in CLASSES)]
    judged = [
        "--protected",
        f"{SIZE}=2",
        "--parity",
        "0.1",
        "--over",
        SIZE,
        "--conditional",
        "0.9:town=Rome, Italy,Paris",
    ]
    said = [
        run("audit", out, *judged, *prediction, *raw).stdout
        for prediction in (["--prediction", ",".join(columns)], [w for c in columns for w in ("--prediction", c)])
    ]
    assert said[0] == said[1]
    assert all(f"class {name}" in said[0] for name in CLASSES)
    assert "within town in {Rome, Italy}" in said[0]
    result = run("audit", out, *judged, "--prediction", columns[0], *raw)
    assert "--raw names 3 columns, --prediction 1" in result.stderr


def test_suggestions_can_be_pasted(run, data, tmp_path):
    frame = pd.read_csv(data).assign(good=lambda f: (f["grade"] == "B").astype(int))
    frame["Das Ergebnis"] = frame["good"] + 1
    frame.to_csv(tmp_path / "d.csv", index=False)
    asked = ["--target", "good", "--protected", "sex", "--parity", "0.1", "--model", "logistic", "-o", tmp_path / "m"]
    assert "--ignore 'Das Ergebnis' leaves it out" in run("fit", tmp_path / "d.csv", *asked).stderr
