"""Cells: one for each combination of everything the constraints look at.

`assign_cells` numbers the combinations of several integer columns and counts their samples. Where there are few, as a
rule, the number is computed from the labels and empty combinations are simply empty cells; otherwise the combinations
that occur are numbered, by a hash. Combinations of many columns are nearly all different: then columns are divided into
*facets*, the combinations within a facet are *parts*, of which there are few, and a cell is made of one part of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from fairlayer.binding.exact_sums import exact_sums
from fairlayer.binding.families import NO_LABEL
from fairlayer.binding.groups import Column
from fairlayer.binding.rows import NO_PARTS
from fairlayer.compiled import compiled
from fairlayer.constraints.plain_data import Label

MOST_DIRECT = 1024  # combinations, empty ones included, up to which cells are numbered directly
_MOST_PARTS = 256  # of a facet
_MOST_CODES = 2.0**62
_MOST_MARKS = 1 << 16  # codes, and four more for each sample, up to which each has a mark of its own
_NEAR = 1 << 15  # entries of a table that stay near the processor
_GLANCE = 256  # samples that are looked at to learn which labels there are
_NONE = np.empty(0)


class Levels(NamedTuple):
    """What the cells mean, apart from how many samples they hold: all that a plan depends on."""

    labels: tuple[tuple[Label, ...], ...]  # of each column, in the order of its digits
    digits: bytes | None  # (k, G) int64, of cells that are not the full grid of digits
    kinds: tuple[tuple[type, ...], ...] = ()  # types of the labels: 0, 0.0 and False are equal, but differ
    facets: tuple[Facet, ...] = ()  # where cells are made of parts: what is said of columns is said facet by facet

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


class Facet(NamedTuple):
    """Some of the columns, whose combinations are parts of cells."""

    columns: tuple[int, ...]
    levels: Levels


Uses = tuple[tuple[int, ...], ...]  # columns that are looked at together


class Cells(NamedTuple):
    """Cell of each sample, and how many samples (and how much weight) each cell holds."""

    cell: Any  # (n,) int32 numpy array, or int64 tensor away from the CPU
    samples: np.ndarray  # (G,) float64
    weight: np.ndarray  # (G,) float64
    levels: Levels
    part: np.ndarray = NO_PARTS  # (facets, G) uint32 the parts of each cell, numbered facet after facet


def assign_cells(
    columns: Sequence[Column], n: int, weights: np.ndarray | None = None, uses: Callable[[], Uses] | None = None
) -> Cells:
    """Number the combinations of labels that the columns hold.

    A column with labels of its own keeps all of them, present or not; one of plain integers has those that occur.
    uses: columns that must be in one facet; without it all of them are, and every cell is a part of its own.
    """
    if not columns or n == 0:
        levels = Levels.of([column.labels or () for column in columns], b"")
        return _finish(np.zeros(n, dtype=np.int32), np.full(int(not columns), float(n)), levels, weights)
    # As a rule the first samples have all labels that there are; whether they have is seen while cells are numbered.
    for seen in (min(n, _GLANCE), n):
        ranges, size, plain = [], 1, True
        for column in columns:
            if type(column.values) is torch.Tensor:
                return _on_device(columns, weights)
            known = column.labels
            start, last = (0, len(known) - 1) if known is not None else value_range(column.values, seen)
            width = last - start + 1
            ranges.append((start, width))
            size *= width
            plain = plain and width <= 2 and known is None  # both its ends occur
        if size > MOST_DIRECT:
            facets = [] if uses is None else _facets(uses(), [width for _, width in ranges])
            if len(facets) > 1:
                return _in_parts(columns, facets, n, weights)
            continue
        index = np.zeros(n, dtype=np.int32)
        if _add_columns(columns, ranges, index):
            count = counted(index, size)
            spans = ranges if plain else [_span(column, j, ranges, count) for j, column in enumerate(columns)]
            return _finish(index, count, _full_grid(tuple(spans)), weights)
    if size > _MOST_CODES:
        columns = _narrowed(columns)
        ranges = [(0, len(column.labels or ())) for column in columns]
    code = np.zeros(n, dtype=np.int64)
    _add_columns(columns, ranges, code)
    index, some = _numbered(code, size)
    found = np.stack([column.values[some] for column in columns])
    return _finish(index, counted(index, len(some)), _renumber(columns, found), weights)


def _add_columns(columns: Sequence[Column], ranges: Sequence[tuple[int, int]], code: np.ndarray) -> bool:
    """Add columns to a code, each with its least value and their number; whether all values are within.

    A block of samples at a time: columns of a table stand beside each other, and are near once one of them is read.
    """
    within, size = True, _NEAR // len(columns) + 1
    if len(code) <= size:
        for column, (start, width) in zip(columns, ranges, strict=True):
            within = add_column(column.values, start, width, code) and within
        return within
    for first in range(0, len(code), size):
        some, target = slice(first, first + size), code[first : first + size]
        for column, (start, width) in zip(columns, ranges, strict=True):
            within = add_column(column.values[some], start, width, target) and within
    return within


def _facets(uses: Uses, widths: Sequence[int]) -> list[tuple[int, ...]]:
    """Facets that have few parts each, as far as they can. widths: labels of each column, as far as is known."""
    facets: list[set[int]] = []
    for columns in uses:
        if facets and math.prod(widths[j] for j in facets[-1].union(columns)) <= _MOST_PARTS:
            facets[-1] |= {*columns}
        else:
            facets.append({*columns})
    return [tuple(sorted(facet)) for facet in facets]


def _in_parts(columns: Sequence[Column], facets: list[tuple[int, ...]], n: int, weights: np.ndarray | None) -> Cells:
    """Number the combinations of parts that occur."""
    each = [assign_cells([columns[j] for j in facet], n) for facet in facets]
    code, size = np.zeros(n, dtype=np.int64), 1.0
    for own in each:
        if size * len(own.samples) > _MOST_CODES:
            numbers, some = _numbered(code, size)
            code, size = numbers.astype(np.int64), float(len(some))
        code *= len(own.samples)
        code += own.cell
        size *= len(own.samples)
    index, some = _numbered(code, size)
    part, begin = np.empty((len(facets), len(some)), dtype=np.uint32), 0
    for own, of_cell in zip(each, part, strict=True):
        of_cell[:] = own.cell[some]
        of_cell += begin
        begin += len(own.samples)
    levels = Levels((), None, (), tuple(Facet(facet, own.levels) for facet, own in zip(facets, each, strict=True)))
    return _finish(index, counted(index, len(some)), levels, weights)._replace(part=part)


def _numbered(code: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Number the codes that occur, of `size` from 0 on, in their order: the number of each, and one that has it."""
    few = size <= _MOST_MARKS + 4.0 * len(code)
    return mark_codes(code, int(size)) if few else number_codes(code)


