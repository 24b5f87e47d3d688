"""fairlayer: a differentiable layer that makes a neural network's outputs provably fair.

Public names are loaded when they are first asked for: `import fairlayer` loads nothing, not even torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False  # type checkers take it for true; `typing` itself takes a while to load
if TYPE_CHECKING:
    from typing import Any

    from fairlayer.audit import audit
    from fairlayer.constraints import (
        Affine,
        ConditionalParity,
        EqualizedOdds,
        EqualizedResiduals,
        MeanParity,
        RateParity,
        RatioParity,
        ResidualMean,
    )
    from fairlayer.core.check_discrepancy import check_discrepancy
    from fairlayer.core.discrepancies import Discrepancy, WeightedSquared
    from fairlayer.errors import AbsentGroupError, FairlayerError, InfeasibleError, InputError, RankError
    from fairlayer.frozen.freeze import freeze
    from fairlayer.layer import FairLayer, FairModel
    from fairlayer.problem.groups import CodedGroups, SoftGroup, code_groups
    from fairlayer.projection import project
    from fairlayer.solution import Solution, Status
    from fairlayer.stream import Stream

__version__ = "0.1.0"

__all__ = [
    "AbsentGroupError",
    "Affine",
    "CodedGroups",
    "ConditionalParity",
    "Discrepancy",
    "EqualizedOdds",
    "EqualizedResiduals",
    "FairLayer",
    "FairModel",
    "FairlayerError",
    "InfeasibleError",
    "InputError",
    "MeanParity",
    "RankError",
    "RateParity",
    "RatioParity",
    "ResidualMean",
    "SoftGroup",
    "Solution",
    "Status",
    "Stream",
    "WeightedSquared",
    "audit",
    "check_discrepancy",
    "code_groups",
    "freeze",
    "project",
]

# Where the names that type checkers import above are at home: `tests/test_imports.py` holds the lists together.
_HOMES = {
    "audit": ("audit",),
    "problem.groups": ("CodedGroups", "SoftGroup", "code_groups"),
    "constraints": (
        *("Affine", "ConditionalParity", "EqualizedOdds", "EqualizedResiduals"),
        *("MeanParity", "RateParity", "RatioParity", "ResidualMean"),
    ),
    "errors": ("AbsentGroupError", "FairlayerError", "InfeasibleError", "InputError", "RankError"),
    "frozen.freeze": ("freeze",),
    "layer": ("FairLayer", "FairModel"),
    "projection": ("project",),
    "solution": ("Solution", "Status"),
    "core.check_discrepancy": ("check_discrepancy",),
    "core.discrepancies": ("Discrepancy", "WeightedSquared"),
    "stream": ("Stream",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


class _Package(ModuleType):
    """A package in which a public name is never hidden by a module of that name, whichever is loaded first."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
