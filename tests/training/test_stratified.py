"""Stratified batches."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from fairlayer import InputError, SoftGroup
from fairlayer.training import StratifiedBatches


def cells(groups):
    return np.unique(groups, axis=0, return_inverse=True)[1].reshape(-1)


def said(counts):
    return f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} or {counts.max()}"


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
    first, *lines = sampler.report().splitlines()
    assert f"in {len(dealt)} batches of {said(sizes)}; none dropped, 0 repeated" in first
    assert len(lines) == counts.shape[1]
    assert all(f", {said(column)} in each batch" in line for line, column in zip(lines, counts.T, strict=True))


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
    assert "sex=f & rare=1: 2 samples, 0 or 1 in each batch, so some batches lack it" in spread.report()
    dealt = list(repeat)
    for batch in dealt:
        assert {(GROUPS["sex"][i], GROUPS["rare"][i]) for i in batch} == {("f", 0), ("f", 1), ("m", 0), ("m", 1)}
    assert "lack" not in repeat.report()
    assert sum(map(len, dealt)) == 117
    assert "none dropped, 17 repeated" in repeat.report()
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
