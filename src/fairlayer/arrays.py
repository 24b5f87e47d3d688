"""Columns as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def as_numpy(values: Any) -> np.ndarray:
    """Any column as an array on the CPU."""
    if not isinstance(values, torch.Tensor):
        return np.asarray(values)
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()  # numpy has no bfloat16
