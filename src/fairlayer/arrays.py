"""Columns as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fairlayer.errors import InputError

_LARGEST = int(np.finfo(np.float64).max)


def is_dense(values: torch.Tensor) -> bool:
    """Whether a tensor holds all its values, one after the other."""
    return values.layout is torch.strided and not values.is_meta and not values.is_nested


def check_dense(values: torch.Tensor, what: str) -> None:
    """Refuse a tensor that does not hold all its values, one after the other."""
    if not is_dense(values):
        kind = "nested" if values.is_nested else "meta" if values.is_meta else "sparse"
        raise InputError(f"{what} is a {kind} tensor: pass a dense one that holds its values.")


def on_host(values: Any) -> Any:
    """Tensors, also those in a mapping, on the host, as functions of what they were; anything else as it is.

    Copies follow right upon each other, so that the host waits for a busy device once.
    """
    if isinstance(values, torch.Tensor):
        return values if values.is_meta else values.cpu()
    return {name: on_host(value) for name, value in values.items()} if isinstance(values, Mapping) else values


def _check_entries(values: Any, array: np.ndarray, what: str) -> None:
    """Refuse what an array would hide, masked entries, and numbers that no float holds."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(f"{what} has masked entries: leave these samples out, or fill them in.")
    if array.dtype == object and not hasattr(values, "dtype"):
        large = next((one for one in array.flat if isinstance(one, int) and abs(one) > _LARGEST), None)
        if large is not None:
            raise InputError(
                f"{what} has a number beyond the range of floats, of {large.bit_length()} bits: rescale it."
            )


def as_numpy(values: Any, what: str = "a column") -> np.ndarray:
    """Any column as an array on the CPU; `what` names it in errors."""
    if not isinstance(values, torch.Tensor):
        try:
            array = np.asarray(values)
        except ValueError as error:
            raise InputError(f"{what} must have one entry per sample, all of one kind: {error}.") from error
        _check_entries(values, array, what)
    else:
        check_dense(values, what)
        values = values.detach().cpu()
        array = (values.float() if values.dtype == torch.bfloat16 else values).numpy()  # numpy has no bfloat16
    if array.dtype.kind == "c":
        raise InputError(f"{what} holds complex numbers: pass real ones, or labels.")
    return array


def as_floats(values: Any, what: str, needed: str) -> np.ndarray:
    """A column as float64; `needed` says in errors what it must hold."""
    array = as_numpy(values, what)
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{what} must be {needed}: {error}.") from error
