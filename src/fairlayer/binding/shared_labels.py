"""Labels that several ranks have met, each some of them: one numbering of cells for all.

A rank numbers the cells of its own samples. The cells of the whole batch are those of the union of all labels, so a
rank needs to know what the others have met, which seldom changes: a digest of the labels tells. Only labels that not
every rank knows yet are exchanged.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from fairlayer.binding.cells import MOST_DIRECT, Levels
from fairlayer.binding.families import NO_LABEL
from fairlayer.binding.groups import sorted_labels
from fairlayer.constraints.plain_data import Label

Labels = tuple[tuple[Label, ...], ...]  # of each column
Exchange = Callable[[Any], list[Any]]  # an object of this rank for those of all
_MOST_KNOWN = 4096


def digest_of(text: str) -> int:
    """A whole number of 63 bits, never 0, that two different texts hardly share."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1 | 1


class Guess(NamedTuple):
    """What to expect of the next batch: what the last one was like."""

    levels: Levels
    digest: int  # of these
    few: bool  # whether every rank had few samples


class SharedLabels:
    """What all ranks of a group know to be known to all. It changes in the same way on each."""

    def __init__(self) -> None:
        self.known: dict[int, Labels] = {}  # by digest
        self.last: dict[int, Guess] = {}  # by the settings of a layer

    def unite(self, mine: Labels, digests: Sequence[int], exchange: Exchange) -> Labels:
        """The labels of all ranks, given the digest of each."""
        if len(self.known) > _MOST_KNOWN:
            self.known.clear()
        different = dict.fromkeys(digests)
        if len(different) == 1:
            self.known[digests[0]] = mine
            return mine
        if any(digest not in self.known for digest in different):
            self.known.update(zip(digests, exchange(mine), strict=True))
        return united(tuple(self.known[digest] for digest in different))

    def remember(self, settings: int, levels: Levels, few: bool) -> None:
        """Expect the same of the next batch."""
        last = self.last.get(settings)
        if last is None or last.levels != levels:
            if len(self.last) > _MOST_KNOWN:
                self.last.clear()
            self.last[settings] = Guess(levels, digest_of(repr(levels)), few)
        elif last.few != few:
            self.last[settings] = last._replace(few=few)


@lru_cache(maxsize=1024)
def met_labels(levels: Levels) -> tuple[Labels, int]:
    """The labels that are, and their digest."""
    met = tuple(tuple(label for label in column if label is not NO_LABEL) for column in levels.labels)
    return met, digest_of(repr((met, levels.kinds)))


def united(tables: tuple[Labels, ...]) -> Labels:
    """The labels of all: in their own order where all have the same, otherwise sorted."""
    columns = []
    for parts in zip(*tables, strict=True):
        some = tuple(dict.fromkeys(part for part in parts if part))
        columns.append(some[0] if len(some) == 1 else sorted_labels({label for part in some for label in part}))
    return tuple(columns)


def shared_levels(labels: Labels, occupied: Callable[[], np.ndarray], exchange: Exchange) -> Levels:
    """The cells of the whole batch. occupied: (m, k) digits, in terms of `labels`, of cells that have samples here.

    All combinations of labels where these are few; otherwise those that some rank has.
    """
    if math.prod(len(column) for column in labels) <= MOST_DIRECT:
        return Levels.of(labels)
    found = np.unique(np.concatenate(exchange(occupied())), axis=0)
    return Levels.of(labels, np.ascontiguousarray(found.T, dtype=np.int64).tobytes())


def digits_in(levels: Levels, labels: Labels) -> np.ndarray:
    """(G, k): the digits of cells in terms of the labels of all ranks; 0 for a label that nobody has."""
    digits = levels.digit_table().copy()
    for j, (own, column) in enumerate(zip(levels.labels, labels, strict=True)):
        position = {label: v for v, label in enumerate(column)}
        digits[:, j] = np.array([position.get(label, 0) for label in own], dtype=np.int64)[digits[:, j]]
    return digits


@lru_cache(maxsize=256)
def place_of(levels: Levels, shared: Levels) -> np.ndarray | None:
    """(G,) the cell of the whole batch that each cell of a rank is; None where it has labels that are not shared."""
    met, _ = met_labels(levels)
    if any(not set(own) <= set(column) for own, column in zip(met, shared.labels, strict=True)):
        return None
    digits, widths = digits_in(levels, shared.labels), [len(column) for column in shared.labels]
    if shared.digits is None:
        return np.ravel_multi_index(tuple(digits.T), widths).astype(np.int32) if widths else np.zeros(1, np.int32)
    number = {row: cell for cell, row in enumerate(map(tuple, shared.digit_table().tolist()))}
    return np.array([number.get(row, 0) for row in map(tuple, digits.tolist())], dtype=np.int32)


def moved(cell: Any, place: np.ndarray) -> Any:
    """Cells of samples, numbered anew."""
    if isinstance(cell, torch.Tensor):
        return torch.from_numpy(place.astype(np.int64)).to(cell.device)[cell]
    return place[cell]
