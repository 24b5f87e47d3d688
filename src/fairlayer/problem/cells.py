"""Cells: one for each combination of everything the constraints look at.

With few combinations, the usual case, the number of a cell is computed from the labels, and empty combinations are
simply empty cells; otherwise the combinations that occur are numbered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fairlayer.constraints.plain_data import Label
from fairlayer.core._native import number_cells
from fairlayer.problem.exact_sums import exact_sums
from fairlayer.problem.families import NO_LABEL
from fairlayer.problem.groups import Column

MOST_DIRECT = 1024  # combinations, empty ones included, up to which all of them are cells
_NONE = np.empty(0)


class Levels(NamedTuple):
    """What the cells mean, apart from how many samples they hold: all that a plan depends on."""

    labels: tuple[tuple[Label, ...], ...]  # of each column, in the order of its digits
    digits: bytes | None  # (k, G) int64, of cells that are not the full grid of digits
    kinds: tuple[tuple[type, ...], ...] = ()  # types of the labels: 0, 0.0 and False are equal, but differ

    @classmethod
    def of(cls, labels: Iterable[Sequence[Label]], digits: bytes | None = None) -> Levels:
        """Levels of these labels, and of cells with these digits."""
        own = tuple(map(tuple, labels))
        return cls(own, digits, tuple(tuple(map(type, column)) for column in own))

    def digit_table(self) -> np.ndarray:
        """(G, k): the digit of each column in each cell."""
        if not self.labels:  # no columns: one cell
            return np.zeros((1, 0), dtype=np.int64)
        if self.digits is not None:
            return np.frombuffer(self.digits, dtype=np.int64).reshape(len(self.labels), -1).T
        shape = tuple(len(labels) for labels in self.labels)
        return np.indices(shape).reshape(len(shape), -1).T


class Cells(NamedTuple):
    """Cell of each sample, and how many samples (and how much weight) each cell holds."""

    cell: np.ndarray  # (n,) int32
    samples: np.ndarray  # (G,) float64
    weight: np.ndarray  # (G,) float64
    levels: Levels


def assign_cells(columns: Sequence[Column], n: int, weights: np.ndarray | None = None) -> Cells:
    """Number the combinations of labels that the columns hold.

    A column with labels of its own keeps all of them, present or not; one of plain integers has those that occur.
    """
    if not columns or n == 0:
        cell, count = np.zeros(n, dtype=np.int32), np.full(int(not columns), float(n))
        levels = Levels.of([column.labels or () for column in columns], b"")
    else:
        known = [len(column.labels) if column.labels else 0 for column in columns]
        cell, count, least, width, one = number_cells([column.values for column in columns], known, MOST_DIRECT)
        if len(one):
            levels = _occurring(columns, np.stack([column.values[one] for column in columns]))
        else:
            levels = _full_grid(tuple(_span(column, j, least, width, count) for j, column in enumerate(columns)))
    if weights is None:
        return Cells(cell, count, count, levels)
    total = np.empty(len(count))
    exact_sums(weights, cell, _NONE, total, np.empty(len(count)))
    return Cells(cell, count, total, levels)


@lru_cache(maxsize=1024)
def _full_grid(spans: tuple[tuple[Any, Any], ...]) -> Levels:
    """All combinations. spans: of each column its least integer, and which from there on occur, a byte each; or its
    labels, and their types.
    """
    labels: list[Sequence[Label]] = []
    for least, occurs in spans:
        if isinstance(least, int):
            labels.append([least + v if there else NO_LABEL for v, there in enumerate(occurs)])
        else:
            labels.append(least)
    return Levels.of(labels)


def _span(column: Column, j: int, least: list[int], width: list[int], count: np.ndarray) -> tuple[Any, Any]:
    """What `_full_grid` is told of column j."""
    if column.labels is not None:
        return column.labels, tuple(map(type, column.labels))
    if width[j] <= 2:  # both ends occur
        return least[j], b"\1" * width[j]
    others = tuple(axis for axis in range(len(width)) if axis != j)
    return least[j], (count.reshape(width).sum(axis=others) > 0).tobytes()


def _occurring(columns: Sequence[Column], found: np.ndarray) -> Levels:
    """Labels column by column, and the digits of the combinations `found`, (k, G), in terms of them."""
    labels: list[Sequence[Label]] = []
    digits = np.empty(found.shape, dtype=np.int64)
    for column, values, own in zip(columns, found, digits, strict=True):
        known = column.labels
        if known is not None and len(known) <= MOST_DIRECT:
            labels.append(known)
            own[:] = values
            continue
        occurring, own[:] = np.unique(values, return_inverse=True)
        labels.append(occurring.tolist() if known is None else [known[v] for v in occurring.tolist()])
    return Levels.of(labels, digits.tobytes())
