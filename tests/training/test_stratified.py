"""Stratified batches, and Lemma 3.1."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from fairlayer import InputError, MeanParity, SoftGroup, project
from fairlayer.training import StratifiedBatches, aggregate_bound, batches


def cells(groups):
    return np.unique(groups, axis=0, return_inverse=True)[1].reshape(-1)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 300),
    batch_size=st.integers(1, 70),
    columns=st.integers(1, 3),
    seed=st.integers(0, 99),
    shuffle=st.booleans(),
)
def test_every_batch_has_the_same_counts_up_to_one(n, batch_size, columns, seed, shuffle):
    rng = np.random.default_rng(seed)
    groups = (rng.random((n, columns)) ** 2 * rng.integers(1, 5, columns)).astype(np.int64)
    sampler = StratifiedBatches(groups, batch_size, seed=seed, shuffle=shuffle)
    dealt = list(sampler)
    cell = cells(groups)
    assert len(dealt) == len(sampler)
    np.testing.assert_array_equal(np.sort(np.concatenate(dealt)), np.arange(n))
    counts = np.array([np.bincount(cell[batch], minlength=cell.max() + 1) for batch in dealt])
    assert (counts.max(axis=0) - counts.min(axis=0)).max() <= 1
    sizes = counts.sum(axis=1)
    assert sizes.max() - sizes.min() <= 1
    assert sizes.max() <= batch_size
    report = sampler.report()
    assert (report.smallest, report.largest, report.repeated) == (sizes.min(), sizes.max(), 0)
    assert [(c.least, c.most) for c in report.cells] == list(
        zip(counts.min(axis=0).tolist(), counts.max(axis=0).tolist(), strict=True)
    )


GROUPS = {"sex": np.array(["f", "m"] * 50), "rare": np.array([1] * 3 + [0] * 97)}


def test_epochs_reshuffle_and_repeat():
    first, other = StratifiedBatches(GROUPS, 10, seed=1), StratifiedBatches(GROUPS, 10, seed=2)
    a, b = [list(first) for _ in range(2)]
    assert not all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    first.set_epoch(0)
    again = list(first)
    assert all(np.array_equal(x, y) for x, y in zip(a, again, strict=True))
    assert not all(np.array_equal(x, y) for x, y in zip(a, list(other), strict=True))


def test_tiny_cells_are_spread_or_repeated_and_it_says_so():
    spread, repeat = (StratifiedBatches(GROUPS, 10, tiny=tiny) for tiny in ("spread", "repeat"))
    assert sum(((GROUPS["rare"] == 1) & (GROUPS["sex"] == "f"))[batch].any() for batch in spread) == 2
    assert set(spread.report().missing) == {"sex=f & rare=1", "sex=m & rare=1"}
    assert "some batches lack it" in str(spread.report())
    dealt = list(repeat)
    for batch in dealt:
        assert {(GROUPS["sex"][i], GROUPS["rare"][i]) for i in batch} == {("f", 0), ("f", 1), ("m", 0), ("m", 1)}
    report = repeat.report()
    assert report.missing == ()
    assert report.repeated == sum(map(len, dealt)) - 100 == 17
    assert f"{report.repeated} repeated" in str(report)
    assert set(np.concatenate(dealt)) == set(range(100))


def test_ranks_share_one_deal():
    parts = [list(StratifiedBatches(GROUPS, 7, rank=rank, world_size=3, seed=5)) for rank in range(3)]
    assert {len(part) for part in parts} == {5}
    everything = np.concatenate([batch for part in parts for batch in part])
    np.testing.assert_array_equal(np.sort(everything), np.arange(100))
    shares = [np.mean(GROUPS["sex"][batch] == "f") for part in parts for batch in part]
    assert max(shares) - min(shares) < 0.25


def test_serves_as_a_batch_sampler_of_any_loader():
    x = torch.arange(100.0)
    loader = DataLoader(TensorDataset(x), batch_sampler=StratifiedBatches(GROUPS, 20))
    assert sorted(torch.cat([batch for (batch,) in loader]).tolist()) == x.tolist()


def test_refusals():
    with pytest.raises(InputError, match="batch_size"):
        StratifiedBatches(GROUPS, 0)
    with pytest.raises(InputError, match="fewer ranks"):
        StratifiedBatches(np.zeros((2, 1), dtype=int), 5, world_size=4)
    with pytest.raises(InputError, match="rank"):
        StratifiedBatches(GROUPS, 5, rank=2, world_size=2)
    with pytest.raises(InputError, match="Soft groups"):
        StratifiedBatches({"sex": SoftGroup(np.full((4, 2), 0.5))}, 2)


@pytest.mark.parametrize("stratify", [False, True])
def test_lemma_bounds_the_pooled_gap(stratify):
    rng = np.random.default_rng(0)
    tolerance, exceeded_tolerance = 0.05, 0
    for seed in range(20):
        groups = rng.permutation(120)[:, None] % 3
        if not stratify:
            groups = groups[np.argsort(groups[:, 0] + 1.5 * rng.random(120))]
        z = rng.random(120) * 0.3 + 0.7 * (np.arange(120) > 60)  # the level drifts from batch to batch
        loader = batches(z[:, None], None, groups, batch_size=24, stratify=stratify, seed=seed)
        pooled = {label: [] for label in range(3)}
        for batch in loader:
            y = project(batch.x[:, 0].double(), batch.groups, [MeanParity(tolerance)], bounds=(0.0, 1.0)).value.numpy()
            for label in range(3):
                pooled[label].extend(y[batch.groups[:, 0].numpy() == label])
        for found in aggregate_bound(loader, tolerance, (0.0, 1.0)):
            gap = abs(np.mean(pooled[found.pair[0]]) - np.mean(pooled[found.pair[1]]))
            exceeded_tolerance += gap > tolerance
            assert gap <= found.sharp + 1e-12
            assert found.sharp <= found.bound + 1e-12
    assert (exceeded_tolerance == 0) if stratify else exceeded_tolerance > 10


def test_equal_shares_leave_the_tolerance_alone():
    groups = {"sex": ["f", "m", "m"] * 8}
    (found,) = aggregate_bound(batches(np.zeros((24, 1)), None, groups, batch_size=6, stratify=True), 0.05, (0, 1))
    assert found.bound == found.sharp == pytest.approx(0.05)
    assert (found.attribute, found.pair, found.share) == ("sex", ("f", "m"), pytest.approx(1 / 3))
    by_hand = aggregate_bound([(None, None, {"a": [0, 0]}), (None, None, {"a": [0, 1]})], 0.1, (0.0, 1.0), "a")
    assert by_hand[0].bound == pytest.approx(0.1 + 0.5 * 0.25 * (1 / 0.75 + 1 / 0.25))
    assert by_hand[0].sharp == pytest.approx(0.1 + 0.5 * (abs(2 / 3 - 0) + abs(1 / 3 - 1)))
