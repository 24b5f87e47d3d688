"""What a projection returns: the output, and what is known about it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fairlayer.constraints.affine import Affine
from fairlayer.problem.row_plan import PresentRows, RowPlan


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


class Solution:
    """A projected batch, and what is known about it, most of it worked out when it is asked for.

    value: the output, with the type, dtype, device and shape of the input; None where outputs are not in memory.
    excess: by how much the tolerances had to grow, where the constraints contradict each other. optimality_gap: by how
    much, at most, the sum of squared changes exceeds the least possible, 0 where it is the least; every turned decision
    adds 1e-6 times the squared range of the scores to that sum. ties: people whose decision differs from that of
    somebody in their group with the very same score. margin: what was aimed at for the population, where a confidence
    was asked for; see `fairlayer.margin.Margin`.
    """

    def __init__(
        self,
        value: Any,
        view: PresentRows,
        statistics: np.ndarray,  # (K,) such as the means of groups
        nu: np.ndarray,  # (K,) their multipliers
        missed: np.ndarray,  # (F,) by how much families of rows are missed
        excess: float = 0.0,
        optimality_gap: float = 0.0,
        ties: int = 0,
        status: Status | None = None,  # where it does not follow from the rest, as where a stream's policy says it
        exact: Callable[[], list[Fraction] | None] | None = None,  # statistics without rounding; None: takes too long
    ):
        self.value, self.view, self.statistics, self.nu, self.missed = value, view, statistics, nu, missed
        self.excess, self.optimality_gap, self.ties, self.exact = excess, optimality_gap, ties, exact
        self.margin: Any = None
        self.found: Any = None  # what the derivative needs
        if status is not None:
            self.status = status

    @classmethod
    def recorded(
        cls,
        value: Any,
        rows: tuple[str, ...],
        gaps: np.ndarray,
        multipliers: np.ndarray,
        status: Status,
        vacuous: tuple[str, ...],
        excess: float,
    ) -> Solution:
        """A solution as it was recorded, with no statistics to work anything out from."""
        none = np.zeros(0)
        solution = cls(value, None, none, none, none, excess, status=status)  # type: ignore[arg-type]
        solution.rows, solution.vacuous = rows, vacuous
        solution.gaps, solution.multipliers = solution._like_value(gaps), solution._like_value(multipliers)
        return solution

    @cached_property
    def gaps(self) -> Any:
        """Value of each row, signed, in float64: a difference of group means, for instance."""
        return self._like_value(self.view.exact_values(self.statistics, self.exact))

    @cached_property
    def multipliers(self) -> Any:
        """One per row, zero where the row does not bind."""
        return self._like_value(self.view.multipliers(self.nu))

    @cached_property
    def rows(self) -> tuple[str, ...]:
        """Name of each row."""
        return self.view.names

    @cached_property
    def vacuous(self) -> tuple[str, ...]:
        """What could not be compared, because a group is absent."""
        return self.view.vacuous

    @cached_property
    def status(self) -> Status:
        """How far the promise holds: the gravest thing that can be said."""
        if self.excess:
            return Status.RELAXED
        if not self.holds:
            return Status.ROUNDED
        if self.optimality_gap:
            return Status.BOUNDED
        return Status.VACUOUS if self.vacuous else Status.OPTIMAL

    @property
    def holds(self) -> bool:
        """Whether every row certainly holds; what is no number is not known to."""
        return bool((self.missed <= 0.0).all())

    @property
    def satisfied(self) -> bool:
        """Whether every row that can be stated holds exactly."""
        return self.status in (Status.OPTIMAL, Status.VACUOUS, Status.BOUNDED)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "found": None}

    def _like_value(self, array: np.ndarray) -> Any:
        return torch.from_numpy(array) if isinstance(self.value, torch.Tensor) else array

    def __repr__(self) -> str:
        named = dict(zip(self.rows, np.round(np.reshape(self.gaps, -1), 6).tolist(), strict=False))
        return f"Solution(status={self.status.name}, gaps={named}, value={self.value!r})"


class JointSolution(Solution):
    """Several problems solved together, with the gravest status of all.

    column: what each is called in the names of rows, such as a class, where the problems are the columns of outputs:
    every row once for each. None for a batch of independent problems with the same rows: one more dimension.
    """

    def __init__(self, value: Any, parts: Sequence[Solution], column: str | None = None):
        self.value, self.parts, self.column = value, parts, column
        self.margin = self.found = self.exact = None

    @property
    def view(self) -> PresentRows:  # type: ignore[override]
        """The rows of the first part; those of the others are called the same, where they look at the same data."""
        return self.parts[0].view

    @cached_property
    def statistics(self) -> np.ndarray:  # type: ignore[override]
        """Such as the means of groups, of every part."""
        return self._gathered([part.statistics for part in self.parts])

    @cached_property
    def nu(self) -> np.ndarray:  # type: ignore[override]
        """Their multipliers."""
        return self._gathered([part.nu for part in self.parts])

    @cached_property
    def missed(self) -> np.ndarray:  # type: ignore[override]
        """By how much families of rows are missed, of every part."""
        return self._gathered([part.missed for part in self.parts])

    @cached_property
    def excess(self) -> float:  # type: ignore[override]
        """The largest of all."""
        return max((part.excess for part in self.parts), default=0.0)

    @cached_property
    def optimality_gap(self) -> float:  # type: ignore[override]
        """Of all together."""
        return sum(part.optimality_gap for part in self.parts)

    @cached_property
    def ties(self) -> int:  # type: ignore[override]
        """Of all together."""
        return sum(part.ties for part in self.parts)

    @cached_property
    def rows(self) -> tuple[str, ...]:
        """Name of each row."""
        if self.column is None:
            return self.parts[0].rows if self.parts else ()
        return tuple(f"{row}, {self.column} {j}" for j, part in enumerate(self.parts) for row in part.rows)

    @cached_property
    def vacuous(self) -> tuple[str, ...]:
        """What could not be compared, because a group is absent."""
        return self.parts[0].vacuous if self.parts else ()

    @cached_property
    def gaps(self) -> Any:
        """Value of each row, signed, in float64."""
        return self._joined([part.gaps for part in self.parts])

    @cached_property
    def multipliers(self) -> Any:
        """One per row, zero where the row does not bind."""
        return self._joined([part.multipliers for part in self.parts])

    @cached_property
    def status(self) -> Status:
        """The gravest of all."""
        return max((part.status for part in self.parts), key=list(Status).index, default=Status.OPTIMAL)

    def problem(self, b: int) -> Solution:
        """Of a batch of independent problems, one alone."""
        alone = copy(self.parts[b])
        alone.value = self.value[b]
        return alone

    def _joined(self, each: list[Any]) -> Any:
        return self._like_value(self._gathered(each))

    def _gathered(self, each: list[Any]) -> np.ndarray:
        if self.column is not None:
            return np.concatenate([np.zeros(0), *each])
        return np.stack(each) if each else np.zeros((0, 0))


class Problems(Sequence[Solution]):
    """Solutions of every problem of a batch that was solved in one call, without their values."""

    def __init__(self, matrices: Mapping[int, Affine], ends: np.ndarray, closer: Mapping[int, Solution]):
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
        return self.closer[b] if b in self.closer else Solution(None, self.view, *self.ends[:, b])
