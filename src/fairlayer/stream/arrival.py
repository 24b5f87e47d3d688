"""`Arrival`: a batch that has come to a stream, read and checked before anything is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fairlayer.errors import InputError
from fairlayer.stream.reading import read_ids, read_labels, read_outputs, read_targets, read_text
from fairlayer.stream.settings import Settings


class Arrival(NamedTuple):
    """The arguments of `Stream.update`."""

    raw: np.ndarray  # (n d,) sample by sample
    n: int
    width: int  # d, outputs of each sample
    groups: Any
    features: Any
    targets: np.ndarray | None  # as given, (n,) or (n, d)
    known: np.ndarray | None  # (n d,) of every output
    waiting: bool  # whether targets that constraints need come later
    ids: list[str]  # of the samples, where they do
    batch_id: str | None
    like: Callable[[np.ndarray], Any]  # gives outputs back in the form they came


def read_arrival(
    settings: Settings,
    z: Any,
    groups: Any,
    batch_id: Any = None,
    targets: Any = None,
    features: Any = None,
    ids: Any = None,
) -> Arrival:
    """A batch as `update` takes it, ready to be decided."""
    outputs, like = read_outputs(z)
    settings.check_outputs(outputs)
    n, width = len(outputs), outputs.shape[1] if outputs.ndim == 2 else 1
    given = None if targets is None else read_targets(targets, n, width)
    known = given if given is None or width == 1 else np.broadcast_to(given.reshape(n, -1), (n, width)).reshape(-1)
    waiting = bool(settings.rules.needs_targets) and known is None
    if width > 1:
        settings.check_columns(given)
    if waiting and settings.policy == "primal-dual":
        raise InputError(f"targets is missing: Algorithm 1 measures {settings.rules.needs_targets} in every batch.")
    keys = read_ids(ids, n) if waiting else []
    label = None if batch_id is None else read_text(batch_id, "batch_id")
    labels, raw = read_labels(groups), outputs.reshape(-1)
    return Arrival(raw, n, width, labels, features, given, known, waiting, keys, label, like)
