"""The box lo <= y <= hi: none by default, scalars or one number per sample, one side or both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch

from fairlayer.arrays import as_floats, on_host
from fairlayer.errors import InputError

_NUMBERS = (float, int, bool, type(None))


@dataclass(frozen=True, eq=False)
class Box:
    """Bounds that the output's dtype can represent, in float64, each an array of one number or of n."""

    lo: np.ndarray
    hi: np.ndarray
    # The tensors they came from, where gradients of them are wanted.
    lo_tensor: torch.Tensor | None = None
    hi_tensor: torch.Tensor | None = None

    @cached_property
    def lowest(self) -> float:
        """The least lower bound."""
        return float(self.lo.min(initial=np.inf))

    @cached_property
    def highest(self) -> float:
        """The greatest upper bound."""
        return float(self.hi.max(initial=-np.inf))

    @property
    def per_sample(self) -> bool:
        """Whether a side differs from sample to sample."""
        return len(self.lo) > 1 or len(self.hi) > 1

    @property
    def wants_gradient(self) -> bool:
        """Whether a side is a tensor that gradients are wanted of."""
        return self.lo_tensor is not None or self.hi_tensor is not None

    def within(self, least: float, most: float) -> Box:
        """The part of the box between two numbers of its dtype."""
        if least == -np.inf and most == np.inf:
            return self
        return replace(self, lo=np.clip(self.lo, least, most), hi=np.clip(self.hi, least, most))

    def wider(self, dtype: torch.dtype) -> Box:
        """A box that holds the bounds as they were stated, before they were rounded inwards to a dtype."""
        if dtype == torch.float64:
            return self
        info = torch.finfo(dtype)
        lo = self.lo - info.eps * np.abs(self.lo) - info.tiny
        hi = self.hi + info.eps * np.abs(self.hi) + info.tiny
        return replace(self, lo=lo, hi=hi)

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Both sides, of shape () or (n,)."""
        lo, hi = (torch.from_numpy(side) for side in (self.lo, self.hi))
        return (lo[0] if len(lo) == 1 else lo), (hi[0] if len(hi) == 1 else hi)


def are_numbers(bounds: Any) -> bool:
    """Whether bounds are the same for every batch: no arrays or tensors, whose numbers may change."""
    return bounds is None or (type(bounds) is tuple and all(type(side) in _NUMBERS for side in bounds))


def read_bounds(bounds: Any, n: int, dtype: np.dtype[Any] | type | torch.dtype) -> Box:
    """Read (lo, hi); either may be None. Rounded inwards, so that the stated bounds hold in exact arithmetic.

    dtype: that of the outputs; as torch has it where numpy has none, such as bfloat16.
    """
    try:
        low, high = (None, None) if bounds is None else bounds
    except (TypeError, ValueError) as error:
        raise InputError(
            f"bounds must be a pair (lo, hi), either of them None for an open side; got {bounds!r}."
        ) from error
    if type(low) in _NUMBERS and type(high) in _NUMBERS:
        return _kept_box(low, high, 1, dtype)
    return _box(low, high, n, dtype)


def _box(low: Any, high: Any, n: int, dtype: Any) -> Box:
    lo, lo_tensor = _side(low, -np.inf, n, "bounds[0]")
    hi, hi_tensor = _side(high, np.inf, n, "bounds[1]")
    lo, hi = _inwards(lo, dtype, np.inf), _inwards(hi, dtype, -np.inf)
    _check(lo, hi)
    return Box(lo, hi, lo_tensor, hi_tensor)


_kept_box = lru_cache(maxsize=64)(_box)


def _side(side: Any, default: float, n: int, what: str) -> tuple[np.ndarray, torch.Tensor | None]:
    if side is None:
        return np.array([default]), None
    side = on_host(side)
    tensor = side if isinstance(side, torch.Tensor) and side.requires_grad else None
    array = as_floats(side, what, f"a number, one per output, or None for an open side; got {side!r}")
    if array.ndim == 0:
        return array.reshape(1), tensor
    if array.shape != (n,):
        raise InputError(f"{what} has shape {array.shape}: pass one number, or one per output, shape ({n},).")
    return array, tensor


def _inwards(side: np.ndarray, dtype: Any, towards: float) -> np.ndarray:
    """The nearest number of `dtype` that lies within the bound, as a float64."""
    if not isinstance(dtype, torch.dtype):
        dtype = torch.from_numpy(np.empty(0, dtype)).dtype
    exact = torch.from_numpy(side)
    narrow = exact.to(dtype)  # a bound past the dtype's range is an open one
    beyond = narrow.double() < exact if towards > 0 else narrow.double() > exact
    return torch.where(beyond, torch.nextafter(narrow, narrow.new_tensor(towards)), narrow).double().numpy()


def _check(lo: np.ndarray, hi: np.ndarray) -> None:
    if np.isnan(lo).any() or np.isnan(hi).any():
        raise InputError("bounds has NaN: use None or an infinity for an open side.")
    if (lo > hi).any():
        worst = int(np.argmax(np.broadcast_to(lo > hi, np.broadcast_shapes(lo.shape, hi.shape))))
        low, high = (side[worst if len(side) > 1 else 0] for side in (lo, hi))
        raise InputError(f"bounds has lo > hi ({low} > {high}, at position {worst}): swap them or widen the box.")
