"""Checkpoints: everything a run needs to go on as if it had not been interrupted, in a file that loads safely.

Only tensors, numbers, strings and collections of them are written, so the file loads without running any code in it.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairlayer.errors import FairlayerError, InputError

FORMAT = 2


def save(path: str | os.PathLike[str], contents: dict[str, Any]) -> None:
    """Write a checkpoint; the file is at every moment either the old one or the new one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    torch.save({"format": FORMAT, **contents}, partial)
    partial.replace(path)


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a checkpoint, to the CPU; its parts are moved to a device by those that take them."""
    try:
        contents = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise FairlayerError(f"{path} is not a readable checkpoint: {error}") from error
    if not isinstance(contents, dict) or contents.get("format") != FORMAT:
        raise InputError(f"{path} is not a checkpoint of this version of fairlayer: delete it, or start with another.")
    return contents


def random_state(loader: Any) -> dict[str, Any]:
    """The state of every random generator that training may draw from."""
    name, keys, position, has_gauss, gauss = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [str(name), torch.from_numpy(np.asarray(keys, dtype=np.int64)), position, has_gauss, float(gauss)],
        "python": random.getstate(),
        "loader": [generator.get_state() for generator in _generators(loader)],
    }


def set_random_state(state: dict[str, Any], loader: Any) -> None:
    """Continue every generator where it stood."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    for generator, saved in zip(_generators(loader), state["loader"], strict=True):
        generator.set_state(saved)


def tell_epoch(loader: Any, epoch: int) -> None:
    """Tell the loader and its samplers which epoch comes, where they want to know."""
    for owner in _samplers(loader):
        if callable(getattr(owner, "set_epoch", None)):
            owner.set_epoch(epoch)


def _samplers(loader: Any) -> tuple[Any, ...]:
    """A loader and the samplers that it draws from; None for those that it does not have."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    return loader, getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)


def _generators(loader: Any) -> list[torch.Generator]:
    """Generators of a loader's own."""
    found = (getattr(owner, "generator", None) for owner in _samplers(loader))
    return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())
