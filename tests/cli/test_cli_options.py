"""What is read from options, and how rows are split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from people import people, write

from fairlayer.cli.learning import split
from fairlayer.cli.options import ConstraintOptions, read_attributes, read_bounds
from fairlayer.tables.entries import Attribute, read_cuts
from fairlayer.tables.schema import Rows
from fairlayer.tables.table_io import Source, TableFile


def source_of(frame):
    return Source(Path("table.csv"), dict.fromkeys(frame.columns, "VARCHAR"))


def test_options_are_read():
    assert read_cuts("30,50", "--x") == (30.0, 50.0)
    assert read_bounds((-np.inf, 3.0)) == (None, 3.0)
    assert read_bounds(None) is None


def test_a_split_keeps_the_shares_of_groups():
    frame = people(1000)
    groups = {"sex": frame["sex"].to_numpy(dtype=object), "race": frame["race"].to_numpy(dtype=object)}
    groups["race"][5] = "alone"
    train, held = split(Rows(frame, np.arange(1000.0), groups), 0.25, seed=0)
    assert len(train) + len(held) == 1000
    assert sorted([*train.y, *held.y]) == list(range(1000))
    assert len(held) == pytest.approx(250, abs=1)
    for label in ("female", "male"):
        share = (held.groups["sex"] == label).sum() / (groups["sex"] == label).sum()
        assert share == pytest.approx(0.25, abs=0.02)
    assert "alone" in train.groups["race"].tolist()


def test_attributes_can_be_listed():
    source = source_of(people(5).assign(**{"a,b": 1}))
    read = read_attributes(["sex,race", "age=30,50,disabled", "a,b"], source)
    assert read == [
        Attribute("sex"),
        Attribute("race"),
        Attribute("age", (30.0, 50.0)),
        *map(Attribute, ("disabled", "a,b")),
    ]
    assert read_attributes(["age=30,50"], source) == [Attribute("age", (30.0, 50.0))]


@pytest.fixture
def constraints(tmp_path):
    with TableFile(write(people(50), tmp_path / "table.csv")) as table:

        def of(**options):
            attributes = [Attribute("sex"), Attribute("race"), Attribute("disabled")]
            made = ConstraintOptions(**options).read(table, attributes)
            return [(type(entry).__name__, entry.tolerance, entry.over) for entry in made]

        yield of


def test_tolerances_and_groups_are_read(constraints):
    assert constraints(parity="0.1") == [("MeanParity", 0.1, None)]
    assert constraints(parity="sex=0.1,race+sex=0.2", over=["disabled"]) == [
        ("MeanParity", 0.1, "sex"),
        ("MeanParity", 0.2, ("race", "sex")),
    ]
    assert constraints(residual_mean="0.1", residuals="sex=1", over=["race+sex,race", "disabled"]) == [
        ("EqualizedResiduals", 1.0, "sex"),
        ("ResidualMean", 0.1, [("race", "sex"), "race", "disabled"]),
    ]
    assert constraints(odds="sex=0.1,race=0.2:30,50") == [("EqualizedOdds", 0.1, "sex"), ("EqualizedOdds", 0.2, "race")]
    assert constraints(conditional=["sex=0.1:town"]) == [("ConditionalParity", 0.1, "sex")]
