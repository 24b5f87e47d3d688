"""Cells: one for each combination of everything the constraints look at.

`assign_cells` numbers the combinations of several integer columns and counts their samples. Where the columns' ranges
are narrow, as labels usually are, the number is computed directly and empty combinations are simply empty cells;
otherwise the labels that occur are numbered first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fairlayer.binding.groups import Column, Label
from fairlayer.compiled import compiled

UNIT = 2.0**-53  # relative rounding error of float64, in which sums are taken
NO_LABEL = "\0no label"  # marks an integer that a column ranges over but does not hold
MOST_DIRECT = 1024  # combinations, empty ones included, up to which cells are numbered directly


class Levels(NamedTuple):
    """What the cells mean, apart from how many samples they hold: all that a plan depends on."""

    labels: tuple[tuple[Label, ...], ...]  # of each column, in the order of its digits
    digits: bytes | None  # (G, k) int64, of cells that are not the full grid of digits

    def digit_table(self) -> np.ndarray:
        """(G, k): the digit of each column in each cell."""
        if not self.labels:  # no columns: one cell
            return np.zeros((1, 0), dtype=np.int64)
        if self.digits is not None:
            return np.frombuffer(self.digits, dtype=np.int64).reshape(-1, len(self.labels))
        shape = tuple(len(labels) for labels in self.labels)
        return np.indices(shape).reshape(len(shape), -1).T


class Cells(NamedTuple):
    """Cell of each sample, and how many samples (and how much weight) each cell holds."""

    cell: Any  # (n,) int32 numpy array, or int64 tensor away from the CPU
    samples: np.ndarray  # (G,) float64
    weight: np.ndarray  # (G,) float64
    levels: Levels


def assign_cells(columns: Sequence[Column], n: int, weights: np.ndarray | None = None) -> Cells:
    """Number the combinations of labels that the columns hold.

    A column with labels of its own keeps all of them, present or not; one of plain integers has those it ranges over.
    """
    if not columns or n == 0:
        labels = tuple(column.labels or () for column in columns)
        return _finish(np.zeros(n, dtype=np.int32), np.full(int(not columns), float(n)), Levels(labels, b""), weights)
    table = _table(columns)
    if isinstance(table, torch.Tensor):
        found, cells = torch.unique(table, dim=0, return_inverse=True)
        count = torch.bincount(cells, minlength=len(found)).double().cpu().numpy()
        return _finish(cells, count, _renumber(columns, found.cpu().numpy()), weights)
    index = np.empty(n, dtype=np.int32)
    known = np.array([len(column.labels) if column.labels is not None else 0 for column in columns])
    start, width, count = _direct(table, known, MOST_DIRECT, index)
    if len(count):
        labels = tuple(
            column.labels if column.labels is not None else _range_labels(j, a, width, count)
            for j, (column, a) in enumerate(zip(columns, start.tolist(), strict=True))
        )
        return _finish(index, count, Levels(labels, None), weights)
    found, cells = np.unique(table, axis=0, return_inverse=True)
    index = cells.reshape(-1).astype(np.int32)
    count = np.bincount(index, minlength=len(found)).astype(np.float64)
    return _finish(index, count, _renumber(columns, found), weights)


def _range_labels(j: int, start: int, width: np.ndarray, count: np.ndarray) -> tuple[Label, ...]:
    """The integers column j ranges over, those that do not occur marked; its least and greatest always do."""
    labels: list[Label] = list(range(start, start + int(width[j])))
    if len(labels) > 2:
        others = tuple(axis for axis in range(len(width)) if axis != j)
        occurs = count.reshape(width).sum(axis=others) > 0
        labels = [label if there else NO_LABEL for label, there in zip(labels, occurs, strict=True)]
    return tuple(labels)


def _renumber(columns: Sequence[Column], found: np.ndarray) -> Levels:
    """Labels column by column, and the digits of the combinations `found` in terms of them."""
    labels, digits = [], found.copy()
    for j, column in enumerate(columns):
        known = column.labels
        if known is not None and len(known) <= MOST_DIRECT:
            labels.append(known)
            continue
        values, digits[:, j] = np.unique(found[:, j], return_inverse=True)
        labels.append(tuple(values.tolist()) if known is None else tuple(known[v] for v in values.tolist()))
    return Levels(tuple(labels), np.ascontiguousarray(digits).tobytes())


def _finish(index: Any, count: np.ndarray, levels: Levels, weights: np.ndarray | None) -> Cells:
    return Cells(index, count, count if weights is None else _weigh(index, weights, len(count)), levels)


def _weigh(index: Any, weights: Any, G: int) -> np.ndarray:
    if isinstance(index, torch.Tensor):
        index = index.cpu().numpy()
    total, error = np.empty(G), np.empty(G)  # summed exactly, as the certificate takes them to be
    exact_sums(weights, index.astype(np.int32, copy=False), np.empty(0), total, error)
    return total


def _table(columns: Sequence[Column]) -> Any:
    """(n, k) int64: the columns side by side, without a copy where they already are. A tensor if not on the CPU."""
    matrix = columns[0].matrix
    if matrix is not None and [(c.matrix is matrix, c.name) for c in columns] == [
        (True, j) for j in range(matrix.shape[1])
    ]:
        on_cpu = isinstance(matrix, torch.Tensor) and matrix.device.type == "cpu"
        return matrix.numpy() if on_cpu else matrix
    values = [column.values for column in columns]
    device = next((v.device for v in values if isinstance(v, torch.Tensor) and v.device.type != "cpu"), None)
    if device is not None:
        return torch.stack([torch.as_tensor(v, device=device) for v in values], dim=1)
    return np.stack([np.asarray(v) for v in values], axis=1)


@compiled
def _direct(table, known, most, index):
    """Cells from the ranges of the columns; an empty count where there would be more than `most` of them.

    known: number of labels of each column, numbered from 0; or 0 where its integers are the labels.
    """
    n, k = table.shape
    start, width = np.zeros(k, np.int64), np.empty(k, np.int64)
    G = 1
    for j in range(k - 1, -1, -1):
        width[j] = known[j]
        if width[j] == 0:
            smallest = largest = table[0, j]
            for i in range(n):
                smallest = min(smallest, table[i, j])
                largest = max(largest, table[i, j])
            if float(largest) - float(smallest) >= most:  # as floats: the difference of integers may not fit into one
                return start, width, np.zeros(0)
            start[j], width[j] = smallest, largest - smallest + 1
        G *= width[j]
        if most < G:
            return start, width, np.zeros(0)
    number_cells(table, start, width, index)
    return start, width, count_cells(index, G)


@compiled
def number_cells(table, start, width, index):
    """The number of each sample's combination of labels; False if a label is outside its column's range."""
    n, k = table.shape
    stride = np.ones(k + 1, np.int64)
    for j in range(k - 1, -1, -1):
        stride[j] = stride[j + 1] * width[j]
    outside = False
    index[:] = 0
    for j in range(0, k - 1, 2):  # two columns at a time: they share their cache lines
        first, second = start[j], start[j + 1]
        first_width, second_width = np.uint64(width[j]), np.uint64(width[j + 1])
        first_stride, second_stride = stride[j + 1], stride[j + 2]
        for i in range(n):
            a, b = table[i, j] - first, table[i, j + 1] - second
            outside |= (np.uint64(a) >= first_width) | (np.uint64(b) >= second_width)
            index[i] += a * first_stride + b * second_stride
    if k % 2 == 1:
        last, last_width = start[k - 1], np.uint64(width[k - 1])
        for i in range(n):
            a = table[i, k - 1] - last
            outside |= np.uint64(a) >= last_width
            index[i] += a
    return not outside


@compiled
def count_cells(index, G):
    """Samples of each cell. Four counters in turn, so that samples of one cell need not wait for each other."""
    bank = np.zeros((4, G), np.int64)
    whole = index.size - index.size % 4
    for i in range(0, whole, 4):
        for k in range(4):
            bank[k, index[i + k]] += 1
    for i in range(whole, index.size):
        bank[0, index[i]] += 1
    count = np.empty(G)
    for c in range(G):
        count[c] = bank[0, c] + bank[1, c] + bank[2, c] + bank[3, c]
    return count


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
