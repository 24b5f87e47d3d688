"""Pictures are read, altered and kept as they should be, and outputs are judged in exact arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("PIL", reason="Pillow is absent")

from experiments.pictures import generated, reference
from experiments.pictures.arrays import Album, features, kept, pixels
from experiments.pictures.backbones import Classifier, features_of, head_of
from experiments.pictures.inference import (
    EQUAL,
    HARD,
    LEDGER,
    PROJECTED,
    RAW,
    SOFT,
    TOGETHER,
    arrivals,
    emit,
    judge,
    renumbered,
)
from experiments.pictures.settings import Network, Settings
from experiments.pictures.training import rate_groups
from fairlayer.errors import FairlayerError

SETTINGS = Settings(networks=())


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fairlayer" / "pictures"


def album(order: Any, altered: int = 0, seed: int = 0) -> Album:
    data = generated.load("fairface", 40, 0).rows(np.asarray(order))
    return Album("fairface", data.pictures, np.asarray(order), altered, seed)


def test_only_the_first_pictures_are_altered_and_each_in_its_own_way() -> None:
    plain, altered = pixels(album(range(40)), 32), pixels(album(range(40), altered=30), 32)
    assert plain.shape == (40, 3, 32, 32)
    assert plain.dtype == torch.uint8
    assert torch.equal(plain[30:], altered[30:])
    assert all(not torch.equal(a, b) for a, b in zip(plain[:30], altered[:30], strict=True))
    assert not torch.equal(altered, pixels(album(range(40), altered=30, seed=1), 32))


def test_an_alteration_belongs_to_the_picture_and_not_to_its_place() -> None:
    order = np.random.default_rng(0).permutation(40)
    assert torch.equal(pixels(album(range(40), altered=40), 16)[torch.tensor(order)], pixels(album(order, 40), 16))


def test_an_array_is_computed_once(cache: Path) -> None:
    calls = []

    def compute() -> Iterator[np.ndarray]:
        calls.append(1)
        yield np.ones((2, 3))
        yield np.zeros((1, 3))

    what = {"data": "a", "network": "b", "size": 1}
    for _ in range(2):
        assert kept(what, 3, compute).tolist() == [[1.0] * 3, [1.0] * 3, [0.0] * 3]
    assert len(calls) == 1
    kept(what | {"size": 2}, 3, compute)
    assert len(calls) == 2


def test_nothing_is_kept_of_a_computation_that_fails(cache: Path) -> None:
    with pytest.raises(FairlayerError, match="2 pictures where 3 were expected"):
        kept({"data": "a", "network": "b", "size": 1}, 3, lambda: iter([np.ones((2, 3))]))
    assert list(cache.iterdir()) == []


def test_features_are_those_of_the_network_and_those_of_another_are_not_mixed_up() -> None:
    some = album(range(40), altered=20)

    def mean_colour() -> torch.nn.Module:
        return torch.nn.Sequential(_Floats(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())

    found = features(some, 16, "mean", "none", mean_colour)
    assert torch.allclose(found, pixels(some, 16).float().mean((2, 3)), atol=1e-3)
    assert not torch.equal(
        found, features(some, 16, "mean", "other", lambda: torch.nn.Sequential(mean_colour(), _Less()))
    )


class _Floats(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float()


class _Less(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - 1


def logits_and_groups() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    group = np.array([f"g{i}" for i in random.integers(0, 5, 300)])
    raw = random.normal(0, 2, 300) + 2 * (group == "g1") - 2 * (group == "g2")
    return raw.astype(np.float32), group, (random.random(300) < 0.5).astype(int)


@pytest.mark.parametrize("size", [3, 150])
def test_every_way_of_inference_keeps_its_promise_exactly(size: int) -> None:
    raw, group, targets = logits_and_groups()
    rows = arrivals(group, size)
    assert sorted(np.concatenate(rows).tolist()) == list(range(300))
    judged = {
        how: judge(emit(raw, group, rows, how, 1e-4, SETTINGS), targets, group, rows, 1e-4)
        for how in (RAW, PROJECTED, TOGETHER, LEDGER, SOFT)
    }
    assert judged[RAW]["pooled_gap"] > 1
    assert judged[RAW]["pairs"] == 10
    assert judged[PROJECTED]["batches_exact"] == len(rows)
    assert judged[TOGETHER]["pooled_exact"]
    assert judged[LEDGER]["moments_exact"] == len(rows)
    assert judged[LEDGER]["pairs_violated"] == 0
    assert judged[SOFT]["mean_batch_gap"] < judged[RAW]["mean_batch_gap"]


@pytest.mark.parametrize("size", [5, 64])
def test_equal_shares_make_fair_batches_fair_together(size: int) -> None:
    raw, group, targets = logits_and_groups()
    order, rows = renumbered(arrivals(group, size, EQUAL))
    counts = {tuple(np.unique(group[order][taken], return_counts=True)[1].tolist()) for taken in rows}
    assert len(counts) == 1
    assert {len(taken) for taken in rows} == {size}
    assert len(rows) == 300 // size
    emitted = emit(raw[order], group[order], rows, HARD, 1e-4, SETTINGS)
    judged = judge(emitted, targets[order], group[order], rows, 1e-4)
    assert judged["batches_exact"] == len(rows)
    assert judged["pooled_exact"]


def test_there_are_no_equal_shares_where_a_batch_cannot_hold_every_group() -> None:
    _, group, _ = logits_and_groups()
    assert arrivals(group, 4, EQUAL) == []


def test_a_gap_beyond_the_tolerance_by_the_last_bit_is_found() -> None:
    group, targets = np.array(["a", "b"]), np.array([0, 1])
    rows = [np.arange(2)]
    at = np.array([0.0, 0.5])
    beyond = np.array([0.0, np.nextafter(0.5, 1)])
    assert judge(at, targets, group, rows, 0.5)["pooled_exact"]
    assert not judge(beyond, targets, group, rows, 0.5)["pooled_exact"]
    assert judge(beyond, targets, group, rows, 0.5)["batches_exact"] == 0
    assert judge(at, targets, group, rows, 0.5)["accuracy"] == 0.5  # a logit of 0 says yes


def test_features_and_head_are_trained_each_at_its_own_rate() -> None:
    network = Network("cnn", weights="random", rate=1e-3, head_rate=1e-3)
    classifier = Classifier(features_of("cnn"), head_of(512, 0.5))
    groups = rate_groups(classifier, network)
    assert sum(len(group["params"]) for group in groups) == len(list(classifier.parameters()))
    frozen = Classifier(torch.nn.Identity(), head_of(512, 0.5))
    assert [group["lr"] for group in rate_groups(frozen, Network("cnn", head_rate=0.5))] == [0.5]


def test_the_stored_figures_are_read_by_our_names() -> None:
    rows = reference.stored_runs("fairface")
    fair = [row for row in rows if row["method"] == "F-Layer"]
    assert (len(rows), len(fair), sum(row["satisfied"] for row in fair)) == (20, 5, 1)
    swin = {row["method"]: row["accuracy"] for row in rows if row["network"] == "Swin-T"}
    assert swin["F-Layer"] / swin["Projection"] - 1 == pytest.approx(0.0569, abs=1e-4)
    assert reference.printed_wider("fairface")[0] == 1e-3
    assert reference.printed_wider("celeba")[0] == 1e-2
    assert reference.printed_wider("celeba")[1]["ViT-B/16", "F-Layer"] == 0.907
    assert len(reference.printed_batch_sizes("celeba")) == 36
    assert len(reference.stored_batch_sizes("fairface")) == 27
