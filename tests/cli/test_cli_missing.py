"""What counts as missing, and who is in which group: `fit`, `project` and `audit` agree on it to the row."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairlayer.constraints.plain_data import record_from_plain
from fairlayer.estimators.folder import read_table
from fairlayer.tables.schema import Schema
from fairlayer.tables.table_io import TableFile

# As they stand in the file, and the group that each is in.
GROUPS = {
    "f": "f", "m": "m", '"f"': "f", " f": " f", '"f, or so"': "f, or so",
    "": "missing", '""': "missing", "NA": "missing", '"NA"': "missing", "N/A": "missing", "n/a": "missing",
    "NaN": "missing", "nan": "missing", "null": "missing", "NULL": "missing", "None": "missing", "<NA>": "missing",
    "?": "missing", '"?"': "missing", "#N/A": "missing",
    "na": "na", "none": "none", "Null": "Null", " NA": " NA", "  ": "  ", "-": "-",
    "True": "true", "TRUE": "true", "true": "true", "1": "1", "1.0": "1.0", "0": "0",
}  # fmt: skip
AGES = {
    "25": "below 30", " 25 ": "below 30", "2.5e1": "below 30", '"40"': "30 or more", "30": "30 or more",
    "": "missing", "NA": "missing", "?": "missing", "None": "missing", "nan": "missing", "inf": "missing",
    " NA": "missing", "? ": "missing", "  ": "missing", "\t50": "30 or more",
}  # fmt: skip
EACH = 40  # rows of every spelling


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in which every spelling occurs; the mean score differs by group, and so does the shift."""
    random = np.random.default_rng(0)
    ages = list(AGES)
    lines = ["row,group,age,score,answer"]
    for k, (entry, group) in enumerate((e, g) for e, g in GROUPS.items() for _ in range(EACH)):
        score = 0.2 + 0.02 * sorted(set(GROUPS.values())).index(group) + 0.01 * random.random()
        lines.append(f"{k},{entry},{ages[random.integers(len(ages))]},{score:.6f},{'yes' if k % 2 else 'no'}")
    path = tmp_path_factory.mktemp("nasty") / "nasty.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def truth_of(entries: dict[str, str], place: int, path: Path) -> pd.Series:
    """The group of every row, from the spelling in the file; place: of the column."""
    spelled = re.compile(r'("[^"]*"|[^,]*)(?:,|$)')
    return pd.Series([entries[spelled.findall(line)[place]] for line in path.read_text().splitlines()[1:]])


@pytest.mark.parametrize(("column", "option", "entries"), [("group", "group", GROUPS), ("age", "age=30", AGES)])
def test_commands_agree_to_the_row(column, option, entries, nasty, run, tmp_path):
    truth = truth_of(entries, {"group": 1, "age": 2}[column], nasty)
    model, report, fair = tmp_path / "model", tmp_path / "report.html", tmp_path / "fair.csv"

    protected = ["--protected", option, "--parity", "0.001"]
    run("fit", nasty, "--target", "answer", "--ignore", "row", *protected, "--model", "logistic", "-o", model)
    schema = record_from_plain(Schema, read_table(model)["schema"])
    assert set(schema.labels[0].known) == set(truth)
    with TableFile(nasty) as table:
        assert schema.read(table).groups[column].tolist() == truth.tolist()

    run("audit", nasty, "--prediction", "score", *protected, "-o", report)
    groups = json.loads(report.with_suffix(".json").read_text())["groups"]
    assert {group["labels"][0]: group["count"] for group in groups} == Counter(truth)

    result = run("project", nasty, "--score", "score", *protected, "--keep-raw", "before", "-o", fair)
    assert result.exit_code == 0, result.stderr
    written = pd.read_csv(fair, dtype=str, keep_default_na=False)
    shift = (written["score"].astype(float) - written["before"].astype(float)).round(9)
    assert shift.groupby(truth).nunique().max() == 1  # all rows of a group are moved by the same,
    if column == "group":
        assert shift.nunique() >= truth.nunique() - 1  # and those of different groups by different amounts
    assert written[column].tolist() == pd.read_csv(nasty, dtype=str, keep_default_na=False)[column].tolist()


@pytest.mark.parametrize("entry", ["old", "1_000", "+-1", "NAN", "0x10", "5%", "\xa05"])
@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("project", ["--score", "score", "-o", "fair.csv"]),
        ("audit", ["--prediction", "score"]),
        ("fit", ["--target", "answer", "-o", "model"]),
    ],
)
def test_cut_points_refuse_what_is_neither_a_number_nor_missing(command, options, entry, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{20 + k},0.{k},{'yn'[k % 2]}\n" for k in range(60))
    Path("ages.csv").write_text(f"age,score,answer\n{rows}{entry},0.5,y\n")
    result = run(command, "ages.csv", "--protected", "age=30", "--parity", "0.1", *options, code=2)
    assert repr(entry) in result.stderr


@pytest.mark.parametrize("entry", ["1_000", "NAN", "0x10", "inf"])
@pytest.mark.parametrize(("command", "option"), [("project", "--score"), ("audit", "--prediction")])
def test_scores_refuse_what_is_no_number(command, option, entry, run, tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(f"sex,score\nf,0.5\nm,0.25\nf,{entry}\n")
    more = ["-o", tmp_path / "fair.csv"] if command == "project" else []
    result = run(command, path, option, "score", "--protected", "sex", "--parity", "0.1", *more, code=2)
    assert f"{entry!r} in row 3" in result.stderr
