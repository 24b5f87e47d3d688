"""`FairLayer`: the projection as a module. It stores the configuration, and nothing of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.process_group import Group
from fairlayer.constraints.constraint import Constraint
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.projection import Absent, Infeasible, Path, Surrogate, project
from fairlayer.solution import Solution
from fairlayer.solve.conic import Conic
from fairlayer.solve.discrepancy import Discrepancy


class FairLayer(nn.Module):
    """Append it to a network: its output is the nearest batch that satisfies the constraints, exactly.

    Takes the arguments of `project`; the data come at the call. `solution` holds what is known about the last batch:
    status, gaps, multipliers (not its graph).

    With a process group the samples of all its ranks are one batch: constraints hold for all of them together.
    Gradients are those of the sum of the ranks' losses. confidence: in evaluation mode only, as a batch of training is
    not what a promise about the population is made of.
    """

    def __init__(
        self,
        constraints: Sequence[Constraint] | Constraint,
        bounds: Any = None,
        discrepancy: str | Discrepancy | Conic = "squared",
        *,
        levels: Mapping[Name, Sequence[Label]] | None = None,
        absent: Absent = "vacuous",
        infeasible: Infeasible = "raise",
        path: Path = "auto",
        surrogate: Surrogate = None,
        temperature: float = 0.1,
        process_group: Group = None,
        confidence: float | None = None,
        simplex: bool = False,
    ):
        super().__init__()
        self.solution: Solution | None = None
        self.rules = ConstraintSet(constraints)
        self.bounds = bounds
        self.discrepancy = discrepancy
        self.levels = levels
        self.absent: Absent = absent
        self.infeasible: Infeasible = infeasible
        self.path: Path = path
        self.surrogate: Surrogate = surrogate
        self.temperature = temperature
        self.process_group: Group = process_group
        self.confidence = confidence
        self.simplex = simplex

    def forward(
        self, z: Tensor, groups: Any = None, targets: Any = None, features: Any = None, weights: Any = None
    ) -> Tensor:
        """Project one batch: z of shape (n,) or (n, d), and what the constraints look at."""
        solution = project(
            z,
            groups,
            self.rules,
            self.bounds,
            targets,
            features,
            weights,
            self.discrepancy,
            levels=self.levels,
            absent=self.absent,
            infeasible=self.infeasible,
            path=self.path,
            surrogate=self.surrogate,
            temperature=self.temperature,
            process_group=self.process_group,
            confidence=None if self.training else self.confidence,
            simplex=self.simplex,
        )
        # Past nn.Module's own bookkeeping of attributes, which takes longer than a small solve.
        object.__setattr__(self, "solution", Solution(solution.value.detach(), solution.facts, solution.margin))
        return solution.value

    def extra_repr(self) -> str:
        """Constraints and bounds."""
        return f"{self.rules.constraints}, bounds={self.bounds}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "solution": None}
