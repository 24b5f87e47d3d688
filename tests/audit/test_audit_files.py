"""`audit` of a CSV or Parquet file is that of the same samples as arrays, to the last digit that matters."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fairlayer import (
    ConditionalParity,
    EqualizedOdds,
    EqualizedResiduals,
    InputError,
    MeanParity,
    ResidualMean,
    audit,
    project,
)
from fairlayer.audit import Audit
from fairlayer.tables.table_io import TableFile

duckdb = pytest.importorskip("duckdb")


def people(n: int = 1500) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    race = rng.choice(["<script>", "b'; DROP TABLE data; --", "c"], n, p=[0.03, 0.4, 0.57]).astype(object)
    race[:4] = None
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], n), 'the "race"': race, "site": rng.integers(1, 12, n)})
    frame["p"] = np.clip(rng.beta(2, 3, n) + 0.1 * (frame["sex"] == "m"), 0, 1)
    frame["y"] = (rng.random(n) < frame["p"]).astype(int)
    frame["wage"] = frame["p"] * 100 + rng.normal(0, 10, n)
    frame["age"] = rng.integers(18, 80, n)
    frame["job"] = rng.choice(["cook", "clerk", "nurse"], n)
    frame["w"] = rng.exponential(size=n)
    frame["z"] = np.clip(frame["p"] + np.where(frame["sex"] == "f", -0.05, 0.0), 0, 1)
    return frame


def write(frame: pd.DataFrame, path: Path) -> str:
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        connection = duckdb.connect()
        connection.register("frame", frame)
        connection.execute(f"COPY frame TO '{path}' (FORMAT parquet)")
    return str(path)


def same(one: Any, other: Any, path: str = "") -> None:
    """Assert that plain data agree, numbers up to rounding."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            same(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), path
        for j, pair in enumerate(zip(one, other, strict=True)):
            same(*pair, f"{path}[{j}]")
    elif isinstance(one, float):
        assert math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-11), (path, one, other)
    else:
        assert one == other, path


def plain(result: Audit) -> dict[str, Any]:
    content = result.to_dict()
    del content["settings"]["source"]
    return content


CASES: dict[str, dict[str, Any]] = {
    "parity": {"constraints": [MeanParity(0.05)], "groups": ["sex", 'the "race"', "site"]},
    "with targets and raw": {
        "constraints": [MeanParity(0.05), EqualizedOdds(0.1, over="sex"), EqualizedResiduals(0.1)],
        "groups": ["sex", 'the "race"'],
        "target": "y",
        "raw": "z",
    },
    "weights": {
        "constraints": [MeanParity(0.05, over=("sex", 'the "race"')), ResidualMean(0.1)],
        "groups": ["sex", 'the "race"'],
        "target": "wage",
        "weight": "w",
        "raw": "z",
    },
    "regions": {
        "constraints": [
            ConditionalParity(0.1, over="sex", regions={"age": [(None, 40), (30, 60)], "job": [{"cook", "nurse"}]}),
            EqualizedOdds(0.1, over="sex", regions=[(None, 30), (50, None), {1.0}]),
        ],
        "groups": ["sex"],
        "target": "wage",
    },
    "classes": {"constraints": [EqualizedOdds(0.1)], "groups": ["sex"], "target": "job"},
}


@pytest.mark.parametrize(
    ("name", "suffix"), [*((name, ".csv") for name in CASES), ("weights", ".parquet"), ("regions", ".parquet")]
)
def test_files_and_arrays_agree(name: str, suffix: str, tmp_path: Path) -> None:
    frame, case = people(), CASES[name]
    path = write(frame, tmp_path / f"people{suffix}")
    columns = {role: case.get(role) for role in ("target", "weight", "raw")}
    from_file = audit(path, case["groups"], case["constraints"], prediction="p", **columns)
    values = {role: None if column is None else frame[column] for role, column in columns.items()}
    from_arrays = audit(
        frame["p"], frame[case["groups"]], case["constraints"], values["target"],
        weights=values["weight"], raw=values["raw"], features=frame[["age", "job"]],
    )  # fmt: skip
    assert len(from_file.findings) > 0
    assert len(from_file.tradeoff) > 0
    same(plain(from_file), plain(from_arrays))


def test_what_was_projected_holds_after_it_was_written(tmp_path: Path) -> None:
    frame = people()
    frame["fair"] = project(frame["p"].to_numpy(), frame[["sex", "site"]], [MeanParity(0.01)], bounds=(0, 1)).value
    for suffix in (".csv", ".parquet"):
        path = write(frame, tmp_path / f"people{suffix}")
        result = audit(path, ["sex", "site"], MeanParity(0.01), prediction="fair", tradeoff=False)
        assert result.satisfied


