"""What a projection returns: the output, and what is known about it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fairlayer.binding.row_plan import PresentRows, RowPlan
from fairlayer.constraints.affine import Affine


class Status(enum.Enum):
    """How far the promise holds. The value is the sentence a user reads."""

    OPTIMAL = (
        "Every constraint holds exactly, and no other output that satisfies them all is closer to the input (in a "
        "stream: to the input as its leader shifts it)."
    )
    VACUOUS = (
        "Every constraint that could be checked holds exactly, but some groups are absent from this batch and were not "
        'compared: see `vacuous`. Use larger or stratified batches, a Stream, or absent="raise".'
    )
    ROUNDED = (
        "No numbers of the output's dtype were found that meet the tolerance exactly: `gaps` holds what was reached. "
        "Use float64, or a larger tolerance."
    )
    UNCERTIFIED = (
        "The targets of these samples are not known yet. The samples were shifted by what was learned so far, and "
        "enter the ledger with `observe`. Constraints that need no targets hold exactly; `gaps` has what is known of "
        "the others."
    )
    EXCEEDED = (
        "Over the whole stream some gap exceeds its tolerance, see `gaps`: this batch could not close it, or the "
        'policy does not promise it. policy="ledger" does, for mean parity.'
    )
    GRANULAR = (
        "Decisions are whole: the pooled rates of some groups differ by more than the tolerance, but by no more than "
        "it and half a decision of each group together (of each cell, where attributes overlap), which no stream of "
        "decisions can do without. See `gaps`; it vanishes as decisions are made."
    )
    BOUNDED = (
        "Every row holds exactly. Of the outputs that satisfy them this one is nearly the closest to the input: its "
        "squared change (of decisions, with the price of every turned one) exceeds the least possible by at most "
        "`optimality_gap`."
    )
    RELAXED = (
        "The constraints contradict each other or the bounds: this output violates them least, by `excess`, and is the "
        "closest to the input among those that do."
    )
    APPROXIMATE = (
        "Solved by a general conic solver: rows and bounds hold to its tolerance only, `gaps` holds what was reached. "
        "Multipliers are not known. A discrepancy of the library's own holds them exactly."
    )


@dataclass(eq=False, repr=False)
class Facts:
    """What is known of one projected batch; see `Solution` for the meaning of each. Worked out when it is asked for."""

    view: PresentRows
    statistics: np.ndarray  # (K,) such as the means of groups
    nu: np.ndarray | None  # (K,) their multipliers; None where they are not known
    missed: np.ndarray  # (F,) by how much families of rows are missed
    excess: float = 0.0
    optimality_gap: float = 0.0  # of the squared change, where no nearer output was found
    ties: int = 0
    # The status, where it does not follow from the rest, as where the policy of a stream says what it promises.
    promise: Status | None = None
    # Gives the statistics without rounding, or None where that would take too long.
    exact: Callable[[], list[Fraction] | None] | None = None

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
        return self.view.exact_values(self.statistics, self.exact)

    @property
    def multipliers(self) -> np.ndarray:
        """Multiplier of each row."""
        return np.full(len(self.rows), np.nan) if self.nu is None else self.view.multipliers(self.nu)

    @property
    def status(self) -> Status:
        """The gravest thing that can be said."""
        if self.promise is not None:
            return self.promise
        if self.excess:
            return Status.RELAXED
        if not (self.missed <= 0.0).all():  # what is no number is not known to hold
            return Status.ROUNDED
        if self.optimality_gap:
            return Status.BOUNDED
        return Status.VACUOUS if self.vacuous else Status.OPTIMAL


@dataclass(frozen=True)
class RecordedFacts:
    """The same, each given as it is."""

    rows: tuple[str, ...]
    gaps: np.ndarray
    multipliers: np.ndarray
    status: Status
    vacuous: tuple[str, ...] = ()
    excess: float = 0.0
    optimality_gap: float = 0.0
    ties: int = 0


class ProblemFacts(Sequence[Facts]):
    """Facts of every problem of a batch that was solved in one call, each made when it is asked for."""

    def __init__(self, matrices: Mapping[int, Affine], ends: np.ndarray, closer: Mapping[int, Any]):
        """matrices: by position; ends: (3, B, m) values, multipliers and shortfalls; closer: of those solved alone."""
        self.matrices = matrices
        self.ends = ends
        self.closer = closer

    @cached_property
    def view(self) -> PresentRows:
        """The rows of one problem, which all have in common."""
        first = {position: constraint.problem(0) for position, constraint in self.matrices.items()}
        plan = RowPlan([], next(iter(first.values())).A.shape[1], first)
        return plan.view(np.ones(len(plan.residual), dtype=bool))

    def __len__(self) -> int:
        return self.ends.shape[1]

    def __getitem__(self, b: Any) -> Any:
        if not 0 <= b < len(self):
            raise IndexError(b)
        return self.closer[b] if b in self.closer else Facts(self.view, *self.ends[:, b])


class JointFacts:
    """The same of several problems, with the gravest status of all.

    column: what each is called in the names of rows, such as a class, where the problems are the columns of outputs:
    every row once for each. None for a batch of independent problems with the same rows: one more dimension.
    """

    def __init__(self, parts: Sequence[Facts | RecordedFacts], column: str | None = None):
        self.parts = parts
        self.column = column

    @property
    def excess(self) -> float:
        """The largest of all."""
        return max((part.excess for part in self.parts), default=0.0)

    @property
    def optimality_gap(self) -> float:
        """Of all together."""
        return sum(part.optimality_gap for part in self.parts)

    @property
    def ties(self) -> int:
        """Of all together."""
        return sum(part.ties for part in self.parts)

    @cached_property
    def rows(self) -> tuple[str, ...]:
        """Name of each row."""
        if self.column is None:
            return self.parts[0].rows if self.parts else ()
        return tuple(f"{row}, {self.column} {j}" for j, part in enumerate(self.parts) for row in part.rows)

    @property
    def vacuous(self) -> tuple[str, ...]:
        """What could not be compared."""
        return self.parts[0].vacuous if self.parts else ()

    @property
    def gaps(self) -> np.ndarray:
        """Value of each row."""
        return self._joined([part.gaps for part in self.parts])

    @property
    def multipliers(self) -> np.ndarray:
        """Multiplier of each row."""
        return self._joined([part.multipliers for part in self.parts])

    @property
    def status(self) -> Status:
        """The gravest of all."""
        return max((part.status for part in self.parts), key=list(Status).index, default=Status.OPTIMAL)

    def _joined(self, each: list[np.ndarray]) -> np.ndarray:
        if self.column is not None:
            return np.concatenate([np.zeros(0), *each])
        return np.stack(each) if each else np.zeros((0, 0))


class Solution:
    """A projected batch. Everything but the value is worked out when it is asked for.

    value: the output, with the type, dtype, device and shape of the input. margin: what was aimed at for the
    population, where a confidence was asked for; see `fairlayer.margin.Margin`.
    """

    def __init__(self, value: Any, facts: Facts | RecordedFacts | JointFacts, margin: Any = None):
        self.value = value
        self.facts = facts
        self.margin = margin

    def problem(self, b: int) -> Solution:
        """Of a batch of independent problems, one alone."""
        return Solution(self.value[b], self.facts.parts[b])  # type: ignore[union-attr]

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
    def optimality_gap(self) -> float:
        """By how much, at most, the sum of squared changes exceeds the least possible; 0 where it is the least.

        Every turned decision adds 1e-6 times the squared range of the scores to that sum.
        """
        return self.facts.optimality_gap

    @property
    def ties(self) -> int:
        """People whose decision differs from that of somebody in their group with the very same score."""
        return self.facts.ties

    @property
    def satisfied(self) -> bool:
        """Whether every row that can be stated holds exactly."""
        return self.status in (Status.OPTIMAL, Status.VACUOUS, Status.BOUNDED)

    def _like_value(self, array: np.ndarray) -> Any:
        return torch.from_numpy(array) if isinstance(self.value, torch.Tensor) else array

    def __repr__(self) -> str:
        named = dict(zip(self.rows, np.round(self.facts.gaps.reshape(-1), 6).tolist(), strict=False))
        return f"Solution(status={self.status.name}, gaps={named}, value={self.value!r})"
