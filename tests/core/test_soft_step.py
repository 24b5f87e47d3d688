"""The soft step against an interior-point solver."""

import clarabel
import numpy as np
import pytest
import torch
from scipy import sparse

from fairlayer import MeanParity, ResidualMean, project
from fairlayer.core.soft_step import soft_step
from fairlayer.gaps import bind_batch, row_values
from fairlayer.problem.bounds import read_bounds
from fairlayer.problem.constraint_set import ConstraintSet


def reference(z, A, lower, upper, floor, box, price):
    """Outputs and excess by Clarabel, in the variables (y, e)."""
    n, m = len(z), len(A)
    eye, nothing = np.eye(n), np.zeros((n, 1))
    blocks = [
        (np.c_[A, -np.ones(m)], upper),
        (np.c_[-A, -np.ones(m)], -lower),
        (np.r_[np.zeros(n), -1.0][None], [-floor]),
    ]
    if np.isfinite(box.lowest):
        blocks.append((np.c_[-eye, nothing], -box.lowest * np.ones(n)))
    if np.isfinite(box.highest):
        blocks.append((np.c_[eye, nothing], box.highest * np.ones(n)))
    G, h = sparse.csc_matrix(np.vstack([b[0] for b in blocks])), np.concatenate([b[1] for b in blocks])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    P = sparse.diags(np.r_[np.ones(n), 0.0]).tocsc()
    answer = clarabel.DefaultSolver(P, np.r_[-z, price], G, h, [clarabel.NonnegativeConeT(len(h))], settings).solve()
    return np.array(answer.x[:n]), answer.x[n]


def dense_rows(system):
    rows, view, statistic = system.rows, system.view, system.rows.dense().T
    A = statistic[view.plus] - np.where(view.minus[:, None] >= 0, statistic[view.minus], 0.0)
    shift = rows.offset[view.plus] - np.where(view.minus >= 0, rows.offset[view.minus], 0.0)
    lower, upper = (side[view.family] for side in (rows.lower, rows.upper))
    return A[:, system.cell], lower + shift, upper + shift


@pytest.mark.parametrize("bounds", [None, (0.0, 1.0), (-1.0, None)])
@pytest.mark.parametrize("contradictory", [False, True])
def test_agrees_with_interior_point(bounds, contradictory):
    rng = np.random.default_rng(3)
    constraints = [MeanParity(0.1), ResidualMean(0.02)] if contradictory else [MeanParity(0.05)]
    compared = 0
    for _ in range(14):
        n = int(rng.integers(2, 65))
        groups = rng.integers(0, rng.integers(2, 5), size=(n, int(rng.integers(1, 4))))
        z = rng.normal(size=n) * rng.choice([0.1, 1.0, 10.0]) + groups[:, 0]
        system = bind_batch(ConstraintSet(constraints), n, groups, rng.normal(size=n))
        if not len(system.view.plus):
            continue
        box = read_bounds(bounds, n, np.float64)
        price = 0.5 * n * float(rng.choice([1e-3, 0.1, 1.0, 10.0, 100.0]))
        A, lower, upper = dense_rows(system)
        floor = -0.5 * (upper - lower).min()
        wanted, excess = reference(z, A, lower, upper, floor, box, price)
        found = soft_step(z, system, box, price)
        scale = max(1.0, np.abs(z).max())
        np.testing.assert_allclose(found.value, wanted, atol=1e-5 * scale)
        cost, least = (
            0.5 * np.sum((y - z) ** 2) + price * max(e, floor)
            for y, e in ((found.value, found.excess), (wanted, excess))
        )
        assert cost <= least + 1e-7 * max(1.0, abs(least))
        if bounds is None:  # else multipliers need not be unique
            assert np.abs(system.view.multipliers(found.nu)).sum() <= price * (1 + 1e-9)
        compared += 1
    assert compared > 7


def batch(n=12, seed=0, labels=2):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, labels, size=(n, 2))
    groups[:labels] = np.arange(labels)[:, None]
    return rng.normal(size=n) + groups[:, 0], groups


def test_price_zero_only_clips_and_a_high_price_makes_equal():
    z, groups = batch()
    system, box = (
        bind_batch(ConstraintSet([MeanParity(0.05)]), len(z), groups),
        read_bounds((-0.5, 0.9), len(z), np.float64),
    )
    np.testing.assert_array_equal(soft_step(z, system, box, 0.0).value, np.clip(z, -0.5, 0.9))
    equal = soft_step(z, system, box, 1e6)
    assert equal.pinned
    assert equal.gap < 1e-12
    hard = project(z, groups, [MeanParity(0.0)], bounds=(-0.5, 0.9))
    np.testing.assert_allclose(equal.value, hard.value, atol=1e-10)


def test_gap_and_excess_are_those_of_the_output():
    z, groups = batch(30, labels=3)
    system, box = bind_batch(ConstraintSet([MeanParity(0.05)]), len(z), groups), read_bounds(None, len(z), np.float64)
    found = soft_step(z, system, box, 2.0)
    rows = row_values(torch.from_numpy(found.value), system).abs()
    assert found.gap == pytest.approx(float(rows.max()), abs=1e-12)
    assert found.excess == pytest.approx(found.gap - 0.05, abs=1e-12)
    assert 0.0 < found.gap < float(row_values(torch.from_numpy(z), system).abs().max())


def test_a_batch_of_one_group_is_left_alone():
    z = np.array([0.2, 1.4])
    system = bind_batch(ConstraintSet([MeanParity(0.05)]), 2, np.zeros((2, 1), dtype=np.int64))
    found = soft_step(z, system, read_bounds((0.0, 1.0), 2, np.float64), 5.0)
    np.testing.assert_array_equal(found.value, [0.2, 1.0])
    assert np.isnan(found.gap)
