"""Rows: what constraints and solver have in common, and all of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Rows(NamedTuple):
    """Constraints as the solver sees them: lower <= R (M S - offset) <= upper over the cell sums S.

    Statistic k is sum_c M[c, k] S_c - offset_k, for instance a group's mean. Row j is statistic plus[j], less
    statistic minus[j] unless that is -1.
    """

    M: np.ndarray  # (G, K)
    offset: np.ndarray  # (K,)
    plus: np.ndarray  # (m,)
    minus: np.ndarray  # (m,)
    lower: np.ndarray  # (m,)
    upper: np.ndarray  # (m,)
