"""What is inferred from a table, and how columns are read."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from people import people

from fairlayer.cli.constraint_options import ConstraintOptions, intervals
from fairlayer.cli.learning import Part, split
from fairlayer.cli.options import read_attributes, read_bounds
from fairlayer.errors import InputError
from fairlayer.records import from_plain, to_plain
from fairlayer.tables.attribute import Attribute, read_cuts
from fairlayer.tables.entries import is_number, numbers, text_labels
from fairlayer.tables.schema import FrameColumns, Schema, group_labels, infer
from fairlayer.tables.table_io import Source, open_source, read_frame


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
    found = inferred(people(), merge_rare=20, attributes=[Attribute("sex"), Attribute("age", (30.0,))])
    assert from_plain(Schema, to_plain(found.schema)) == found.schema


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
    schema = inferred(frame, **options).schema
    assert (schema.task, schema.positive, schema.negative) == (task, positive, negative)


def test_rows_without_a_target_are_left_out():
    frame = people(120)
    frame.loc[:9, "approved"] = "NA"
    found = inferred(frame)
    assert len(found.frame) == 110
    assert found.notes[0] == "10 rows have no approved and are left out."


def test_new_labels_join_the_others_once_rare_ones_were_joined():
    frame = people(400)
    found = inferred(frame, attributes=[Attribute("race")], merge_rare=100)
    schema = found.schema
    assert set(schema.groups(found.frame)["race"].tolist()) == {"white", "black", "other"}
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


def test_columns_are_explained():
    """What each was read as, why one was left out, and which may not be what they seem."""
    frame = people(400)
    n = len(frame)
    frame = frame.assign(
        id=range(7, 7 + n),
        since=[f"2020-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(n)],
        seen=[f"2021-01-01 10:{i // 60:02}:{i % 60:02}" for i in range(n)],
        nick=[f"nick {i // 2 if i % 5 else i}" for i in range(n)],
        nothing="NA",
        decision=np.where(frame["approved"] == "yes", "granted", "refused"),
        price=[f"{i},5" for i in range(n)],
    )
    found = inferred(frame, ignore=["job"], hide_protected=True)
    assert found.schema.numbers == ("income", "age", "amount", "id")
    assert found.schema.categories == ("town", "race", "disabled", "since", "nick", "decision")
    assert found.left_out.keys() == {"job", "sex", "name", "nothing", "seen", "price"}
    assert found.left_out["name"].startswith("400 of its 400 entries differ, so as text")
    assert "as a date or time" in found.left_out["seen"]
    assert "decimal commas" in found.left_out["price"]
    assert found.left_out["nothing"] == "it has no entries"
    assert found.doubtful.keys() == {"amount", "id", "since", "nick", "decision"}
    for name in ("amount", "decision"):
        assert found.doubtful[name].startswith("it predicts approved without a single error")
    assert "number the rows" in found.doubtful["id"]
    assert "dates or times" in found.doubtful["since"]
    assert "name the rows? --ignore nick" in found.doubtful["nick"]
    lines = "\n".join(found.lines)
    for name in frame.columns.drop("approved"):
        assert name in lines


def test_a_copy_of_a_number_is_found():
    frame = people(200)
    frame = frame.assign(cents=(frame["amount"] * 100).round().astype(int))
    found = inferred(frame, target="amount", ignore=["approved"])
    assert found.doubtful.keys() == {"cents"}


def test_decimal_commas_become_points(tmp_path):
    path = tmp_path / "commas.csv"
    path.write_text("a;b;c;d\n1,5;1.234;x;-1.#IND\n;7;1,5;2\n-1.234,25 ;?;;3\n")
    source = open_source(path)
    assert source.decimal_commas == ("a", "b", "d")
    read = read_frame(source)
    assert numbers(read["a"], "a").tolist()[::2] == [1.5, -1234.25]
    assert numbers(read["b"], "b").tolist()[:2] == [1234.0, 7.0]
    assert numbers(read["d"], "d").isna().tolist() == [True, False, False]  # what marks a missing entry stays
    assert read["c"].tolist()[:2] == ["x", "1,5"]
    assert open_source(path, as_text=False).columns == {"a": "DOUBLE", "b": "DOUBLE", "c": "VARCHAR", "d": "DOUBLE"}


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


def constraints(**options):
    frame = people(50)
    attributes = [Attribute("sex"), Attribute("race"), Attribute("disabled")]
    made = ConstraintOptions(**options).read(FrameColumns(source_of(frame), frame), attributes)
    return [(type(entry).__name__, entry.tolerance, entry.over) for entry in made]


def test_tolerances_and_groups_are_read():
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parity": "sxe=0.1"}, "--parity: 'sxe' is not a protected attribute. Did you mean 'sex'?"),
        ({"parity": "town=0.1"}, "'town' is not a protected attribute. Protected are 'sex', 'race', 'disabled'."),
        ({"parity": "sex=0.1,0.2"}, "--parity: '0.2' does not say which groups it is for: write sex=0.2"),
        ({"parity": "sex=0.1,sex=0.2"}, "two tolerances for 'sex'"),
        ({"parity": "sex=small"}, "the tolerance 'small' is not a number"),
        ({"parity": "0.1", "over": ["sex+sex"]}, "--over: 'sex+sex' names 'sex' twice"),
        ({"parity": "0.1", "over": ["sex+age"]}, "--over: 'age' is not a protected attribute"),
    ],
)
def test_mistakes_in_tolerances_and_groups(options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        constraints(**options)
