"""Training over several processes: what a loss has to be, and that a run is the run of a single process."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from experiments.datasets import available, load
from fairlayer import MeanParity

PRESENT = {entry.name for entry in available() if entry.present}
BOUNDS = (1e-4, 1.0 - 1e-4)


def made_up(n: int, batches: int, dtype: torch.dtype = torch.float64) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    listed = []
    for _ in range(batches):
        groups = rng.integers(0, 2, (n, 2))
        x = rng.normal(size=(n, 5)) + groups.sum(axis=1, keepdims=True) * 0.5
        targets = rng.random(n) < 1.0 / (1.0 + np.exp(-x[:, 0]))
        listed.append(batch(x, groups, targets, dtype))
    return listed


def batch(x: Any, groups: Any, targets: Any, dtype: torch.dtype) -> dict[str, Any]:
    return {
        "x": torch.tensor(np.asarray(x), dtype=dtype),
        "groups": torch.tensor(np.asarray(groups)),
        "targets": torch.tensor(np.asarray(targets), dtype=dtype),
        "total": len(x),
    }


def share(one: dict[str, Any], rows: slice) -> dict[str, Any]:
    return {name: value if name == "total" else value[rows] for name, value in one.items()}


def run(pool: Any, batches: list[dict[str, Any]], cuts: list[int], wrap: str) -> list[dict[str, Any]]:
    """Train with the rows of every batch cut up among ranks."""
    ends = [0, *cuts, batches[0]["total"]]
    common = {"constraints": [MeanParity(0.02)], "bounds": BOUNDS, "wrap": wrap}
    rows = [slice(a, b) for a, b in pairwise(ends)]
    return pool.run("jobs:train", [{**common, "batches": [share(one, own) for one in batches]} for own in rows])


def outputs(results: list[dict[str, Any]], step: int) -> torch.Tensor:
    return torch.cat([result["outputs"][step] for result in results])


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_a_run_is_that_of_a_single_process(pool, wrap):
    """Step by step, for shares of unequal size, one of them empty for a while."""
    batches = made_up(200, 6)
    (alone,) = run(pool, batches, [], "alone")
    for cuts in ([120], [60, 190], [200]):
        results = run(pool, batches, cuts, wrap)
        for step in range(len(batches)):
            torch.testing.assert_close(outputs(results, step), alone["outputs"][step], rtol=1e-12, atol=1e-12)
        for result in results:
            for found, expected in zip(result["parameters"], alone["parameters"], strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_without_the_group_each_rank_is_fair_by_itself_only(pool):
    """So the test above can fail."""
    batches = made_up(200, 1)
    (alone,) = run(pool, batches, [], "alone")
    halves = pool.run(
        "jobs:train",
        [
            {"constraints": [MeanParity(0.02)], "bounds": BOUNDS, "wrap": "alone", "batches": [share(batches[0], rows)]}
            for rows in (slice(0, 100), slice(100, 200))
        ],
    )
    assert (outputs(halves, 0) - alone["outputs"][0]).abs().max() > 1e-3


@pytest.mark.skipif("sba" not in PRESENT, reason="sba/SBAcase.11.13.17.csv is not in FAIRLAYER_DATA")
def test_loans_on_two_ranks_are_loans_on_one(pool):
    """Outputs equal at every step; float64, so that rounding does not grow in the course of training."""
    data = load("sba", fetch=False)
    x = data.features.select_dtypes("number").fillna(0.0).to_numpy(np.float64)
    x = (x - x.mean(axis=0)) / np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    order = np.random.default_rng(0).permutation(len(x))
    codes = np.stack([np.unique(data.protected[name], return_inverse=True)[1] for name in data.protected], axis=1)
    x, groups, targets = x[order], codes[order], data.target.to_numpy()[order]
    size, steps = 400, 5
    listed = [
        batch(x[rows], groups[rows], targets[rows], torch.float64)
        for rows in (slice(step * size, (step + 1) * size) for step in range(steps))
    ]
    (alone,) = run(pool, listed, [], "alone")
    results = run(pool, listed, [150], "ddp")
    for step in range(steps):
        torch.testing.assert_close(outputs(results, step), alone["outputs"][step], rtol=1e-12, atol=1e-12)
    assert sum(result["losses"][-1] for result in results) == pytest.approx(alone["losses"][-1], rel=1e-12)
