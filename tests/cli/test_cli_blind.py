"""`fairlayer fit --serving blind`, and predictions that no protected attribute is needed for."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from people import people, write

from fairlayer.constraints.plain_data import record_from_plain
from fairlayer.tables.schema import Schema

ASKED = ["--target", "approved", "--ignore", "amount", "--protected", "sex", "--parity", "0.1", "--model", "logistic"]


@pytest.fixture(scope="module")
def fitted(run, tmp_path_factory):
    """The folder of a model that is served blind, and what fit said."""
    folder = tmp_path_factory.mktemp("blind")
    data = write(people(3000), folder / "people.csv")
    result = run("fit", data, *ASKED, "--serving", "blind", "-o", folder / "model", code=0)
    return folder / "model", result


def test_fit_says_what_is_promised(fitted):
    folder, result = fitted
    assert "Served blind, so the guarantee is about the population. With 95 % confidence" in result.stderr
    assert "estimator.skops" in result.stderr
    told = json.loads((folder / "model.json").read_text())
    assert told["settings"]["serving"] == "blind"
    assert "sex" not in record_from_plain(Schema, told["table"]["schema"]).features
    assert "Served blind" in (folder / "report.html").read_text()


def test_predict_needs_no_protected_attribute(run, fitted, tmp_path):
    folder, _ = fitted
    frame = people(400, seed=1)
    out = []
    for name, table in (("with", frame), ("without", frame.drop(columns="sex")), ("one", frame.iloc[:1])):
        result = run("predict", folder, write(table, tmp_path / f"{name}.csv"), "-o", tmp_path / f"{name}-out.csv")
        assert result.exit_code == 0, result.stderr
        assert "Mode: blind." in result.stdout
        out.append(pd.read_csv(tmp_path / f"{name}-out.csv")["probability"].to_numpy())
    assert (out[0] == out[1]).all()
    assert np.allclose(out[0][:1], out[2], atol=1e-12)


def test_other_modes_are_refused(run, fitted, tmp_path):
    folder, _ = fitted
    data = write(people(50, seed=2), tmp_path / "new.csv")
    result = run("predict", folder, data, "-o", tmp_path / "out.csv", "--mode", "frozen", code=2)
    assert "looks at no protected attribute" in result.stderr
    assert not (tmp_path / "out.csv").exists()
