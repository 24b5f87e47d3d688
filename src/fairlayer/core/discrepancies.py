"""Discrepancies: what "closest" means. Each is a response and its derivatives, and nothing else.

The projection minimises sum_i w_i d(y_i, z_i). Given a cell's shift s, the inner minimum

    rho(z, s) = argmin_y d(y, z) + s y    (within lo <= y <= hi)

separates by sample. That response, its slope -d rho / d s and its sensitivity d rho / d z are all a solver needs. Where
a sample is at lo or hi, slope and sensitivity are 0. One in Python touches no other file; one that the core knows also
has a struct in native/samples.hpp, its case in native/project.cpp, and its place in `_KNOWN` and `_NATIVE` below.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.errors import InputError
from fairlayer.problem.bounds import Box

Interval = tuple[float, float]  # open
_ANYTHING: Interval = (-math.inf, math.inf)
OPEN = torch.tensor(math.inf, dtype=torch.float64)  # the upper bound where there is none; -OPEN the lower one
FURTHEST = 340.0  # shifts and logits beyond it count as it: products of two exponentials stay within float64


class Discrepancy(Protocol):
    """The contract of a discrepancy. All tensors are float64 of shape (n,); lo and hi may broadcast to it.

    The second derivative of d(., z) is positive and finite everywhere, at y = z too: |y - z|^1.5, whose curvature is
    infinite there, is none, nor is |y - z|^3, whose is 0. An `nn.Module` may have parameters to learn.

    It may also state what follows; `check_discrepancy` checks whatever it states.

    domain: the open interval that z must lie in, and interval: the one that outputs then lie in, both all numbers if
    left out; remedy: what to do about a z outside. strong_convexity: a number mu > 0 such that d(., z) is mu-strongly
    convex; slopes are then at most 1 / mu, and the layer is 1 / mu-Lipschitz in the shift (paper, theorem 4.1).
    value(y, z): d itself. reach(least, greatest, lo, hi): how far a shift may go at once; beyond it every z from least
    to greatest is at a bound, or outputs would be of any size.
    """

    name: ClassVar[str]
    piecewise_linear: ClassVar[bool]  # then second derivatives vanish, and double backward is exact

    def response(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """rho(z, s)."""

    def slope(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """-d rho / d s: 1 / d'' at the response, positive and finite; 0 where a bound holds the sample."""

    def sensitivity(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """d rho / d z."""


class Squared:
    """d(y, z) = (y - z)^2 / 2, the paper's choice: the response is clip(z - s, lo, hi)."""

    name: ClassVar[str] = "squared"
    piecewise_linear: ClassVar[bool] = True
    strong_convexity: ClassVar[float] = 1.0

    def response(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """The shifted output, clipped."""
        return torch.clamp(z - s, lo, hi)

    def slope(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """1 within the bounds, 0 where one of them holds the sample."""
        return _free(z - s, lo, hi)

    def sensitivity(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """As the slope."""
        return self.slope(z, s, lo, hi)

    def value(self, y: Tensor, z: Tensor) -> Tensor:
        """d(y, z)."""
        return 0.5 * (y - z) ** 2

    def reach(self, least: float, greatest: float, low: float, high: float) -> float:
        """Twice as far as from any output to any bound."""
        largest = max(abs(least), abs(greatest))
        return 2.0 * max(largest - low, high + largest, 0.0) if math.isfinite(high - low) else math.inf


class WeightedSquared:
    """d(y, z) = c (y - z)^2 / 2: the larger its curvature c, the less an output is moved.

    curvature: a positive number for all outputs, or one per output of the batch, such as 1 / variance of a prediction.
    It prices changes only; `weights`, by contrast, count a sample in the means of its groups as well.
    """

    name: ClassVar[str] = "weighted squared"
    piecewise_linear: ClassVar[bool] = True

    def __init__(self, curvature: Any):
        try:
            values = as_numpy(curvature, "curvature").astype("float64")
        except (TypeError, ValueError) as error:
            raise InputError(f"curvature must be a positive number, or one per output: {error}") from error
        if values.ndim > 1 or not values.size or not ((values > 0) & (values < math.inf)).all():
            raise InputError(f"curvature must be positive and finite, a number or one per output; got {curvature!r}.")
        self.curvature = torch.from_numpy(values)
        self.strong_convexity = float(values.min())

    def _per(self, z: Tensor) -> Tensor:
        if self.curvature.ndim and len(self.curvature) != z.shape[0]:
            raise InputError(f"curvature has {len(self.curvature)} entries for {z.shape[0]} outputs: pass one each.")
        return 1.0 / self.curvature.to(z.device)

    def response(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """clip(z - s / c, lo, hi)."""
        return torch.clamp(z - s * self._per(z), lo, hi)

    def slope(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """1 / c within the bounds."""
        return self.sensitivity(z, s, lo, hi) * self._per(z)

    def sensitivity(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """1 within the bounds."""
        return _free(z - s * self._per(z), lo, hi)

    def value(self, y: Tensor, z: Tensor) -> Tensor:
        """d(y, z)."""
        return 0.5 * (y - z) ** 2 / self._per(z)

    def reach(self, least: float, greatest: float, low: float, high: float) -> float:
        """As for the squared discrepancy, times the largest curvature."""
        return float(self.curvature.max()) * Squared().reach(least, greatest, low, high)


class Entropy:
    """d(y, z) = y log(y / z) + (1 - y) log((1 - y) / (1 - z)): probabilities in, probabilities out.

    The response is sigmoid(logit z - s): strictly between 0 and 1 whatever the shift, so that nothing is clipped and
    every output has a gradient. Probabilities of exactly 0 or 1 are at no finite distance from any other, and refused.
    """

    name: ClassVar[str] = "entropy"
    piecewise_linear: ClassVar[bool] = False
    domain: ClassVar[Interval] = (0.0, 1.0)
    interval: ClassVar[Interval] = (0.0, 1.0)
    strong_convexity: ClassVar[float] = 4.0
    remedy: ClassVar[str] = "pass logits with discrepancy='logits', or keep z away from 0 and 1, as by z.clamp(1e-6, "
    remedy += "1 - 1e-6)"

    def response(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """sigmoid(logit z - s), clipped, without a logarithm."""
        return torch.clamp(z / (z + (1.0 - z) * _exp(s)), lo, hi)

    def slope(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """y (1 - y)."""
        against = (1.0 - z) * _exp(s)
        per = 1.0 / (z + against)
        return _free(z * per, lo, hi) * (z * per) * (against * per)

    def sensitivity(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """y (1 - y) / (z (1 - z))."""
        factor = _exp(s)
        per = 1.0 / (z + (1.0 - z) * factor)
        return _free(z * per, lo, hi) * (factor * per) * per

    def value(self, y: Tensor, z: Tensor) -> Tensor:
        """d(y, z)."""
        return torch.xlogy(y, y / z) + torch.xlogy(1.0 - y, (1.0 - y) / (1.0 - z))


class Logits:
    """Relative entropy of z that are logits: outputs are the probabilities sigmoid(z - s).

    Nothing is lost near 0 and 1, where a probability in float32 has no more digits. The outputs are 1/4-Lipschitz in z.
    Logits beyond 340 either way count as that.
    """

    name: ClassVar[str] = "logits"
    piecewise_linear: ClassVar[bool] = False
    interval: ClassVar[Interval] = (0.0, 1.0)
    strong_convexity: ClassVar[float] = 4.0

    def response(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """sigmoid(z - s), clipped."""
        return torch.clamp(1.0 / (1.0 + _exp(s - z)), lo, hi)  # torch.sigmoid rounds by where a sample stands

    def slope(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """y (1 - y)."""
        odds = _exp(s - z)
        y = 1.0 / (1.0 + odds)
        return _free(y, lo, hi) * y * (odds * y)

    def sensitivity(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """As the slope."""
        return self.slope(z, s, lo, hi)

    def value(self, y: Tensor, z: Tensor) -> Tensor:
        """d(y, sigmoid(z)), by logits."""
        softplus = torch.nn.functional.softplus
        return torch.xlogy(y, y) + y * softplus(-z) + torch.xlogy(1.0 - y, 1.0 - y) + (1.0 - y) * softplus(z)


class GeneralizedKL:
    """d(y, z) = y log(y / z) - y + z, for positive outputs: amounts, rates, durations.

    The response is z exp(-s): groups are scaled rather than shifted, and outputs stay positive. Not strongly convex
    unless outputs are bounded above.
    """

    name: ClassVar[str] = "kl"
    piecewise_linear: ClassVar[bool] = False
    domain: ClassVar[Interval] = (0.0, math.inf)
    interval: ClassVar[Interval] = (0.0, math.inf)
    remedy: ClassVar[str] = "make outputs positive, as torch.nn.functional.softplus does, or use discrepancy='squared'"

    def response(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """z exp(-s), clipped."""
        return torch.clamp(z * _exp(-s), lo, hi)

    def slope(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """y."""
        y = z * _exp(-s)
        return _free(y, lo, hi) * y

    def sensitivity(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """y / z."""
        factor = _exp(-s)
        return _free(z * factor, lo, hi) * factor

    def value(self, y: Tensor, z: Tensor) -> Tensor:
        """d(y, z)."""
        return torch.xlogy(y, y / z) - y + z


def _exp(s: Tensor) -> Tensor:
    return torch.exp(torch.clamp(s, -FURTHEST, FURTHEST))


def _free(raw: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
    """1 where no bound holds the sample."""
    return ((raw >= lo) & (raw <= hi)).to(raw.dtype)


_KNOWN: dict[str, Discrepancy] = {one.name: one for one in (Squared(), Entropy(), Logits(), GeneralizedKL())}
_NATIVE = {Squared: 0, Entropy: 1, Logits: 2, GeneralizedKL: 3}  # as the core numbers them


def find_discrepancy(discrepancy: Any) -> Discrepancy:
    """A discrepancy by its name, or as given if it has a response."""
    if isinstance(discrepancy, str):
        if discrepancy not in _KNOWN:
            raise InputError(f"discrepancy {discrepancy!r} is unknown; there are {sorted(_KNOWN)}.")
        return _KNOWN[discrepancy]
    if not hasattr(discrepancy, "response"):
        raise InputError(f"discrepancy must be a name, one of {sorted(_KNOWN)}, or a Discrepancy; got {discrepancy!r}.")
    if isinstance(discrepancy, type):
        raise InputError(f"discrepancy is the class {discrepancy.__name__}: pass an object, {discrepancy.__name__}().")
    for attribute in ("name", "piecewise_linear", "slope", "sensitivity"):
        if not hasattr(discrepancy, attribute):
            raise InputError(f"discrepancy {type(discrepancy).__name__} has no {attribute}: see fairlayer.Discrepancy.")
    return discrepancy


def evaluate(discrepancy: Discrepancy, method: str, z: Tensor, *at: Tensor) -> Tensor:
    """Response, slope or sensitivity, without a graph, once it is known to be what a solve can count on."""
    result = getattr(discrepancy, method)(z, *at)
    if not isinstance(result, Tensor) or result.shape != z.shape or result.dtype != torch.float64:
        got = f"{result.dtype}, {tuple(result.shape)}" if isinstance(result, Tensor) else type(result).__name__
        raise InputError(
            f"discrepancy {discrepancy.name!r}: {method} must return a float64 tensor of z's shape, {tuple(z.shape)}; "
            f"got {got}. fairlayer.check_discrepancy checks all of it."
        )
    return result.detach()


def known_name(discrepancy: Any) -> str | None:
    """The name by which one is found again; None for one that the library does not have."""
    found = find_discrepancy(discrepancy)
    return found.name if type(_KNOWN.get(found.name)) is type(found) else None


def native_number(discrepancy: Any) -> int | None:
    """The number by which the core knows a discrepancy; None where it does not. A subclass may respond differently."""
    return _NATIVE.get(type(discrepancy))


def is_squared(discrepancy: Any) -> bool:
    """Whether it is the squared one itself, whatever its name says."""
    return type(discrepancy) is Squared


def domain_of(discrepancy: Discrepancy) -> Interval:
    """The open interval that z must lie in."""
    return getattr(discrepancy, "domain", _ANYTHING)


def interval_of(discrepancy: Discrepancy) -> Interval:
    """The open interval that outputs lie in."""
    return getattr(discrepancy, "interval", _ANYTHING)


def inner_limits(discrepancy: Discrepancy, dtype: torch.dtype) -> Interval:
    """The least and the greatest number of a dtype inside that interval."""
    return _inner_limits(interval_of(discrepancy), dtype)


@lru_cache
def _inner_limits(interval: Interval, dtype: torch.dtype) -> Interval:
    low, high = interval
    least, most = (torch.tensor(side, dtype=dtype) for side in (low, high))
    if math.isfinite(low):
        least = torch.tensor(torch.finfo(dtype).tiny, dtype=dtype) if low == 0.0 else torch.nextafter(least, most)
    if math.isfinite(high):
        most = torch.nextafter(most, torch.tensor(low, dtype=dtype))
    return float(least), float(most)


def check_domain(z: Any, discrepancy: Discrepancy) -> None:
    """Refuse outputs that a discrepancy does not take; z: (n,) array."""
    low, high = domain_of(discrepancy)
    if (low, high) == _ANYTHING:
        return
    outside = ~((z > low) & (z < high))
    if outside.any():
        position = int(outside.nonzero()[0][0])
        remedy = getattr(discrepancy, "remedy", "pass others, or choose another discrepancy")
        raise InputError(
            f"z[{position}] is {float(z[position])}: the {discrepancy.name!r} discrepancy takes numbers strictly "
            f"between {low:g} and {high:g}. Remedy: {remedy}."
        )


def check_interval(box: Box, discrepancy: Discrepancy) -> None:
    """Refuse bounds that no output of a discrepancy can meet."""
    low, high = interval_of(discrepancy)
    if (low, high) == _ANYTHING:
        return
    if box.lo.max(initial=low) >= high > low or box.hi.min(initial=high) <= low < high:
        raise InputError(
            f"bounds {box.lowest:g} to {box.highest:g} cannot be met: outputs of the {discrepancy.name!r} discrepancy "
            f"lie strictly between {low:g} and {high:g}. Leave bounds out, or let them overlap."
        )
