"""Batches that once took minutes. Seconds of processor time, with room for a slow machine."""

from __future__ import annotations

from time import process_time

import numpy as np
import pytest

from fairlayer import MeanParity, RateParity, Status, project

N = 5000
Z = np.random.default_rng(2).random(N)


def attributes(count: int, labels: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {f"a{j}": rng.integers(0, labels, N) for j in range(count)}


SIX, THREE, TWO = attributes(6, 3), attributes(3, 20), attributes(2, 40)
SLOW = {
    "means and their intersection": (SIX, [MeanParity(1e-4, over=tuple(SIX)), MeanParity(1e-3)], 2.0),
    "rates of three attributes": (THREE, [RateParity(0.01)], 5.0),
    "ratios of rates": (TWO, [RateParity(ratio=0.95)], 5.0),
}


@pytest.mark.parametrize("case", SLOW)
def test_attributes_of_many_labels(case):
    groups, constraints, seconds = SLOW[case]
    z = Z + 0.3 * (SIX["a0"] == 1)
    began = process_time()
    solution = project(z, groups, constraints, (0.0, 1.5))
    assert process_time() - began < 2.0 * seconds
    assert solution.satisfied or solution.status is Status.BOUNDED


@pytest.mark.parametrize("discrepancy", ["squared", "entropy"])
def test_fifty_classes(discrepancy):
    rng = np.random.default_rng(208)
    P = rng.dirichlet(np.full(50, 0.05), 20) * 0.999999 + 1e-6 / 50
    P /= P.sum(axis=1, keepdims=True)
    groups = {name: rng.integers(0, 5, 20) for name in "ab"}
    began = process_time()
    solution = project(P, groups, [MeanParity(0.01)], discrepancy=discrepancy, simplex=True)
    assert process_time() - began < 2.0
    assert solution.satisfied
