"""Outputs of several columns that have nothing to do with each other: each is projected as if it were alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fairlayer import EqualizedResiduals, FairLayer, InputError, MeanParity, Status, project

RNG = np.random.default_rng(0)
GROUPS = RNG.integers(0, 2, (30, 2))
Z = RNG.normal(size=(30, 3)) + GROUPS[:, :1]
TARGETS = RNG.normal(size=(30, 3))


@pytest.mark.parametrize("discrepancy", ["squared", "kl"])
def test_each_column_is_projected_by_itself(discrepancy):
    z = np.exp(Z) if discrepancy == "kl" else Z
    both = project(z, GROUPS, [MeanParity(0.05)], discrepancy=discrepancy)
    parts = [project(z[:, j], GROUPS, [MeanParity(0.05)], discrepancy=discrepancy) for j in range(3)]
    assert both.status is Status.OPTIMAL
    np.testing.assert_array_equal(both.value, np.stack([part.value for part in parts], axis=1))
    np.testing.assert_array_equal(both.gaps, np.concatenate([part.gaps for part in parts]))
    assert both.holds
    for name in ("missed", "statistics", "nu"):
        np.testing.assert_array_equal(getattr(both, name), np.concatenate([getattr(part, name) for part in parts]))
    assert both.view.names == parts[0].rows
    assert both.rows[0].endswith("output 0")
    assert both.rows[-1].endswith("output 2")


def test_each_column_has_its_own_targets():
    both = project(Z, GROUPS, [EqualizedResiduals(0.05)], targets=TARGETS)
    for j in range(3):
        alone = project(Z[:, j], GROUPS, [EqualizedResiduals(0.05)], targets=TARGETS[:, j])
        np.testing.assert_array_equal(both.value[:, j], alone.value)
    with pytest.raises(InputError, match="targets has shape"):
        project(Z, GROUPS, [EqualizedResiduals(0.05)], targets=TARGETS[:, :2])


def test_gradients_reach_every_column():
    z = torch.tensor(Z[:12], requires_grad=True)
    layer = FairLayer([MeanParity(0.05)])
    assert torch.autograd.gradcheck(lambda z: layer(z, GROUPS[:12]), (z,))
    assert len(layer.solution.gaps) == 6


def test_no_column_is_refused():
    with pytest.raises(InputError, match="at least one column"):
        project(np.zeros((4, 0)), [0, 0, 1, 1], [MeanParity(0.1)])
