"""What a projection returns: the output, and what is known about it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fairlayer.binding.row_plan import PresentRows


class Status(enum.Enum):
    """How far the promise holds. The value is the sentence a user reads."""

    OPTIMAL = (
        "Every row holds exactly, and no other output that satisfies them is closer to the input (in a stream: to the "
        "input as its leader shifts it)."
    )
    VACUOUS = (
        "Every row that can be stated holds exactly, but some groups are absent from this batch and were not compared: "
        'see `vacuous`. Use larger or stratified batches, a Stream, or absent="raise".'
    )
    ROUNDED = (
        "The output's dtype cannot represent values that meet the tolerance exactly: `gaps` holds what was reached. "
        "Use float64, or a larger tolerance."
    )
    UNCERTIFIED = (
        "The targets of these samples are not known yet: they were shifted by what was learned so far, and enter the "
        "ledger with `observe`. Rows that need no targets hold exactly; what is known of the others is in `gaps`."
    )
    EXCEEDED = (
        "Over the whole stream some row is beyond its tolerance, see `gaps`: this batch could not move it, or the "
        'policy does not promise it. policy="ledger" does, for mean parity.'
    )
    RELAXED = (
        "The constraints contradict each other or the bounds: this output violates them least, by `excess`, and among "
        "those is the closest to the input."
    )


class Facts:
    """What is known of one projected batch; see `Solution` for the meaning of each. Worked out when it is asked for."""

    def __init__(
        self, view: PresentRows, statistics: np.ndarray, nu: np.ndarray, missed: np.ndarray, excess: float = 0.0
    ):
        self.view = view
        self.statistics = statistics  # (K,) such as the means of groups
        self.nu = nu  # (K,) their multipliers
        self.missed = missed  # (F,) by how much families of rows are missed
        self.excess = excess

    @property
    def rows(self) -> tuple[str, ...]:
        """Name of each row."""
        return self.view.names

    @property
    def vacuous(self) -> tuple[str, ...]:
        """What could not be compared."""
        return self.view.vacuous

    @property
    def gaps(self) -> np.ndarray:
        """Value of each row."""
        return self.view.values(self.statistics)

    @property
    def multipliers(self) -> np.ndarray:
        """Multiplier of each row."""
        return self.view.multipliers(self.nu)

    @property
    def status(self) -> Status:
        """The gravest thing that can be said."""
        if self.excess:
            return Status.RELAXED
        if not (self.missed <= 0.0).all():  # what is no number is not known to hold
            return Status.ROUNDED
        return Status.VACUOUS if self.vacuous else Status.OPTIMAL


class StreamFacts(Facts):
    """The same of a stream, whose policy says how far the promise holds."""

    def __init__(self, view: PresentRows, statistics: np.ndarray, nu: np.ndarray, status: Status, excess: float = 0.0):
        super().__init__(view, statistics, nu, np.zeros(0), excess)
        self._status = status

    @property
    def status(self) -> Status:
        """What was found."""
        return self._status


class RecordedFacts:
    """The same, each given as it is."""

    def __init__(
        self,
        rows: tuple[str, ...],
        gaps: np.ndarray,
        multipliers: np.ndarray,
        status: Status,
        vacuous: tuple[str, ...] = (),
        excess: float = 0.0,
    ):
        self.rows = rows
        self.multipliers = multipliers
        self.vacuous = vacuous
        self.excess = excess
        self._gaps = gaps
        self._status = status

    @property
    def gaps(self) -> np.ndarray:
        """Value of each row."""
        return self._gaps

    @property
    def status(self) -> Status:
        """What was found."""
        return self._status


class BatchFacts:
    """The same for a batch of independent problems: one more dimension, and the gravest status of all."""

    def __init__(self, parts: Sequence[Facts]):
        self.parts = parts
        self.rows = parts[0].rows if parts else ()
        self.vacuous = ()
        self.excess = max((part.excess for part in parts), default=0.0)

    @property
    def multipliers(self) -> np.ndarray:
        """Multiplier of each row, problem by problem."""
        return np.stack([part.multipliers for part in self.parts]) if self.parts else np.zeros((0, 0))

    @property
    def gaps(self) -> np.ndarray:
        """Value of each row, problem by problem."""
        return np.stack([part.gaps for part in self.parts]) if self.parts else np.zeros((0, 0))

    @property
    def status(self) -> Status:
        """The gravest of all."""
        return max((part.status for part in self.parts), key=list(Status).index, default=Status.OPTIMAL)


class Solution:
    """A projected batch. Everything but the value is worked out when it is asked for.

    value: the output, with the type, dtype, device and shape of the input.
    """

    def __init__(self, value: Any, facts: Facts | RecordedFacts | BatchFacts):
        self.value = value
        self.facts = facts

    @cached_property
    def gaps(self) -> Any:
        """Value of each row, signed, in float64: a difference of group means, for instance."""
        return self._like_value(self.facts.gaps)

    @cached_property
    def multipliers(self) -> Any:
        """One per row, zero where the row does not bind."""
        return self._like_value(self.facts.multipliers)

    @property
    def rows(self) -> tuple[str, ...]:
        """Name of each row."""
        return self.facts.rows

    @property
    def status(self) -> Status:
        """How far the promise holds."""
        return self.facts.status

    @property
    def vacuous(self) -> tuple[str, ...]:
        """What could not be compared, because a group is absent."""
        return self.facts.vacuous

    @property
    def excess(self) -> float:
        """By how much the tolerances had to grow, where the constraints contradict each other."""
        return self.facts.excess

    @property
    def satisfied(self) -> bool:
        """Whether every row that can be stated holds exactly."""
        return self.status in (Status.OPTIMAL, Status.VACUOUS)

    def _like_value(self, array: np.ndarray) -> Any:
        return torch.from_numpy(array) if isinstance(self.value, torch.Tensor) else array

    def __repr__(self) -> str:
        named = dict(zip(self.rows, np.round(self.facts.gaps.reshape(-1), 6).tolist(), strict=False))
        return f"Solution(status={self.status.name}, gaps={named}, value={self.value!r})"
