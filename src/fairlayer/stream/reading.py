"""What users pass to a stream, checked before anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from fairlayer.errors import InputError


def read_outputs(z: Any) -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
    """Outputs as a flat array, and how to give outputs back in the form they came."""
    is_tensor = isinstance(z, torch.Tensor)
    known = not is_tensor or z.dtype in (torch.float32, torch.float64)
    array = np.asarray(z.detach().cpu() if is_tensor else z) if known else None
    if array is None or array.dtype not in (np.float32, np.float64):
        raise InputError(f"z must hold float32 or float64; got {getattr(z, 'dtype', type(z).__name__)}.")
    shape = array.shape
    if array.ndim == 0 or array.ndim > 2 or (array.ndim == 2 and shape[1] != 1):
        raise InputError(f"z has shape {tuple(shape)}: pass one output per sample, shape (n,) or (n, 1).")
    flat = np.ascontiguousarray(array.reshape(-1))
    finite = np.isfinite(flat)
    if not finite.all():
        position = int(np.argmin(finite))
        raise InputError(f"z[{position}] is {flat[position]}: outputs must be finite.")

    def like(value: np.ndarray) -> Any:
        shaped = value.reshape(shape)
        return torch.from_numpy(shaped).to(z.device) if is_tensor else shaped

    return flat, like


def read_targets(targets: Any, n: int | None = None) -> np.ndarray:
    """Targets as an array of finite numbers."""
    array = targets.detach().cpu().numpy() if isinstance(targets, torch.Tensor) else np.asarray(targets)
    values = array.astype(np.float64).reshape(-1)
    if n is not None and len(values) != n:
        raise InputError(f"targets has {len(values)} entries for {n} outputs: pass one per output.")
    if not np.isfinite(values).all():
        raise InputError("targets must be finite.")
    return values


def read_ids(ids: Sequence[Any] | None, n: int) -> list[str]:
    """Names of samples whose targets come later."""
    if ids is None:
        raise InputError("ids is missing: targets come later, so name the samples, and pass the names to observe.")
    keys = [str(one) for one in (ids.tolist() if hasattr(ids, "tolist") else ids)]
    if len(keys) != n or len(set(keys)) != n:
        raise InputError(f"ids must be {n} names, one per sample and no two alike; got {len(keys)}.")
    return keys
