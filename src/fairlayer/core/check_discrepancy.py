"""`check_discrepancy`: whether a discrepancy is what it says, for those who write their own."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.core.discrepancies import (
    OPEN,
    Discrepancy,
    check_domain,
    domain_of,
    evaluate,
    find_discrepancy,
    interval_of,
)
from fairlayer.errors import InputError

_STEP = 1e-6  # of differences, relative to the distance from the ends of the domain
_EXACT, _NEAR = 1e-9, 1e-5  # allowed errors: of what must agree, and of derivatives against differences


def check_discrepancy(discrepancy: str | Discrepancy, z: Any = None) -> None:
    """Check that a discrepancy keeps the contract of `Discrepancy`; raises InputError at the first breach.

    z: (n,) outputs to try it on, such as some of your model's; by default a few spread over its domain. Each is tried
    with shifts from -3 to 3, with bounds and without:

    - the response is finite, within its interval and bounds, falls as the shift grows, is z itself at shift 0 where z
      and outputs share an interval, and with bounds is the response without them, clipped;
    - slope and sensitivity are its derivatives, 0 where a bound holds a sample, and the slope positive and finite
      elsewhere, at shift 0 too;
    - slopes are at most 1 / strong_convexity, where it states that (paper, theorem 4.1);
    - the response minimises value(y, z) + s y, where it has a value.
    """
    found = find_discrepancy(discrepancy)
    given = _spread(*domain_of(found)) if z is None else torch.from_numpy(as_numpy(z).astype("float64").reshape(-1))
    check_domain(given.numpy(), found)
    for shift in sorted(torch.linspace(-3.0, 3.0, 13).tolist(), key=abs):
        _Point(found, given, torch.full_like(given, shift)).check()


def _spread(low: float, high: float) -> Tensor:
    """Numbers all over an open interval, near its ends too."""
    steps = torch.linspace(-6.0, 6.0, 25, dtype=torch.float64)
    if math.isfinite(low) and math.isfinite(high):
        return low + (high - low) * torch.sigmoid(steps)
    if math.isfinite(low):
        return low + torch.exp(steps)
    return high - torch.exp(steps) if math.isfinite(high) else steps


class _Point:
    """A discrepancy at one shift."""

    def __init__(self, discrepancy: Any, z: Tensor, s: Tensor):
        self.discrepancy = discrepancy
        self.z = z
        self.s = s
        self.y = self._of("response", z, s)

    def _of(self, method: str, z: Tensor, s: Tensor, lo: Tensor = -OPEN, hi: Tensor = OPEN) -> Tensor:
        result = evaluate(self.discrepancy, method, z, s, lo, hi)
        self._require(torch.isfinite(result), f"{method} is not finite", result)
        return result

    def check(self) -> None:
        """All that is promised."""
        low, high = interval_of(self.discrepancy)
        self._require((self.y >= low) & (self.y <= high), f"response leaves its interval, {low:g} to {high:g}", self.y)
        if not self.s.any() and domain_of(self.discrepancy) == (low, high):
            self._require(_close(self.y, self.z, _EXACT), "response to shift 0 is not z", self.y)
        self._check_derivatives()
        self._check_bounds()
        if hasattr(self.discrepancy, "value"):
            self._check_value()

    def _check_derivatives(self) -> None:
        slope, sensitivity = (self._of(method, self.z, self.s) for method in ("slope", "sensitivity"))
        self._require(slope > 0.0, "slope is not positive, though no bound holds the sample", slope)
        measured = (self._of("response", self.z, self.s - _STEP) - self._of("response", self.z, self.s + _STEP)) / (
            2.0 * _STEP
        )
        self._require(_close(slope, measured, _NEAR), "slope is not -d response / d s", slope, measured)
        step = _STEP * _room(self.z, *domain_of(self.discrepancy))
        measured = (self._of("response", self.z + step, self.s) - self._of("response", self.z - step, self.s)) / (
            2.0 * step
        )
        self._require(
            _close(sensitivity, measured, _NEAR), "sensitivity is not d response / d z", sensitivity, measured
        )
        convexity = getattr(self.discrepancy, "strong_convexity", None)
        if convexity is not None:
            most = 1.0 / convexity
            self._require(slope <= most * (1.0 + _EXACT), f"slope exceeds 1 / strong_convexity = {most:g}", slope)

    def _check_bounds(self) -> None:
        lo, hi = (self.y.quantile(share) for share in (0.3, 0.7))
        held = (self.y < lo) | (self.y > hi)
        clipped = self._of("response", self.z, self.s, lo, hi)
        self._require(_close(clipped, self.y.clamp(lo, hi), _EXACT), "response is not clipped to its bounds", clipped)
        for method in ("slope", "sensitivity"):
            result, free = self._of(method, self.z, self.s, lo, hi), self._of(method, self.z, self.s)
            self._require((result == 0.0) | ~held, f"{method} is not 0 where a bound holds the sample", result)
            edge = (self.y - lo).abs().minimum((self.y - hi).abs()) < _EXACT
            self._require(
                _close(result, free, _EXACT) | held | edge, f"{method} depends on bounds that do not hold", result
            )

    def _check_value(self) -> None:
        def cost(y: Tensor) -> Tensor:
            return self.discrepancy.value(y, self.z) + self.s * y

        room = _room(self.y, *interval_of(self.discrepancy))
        here = cost(self.y)
        for share in (-0.1, -1e-3, 1e-3, 0.1):
            there = cost(self.y + share * room)
            allowed = 1e-12 * (1.0 + here.abs())
            self._require(here <= there + allowed, "response does not minimise value(y, z) + s y", self.y)

    def _require(self, holds: Tensor, what: str, got: Tensor, expected: Tensor | None = None) -> None:
        if not bool(holds.all()):
            self._fail(what, got, expected, int((~holds).nonzero()[0]))

    def _fail(self, what: str, got: Any, expected: Tensor | None = None, at: int = 0) -> None:
        value = got[at].item() if isinstance(got, Tensor) and got.ndim else got
        wanted = "" if expected is None else f", expected {expected[at].item():.6g}"
        raise InputError(
            f"discrepancy {self.discrepancy.name!r}: {what}. At z = {self.z[at].item():.6g}, "
            f"s = {self.s[at].item():.6g}: got {value}{wanted}."
        )


def _room(at: Tensor, low: float, high: float) -> Tensor:
    """How far numbers can move: to the nearer end of an interval, or a unit."""
    return torch.minimum(at - low, high - at).clamp(max=1.0)


def _close(a: Tensor, b: Tensor, tolerance: float) -> Tensor:
    return (a - b).abs() <= tolerance * (b.abs() + b.abs().max().clamp(max=1.0))
