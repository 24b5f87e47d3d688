"""What is inferred from a table, and how columns are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from people import people

from fairlayer.cli.learning import Part, split
from fairlayer.cli.options import Attribute, intervals, read_bounds, read_cuts
from fairlayer.errors import InputError
from fairlayer.tables.schema import Schema, group_labels, infer, is_number, numbers, text_labels
from fairlayer.tables.table_io import Source


def source_of(frame):
    return Source(Path("table.csv"), dict.fromkeys(frame.columns, "VARCHAR"))


def inferred(frame, **options):
    options = {"target": "approved", "attributes": [Attribute("sex")], **options}
    return infer(frame.astype(object), source_of(frame), **options)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", " 2.5 ", "", "?"], True),
        (["1e3", "-4", "NA"], True),
        (["1", "two"], False),
        (["", "NA"], False),
        ([True, False], False),
        ([True, None], False),
        ([1.0, None], True),
        (["2020-01-01"], False),
    ],
)
def test_numbers_are_told_from_text(values, expected):
    assert is_number(pd.Series(values)) is expected


def test_numbers_are_read():
    assert numbers(pd.Series([" 2.5 ", "?", "NA", "1e3", "inf"]), "x").tolist()[0::3] == [2.5, 1000.0]
    assert np.isnan(numbers(pd.Series(["?", None, "inf"]), "x")).all()
    with pytest.raises(InputError, match="Column 'x' holds 'two' in row 2"):
        numbers(pd.Series(["1", "two"]), "x")


def test_labels_are_text_whatever_their_type():
    for values in (["1", "0", ""], [1, 0, None], [1.0, 0.0, np.nan]):
        assert text_labels(pd.Series(values)).tolist() == ["1", "0", "missing"]
    for values in ([True, False], ["True", "False"], ["TRUE", "FALSE"], ["true", "false"]):
        assert text_labels(pd.Series(values)).tolist() == ["true", "false"]
    assert text_labels(pd.Series([" a", "a", "NA", "?"])).tolist() == [" a", "a", "missing", "missing"]


def test_cut_points_make_groups():
    frame = pd.DataFrame({"age": ["29.9", "30", "49", "50", ""]})
    found = group_labels(frame, Attribute("age", (30.0, 50.0))).tolist()
    assert found == ["below 30", "30 to 50", "30 to 50", "50 or more", "missing"]


def test_options_are_read():
    assert read_cuts("30,50", "--x") == (30.0, 50.0)
    assert intervals((30.0, 50.0)) == [(None, 30.0), (30.0, 50.0), (50.0, None)]
    assert read_bounds((-np.inf, 3.0)) == (None, 3.0)
    assert read_bounds(None) is None


def test_a_schema_survives_json():
    schema, _, notes = inferred(people(), merge_rare=20, attributes=[Attribute("sex"), Attribute("age", (30.0,))])
    assert Schema.from_data(schema.to_data()) == schema
    assert any("name: left out" in note for note in notes)


@pytest.mark.parametrize(
    ("target", "options", "task", "positive", "negative"),
    [
        (["yes", "no"], {}, "classification", "yes", "no"),
        (["0", "1"], {}, "classification", "1", "0"),
        (["10", "9"], {}, "classification", "10", "9"),
        (["0", "1"], {"task": "regression"}, "regression", None, None),
        (["1", "2", "3"], {}, "regression", None, None),
        (["1", "2", "3"], {"positive": "2"}, "classification", "2", None),
        (["a", "b", "c"], {"positive": "c"}, "classification", "c", None),
        (["yes", "no"], {"positive": "no"}, "classification", "no", "yes"),
    ],
)
def test_the_task_is_inferred(target, options, task, positive, negative):
    frame = people(120).assign(approved=(target * 120)[:120])
    schema, _, _ = inferred(frame, **options)
    assert (schema.task, schema.positive, schema.negative) == (task, positive, negative)


def test_rows_without_a_target_are_left_out():
    frame = people(120)
    frame.loc[:9, "approved"] = "NA"
    _, kept, notes = inferred(frame)
    assert len(kept) == 110
    assert notes[0] == "10 rows have no approved and are left out."


def test_new_labels_join_the_others_once_rare_ones_were_joined():
    frame = people(400)
    schema, kept, _ = inferred(frame, attributes=[Attribute("race")], merge_rare=100)
    assert set(schema.groups(kept)["race"].tolist()) == {"white", "black", "other"}
    assert schema.groups(frame.assign(race="martian"))["race"].tolist() == ["other"] * 400


def test_a_split_keeps_the_shares_of_groups():
    frame = people(1000)
    groups = {"sex": frame["sex"].to_numpy(dtype=object), "race": frame["race"].to_numpy(dtype=object)}
    groups["race"][5] = "alone"
    train, held = split(Part(frame, np.arange(1000.0), groups), 0.25, seed=0)
    assert len(train) + len(held) == 1000
    assert sorted([*train.y, *held.y]) == list(range(1000))
    assert len(held) == pytest.approx(250, abs=1)
    for label in ("female", "male"):
        share = (held.groups["sex"] == label).sum() / (groups["sex"] == label).sum()
        assert share == pytest.approx(0.25, abs=0.02)
    assert "alone" in train.groups["race"].tolist()