def _narrowed(columns: Sequence[Column]) -> list[Column]:
    """Columns whose labels are numbered, as so many combinations of their integers do not fit into one."""
    narrow = []
    for column in columns:
        values, codes = np.unique(column.values, return_inverse=True)
        known = values.tolist() if column.labels is None else [column.labels[v] for v in values.tolist()]
        narrow.append(Column(column.name, codes.astype(np.int64), tuple(known)))
    return narrow


@lru_cache(maxsize=1024)
def _full_grid(spans: tuple[tuple[Any, Any], ...]) -> Levels:
    """All combinations. spans: of each column its least integer, and how many from there on occur, or which, a byte
    each; or its labels, and their types.
    """
    labels: list[Sequence[Label]] = []
    for least, occurs in spans:
        if isinstance(least, int):
            each = enumerate(occurs if isinstance(occurs, bytes) else b"\1" * occurs)
            labels.append([least + v if there else NO_LABEL for v, there in each])
        else:
            labels.append(least)
    return Levels.of(labels)


def _span(column: Column, j: int, ranges: Sequence[tuple[int, int]], count: np.ndarray) -> tuple[Any, Any]:
    """What `_full_grid` is told of column j."""
    if column.labels is not None:
        return column.labels, tuple(map(type, column.labels))
    start, width = ranges[j]
    if width <= 2:
        return start, width
    others = tuple(axis for axis in range(len(ranges)) if axis != j)
    return start, (count.reshape([width for _, width in ranges]).sum(axis=others) > 0).tobytes()


