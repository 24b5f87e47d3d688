"""Cells: numbered combinations of labels, whatever the order in which constraints look at the columns."""

import numpy as np
import pytest
import torch

from fairlayer import FairLayer, MeanParity, project
from fairlayer.binding.cells import assign_cells
from fairlayer.binding.exact_sums import exact_sums
from fairlayer.binding.groups import Column


@pytest.mark.parametrize("over", [None, 1, (0, 1), (1, 0), [1, 0], [(1, 0), 0]])
def test_a_table_means_the_same_as_its_columns(over):
    generator = torch.Generator().manual_seed(0)
    table = torch.stack([torch.randint(0, k, (60,), generator=generator) for k in (2, 3)], dim=1)
    z = torch.randn(60, dtype=torch.float64, generator=generator)
    layer = FairLayer([MeanParity(0.01, over=over)])
    by_columns = project(z, {0: table[:, 0], 1: table[:, 1]}, [MeanParity(0.01, over=over)])
    for _ in range(2):  # the second with a plan that was kept
        assert torch.equal(layer(z, table), by_columns.value)
        assert layer.solution.rows == by_columns.rows


@pytest.mark.parametrize("spread", [1, 10**6, 2**62])
def test_wide_ranges_of_labels_are_numbered_by_what_occurs(spread):
    values = np.array([-1, 0, 1, 0, 1]) * spread
    cells = assign_cells([Column("a", values)], 5)
    assert cells.samples.sum() == 5
    assert {label for label in cells.levels.labels[0] if isinstance(label, int)} == set(values.tolist())
    assert len({cells.cell[1], cells.cell[3]}) == 1


def test_exact_sums_keep_what_plain_sums_lose():
    values = np.array([1e16, 1.0, -1e16, 1.0])
    S, error = np.empty(1), np.empty(1)
    exact_sums(values, np.zeros(4, dtype=np.int32), np.empty(0), S, error)
    assert S[0] == 2.0
    assert values.sum() != 2.0
