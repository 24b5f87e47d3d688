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


WRONG = ["old", "1_000", "+-1", "NAN", "0x10", "5%", "\xa05"]
NUMBERS = {  # command, column -> its options; infinite ages count as missing, infinite scores do not
    ("project", "age"): ["--protected", "age=30", "--score", "score", "-o", "fair.csv"],
    ("audit", "age"): ["--protected", "age=30", "--prediction", "score"],
    ("fit", "age"): ["--protected", "age=30", "--target", "answer", "-o", "model"],
    ("project", "score"): ["--protected", "answer", "--score", "score", "-o", "fair.csv"],
    ("audit", "score"): ["--protected", "answer", "--prediction", "score"],
}


@pytest.mark.parametrize(
    ("command", "column", "entry"),
    [(*place, entry) for place in NUMBERS for entry in (WRONG if place[1] == "age" else [*WRONG, "inf"])],
)
def test_what_is_no_number_is_refused(command, column, entry, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"age": f"{20 + k}", "score": f"0.{k}", "answer": "yn"[k % 2]} for k in range(60)]
    rows[2][column] = entry
    pd.DataFrame(rows).to_csv("people.csv", index=False)
    result = run(command, "people.csv", "--parity", "0.1", *NUMBERS[command, column], code=2)
    assert f"{entry!r} in row 3" in result.stderr
