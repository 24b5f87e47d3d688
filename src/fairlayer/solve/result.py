"""What a solver returns, whichever path it took."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Result(NamedTuple):
    """The end of a solve."""

    outcome: int  # DONE, INFEASIBLE or STALLED, of newton.py
    value: Any  # (n,) the output, in its own dtype
    nu: np.ndarray  # (K,) multipliers of the statistics
    shift: np.ndarray  # (G,) of the cells
    slopes: np.ndarray  # (G,) cell sums of the slopes
    missed: np.ndarray  # (F,) by how much each family may be missed: at most 0 where it certainly holds
    statistics: np.ndarray  # (K,)
    absolute: np.ndarray  # (G,) cell sums of |y| before any shift: the size of the numbers at hand
    tight: bool = True  # whether rows that bind are within a hair of their bounds
    beyond: float = 0.0  # by how much the squared change may exceed the least, where the output is not the nearest

    @property
    def holds(self) -> bool:
        """Whether every family certainly holds. What is no number is not known to."""
        return all(map((0.0).__ge__, self.missed.tolist()))
