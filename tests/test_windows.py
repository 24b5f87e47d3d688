"""Windows: sums of whole numbers, the same in any order and by whichever loop."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from fairlayer.binding.bounds import read_bounds
from fairlayer.solve.discrepancy import find_discrepancy
from fairlayer.solve.shares import WRITTEN, LoopShare, TensorShare
from fairlayer.solve.windows import BLOCK, bottom_below, splitters

SQUARED = find_discrepancy("squared")
SPREADS = {"alike": (0, 1), "of any size": (-90, 1), "tiny beside one": (-260, -200)}  # powers of 2


def share(z: np.ndarray, cell: np.ndarray, kind: type) -> LoopShare | TensorShare:
    box, none = read_bounds(None, len(z), np.float64), np.empty(0)
    if kind is LoopShare:
        return LoopShare(torch.from_numpy(z), cell, none, box, SQUARED)
    return TensorShare(torch.from_numpy(z), torch.from_numpy(cell).long(), none, box, SQUARED)


@pytest.mark.parametrize("spread", SPREADS)
def test_sums_are_exact_in_any_order(spread):
    """More samples than one block has, against rational arithmetic; and to the bit by tensor operations."""
    rng = np.random.default_rng(0)
    n = 2 * BLOCK + 77
    z = rng.normal(size=n) * 2.0 ** rng.uniform(*SPREADS[spread], n)
    z[0] = 1.0
    cell = rng.integers(0, 3, n).astype(np.int32)
    largest = float(np.abs(z).max())
    bottom = bottom_below(largest)
    none, sizes = np.zeros(3), (largest, 1.0)
    found = share(z, cell, LoopShare).sums(none, sizes, (bottom, bottom), False, True)
    order = rng.permutation(n)
    again = share(z[order], cell[order], LoopShare).sums(none, sizes, (bottom, bottom), False, True)
    tensors = share(z, cell, TensorShare).sums(none, sizes, (bottom, bottom), False, True)
    np.testing.assert_array_equal(found, again)
    np.testing.assert_array_equal(found, tensors)
    for c in range(3):
        units = sum(int(limb) << (32 * k) for k, limb in enumerate(found[WRITTEN, c].tolist()))
        exact = sum(map(Fraction, z[cell == c].tolist()))
        assert abs(units * Fraction(2) ** bottom - exact) <= n * Fraction(2) ** bottom


def test_splitters_take_nothing_off_where_values_may_be_cut_off():
    """What lies below the bottom is cut off as it stands, whatever the largest value beside it."""
    first, second = splitters(1e-50, -200)
    assert (1e-50 + first) - first == 0.0 == (1e-50 + second) - second
    first, second = splitters(0.7, -330)
    assert (0.3 + first) - first == pytest.approx(0.3, abs=2.0**-38)
