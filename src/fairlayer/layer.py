"""`FairLayer`: the projection as a module, without any data of its own. `FairModel`: a network followed by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from fairlayer.constraints.constraint import Constraint
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.core.discrepancies import Discrepancy, known_name
from fairlayer.errors import InputError
from fairlayer.graph import fits_graph, number_of, project_in_graph, refuse_files
from fairlayer.problem.process_group import Group
from fairlayer.projection import answer
from fairlayer.request import Absent, Infeasible, Request, Surrogate
from fairlayer.solution import Solution

Hidden = str | int | Sequence[str | int] | None
_ARGUMENTS = {field.name for field in fields(Request)}


class FairLayer(nn.Module):
    """Append it to a network: its output is the nearest batch that satisfies the constraints, exactly.

    Takes the arguments of `project`; the data come at the call. `solution` holds what is known about the last batch:
    status, gaps, multipliers (not its graph). The arguments are attributes: one that is set anew holds from the
    next batch on.

    With a process group the samples of all its ranks are one batch: constraints hold for all of them together.
    Gradients are those of the sum of the ranks' losses. confidence: in evaluation mode only, as a batch of training is
    not what a promise about the population is made of.
    """

    _request: Request

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

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """What is asked of every batch."""
        return tuple(self._request.rules.constraints)

    @constraints.setter
    def constraints(self, constraints: Sequence[Constraint] | Constraint) -> None:
        self._ask(replace(self._request, rules=constraints))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name) if name in _ARGUMENTS else super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _ARGUMENTS:
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
        """Constraints, and the settings that are not as they are by default."""
        shown = [str(self._request.rules.constraints)]
        for name, parameter in signature(FairLayer).parameters.items():
            value, default = getattr(self, name), parameter.default
            if name == "discrepancy":
                value = known_name(value) or type(value).__name__
            if name != "constraints" and (value is not None if default is None else value != default):
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)

    def _fits_graph(self, *batch: Any) -> bool:
        """Whether torch.compile can take the call into its graph: no gradient is wanted but that of z."""
        request = self._request
        return (
            not any(parameter.requires_grad for parameter in self.parameters())
            and not request.rules.wants_gradient
            and not any(isinstance(side, Tensor) and side.requires_grad for side in request.bounds or ())
            and request.process_group is None
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


class FairModel(nn.Module):
    """A backbone whose outputs pass through a layer.

    backbone: any module that maps its input to one output per sample, shape (n,) or (n, 1). layer: a `FairLayer`,
    any module that is called like one, or None to leave the outputs as they are. hide: what of the input the backbone
    must not see: names where the input is a mapping or a frame, columns (of any sign) where it is a matrix.

    Outputs have shape (n,), whatever the backbone's.
    """

    def __init__(self, backbone: nn.Module, layer: nn.Module | None = None, hide: Hidden = None):
        super().__init__()
        self.backbone = backbone
        self.layer = layer
        listed = [] if hide is None else [hide] if isinstance(hide, str | int) else list(hide)
        for entry in listed:
            if not isinstance(entry, str | int) or isinstance(entry, bool):
                raise InputError(f"hide holds {entry!r}: give names or column numbers.")
        self.hide: tuple[str | int, ...] = tuple(listed)

    def raw(self, x: Any) -> Tensor:
        """The backbone's outputs, of shape (n,), or (n, d) of several, before the layer."""
        z = self.backbone(without(x, self.hide))
        if not isinstance(z, Tensor):
            raise InputError(
                f"The backbone returned {type(z).__name__}: it must return a tensor, one output per sample."
            )
        if z.ndim not in (1, 2):
            raise InputError(f"The backbone returned shape {tuple(z.shape)}: it must be (n,) or (n, d).")
        return z if z.ndim == 2 and z.shape[1] != 1 else z.reshape(-1)

    def forward(
        self, x: Any, groups: Any = None, targets: Any = None, features: Any = None, weights: Any = None
    ) -> Tensor:
        """Outputs for one batch, with whatever data the layer's constraints look at."""
        z = self.raw(x)
        return z if self.layer is None else self.layer(z, groups, targets, features, weights)


def without(x: Any, hide: Sequence[str | int]) -> Any:
    """An input less the named or numbered columns."""
    if not hide:
        return x
    if isinstance(x, Mapping):
        _refuse_absent([name for name in hide if name not in x], list(x))
        return {name: value for name, value in x.items() if name not in hide}
    if hasattr(x, "columns") and hasattr(x, "drop"):
        _refuse_absent([name for name in hide if name not in x.columns], list(x.columns))
        return x.drop(columns=list(hide))
    if not isinstance(x, Tensor) or x.ndim != 2:
        what = f"a tensor of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"hide applies to a mapping, a frame or a matrix of columns; the input is {what}.")
    width = x.shape[1]
    _refuse_absent([column for column in hide if not isinstance(column, int) or not -width <= column < width], width)
    gone = {int(column) % width for column in hide}
    kept = [column for column in range(width) if column not in gone]
    return x[:, torch.tensor(kept, device=x.device, dtype=torch.long)]


def _refuse_absent(absent: list[Any], present: Any) -> None:
    if absent:
        has = f"{present} columns" if isinstance(present, int) else f"{present}"
        raise InputError(f"hide names {absent}, which the input does not have; it has {has}.")
