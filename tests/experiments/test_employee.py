"""The wage experiment: its data and anchors are the known ones, and promises hold exactly."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import claims, employee, tables
from experiments.datasets import available

wages = employee.wages

PRESENT = {entry.name for entry in available() if entry.present}
pytestmark = pytest.mark.skipif(
    "employee" not in PRESENT, reason="employee/Employee_Performance.xls is not in FAIRLAYER_DATA"
)


def test_wages_are_the_published_ones():
    data = wages()
    assert data.x.shape == (1200, 63)
    assert [int(labels.sum()) for labels in data.groups.values()] == [140, 221, 725, 100, 548]
    assert (data.y.min(), data.y.max(), data.unit) == (0.0, 1.0, 70.0)
    assert data.y.mean() == pytest.approx(0.5140, abs=5e-5)
    assert data.y.var() == pytest.approx(0.083297, abs=5e-6)
    np.testing.assert_allclose(data.x[:, :18].mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_array_equal(data.x[:, 18], data.groups["aged 50 or over"])
    np.testing.assert_array_equal(data.x[:, 19], data.groups["manager"])
    np.testing.assert_array_equal(data.x[:, 21], data.groups["gender"])
    np.testing.assert_array_equal(data.x[:, 27], data.groups["technical degree"])
    np.testing.assert_array_equal(data.x[:, 29], data.groups["married"])


def test_projection_gives_what_was_published():
    settings = employee.PROFILES["paper"]
    unit = next(unit for unit in employee.units(settings) if unit.key == "replica/1234/Unconstrained")
    row = next(row for row in employee.run(unit, settings)["rows"] if row["method"] == "Projection")
    paper = employee.summary.paper_table()["Projection"]
    assert row["satisfied"] == int(paper["constraints_satisfied_of_10"])
    assert row["mse"] == pytest.approx(float(paper["mse"]), abs=1e-4)
    assert row["lowered"] == pytest.approx(float(paper["individuals_lowered"]), abs=10)


@pytest.fixture
def rows(results_of):
    return employee.summary.flatten(results_of("employee"))


def test_anchors(rows):
    anchors = {row["method"]: row for row in rows if row["setting"] == "anchors"}
    known = {
        "overall mean": (0.08330, 0),
        "least squares": (0.08003, 10),
        "least squares on protected attributes": (0.08304, 10),
    }
    for name, (mse, satisfied) in known.items():
        assert anchors[name]["mse"] == pytest.approx(mse, abs=5e-6)
        assert anchors[name]["satisfied"] == satisfied


def test_promises_hold_exactly(rows):
    promised = [row for row in rows if row["method"] in ("F-Layer", "Projection")]
    assert len(promised) == 4
    for row in promised:
        assert row["satisfied"] == row["constraints"] == 10
        assert row["largest_residual"] <= 1e-4
        assert row["within_bounds"]
    assert any(row["satisfied"] < 10 for row in rows if row["method"] == "Unconstrained")


def test_better_trained_is_better(rows):
    mse = {(row["setting"], row["method"]): row["mse"] for row in rows}
    assert mse["converged", "F-Layer"] < mse["replica", "F-Layer"]
    assert mse["converged", "F-Layer"] < 0.0801


def test_flagging_rates_agree_with_the_number_flagged(rows):
    sizes = {name: (int((labels == 1).sum()), int((labels == 0).sum())) for name, labels in wages().groups.items()}
    for row in rows:
        for entry in row["flagging"]:
            members, others = sizes[entry["attribute"]]
            assert entry["rate_members"] * members + entry["rate_others"] * others == pytest.approx(120)


def test_table_and_claims(quick, results_of):
    table = tables.read_csv(quick("employee") / "table.csv")
    replica = {row["method"]: row for row in table if row["setting"] == "replica"}
    assert replica["F-Layer"]["published_mse"] == "0.0834"
    assert replica["Projection"]["published_lowered"] == "319.0"
    findings = employee.EXPERIMENT.claims(results_of("employee"), employee.PROFILES["quick"])
    assert set(findings) == {claim["id"] for claim in claims.published_claims("employee")}
    assert findings["exact"].verdict == "holds"
