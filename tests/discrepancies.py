"""Discrepancies that the library does not have, to show that nothing depends on those it has; and problems for all."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from conformance import make_problem
from fairlayer import WeightedSquared
from formulas import Problem, plain


class Scaled:
    """d(y, z) = 7 (y - z)^2 / 2: the same optimum as the squared one, slopes and multipliers of another size."""

    name: ClassVar[str] = "scaled"
    piecewise_linear: ClassVar[bool] = True
    factor = 7.0
    strong_convexity: ClassVar[float] = 7.0

    def response(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        return torch.clamp(z - s / self.factor, lo, hi)

    def slope(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        return self.sensitivity(z, s, lo, hi) / self.factor

    def sensitivity(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        raw = z - s / self.factor
        return ((raw >= lo) & (raw <= hi)).to(z.dtype)

    def reach(self, least: float, greatest: float, low: float, high: float) -> float:
        span = max(abs(least), abs(greatest)) + max(abs(low), abs(high))
        return 2.0 * self.factor * span if math.isfinite(high - low) else math.inf

    def value(self, y: Tensor, z: Tensor) -> Tensor:
        """d(y, z)."""
        return 0.5 * self.factor * (y - z) ** 2


class Cosh:
    """d(y, z) = cosh(y - z) - 1: the response is z - asinh(s)."""

    name: ClassVar[str] = "cosh"
    piecewise_linear: ClassVar[bool] = False
    strong_convexity: ClassVar[float] = 1.0

    def response(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        return torch.clamp(z - torch.asinh(s), lo, hi)

    def slope(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        return self.sensitivity(z, s, lo, hi) / torch.sqrt(1.0 + s * s)

    def sensitivity(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        raw = z - torch.asinh(s)
        return ((raw >= lo) & (raw <= hi)).to(z.dtype)

    def value(self, y: Tensor, z: Tensor) -> Tensor:
        """d(y, z)."""
        return torch.cosh(y - z) - 1.0


class Odds:
    """Relative entropy, written down by a user: odds are multiplied by exp(-factor s)."""

    name: ClassVar[str] = "odds"
    piecewise_linear: ClassVar[bool] = False
    domain: ClassVar[tuple[float, float]] = (0.0, 1.0)
    interval: ClassVar[tuple[float, float]] = (0.0, 1.0)
    strong_convexity: ClassVar[float] = 4.0
    factor: ClassVar[float] = 1.0

    def _raw(self, z: Tensor, s: Tensor) -> Tensor:
        return torch.sigmoid(torch.logit(z) - self.factor * s)

    def response(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        return torch.clamp(self._raw(z, s), lo, hi)

    def slope(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        raw = self._raw(z, s)
        return self.factor * raw * (1.0 - raw) * ((raw >= lo) & (raw <= hi))

    def sensitivity(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        return self.slope(z, s, lo, hi) / (self.factor * z * (1.0 - z))

    def value(self, y: Tensor, z: Tensor) -> Tensor:
        """d(y, z)."""
        return (torch.xlogy(y, y / z) + torch.xlogy(1.0 - y, (1.0 - y) / (1.0 - z))) / self.factor


OWN: dict[str, Any] = {
    "scaled": Scaled(),
    "cosh": Cosh(),
    "weighted squared": WeightedSquared([0.5 + (i % 4) for i in range(60)]),
}
BUILT_IN = ("entropy", "logits", "kl")
KINDS: tuple[str, ...] = (*OWN, *BUILT_IN)


def kind_of(kind: str, n: int = 60) -> Any:
    """The discrepancy of this name, for n outputs."""
    return WeightedSquared([0.5 + (i % 4) for i in range(n)]) if kind == "weighted squared" else OWN.get(kind, kind)


def problem_for(
    kind: str,
    case: str,
    bounds: str = "no bounds",
    weights: str = "unweighted",
    *,
    n: int = 60,
    dtype: torch.dtype = torch.float64,
) -> Problem:
    """A problem of the conformance suite, its outputs what the discrepancy takes."""
    problem = make_problem(case, bounds, weights, dtype, n)
    z = torch.tensor(problem.z)
    changed = {
        "entropy": lambda: torch.sigmoid(4.0 * z - 2.0),
        "logits": lambda: 4.0 * z - 2.0,
        "kl": lambda: torch.nn.functional.softplus(3.0 * z) / 3.0,
    }
    return replace(problem, z=plain(changed[kind]().to(dtype))) if kind in changed else problem
