"""`fairlayer project`: the rows hold in exact arithmetic in the file written, and all else in it is as it was."""

from __future__ import annotations

from fractions import Fraction

import duckdb
import numpy as np
import pandas as pd
import pytest
from people import people, write

from exact import exact_dot
from fairlayer import ConditionalParity, EqualizedOdds, EqualizedResiduals, MeanParity, project


def scores(n, seed=0):
    frame = people(n, seed)
    random = np.random.default_rng(seed)
    frame["p"] = np.clip(0.3 * random.random(n) + 0.3 * (frame["sex"] == "male") + 0.003 * frame["age"], 0, 1)
    frame['odd name; "p" --'] = frame["p"]
    return frame


def exact_gap(values, labels):
    labels = np.asarray(labels)
    means = [exact_dot(values[labels == label]) / int((labels == label).sum()) for label in np.unique(labels)]
    return max(means) - min(means)


@pytest.mark.parametrize(("before", "after"), [("csv", "parquet"), ("parquet", "csv"), ("csv", "csv")])
def test_exact_and_nothing_else_changed(run, tmp_path, before, after):
    frame = scores(1000)
    data, out = tmp_path / f"scores.{before}", tmp_path / f"fair.{after}"
    if before == "csv":
        write(frame, data)
    else:
        duckdb.sql(f"COPY (SELECT * FROM frame) TO '{data}' (FORMAT parquet)")
    asked = ["--protected", "sex", "--protected", "race", "--parity", "0.02", "--bounds", "0", "1"]
    run("project", data, "--score", "p", *asked, "--keep-raw", "before", "-o", out, code=0)
    done = pd.read_csv(out, keep_default_na=False) if after == "csv" else duckdb.sql(f"SELECT * FROM '{out}'").df()
    y = done["p"].to_numpy(dtype=float)
    for name in ("sex", "race"):
        assert exact_gap(y, frame[name]) <= Fraction(0.02)
    assert y.min() >= 0
    assert y.max() <= 1
    expected = project(
        frame["p"].to_numpy(copy=True),
        {name: frame[name].to_numpy() for name in ("sex", "race")},
        [MeanParity(0.02)],
        (0, 1),
    )
    assert np.abs(y - expected.value).max() < 1e-9
    assert list(done.columns) == [*frame.columns, "before"]
    assert done["name"].tolist() == frame["name"].tolist()
    assert done["town"].fillna("").tolist() == frame["town"].tolist()
    assert np.array_equal(done["before"].to_numpy(dtype=float), frame["p"])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([data.name, out.name])


def test_text_is_kept_to_the_letter(run, tmp_path):
    data = tmp_path / "scores.csv"
    data.write_text('id,g,p,note\n007,a,0.90,"NA"\n008,b,0.1,"say ""hi"", x"\n009,a,1e-1,\n010,b,0.20,  spaced  \n')
    run("project", data, "--prediction", "p", "--protected", "g", "--parity", "1", "-o", tmp_path / "o.csv", code=0)
    before, after = (pd.read_csv(path, dtype=str, keep_default_na=False) for path in (data, tmp_path / "o.csv"))
    assert after[["id", "g", "note"]].equals(before[["id", "g", "note"]])
    assert after["p"].astype(float).equals(before["p"].astype(float))  # the tolerance asks for no change


def test_a_file_from_a_spreadsheet(run, tmp_path):
    """A byte order mark, semicolons, lines that end in two characters, and one within quotes."""
    data = tmp_path / "scores.csv"
    data.write_bytes('\ufeffgroup;p;note\r\na;0.9;"two\r\nlines"\r\nb;0.1;\r\na;0.5;x\r\nb;0.4;y\r\n'.encode())
    asked = ["--score", "p", "--protected", "group", "--parity", "0.1", "-o", tmp_path / "o.csv"]
    run("project", data, *asked, code=0)
    done = pd.read_csv(tmp_path / "o.csv", keep_default_na=False)
    assert done["note"].tolist() == ["two\r\nlines", "", "x", "y"]
    assert exact_gap(done["p"].to_numpy(), done["group"]) <= Fraction(0.1)


def test_strange_names(run, tmp_path):
    frame = scores(500)
    frame = frame.rename(columns={"sex": 'a "group" -- $path'})
    frame.loc[:9, 'a "group" -- $path'] = "<script>alert('x')</script>"
    data = write(frame, tmp_path / "scores.csv")
    name = 'odd name; "p" --'
    asked = ["--protected", 'a "group" -- $path', "--parity", "0.01", "-o", tmp_path / "o.csv"]
    run("project", data, "--score", name, *asked, code=0)
    done = pd.read_csv(tmp_path / "o.csv")
    assert exact_gap(done[name].to_numpy(), frame['a "group" -- $path']) <= Fraction(0.01)


@pytest.mark.parametrize(
    ("options", "constraints"),
    [
        (
            ["--conditional", "0.03:age=30,50", "--conditional", "0.01:age=40", "--conditional", "0.05:job"],
            [
                ConditionalParity(0.03, regions={"age": [(None, 30), (30, 50), (50, None)]}),
                ConditionalParity(0.01, regions={"age": [(None, 40), (40, None)]}),
                ConditionalParity(0.05, regions={"job": [{"clerk"}, {"cook"}, {"pilot"}]}),
            ],
        ),
        (["--odds", "0.03", "--target", "approved"], [EqualizedOdds(0.03)]),
        (
            ["--odds", "0.03:100,150", "--target", "amount"],
            [EqualizedOdds(0.03, regions=[(None, 100), (100, 150), (150, None)])],
        ),
        (["--parity", "0.05", "--residuals", "15", "--target", "amount"], [MeanParity(0.05), EqualizedResiduals(15)]),
    ],
)
def test_every_constraint(run, tmp_path, options, constraints):
    frame = scores(2000, seed=1)
    data = write(frame, tmp_path / "scores.csv")
    run("project", data, "--score", "p", "--protected", "sex", *options, "-o", tmp_path / "o.csv", code=0)
    targets = frame["approved" if "approved" in options else "amount"].to_numpy()
    expected = project(
        frame["p"].to_numpy(copy=True), {"sex": frame["sex"].to_numpy()}, constraints, targets=targets, features=frame
    )
    assert np.abs(pd.read_csv(tmp_path / "o.csv")["p"] - expected.value).max() < 1e-9


def test_what_floats_cannot_do_is_said(run, tmp_path):
    data = write(scores(300, seed=4), tmp_path / "scores.csv")
    asked = ["--protected", "sex", "--parity", "0", "-o", tmp_path / "o.csv"]
    result = run("project", data, "--score", "p", *asked, code=1)
    assert "No numbers of the output's dtype were found" in " ".join(result.stdout.split())
