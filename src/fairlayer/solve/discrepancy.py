"""Discrepancies: what "closest" means. Each is a response and its derivatives, and nothing else.

The projection minimises sum_i w_i d(y_i, z_i). Given a cell's shift s, the inner minimum

    rho(z, s) = argmin_y d(y, z) + s y    (within lo <= y <= hi)

separates by sample. That response, its slope -d rho / d s and its sensitivity d rho / d z are all a solver needs: a new
discrepancy touches no other file. Where lo and hi hold a sample, slope and sensitivity are 0.
"""

from __future__ import annotations

import math
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from fairlayer.errors import InputError


class Discrepancy(Protocol):
    """The contract of a discrepancy. All tensors are float64 of shape (n,), or broadcast to it."""

    name: ClassVar[str]
    piecewise_linear: ClassVar[bool]  # then second derivatives vanish, and double backward is exact

    def response(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """rho(z, s)."""

    def slope(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """-d rho / d s, at least 0."""

    def sensitivity(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """d rho / d z."""


class Squared:
    """d(y, z) = (y - z)^2 / 2, the paper's choice: the response is clip(z - s, lo, hi)."""

    name: ClassVar[str] = "squared"
    piecewise_linear: ClassVar[bool] = True

    def response(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """The shifted output, clipped."""
        return torch.clamp(z - s, lo, hi)

    def slope(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """1 within the bounds, 0 where one of them holds the sample."""
        raw = z - s
        return ((raw >= lo) & (raw <= hi)).to(z.dtype)

    def sensitivity(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """The same as the slope."""
        return self.slope(z, s, lo, hi)

    def reach(self, least: float, greatest: float, low: float, high: float) -> float:
        """A shift beyond which every z from least to greatest rests on a bound. A discrepancy may leave it out."""
        largest = max(abs(least), abs(greatest))
        return 2.0 * max(largest - low, high + largest, 0.0) if math.isfinite(high - low) else math.inf


_KNOWN: dict[str, Discrepancy] = {"squared": Squared()}


def find_discrepancy(discrepancy: str | Discrepancy) -> Discrepancy:
    """A discrepancy by its name, or as given."""
    if isinstance(discrepancy, str):
        if discrepancy not in _KNOWN:
            raise InputError(f"discrepancy {discrepancy!r} is unknown; there are {sorted(_KNOWN)}.")
        return _KNOWN[discrepancy]
    if not hasattr(discrepancy, "response"):
        raise InputError(f"discrepancy must be a name, one of {sorted(_KNOWN)}, or a Discrepancy; got {discrepancy!r}.")
    return discrepancy
