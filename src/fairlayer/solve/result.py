"""What a solver returns, whichever path it took."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor


class Result(NamedTuple):
    """The end of a solve."""

    outcome: int  # DONE, INFEASIBLE or STALLED, of newton.py
    value: Tensor  # (n,) the output, in its own dtype
    multipliers: np.ndarray  # (m,)
    active: np.ndarray  # rows with a multiplier, linearly independent
    shift: np.ndarray  # (G,) of the cells
    slopes: np.ndarray  # (G,) cell sums of the slopes
    missed: np.ndarray  # (m,) by how much each row may be missed: at most 0 where it certainly holds
    statistics: np.ndarray  # (K,)