def _renumber(columns: Sequence[Column], found: np.ndarray) -> Levels:
    """Labels column by column, and the digits of the combinations `found`, (k, G), in terms of them."""
    labels, digits = [], np.empty(found.shape, dtype=np.int64)
    for column, values, own in zip(columns, found, digits, strict=True):
        known = column.labels
        if known is not None and len(known) <= MOST_DIRECT:
            labels.append(known)
            own[:] = values
            continue
        least = values.min()
        own[:], some = _numbered(values - least, float(values.max()) - float(least) + 1.0)
        occurring = values[some].tolist()
        labels.append(tuple(occurring) if known is None else tuple(known[v] for v in occurring))
    return Levels.of(labels, digits.tobytes())


def _on_device(columns: Sequence[Column], weights: np.ndarray | None) -> Cells:
    """The same in tensor operations, where labels are not on the CPU."""
    values = [column.values for column in columns]
    device = next(v.device for v in values if isinstance(v, torch.Tensor))
    table = torch.stack([torch.as_tensor(v, device=device) for v in values], dim=1)
    found, cells = torch.unique(table, dim=0, return_inverse=True)
    count = torch.bincount(cells, minlength=len(found)).cpu().numpy().astype(np.float64)
    return _finish(cells, count, _renumber(columns, found.T.contiguous().cpu().numpy()), weights)


def counted(index: np.ndarray, G: int) -> np.ndarray:
    """(G,) samples of each cell."""
    count = np.empty(G)
    count_cells(index, count)
    return count


def _finish(index: Any, count: np.ndarray, levels: Levels, weights: np.ndarray | None) -> Cells:
    total = count
    if weights is not None:
        total, error = np.empty(len(count)), np.empty(len(count))
        cell = index.cpu().numpy() if isinstance(index, torch.Tensor) else index
        exact_sums(weights, cell.astype(np.int32, copy=False), _NONE, total, error)
    return Cells(index, count, total, levels)


@compiled(brief=True)
def value_range(values, seen):
    """The least and the greatest of the first `seen` values."""
    start = last = values[0]
    for i in range(seen):
        start, last = min(start, values[i]), max(last, values[i])
    return start, last


@compiled(brief=True)
def add_column(values, start, width, code):
    """code = code * width + (value - start), sample by sample; whether all values were less than `width` from start."""
    largest = np.uint64(0)  # negative ones are the largest of all
    for i in range(values.size):
        digit = values[i] - start
        code[i] = code[i] * width + digit
        largest = max(largest, np.uint64(digit))
    return largest < np.uint64(width)


@compiled
def count_cells(index, count):
    """Samples of each cell. Four counters in turn, so that samples of one cell need not wait for each other."""
    bank, whole = np.zeros((4, count.size), np.int64), index.size - index.size % 4
    for i in range(0, whole, 4):
        for k in range(4):
            bank[k, np.uint32(index[i + k])] += 1
    for i in range(whole, index.size):
        bank[0, np.uint32(index[i])] += 1
    for c in range(count.size):
        count[c] = bank[0, c] + bank[1, c] + bank[2, c] + bank[3, c]


@compiled
def mark_codes(code, size):
    """Number the codes that occur, all below `size`, in their order; (n,) the number of each, and one that has it."""
    place, some, index = np.zeros(size, dtype=np.int32), np.empty(code.size, np.int64), np.empty(code.size, np.int32)
    for i in range(code.size):
        place[code[i]] = i + 1
    filled = 0
    for c in range(size):
        if place[c] > 0:
            some[filled] = place[c] - 1
            place[c] = filled
            filled += 1
    for i in range(code.size):
        index[i] = place[code[i]]
    return index, some[:filled].copy()


@compiled
def number_codes(code):
    """The same for codes of any size, by a hash."""
    n = code.size
    size = 16
    while size < 2 * n:
        size *= 2
    slot, some = np.full(size, -1, dtype=np.int32), np.empty(n, np.int64)
    found, index = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int32)
    filled = 0
    for i in range(n):
        h = np.uint64(code[i]) * np.uint64(0x9E3779B97F4A7C15)
        at = np.int64((h >> np.uint64(20)) & np.uint64(size - 1))
        while slot[at] >= 0 and found[slot[at]] != code[i]:
            at = (at + 1) & (size - 1)
        if slot[at] < 0:
            slot[at] = filled
            found[filled], some[filled] = code[i], i
            filled += 1
        index[i] = slot[at]
    order = np.argsort(found[:filled])
    place = np.empty(filled, dtype=np.int32)
    for k in range(filled):
        place[order[k]] = k
    for i in range(n):
        index[i] = place[index[i]]
    return index, some[order]
