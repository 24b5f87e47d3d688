"""The loan experiment: its data are the published ones, and what it says about its results is so."""

from __future__ import annotations

import statistics
from dataclasses import replace

import numpy as np
import pytest

from experiments import claims, loan, tables
from experiments.datasets import available

PRESENT = {entry.name for entry in available() if entry.present}
needs_data = pytest.mark.skipif("sba" not in PRESENT, reason="sba/SBAcase.11.13.17.csv is not in FAIRLAYER_DATA")


@needs_data
def test_loans_are_the_published_ones():
    table, target, protected = loan.data._loans()
    assert len(target) == 2102
    assert target.sum() == 686
    assert protected.groupby(["new", "urban"]).size().to_dict() == {(0, 0): 283, (0, 1): 1495, (1, 0): 77, (1, 1): 247}
    assert table["Bank"].value_counts().to_dict() == {"Other": 1530, "Bank of America": 377, "Wells Fargo": 195}


@needs_data
@pytest.mark.parametrize("seed", [0, 24])
def test_splits_are_the_published_ones(seed):
    expected = next(row for row in tables.published("loan_splits") if int(row["data_seed"]) == seed)
    parts = loan.data.loan_split(seed)
    for short, name in (("train", "train"), ("val", "validation"), ("test", "test")):
        part = parts[name]
        assert len(part.y) == int(expected[f"n_{short}"])
        assert part.y.sum() == int(expected[f"pos_{short}"])
        assert part.groups["new"].sum() == int(expected[f"new_{short}"])
        assert part.groups["urban"].sum() == int(expected[f"urban_{short}"])
        assert part.x.shape[1] == int(expected["n_network_inputs"])


@needs_data
def test_inputs_are_scaled_by_training_rows_and_end_with_the_protected_attributes():
    parts = loan.data.loan_split(0)
    n = len(loan.data.CONTINUOUS)
    numbers = parts["train"].x[:, :n].astype(np.float64)
    np.testing.assert_allclose(numbers.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(numbers.std(axis=0), 1.0, atol=1e-5)
    for part in parts.values():
        np.testing.assert_array_equal(part.x[:, -2], part.groups["new"])
        np.testing.assert_array_equal(part.x[:, -1], part.groups["urban"])
        assert set(np.unique(part.x[:, n:-2])) == {0.0, 1.0}


@needs_data
def test_projection_gives_what_the_authors_stored():
    settings = loan.PROFILES["paper"]
    unit = next(unit for unit in loan.units(settings) if unit.key == "small/00/Unconstrained")
    rows = {(row["method"], row["epoch"]): row for row in loan.run(unit, settings)["rows"]}
    stored = next(
        row for row in tables.published("loan_small") if (row["method"], row["data_seed"]) == ("projection", "0")
    )
    assert rows["Projection", "last"]["auc"] == pytest.approx(float(stored["test_auc"]), abs=2e-3)
    assert rows["Unconstrained", "last"]["auc"] == pytest.approx(float(stored["raw_auc_before_projection"]), abs=2e-3)


@pytest.fixture
def results(results_of):
    return results_of("loan")


@needs_data
def test_promises_hold_exactly_and_training_learns(results):
    rows = loan.summary.flatten(results)
    assert len(rows) == 2 * 2 * 5  # splits, epochs, methods
    assert all(row["gap"] == max(abs(row["gap_new"]), abs(row["gap_urban"])) for row in rows)
    promised = [row for row in rows if row["method"] in ("F-Layer", "Projection")]
    assert len(promised) == 2 * 2 * 2
    assert all(row["satisfied"] and row["gap"] <= 0.01 and row["auc"] > 0.6 for row in promised)
    assert not any(row["satisfied"] for row in rows if row["method"] == "Unconstrained")


@needs_data
def test_projection_is_the_unconstrained_network_projected(results):
    rows = {(row["split"], row["epoch"], row["method"]): row for row in loan.summary.flatten(results)}
    pairs = [(row, rows[split, epoch, "Unconstrained"]) for (split, epoch, m), row in rows.items() if m == "Projection"]
    assert len(pairs) == 2 * 2
    assert all(after["epochs"] == before["epochs"] and after["auc"] != before["auc"] for after, before in pairs)


@needs_data
@pytest.mark.parametrize(
    ("tolerance", "strengths", "kept", "chosen"),
    [(0.1, (0.0, 0.1, 5.0), [0.1, 5.0], 0.1), (1e-9, (0.0, 0.1), [], 0.0)],
)
def test_strength_is_the_smallest_that_satisfies_or_that_of_the_lowest_loss(tolerance, strengths, kept, chosen):
    settings = replace(loan.PROFILES["quick"], tolerance=tolerance, strengths=strengths)
    selection = loan.Task(loan.data.loan_split(0), (2,), settings).choose_strength()
    assert [trial.strength for trial in selection.trials if trial.satisfied] == kept
    assert min(selection.trials, key=lambda trial: trial.loss).strength == 0.0
    assert selection.strength == chosen


@needs_data
def test_tables_follow_from_the_rows(quick, results):
    home = quick("loan")
    ours = [
        row["auc"] for row in loan.summary.flatten(results) if row["method"] == "F-Layer" and row["epoch"] == "last"
    ]
    table = tables.read_csv(home / "summary.csv")
    row = next(r for r in table if (r["source"], r["method"], r["epoch"]) == ("measured", "F-Layer", "last"))
    assert float(row["auc"]) == pytest.approx(statistics.mean(ours), rel=1e-7)
    assert float(row["auc_sd"]) == pytest.approx(statistics.stdev(ours), rel=1e-6)
    assert {path.suffix for path in home.iterdir()} >= {".csv", ".svg", ".md", ".json", ".jsonl"}


@needs_data
def test_every_claim_has_a_finding(results):
    findings = loan.EXPERIMENT.claims(results, loan.PROFILES["quick"])
    assert set(findings) == {claim["id"] for claim in claims.published_claims("loan")}
    assert findings["exact"].verdict == "holds"


def test_stored_results_of_the_authors():
    ours, projection = (loan.summary.stored_rows("small", method) for method in ("F-Layer", "Projection"))
    assert statistics.mean(row["auc"] for row in ours) == pytest.approx(0.8903, abs=5e-5)
    assert statistics.mean(row["auc"] for row in projection) == pytest.approx(0.8780, abs=5e-5)
    assert loan.summary.wins(ours, projection, "auc") == 21
    assert loan.summary.wins(ours, projection, "ap") == 22
    assert loan.summary.gain(ours, projection, "auc") == pytest.approx(1.43, abs=0.02)
    assert sum(not row["satisfied"] for row in ours) == 14
    assert loan.summary.stored_rows("large", "F-Layer") == []  # copies of the small network's
