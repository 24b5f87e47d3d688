"""Discrepancies that the library does not have, to show that nothing depends on the one it has."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor


class Scaled:
    """d(y, z) = 7 (y - z)^2 / 2: the same optimum as the squared one, slopes and multipliers of another size."""

    name: ClassVar[str] = "scaled"
    piecewise_linear: ClassVar[bool] = True
    factor = 7.0

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


class BinaryEntropy:
    """d(y, z) = y log(y / z) + (1 - y) log((1 - y) / (1 - z)): probabilities in, probabilities out."""

    name: ClassVar[str] = "binary entropy"
    piecewise_linear: ClassVar[bool] = False

    def _raw(self, z: Tensor, s: Tensor) -> Tensor:
        return torch.sigmoid(torch.logit(z) - s)

    def response(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        return torch.clamp(self._raw(z, s), lo, hi)

    def _free(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        y = self._raw(z, s)
        return ((y >= lo) & (y <= hi)).to(z.dtype) * y * (1.0 - y)

    def slope(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        return self._free(z, s, lo, hi)

    def sensitivity(self, z: Tensor, s: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        return self._free(z, s, lo, hi) / (z * (1.0 - z))

    def reach(self, least: float, greatest: float, low: float, high: float) -> float:
        return math.inf

    def value(self, y: Tensor, z: Tensor) -> Tensor:
        """d(y, z)."""
        return torch.xlogy(y, y / z) + torch.xlogy(1.0 - y, (1.0 - y) / (1.0 - z))
