"""`FairLayer`: the projection as a module. It stores the configuration, and nothing of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fairlayer.constraints.constraint import Constraint
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.core.discrepancies import Discrepancy
from fairlayer.errors import InputError
from fairlayer.graph import fits_graph, number_of, project_in_graph, refuse_files
from fairlayer.problem.process_group import Group
from fairlayer.projection import answer
from fairlayer.request import Absent, Infeasible, Request, Surrogate
from fairlayer.solution import Solution


class _Argument:
    """An argument of the layer, as it was read."""

    def __set_name__(self, layer: type, name: str) -> None:
        self.name = name

    def __get__(self, layer: Any, kind: type | None = None) -> Any:
        return self if layer is None else getattr(layer._request, self.name)


class FairLayer(nn.Module):
    """Append it to a network: its output is the nearest batch that satisfies the constraints, exactly.

    Takes the arguments of `project`; the data come at the call. `solution` holds what is known about the last batch:
    status, gaps, multipliers (not its graph). The arguments are attributes (the constraints as `rules`); one that is
    set anew holds from the next batch on.

    With a process group the samples of all its ranks are one batch: constraints hold for all of them together.
    Gradients are those of the sum of the ranks' losses. confidence: in evaluation mode only, as a batch of training is
    not what a promise about the population is made of.
    """

    _request: Request
    rules: Any = _Argument()  # the constraints, a ConstraintSet
    bounds: Any = _Argument()
    discrepancy: Any = _Argument()
    levels: Any = _Argument()
    absent: Any = _Argument()
    infeasible: Any = _Argument()
    surrogate: Any = _Argument()
    temperature: Any = _Argument()
    process_group: Any = _Argument()
    simplex: Any = _Argument()

    def __init__(
        self,
        constraints: Sequence[Constraint] | Constraint,
        bounds: Any = None,
        discrepancy: str | Discrepancy = "squared",
        *,
        levels: Mapping[Name, Sequence[Label]] | None = None,
        absent: Absent = "vacuous",
        infeasible: Infeasible = "raise",
        surrogate: Surrogate = None,
        temperature: float = 0.1,
        process_group: Group = None,
        confidence: float | None = None,
        simplex: bool = False,
    ):
        super().__init__()
        self.solution: Solution | None = None
        self._ask(
            Request(
                constraints, bounds, discrepancy, levels, absent, infeasible, surrogate, temperature, process_group,
                simplex,
            )
        )  # fmt: skip
        self.confidence = confidence
        self._number = number_of(self)

    def _ask(self, request: Request) -> None:
        """Ask this of every batch from now on. A discrepancy may have parameters to learn."""
        self.__dict__["_request"] = request
        self._modules.pop("discrepancy", None)
        if isinstance(request.discrepancy, nn.Module):
            self._modules["discrepancy"] = request.discrepancy

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(getattr(type(self), name, None), _Argument):
            self._ask(replace(self._request, **{name: value}))
        else:
            super().__setattr__(name, value)

    def forward(
        self, z: Tensor, groups: Any = None, targets: Any = None, features: Any = None, weights: Any = None
    ) -> Tensor:
        """Project one batch: z of shape (n,) or (n, d), and what the constraints look at."""
        if torch.compiler.is_compiling():
            if torch.compiler.is_exporting():
                refuse_files("torch.export")
            if self._fits_graph(z, groups, targets, features, weights):
                return project_in_graph(self._number, z, groups, targets, weights)
        if torch.jit.is_tracing():
            refuse_files("torch.jit.trace")
        request = self._request
        data = request.data(groups, targets, features, weights)
        solution = answer(z, request, data, None if self.training else self.confidence)
        value = solution.value
        try:  # costs nothing where z is what it should be
            solution.value = value.detach()
        except AttributeError:
            raise InputError(
                f"z is a {type(z).__name__}, and a layer takes tensors: pass torch.from_numpy(z), or use "
                "fairlayer.project, which takes arrays."
            ) from None
        # Past nn.Module's own bookkeeping of attributes, which takes longer than a small solve.
        self.__dict__["solution"] = solution
        return value

    def extra_repr(self) -> str:
        """Constraints and bounds."""
        return f"{self.rules.constraints}, bounds={self.bounds}"

    def _fits_graph(self, *batch: Any) -> bool:
        """Whether torch.compile can take the call into its graph: no gradient is wanted but that of z."""
        sides = self.bounds or ()
        return (
            not self.rules.wants_gradient
            and not any(isinstance(side, Tensor) and side.requires_grad for side in sides)
            and self.process_group is None
            and (self.training or self.confidence is None)
            and fits_graph(*batch)
        )

    def __prepare_scriptable__(self) -> None:
        """What torch.jit.script asks for."""
        refuse_files("torch.jit.script")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "solution": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._number = number_of(self)
