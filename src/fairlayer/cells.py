"""Cells: one for each combination of everything the constraints look at.

`assign_cells` numbers the combinations of several integer columns and counts their samples. Where the columns' ranges
are narrow, as labels usually are, the number is computed directly and empty combinations are simply empty cells;
otherwise the labels that occur are numbered first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fairlayer.compiled import compiled
from fairlayer.groups import Column, Label

UNIT = 2.0**-53  # relative rounding error of float64, in which sums are taken
MOST_DIRECT = 1024  # combinations, empty ones included, up to which cells are numbered directly


@dataclass(frozen=True)
class Levels:
    """What the cells mean, apart from how many samples they hold: all that a plan depends on."""

    labels: tuple[tuple[Label, ...], ...]  # of each column, in the order of its digits
    declared: tuple[tuple[Label, ...] | None, ...]  # every label a column can have, where that is known
    digits: bytes | None  # (G, k) int64, of cells that are not the full grid of digits
    filled: bytes  # (G,) bool: which cells have weight in this batch

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of labels of each column."""
        return tuple(len(labels) for labels in self.labels)

    def digit_table(self) -> np.ndarray:
        """(G, k): the digit of each column in each cell."""
        if self.digits is not None:
            return np.frombuffer(self.digits, dtype=np.int64).reshape(-1, len(self.labels))
        return np.indices(self.shape).reshape(len(self.labels), -1).T


@dataclass(frozen=True)
class Cells:
    """Cell of each sample, and how many samples (and how much weight) each cell holds."""

    index: Any  # (n,) int32 numpy array, or int64 tensor away from the CPU
    count: np.ndarray  # (G,) float64
    weight: np.ndarray  # (G,) float64
    levels: Levels


def assign_cells(columns: Sequence[Column], n: int, weights: Any = None) -> Cells:
    """Number the combinations of labels that the columns hold."""
    if not columns:
        return _finish(columns, np.zeros(n, dtype=np.int32), np.array([float(n)]), (), None, weights)
    if any(isinstance(column.values, torch.Tensor) and column.values.device.type != "cpu" for column in columns):
        return _assign_on_device(columns, weights)
    table = _table(columns)
    if n == 0:
        return _finish(columns, np.zeros(0, dtype=np.int32), np.zeros(0), tuple(() for _ in columns), b"", weights)
    index = np.empty(n, dtype=np.int32)
    start, width, count = _direct(table, MOST_DIRECT, index)
    if len(count):
        labels = tuple(
            column.labels[a : a + w] if column.labels is not None else tuple(range(a, a + w))
            for column, a, w in zip(columns, start.tolist(), width.tolist(), strict=True)
        )
        return _finish(columns, index, count, labels, None, weights)
    found, index = np.unique(table, axis=0, return_inverse=True)
    index = index.reshape(-1).astype(np.int32)
    count = np.bincount(index, minlength=len(found)).astype(np.float64)
    return _finish(columns, index, count, *_renumber(columns, found), weights)


def _renumber(columns: Sequence[Column], found: np.ndarray) -> tuple[tuple[tuple[Label, ...], ...], bytes]:
    """Labels that occur, column by column, and the digits of the combinations `found` in terms of them."""
    labels, digits = [], np.empty_like(found)
    for j, column in enumerate(columns):
        values, digits[:, j] = np.unique(found[:, j], return_inverse=True)
        known = column.labels
        labels.append(tuple(values.tolist()) if known is None else tuple(known[v] for v in values.tolist()))
    return tuple(labels), digits.tobytes()


def _finish(
    columns: Sequence[Column], index: Any, count: np.ndarray, labels: tuple, digits: bytes | None, weights: Any
) -> Cells:
    weight = count if weights is None else _weigh(index, weights, len(count))
    declared = tuple(column.labels for column in columns)
    return Cells(index, count, weight, Levels(labels, declared, digits, (weight > 0).tobytes()))


def _weigh(index: Any, weights: Any, G: int) -> np.ndarray:
    if isinstance(index, torch.Tensor):
        total = torch.zeros(G, dtype=torch.float64, device=index.device)
        return total.index_add_(0, index, weights.double()).cpu().numpy()
    return np.bincount(index, weights=weights, minlength=G)


def _table(columns: Sequence[Column]) -> np.ndarray:
    """(n, k) int64: the columns side by side, without a copy where they already are."""
    matrix = columns[0].matrix
    whole = matrix is not None and len(columns) == matrix.shape[1]
    if whole and all(c.matrix is matrix and c.name == j for j, c in enumerate(columns)):
        return matrix.numpy() if isinstance(matrix, torch.Tensor) else matrix
    return np.stack([np.asarray(column.values) for column in columns], axis=1)


def _assign_on_device(columns: Sequence[Column], weights: Any) -> Cells:
    """The same in tensor operations, where the labels live on another device."""
    device = next(c.values.device for c in columns if isinstance(c.values, torch.Tensor))
    table = torch.stack([torch.as_tensor(c.values, device=device) for c in columns], dim=1)
    found, index = torch.unique(table, dim=0, return_inverse=True)
    count = torch.bincount(index, minlength=len(found)).double().cpu().numpy()
    return _finish(columns, index, count, *_renumber(columns, found.cpu().numpy()), weights)


@compiled
def _direct(table, most, index):
    """Cells from the ranges of the columns; an empty count where there would be more than `most` of them."""
    n, k = table.shape
    start, width, stride = np.empty(k, np.int64), np.empty(k, np.int64), np.empty(k, np.int64)
    G = 1
    for j in range(k - 1, -1, -1):
        smallest = largest = table[0, j]
        for i in range(n):
            smallest = min(smallest, table[i, j])
            largest = max(largest, table[i, j])
        start[j], stride[j] = smallest, G
        # Compared as floats: the difference of two integers may not fit into one.
        if (float(largest) - float(smallest) + 1.0) * G > most:
            return start, width, np.zeros(0)
        width[j] = largest - smallest + 1
        G *= width[j]
    base = 0
    for j in range(k):
        base += start[j] * stride[j]
    if k == 2:
        for i in range(n):
            index[i] = table[i, 0] * stride[0] + table[i, 1] * stride[1] - base
    else:
        for i in range(n):
            cell = -base
            for j in range(k):
                cell += table[i, j] * stride[j]
            index[i] = cell
    bank = np.zeros((4, G), np.int64)  # four counters, so that samples of one cell need not wait for each other
    whole = n - n % 4
    for i in range(0, whole, 4):
        for b in range(4):
            bank[b, index[i + b]] += 1
    for i in range(whole, n):
        bank[0, index[i]] += 1
    count = np.empty(G)
    for c in range(G):
        count[c] = bank[0, c] + bank[1, c] + bank[2, c] + bank[3, c]
    return start, width, count


@compiled
def exact_sums(out, cell, weight, S, error):
    """Cell sums of the output in twice the precision, for magnitudes at which plain sums leave doubt."""
    G = S.size
    low = np.zeros(G)
    error[:] = 0.0
    S[:] = 0.0
    for i in range(out.size):
        c = cell[i]
        w = weight[i] if weight.size > 0 else 1.0
        y = w * out[i]
        if w != 1.0:
            error[c] += UNIT * abs(y)
        total = S[c] + y
        part = total - S[c]
        low[c] += (S[c] - (total - part)) + (y - part)
        S[c] = total
    for c in range(G):
        S[c] += low[c]
        error[c] += 2.0 * UNIT * abs(S[c])
