"""Rows: what constraints and solver have in common, and all of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch


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


def values_of(rows: Rows, q: Any) -> Any:
    """(m,) value of each row at statistics q, an array or a tensor of shape (K,)."""
    if isinstance(q, torch.Tensor):
        plus, minus = (torch.from_numpy(side).to(q.device) for side in (rows.plus, rows.minus))
        return q[plus] - torch.where(minus >= 0, q[minus], 0.0)
    return q[rows.plus] - np.where(rows.minus >= 0, q[rows.minus], 0.0)
