"""Sums that a database takes are as good as those of arrays."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

duckdb = pytest.importorskip("duckdb", reason="needs fairlayer[files]")
pd = pytest.importorskip("pandas")

from exact import exact_dot  # noqa: E402
from fairlayer import EqualizedResiduals, InputError, MeanParity, RatioParity, Status, project  # noqa: E402
from fairlayer.warehouse import project_sums  # noqa: E402

CELLS = "SELECT {by}, count(*) AS n, min(p) AS low, max(p) AS high FROM people GROUP BY ALL"


class Warehouse:
    """A database with one table, that answers as the guide does."""

    def __init__(self, frame):
        self.connection = duckdb.connect()
        self.connection.register("frame", frame)
        self.connection.execute("CREATE TABLE people AS SELECT * FROM frame")
        self.by = ", ".join(name for name in frame.columns if name not in ("p", "id"))
        self.asked = 0

    def query(self, sql):
        return self.connection.execute(sql).df()

    def cells(self):
        return self.query(CELLS.format(by=self.by))

    def sums(self, shifts):
        self.asked += 1
        asked = f"sum({shifts.sql('p')}) AS total, sum({shifts.free_sql('p')}) AS free"
        return self.query(f"SELECT {self.by}, {asked} FROM people GROUP BY ALL ORDER BY random()")

    def fair(self, shifts):
        found = self.query(f"SELECT id, {shifts.sql('p')} AS fair FROM people ORDER BY id")
        return found["fair"].to_numpy()


def people(n=5_000, seed=0, scale=1.0):
    random = np.random.default_rng(seed)
    sex = random.choice(np.array(["f", "m", None], dtype=object), n)
    race = random.integers(0, 4, n)
    p = scale * np.clip(0.7 * random.random(n) + 0.2 * (sex == "m") + 0.03 * race, 0, 1)
    return pd.DataFrame({"id": np.arange(n), "sex": sex, "race": race, "p": p})


def in_memory(frame, constraints, bounds):
    groups = {"sex": frame["sex"].fillna("missing").to_numpy(), "race": frame["race"].to_numpy()}
    return project(frame["p"].to_numpy(), groups, constraints, bounds).value


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (None, 0.6), None])
@pytest.mark.parametrize("constraint", [MeanParity(0.01), MeanParity(0.03, over=("sex", "race")), MeanParity(5.0)])
def test_agrees_with_arrays(bounds, constraint):
    frame = people()
    warehouse = Warehouse(frame)
    shifts = project_sums(warehouse.cells(), warehouse.sums, [constraint], bounds)
    assert shifts.status is Status.OPTIMAL
    fair = warehouse.fair(shifts)
    assert np.abs(fair - in_memory(frame, [constraint], bounds)).max() < 1e-9
    assert warehouse.asked < 12
    if constraint.over is None:
        labels = frame["sex"].fillna("missing")
        means = [exact_dot(fair[labels == one]) / int((labels == one).sum()) for one in ("f", "m", "missing")]
        assert max(means) - min(means) <= Fraction(constraint.tolerance)


def test_ratio_and_other_units():
    frame = people(scale=1e5)
    warehouse = Warehouse(frame)
    shifts = project_sums(warehouse.cells(), warehouse.sums, [RatioParity(0.95)], (0.0, 1e5))
    assert np.abs(warehouse.fair(shifts) - in_memory(frame, [RatioParity(0.95)], (0.0, 1e5))).max() < 1e-4


def test_a_table_of_shifts():
    frame = people(500)
    shifts = project_sums(Warehouse(frame).cells(), Warehouse(frame).sums, [MeanParity(0.01)], (0, 1))
    table = shifts.table()
    assert set(table) == {"sex", "race", "shift"}
    assert len(table["shift"]) == 12
    assert any(label is None for label in table["sex"])
    assert max(map(abs, shifts.gaps.values())) <= 0.01


def test_a_tolerance_finer_than_sums_in_floating_point_is_said_to_be():
    frame = people(2_000)
    warehouse = Warehouse(frame)
    shifts = project_sums(warehouse.cells(), warehouse.sums, [MeanParity(0.0)], (0, 1))
    assert shifts.status is Status.ROUNDED


def test_bad_input():
    frame = people(300)
    warehouse = Warehouse(frame)
    cells, rules = warehouse.cells(), [MeanParity(0.01)]
    for wrong, message in (
        (cells.drop(columns="n"), r"cells needs a column 'n': select count\(\*\) AS n"),
        (cells[["n", "low", "high"]], "a column for each protected attribute"),
        (cells.assign(low="x"), "Column 'low' must hold numbers"),
        (7, "cells must be"),
    ):
        with pytest.raises(InputError, match=message):
            project_sums(wrong, warehouse.sums, rules)
    with pytest.raises(InputError, match="sums must return a column 'free'"):
        project_sums(cells, lambda shifts: warehouse.sums(shifts).drop(columns="free"), rules)
    with pytest.raises(InputError, match="one row for each row of cells"):
        project_sums(cells, lambda shifts: warehouse.sums(shifts).iloc[1:], rules)
    with pytest.raises(InputError, match="EqualizedResiduals compares more than means"):
        project_sums(cells, warehouse.sums, [EqualizedResiduals(0.1)])
    quoted = Warehouse(frame.assign(sex="O'Neil", race=frame["race"]))
    with pytest.raises(InputError, match="join with"):
        project_sums(quoted.cells(), quoted.sums, rules)


def test_names_that_have_to_be_quoted():
    frame = people(500).rename(columns={"sex": "group", "race": "race at birth"})
    warehouse = Warehouse(frame)
    warehouse.by = '"group", "race at birth"'
    cells, rules = warehouse.cells(), [MeanParity(0.01)]
    with pytest.raises(InputError, match="'race at birth' has a name that has to be quoted"):
        project_sums(cells, warehouse.sums, rules, (0, 1))
    shifts = project_sums(cells, warehouse.sums, rules, (0, 1), quote='"')
    assert shifts.status is Status.OPTIMAL
    again = frame.rename(columns={"group": "sex", "race at birth": "race"})
    assert np.abs(warehouse.fair(shifts) - in_memory(again, rules, (0, 1))).max() < 1e-9


def test_spark_and_bigquery_quote_by_backticks():
    """There, what stands between double quotes is text: a comparison with it would never hold."""
    cells = {"race at birth": ["a", "b"], "n": [2, 2], "low": [0.1, 0.2], "high": [0.1, 0.2]}
    asked = []

    def sums(shifts):
        asked.append(shifts.sql("p"))
        return {"race at birth": ["a", "b"], "total": [0.2, 0.4] - 2 * shifts.shift, "free": [2, 2]}

    project_sums(cells, sums, [MeanParity(0.01)], quote="`")
    assert asked
    assert all("WHEN `race at birth` = 'a'" in one and '"' not in one for one in asked)
    with pytest.raises(InputError, match="quote must be"):
        project_sums(cells, sums, [MeanParity(0.01)], quote="'")
    odd = {"race`": cells.pop("race at birth"), **cells}
    with pytest.raises(InputError, match="backslash in its name"):
        project_sums(odd, sums, [MeanParity(0.01)], quote="`")
