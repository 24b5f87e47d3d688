"""Columns as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fairlayer.errors import InputError


def as_numpy(values: Any) -> np.ndarray:
    """Any column as an array on the CPU."""
    if not isinstance(values, torch.Tensor):
        try:
            array = np.asarray(values)
        except ValueError as error:
            raise InputError(f"a column must have one entry per sample, all of one kind: {error}.") from error
    else:
        if values.layout != torch.strided or values.is_meta:
            kind = "meta" if values.is_meta else "sparse"
            raise InputError(f"a column is a {kind} tensor: pass a dense one that holds its values.")
        values = values.detach().cpu()
        array = (values.float() if values.dtype == torch.bfloat16 else values).numpy()  # numpy has no bfloat16
    if array.dtype.kind == "c":
        raise InputError("a column holds complex numbers: pass real ones, or labels.")
    return array