def test_more_rows_than_the_tradeoff_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(audit.__globals__, "TRADEOFF_ROWS", 500)
    path = write(people(), tmp_path / "people.parquet")
    result = audit(path, ["sex"], MeanParity(0.05), prediction="p", target="y")
    assert any("500 rows drawn at random" in note for note in result.notes)
    assert len(result.tradeoff) > 5
    assert result.settings.samples == 1500


def test_parquet_types(tmp_path: Path) -> None:
    """Booleans, decimals, dates and enumerations are labels and numbers as well."""
    path = tmp_path / "types.parquet"
    duckdb.sql(
        "SELECT i % 2 = 0 AS flag, DATE '2020-01-01' + (i % 2)::INT AS day, "
        "(CASE WHEN i % 2 = 0 THEN 'x' END)::ENUM ('x', 'y') AS kind, (i / 100.0)::DECIMAL(8, 4) AS p, "
        "i % 3 = 0 AS y FROM range(100) t(i)"
    ).write_parquet(str(path))
    result = audit(path, ["flag", "day", "kind"], MeanParity(0.05), prediction="p", target="y")
    assert [group.name for group in result.groups] == [
        "flag: false",
        "flag: true",
        "day: 2020-01-01",
        "day: 2020-01-02",
        "kind: missing",
        "kind: x",
    ]
    assert result.settings.targets == "binary"
    assert result.overall.mean == pytest.approx(0.495)


@pytest.mark.parametrize("label", ["--5", "-0", "007", "9" * 5000, "\u0663"])
def test_labels_that_are_nearly_whole_numbers(label: str, tmp_path: Path) -> None:
    path = write(people(60).assign(sex=lambda f: f["sex"].map({"f": label, "m": "4"})), tmp_path / "t.csv")
    result = audit(path, ["sex"], MeanParity(0.05), prediction="p", tradeoff=False)
    assert {group.labels for group in result.groups} == {(label,), ("4",)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prediction": "q"}, "prediction: 'people.csv' has no column 'q'"),
        ({"prediction": None}, "prediction is missing"),
        ({"prediction": "job"}, "column 'job' has 1,500 of 1,500 entries that are missing or not finite numbers"),
        ({"prediction": "gaps"}, "column 'gaps' has 2 of 1,500 entries"),
        ({"groups": ["sexx"]}, "Did you mean 'sex'"),
        ({"groups": None}, "groups must name columns"),
        ({"groups": []}, "groups must name columns"),
        ({"groups": ["wage"]}, "looks like a number or a name"),
        ({"constraints": [EqualizedOdds(0.1)]}, "target is missing"),
        ({"constraints": [EqualizedOdds(0.1)], "target": "wage"}, "too many to be classes"),
        ({"constraints": [ResidualMean(0.1)], "target": "job"}, "not numbers"),
        ({"constraints": [EqualizedOdds(0.1, regions=[(None, 0.5)])], "target": "job"}, "column 'job' has 1,500"),
        ({"constraints": [ConditionalParity(0.1, regions={"agee": [(1, 2)]})]}, "Did you mean 'age'"),
        ({"constraints": [ConditionalParity(0.1, regions={"job": [(1, 2)]})]}, "column 'job' has 1,500"),
        ({"target": "gaps"}, "column 'gaps' has 2 of 1,500 entries"),
        ({"weight": "minus"}, "weights of at least 0"),
        ({"targets": [1]}, "targets goes with arrays"),
        ({"features": [1]}, "features goes with arrays"),
        ({"raw": [1]}, "raw must name a column"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    frame = people().assign(gaps=lambda f: f["p"].where(f.index > 1), minus=lambda f: -f["w"])
    path = write(frame, tmp_path / "people.csv")
    arguments = {"groups": ["sex"], "constraints": [MeanParity(0.05)], "prediction": "p", "tradeoff": False}
    with pytest.raises(InputError, match=message):
        audit(path, **{**arguments, **change})


def test_neither_the_order_of_rows_nor_that_of_answers_matters(tmp_path, monkeypatch):
    """Totals of an engine with several threads come as they are ready; the result is the same to the bit."""
    totals, random = TableFile.totals, np.random.default_rng(1)

    def shuffled(self, *asked):
        found = totals(self, *asked)
        order = random.permutation(len(next(iter(found.values()))))
        return {name: values[order] for name, values in found.items()}

    monkeypatch.setattr(TableFile, "totals", shuffled)
    roles = {"prediction": "p", "raw": "z", "weight": "w", "target": "y", "tradeoff": False}
    results = set()
    for seed in (1, 2, 3):
        path = write(people().sample(frac=1, random_state=seed), tmp_path / "people.parquet")
        results.add(audit(path, ["sex", "site"], MeanParity(0.05), **roles).to_json())
    assert len(results) == 1
