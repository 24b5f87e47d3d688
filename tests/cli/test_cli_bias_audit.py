"""`fairlayer audit --format ll144`: the tables of a bias audit."""

from __future__ import annotations

import csv

from people import people, write


def test_the_tables_are_written(run, tmp_path) -> None:
    data = people()
    data["score"] = data["income"].rank(pct=True)
    asked = ["audit", write(data, tmp_path / "people.csv"), "--prediction", "score", "--protected", "sex,race"]
    asked += ["--parity", "0.9", "--format", "ll144"]
    result = run(*asked, "--threshold", "0.5", "-o", tmp_path / "table.csv", code=0)
    assert "Local Law 144" in result.stdout
    with (tmp_path / "table.csv").open() as file:
        rows = {(row["table"], row["category"]): row for row in csv.DictReader(file)}
    label = next(category for table, category in rows if table == "sex")
    ours = data[data["sex"] == label]
    assert int(rows["sex", label]["selected"]) == (ours["score"] >= 0.5).sum()
    run(*asked, "-o", tmp_path / "table.html", code=0)
    assert "selection rate" in run(*asked[:-4], "--rate", "0.9", *asked[-2:]).stdout
    assert "<table>" in (tmp_path / "table.html").read_text()
