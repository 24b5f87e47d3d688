"""What is inferred from a table, and how columns are read."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairlayer.constraints.plain_data import record_from_plain, record_to_plain
from fairlayer.errors import InputError
from fairlayer.tables.entries import Attribute, group_label, label_of, number
from fairlayer.tables.schema import Schema, infer, profile
from fairlayer.tables.table_io import TableFile, open_source

sys.path.append(str(Path(__file__).parents[1] / "cli"))
from people import people, write


@pytest.fixture
def table(tmp_path):
    """Opens a frame as a file, CSV or Parquet."""
    opened = []

    def as_file(frame, name="table.csv"):
        if name.endswith(".csv"):
            write(frame, tmp_path / name)
        else:
            frame.to_parquet(tmp_path / name)
        opened.append(TableFile(tmp_path / name))
        return opened[-1]

    yield as_file
    for one in opened:
        one.close()


@pytest.fixture
def inferred(table):
    def of(frame, **options):
        return infer(table(frame), **{"target": "approved", "attributes": [Attribute("sex")], **options})

    return of


NUMBERS = [["1", " 2.5 ", "", "?"], ["1e3", "-4", "NA", "inf"], [1.0, None, None, 2.5]]
OTHERS = [
    ["1", "two", "3", ""],
    ["", "NA", "", ""],
    [True, False, True, True],
    [True, None, None, True],
    ["2020-01-01"] * 4,
]


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_numbers_are_told_from_text(name, table):
    columns = {f"c{j}": values for j, values in enumerate([*NUMBERS, *OTHERS])}
    found = table(pd.DataFrame(columns), name)
    told = [facts.is_number for facts in profile(found, columns).values()]
    assert told == [True] * len(NUMBERS) + [False] * len(OTHERS)
    assert [found.is_number(column) for column in columns] == told


def test_numbers_are_read(table):
    found = table(pd.DataFrame({"x": [" 2.5 ", "?", "NA", "1e3", "inf"], "y": ["1", "two", "", "3", "4"]}))
    read = found.frame({"x": number("x")})["x"].tolist()
    assert read[0::3] == [2.5, 1000.0]
    assert np.isnan([read[1], read[2], read[4]]).all()
    found.check_numbers({}, {"x": "--x"})
    with pytest.raises(InputError, match="--y: column 'y' has 1 entry that is not a number, such as 'two' in row 2"):
        found.check_numbers({}, {"y": "--y"})
    with pytest.raises(InputError, match="--x: column 'x' has 3 entries that are not numbers, such as 'no entry'"):
        found.check_numbers({"x": "--x"})


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_labels_are_text_whatever_their_type(name, table):
    truths = ["true", "false", "missing"]
    columns = [(["1", "0", "NA"], ["1", "0", "missing"]), ([" a", "a", "?"], [" a", "a", "missing"])]
    columns += [
        (values, truths) for values in (["True", "False", "NA"], ["TRUE", "FALSE", ""], ["true", "false", "nan"])
    ]
    columns += [([True, False, None], truths), (pd.array([1, 0, None], dtype="Int64"), ["1", "0", "missing"])]
    if name == "table.parquet":
        columns.append(([1.0, 0.5, np.nan], ["1", "0.5", "missing"]))
    found = table(pd.DataFrame({f"c{j}": values for j, (values, _) in enumerate(columns)}), name)
    read = found.frame({column: group_label(column, kind) for column, kind in found.columns.items()})
    assert [read[column].tolist() for column in read] == [expected for _, expected in columns]


def test_labels_in_memory_as_tables_have_them():
    labels = ["TRUE", "False", True, "true", 1.0, np.float32(2), np.int64(3), 0.5, "1.0"]
    assert [label_of(one) for one in labels] == ["true", "false", "true", "true", "1", "2", "3", "0.5", "1.0"]


def test_cut_points_make_groups(table):
    found = table(pd.DataFrame({"age": ["29.9", "30", "49", "50", "NA"]}))
    groups = found.frame({"age": Attribute("age", (30.0, 50.0)).label("VARCHAR")})["age"].tolist()
    assert groups == ["below 30", "30 to 50", "30 to 50", "50 or more", "missing"]


def test_a_schema_survives_json(inferred):
    found = inferred(people(), merge_rare=20, attributes=[Attribute("sex"), Attribute("age", (30.0,))])
    assert record_from_plain(Schema, record_to_plain(found.schema)) == found.schema


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
def test_the_task_is_inferred(target, options, task, positive, negative, inferred):
    frame = people(40)[["sex", "age"]].assign(approved=(target * 40)[:40])
    schema = inferred(frame, **options).schema
    assert (schema.task, schema.positive, schema.negative) == (task, positive, negative)


def test_rows_without_a_target_are_left_out(inferred):
    frame = people(120)
    frame.loc[:9, "approved"] = "NA"
    found = inferred(frame)
    assert len(found.rows) == len(found.rows.y) == 110
    assert found.notes[0] == "10 rows have no approved and are left out."


def test_new_labels_join_the_others_once_rare_ones_were_joined(inferred, table):
    frame = people(400)
    found = inferred(frame, attributes=[Attribute("race")], merge_rare=100)
    assert set(found.rows.groups["race"].tolist()) == {"white", "black", "other"}
    assert found.schema.read(table(frame.assign(race="martian"))).groups["race"].tolist() == ["other"] * 400


def test_columns_are_explained(inferred):
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


def test_a_copy_of_a_number_is_found(inferred):
    frame = people(200)
    frame = frame.assign(cents=(frame["amount"] * 100).round().astype(int))
    found = inferred(frame, target="amount", ignore=["approved"])
    assert found.doubtful.keys() == {"cents"}


def test_decimal_commas_become_points(tmp_path):
    path = tmp_path / "commas.csv"
    path.write_text("a;b;c;d;e\n1,5;1.234;x;-1.#IND;2.500\n;7;1,5;2;1\n-1.234,25 ;?;;3;\n")
    source = open_source(path)
    assert source.decimal_commas
    with TableFile(source) as found:
        read = found.frame({"c": "data.c", **{name: number(name) for name in "abde"}})
    assert read["a"].tolist()[::2] == [1.5, -1234.25]
    assert read["b"].tolist()[:2] == [1234.0, 7.0]
    assert read["d"].isna().tolist() == [True, False, False]  # what marks a missing entry stays
    assert read["c"].tolist()[:2] == ["x", "1,5"]
    typed = open_source(path, as_text=False)
    assert typed.columns == dict.fromkeys("abde", "DOUBLE") | {"c": "VARCHAR"}
    with TableFile(typed) as found:
        assert found.frame({"e": "data.e"})["e"].tolist()[:2] == [2500.0, 1.0]
