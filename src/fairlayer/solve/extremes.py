"""The least and the most that sums can be."""

from __future__ import annotations

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box
from fairlayer.binding.system import System


def cell_extremes(system: System, box: Box) -> tuple[np.ndarray, np.ndarray]:
    """The least and the most that each cell sum can be within the bounds."""
    return _extreme(system, box.lo), _extreme(system, box.hi)


def _extreme(system: System, side: np.ndarray) -> np.ndarray:
    if len(side) > 1:
        index = as_numpy(system.cell)
        values = side.astype(np.float64)
        if len(system.weights):  # what has no weight adds nothing, even where its bound is infinite
            values = np.where(system.weights > 0, values, 0.0) * system.weights
        return np.bincount(index, weights=values, minlength=len(system.weight))
    return common_extreme(system.weight, float(side[0]))


def common_extreme(weight: np.ndarray, bound: float) -> np.ndarray:
    """(G,) the cell sums of samples that all rest on the same bound."""
    if np.isfinite(bound):
        with np.errstate(over="ignore"):  # a sum past the range of floats is as good as an open one
            return weight * bound
    return np.where(weight > 0, bound, 0.0)
