"""Sums that a database takes are as good as those of arrays."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest

duckdb = pytest.importorskip("duckdb", reason="needs fairlayer[files]")
pd = pytest.importorskip("pandas")

from exact import exact_dot  # noqa: E402
from fairlayer import EqualizedResiduals, InputError, MeanParity, RatioParity, Status, project  # noqa: E402
from fairlayer.warehouse import project as project_in  # noqa: E402


class Warehouse:
    """A database with one table, whose answers come in any order."""

    def __init__(self, frame, protected=("sex", "race")):
        self.connection = duckdb.connect()
        self.connection.register("frame", frame)
        self.connection.execute("CREATE TABLE people AS SELECT * FROM frame")
        self.protected = list(protected)
        self.asked = []

    def query(self, sql):
        self.asked.append(sql)
        return self.connection.execute(f"SELECT * FROM ({sql}) ORDER BY random()").df()

    def project(self, constraints, bounds=None, **options):
        return project_in(self.query, "people", "p", self.protected, constraints, bounds, **options)

    def fair(self, shifts):
        return self.connection.execute(f"SELECT {shifts.sql} AS fair FROM people ORDER BY id").df()["fair"].to_numpy()


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
    shifts = warehouse.project([constraint], bounds)
    assert shifts.status is Status.OPTIMAL
    fair = warehouse.fair(shifts)
    assert np.abs(fair - in_memory(frame, [constraint], bounds)).max() < 1e-9
    assert len(warehouse.asked) < 13
    if constraint.over is None:
        labels = frame["sex"].fillna("missing")
        means = [exact_dot(fair[labels == one]) / int((labels == one).sum()) for one in ("f", "m", "missing")]
        assert max(means) - min(means) <= Fraction(constraint.tolerance)


def test_ratio_and_other_units():
    frame = people(scale=1e5)
    warehouse = Warehouse(frame)
    shifts = warehouse.project([RatioParity(0.95)], (0.0, 1e5))
    assert np.abs(warehouse.fair(shifts) - in_memory(frame, [RatioParity(0.95)], (0.0, 1e5))).max() < 1e-4


def test_a_table_of_shifts():
    shifts = Warehouse(people(500)).project([MeanParity(0.01)], (0, 1))
    table = shifts.table()
    assert set(table) == {"sex", "race", "shift"}
    assert len(table["shift"]) == 12
    assert any(label is None for label in table["sex"])
    assert abs(shifts.gaps).max() <= 0.01


def test_a_tolerance_finer_than_sums_in_floating_point_is_said_to_be():
    assert Warehouse(people(2_000)).project([MeanParity(0.0)], (0, 1)).status is Status.ROUNDED


@pytest.mark.parametrize("bounds", [(0, 1), None])
def test_missing_scores_are_refused(bounds):
    """Some engines would put a bound in their place, others leave them out of sums: neither is what was promised."""
    frame = people(300)
    frame.loc[::5, "p"] = None
    with pytest.raises(InputError, match=r"score: 60 of 300 rows have no p: leave them out, with table='\(SELECT"):
        Warehouse(frame).project([MeanParity(0.01)], bounds)
    warehouse = Warehouse(frame)
    shifts = project_in(
        warehouse.query, "(SELECT * FROM people WHERE p IS NOT NULL) AS scored", "p", ["sex"], [MeanParity(0.01)]
    )
    assert shifts.status is Status.OPTIMAL
    warehouse.connection.execute("UPDATE people SET p = 'nan'::DOUBLE WHERE p IS NULL")
    with pytest.raises(InputError, match="score: p is nan in some rows"):
        warehouse.project([MeanParity(0.01)], bounds)


def test_bad_input():
    frame, rules = people(300), [MeanParity(0.01)]
    warehouse = Warehouse(frame)
    for query, message in (
        (lambda sql: 7, "query must return a frame"),
        (lambda sql: warehouse.query(sql).iloc[:, 1:], "query must return the 6 columns asked for; got 5"),
        (lambda sql: warehouse.query(sql).iloc[:0], "people has no rows"),
    ):
        with pytest.raises(InputError, match=message):
            project_in(query, "people", "p", ["sex", "race"], rules)
    with pytest.raises(InputError, match="protected is empty"):
        project_in(warehouse.query, "people", "p", [], rules)
    with pytest.raises(InputError, match="EqualizedResiduals compares more than means"):
        warehouse.project([EqualizedResiduals(0.1)])

    def growing(sql):
        warehouse.connection.execute("INSERT INTO people SELECT * FROM people LIMIT 1")
        return warehouse.query(sql)

    with pytest.raises(InputError, match="people changed between two queries"):
        project_in(growing, "people", "p", ["sex", "race"], rules)
    with pytest.raises(InputError, match="which engines spell differently"):
        Warehouse(frame.assign(sex="O'Neil")).project(rules)
    odd = Warehouse(frame.assign(race=np.where(frame["race"] == 0, np.nan, frame["race"])))
    odd.connection.execute("UPDATE people SET race = 'nan'::DOUBLE WHERE race IS NULL")  # which is not missing there
    with pytest.raises(InputError, match="has labels that are equal to none"):
        odd.project(rules)


def test_names_that_have_to_be_quoted():
    frame = people(500).rename(columns={"sex": "group", "race": "race at birth"})
    warehouse = Warehouse(frame, ["group", "race at birth"])
    rules = [MeanParity(0.01)]
    with pytest.raises(InputError, match="'race at birth' has a name that has to be quoted"):
        warehouse.project(rules, (0, 1))
    shifts = warehouse.project(rules, (0, 1), quote='"')
    assert shifts.status is Status.OPTIMAL
    again = frame.rename(columns={"group": "sex", "race at birth": "race"})
    assert np.abs(warehouse.fair(shifts) - in_memory(again, rules, (0, 1))).max() < 1e-9


def test_spark_and_bigquery_quote_by_backticks():
    """There, what stands between double quotes is text: a comparison with it would never hold."""
    asked = []

    def query(sql):
        asked.append(sql)
        if len(asked) == 1:
            return {"RACE": ["a", "b"], "N": [2, 2], "SCORED": [2, 2], "LOW": [0.1, 0.2], "HIGH": [0.1, 0.2]}
        moved = [float(one) for one in re.findall(r"THEN \(([^)]*)\)", sql)[:2]]
        return {"RACE": ["a", "b"], "N": [2, 2], "TOTAL": [0.2, 0.4] - 2 * np.array(moved), "FREE": [2, 2]}

    project_in(query, "t", "p", "race at birth", [MeanParity(0.01)], quote="`")
    assert len(asked) > 1
    assert all("`race at birth`" in one and '"' not in one for one in asked)
    with pytest.raises(InputError, match="quote must be"):
        project_in(query, "t", "p", "race at birth", [MeanParity(0.01)], quote="'")
    with pytest.raises(InputError, match="backslash in its name"):
        project_in(query, "t", "p", "race`", [MeanParity(0.01)], quote="`")
