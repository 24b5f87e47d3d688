"""What a projection returns: the output, and what is known about it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch


class Status(enum.Enum):
    """How far the promise holds. The value is the sentence a user reads."""

    OPTIMAL = "Every row holds exactly, and no other output that satisfies them is closer to the input."
    VACUOUS = (
        "Every row that can be stated holds exactly, but some groups are absent from this batch and were not compared: "
        'see `vacuous`. Use larger or stratified batches, a Stream, or absent="raise".'
    )
    ROUNDED = (
        "The output's dtype cannot represent values that meet the tolerance exactly: `gaps` holds what was reached. "
        "Use float64, or a larger tolerance."
    )
    RELAXED = (
        "The constraints contradict each other or the bounds: this output violates them least, by `excess`, and among "
        "those is the closest to the input."
    )


@dataclass(frozen=True)
class Solution:
    """A projected batch.

    value: the output, with the type, dtype, device and shape of the input.
    gaps: value of each row, signed, in float64 (a difference of group means, for instance).
    multipliers: one per row, zero where the row does not bind.
    rows: name of each row. lower, upper: its bounds.
    status: see `Status`; vacuous: names of the groups that were absent; excess: by how much tolerances had to grow.
    """

    value: Any
    gaps: Any
    multipliers: Any
    rows: tuple[str, ...]
    lower: np.ndarray
    upper: np.ndarray
    status: Status
    vacuous: tuple[str, ...] = ()
    excess: float = 0.0

    @property
    def satisfied(self) -> bool:
        """Whether every row that can be stated holds exactly."""
        return self.status in (Status.OPTIMAL, Status.VACUOUS)

    def detached(self) -> Solution:
        """The same without the graph of its value."""
        if isinstance(self.value, torch.Tensor) and self.value.requires_grad:
            return replace(self, value=self.value.detach())
        return self
