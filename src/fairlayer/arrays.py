"""Columns as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fairlayer.errors import InputError


def is_dense(values: torch.Tensor) -> bool:
    """Whether a tensor holds all its values, one after the other."""
    return values.layout == torch.strided and not values.is_meta and not values.is_nested


def check_dense(values: torch.Tensor, what: str) -> None:
    """Refuse a tensor that does not hold all its values, one after the other."""
    if not is_dense(values):
        kind = "nested" if values.is_nested else "meta" if values.is_meta else "sparse"
        raise InputError(f"{what} is a {kind} tensor: pass a dense one that holds its values.")


def as_numpy(values: Any, what: str = "a column") -> np.ndarray:
    """Any column as an array on the CPU; `what` names it in errors."""
    if not isinstance(values, torch.Tensor):
        try:
            array = np.asarray(values)
        except ValueError as error:
            raise InputError(f"{what} must have one entry per sample, all of one kind: {error}.") from error
    else:
        check_dense(values, what)
        values = values.detach().cpu()
        array = (values.float() if values.dtype == torch.bfloat16 else values).numpy()  # numpy has no bfloat16
    if array.dtype.kind == "c":
        raise InputError(f"{what} holds complex numbers: pass real ones, or labels.")
    return array
