"""A batch as users pass it to a stream, checked before anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fairlayer.arrays import as_floats, as_numpy
from fairlayer.errors import InputError
from fairlayer.stream.settings import Settings, read_text

MOST = 1e140  # whose squares a stream can add up for ever


class Batch(NamedTuple):
    """The arguments of `Stream.update`, read and checked."""

    raw: np.ndarray  # (n d,) sample by sample
    n: int
    width: int  # d, outputs of each sample
    groups: Any
    features: Any
    targets: np.ndarray | None  # as given, (n,) or (n, d)
    known: np.ndarray | None  # (n d,) the target of every output
    waiting: bool  # whether targets that constraints need come later
    ids: list[str]  # of the samples, where they do
    batch_id: str | None
    like: Callable[[np.ndarray], Any]  # gives outputs back in the form they came


def read_batch(
    settings: Settings,
    z: Any,
    groups: Any,
    batch_id: Any = None,
    targets: Any = None,
    features: Any = None,
    ids: Any = None,
) -> Batch:
    """A batch as `update` takes it, ready to be decided."""
    outputs, like = read_outputs(z, settings)
    n, width = len(outputs), outputs.shape[1] if outputs.ndim == 2 else 1
    given = None if targets is None else read_targets(targets, n, width)
    known = given
    if width > 1:
        settings.check_columns(given)
        if given is not None:
            known = np.broadcast_to(given[:, None] if given.ndim == 1 else given, (n, width)).flatten()
    waiting = bool(settings.rules.needs_targets) and known is None
    if waiting and settings.policy == "primal-dual":
        raise InputError(f"targets is missing: Algorithm 1 measures {settings.rules.needs_targets} in every batch.")
    names = read_ids(ids, n) if waiting else []
    label = None if batch_id is None else read_text(batch_id, "batch_id")
    return Batch(outputs.reshape(-1), n, width, groups, features, given, known, waiting, names, label, like)


def read_outputs(z: Any, settings: Settings) -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
    """Outputs, of shape (n,) or (n, d), and how to give outputs back in the form they came."""
    is_tensor = isinstance(z, torch.Tensor)
    known = not is_tensor or z.dtype in (torch.float32, torch.float64)
    array = as_numpy(z, "z") if known else None
    if array is None or array.dtype not in (np.float32, np.float64):
        raise InputError(f"z must hold float32 or float64; got {getattr(z, 'dtype', type(z).__name__)}.")
    shape = array.shape
    if array.ndim not in (1, 2) or 0 in shape[1:]:
        raise InputError(f"z has shape {tuple(shape)}: pass outputs of shape (n,) or (n, d).")
    outputs = np.ascontiguousarray(array.reshape(-1) if shape[1:] == (1,) else array)
    _refuse_large(outputs, "z")
    settings.check_outputs(outputs)

    def like(value: np.ndarray) -> Any:
        shaped = value.reshape(shape)
        return torch.from_numpy(shaped).to(z.device) if is_tensor else shaped

    return outputs, like


def read_targets(targets: Any, n: int | None = None, width: int = 1) -> np.ndarray:
    """Targets as an array of finite numbers: (n,), or (n, width) where every one of several outputs has its own."""
    values = as_floats(targets, "targets of a stream", "numbers, such as 0 and 1 for classes")
    if width == 1 or values.shape != (n, width):
        values = values.reshape(-1)
    if n is not None and len(values) != n:
        raise InputError(f"targets has {len(values)} entries for {n} outputs: pass one per output.")
    _refuse_large(values, "targets")
    return values


def _refuse_large(values: np.ndarray, name: str) -> None:
    fits = np.abs(values) <= min(MOST, float(np.finfo(values.dtype).max))  # false for NaN
    if not fits.all():
        position = np.unravel_index(int(np.argmin(fits)), values.shape)
        where = ", ".join(map(str, position))
        raise InputError(f"{name}[{where}] is {values[position]}: pass finite numbers of at most {MOST:g} in size.")


def read_ids(ids: Sequence[Any] | None, n: int) -> list[str]:
    """Names of samples whose targets come later."""
    if ids is None:
        raise InputError("ids is missing: targets come later, so name the samples, and pass the names to observe.")
    if not isinstance(ids, Iterable):
        raise InputError(f"ids must be {n} names, one per sample; got {ids!r}.")
    names = [read_text(one, "ids") for one in (ids.tolist() if hasattr(ids, "tolist") else ids)]
    if len(names) != n or len(set(names)) != n:
        raise InputError(f"ids must be {n} names, one per sample and no two alike; got {len(names)}.")
    return names


def read_past(past: Any, settings: Settings) -> tuple[np.ndarray, Any, Any]:
    """Past data to learn from: outputs, groups, and features where there are any."""
    needs_features = settings.rules.needs_features
    if not isinstance(past, tuple | list) or len(past) not in (2 + needs_features, 3):
        form = "(raw, groups, features)" if needs_features else "(raw, groups)"
        raise InputError(f"warm_start must be {form} for these constraints, each of past data.")
    return read_outputs(past[0], settings)[0], past[1], past[2] if len(past) == 3 else None
