"""Lemma 3.1: what fairness in every batch is worth over all of them."""

import numpy as np
import pytest

from experiments.aggregate import aggregate_bound
from fairlayer import MeanParity, project
from fairlayer.training import batches


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
