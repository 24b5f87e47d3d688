"""Rows of several outputs per sample, such as classes: cells and statistics once for each of them.

A sample in cell c with outputs 0 to d - 1 counts as d, in the cells c d to c d + d - 1. Of K statistics those of output
j are j K to j K + K - 1. So whatever is said of cells and rows, sums without rounding and the proof that rows hold
included, is said of every output.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fairlayer.binding.exact_sums import exact_sums
from fairlayer.binding.rows import Rows
from fairlayer.solve.certify import shortfalls
from fairlayer.solve.class_driver import ClassProblem
from fairlayer.solve.simplex_passes import near_sums


def column_cells(cell: np.ndarray, columns: int) -> np.ndarray:
    """(n d,) the cells of each sample's outputs, sample by sample. cell: (n,) of the samples."""
    if columns == 1:
        return cell
    return (cell[:, None] * np.int32(columns) + np.arange(columns, dtype=np.int32)).reshape(-1)


class Layout(NamedTuple):
    """Where the rows of every class are among those of a batch: the same for every batch with the same groups."""

    used: np.ndarray  # statistics that are compared: of groups with samples, that are not alone
    families: np.ndarray  # that these belong to
    family: np.ndarray  # (used,) numbered from 0
    kept: np.ndarray  # entries that are theirs
    start: np.ndarray  # of these, by cell
    statistic: np.ndarray  # of these, numbered from 0
    source: np.ndarray  # the entry that each entry of the rows of all classes comes from
    all_start: np.ndarray  # what else these rows are made of
    all_statistic: np.ndarray
    all_first: np.ndarray
    present: np.ndarray


_LAYOUTS: WeakKeyDictionary[Any, dict[int, Layout]] = WeakKeyDictionary()


def class_layout(view: Any, rows: Rows, columns: int) -> Layout:
    """The layout of rows for so many classes, kept for the next batch. view: the `PresentRows` that they belong to."""
    kept = _LAYOUTS.setdefault(view, {})
    if columns not in kept:
        kept[columns] = _layout(rows, columns)
    return kept[columns]


def _layout(rows: Rows, columns: int) -> Layout:
    (G, K), width = (len(rows.start) - 1, len(rows.offset)), np.diff(rows.start)
    owner = np.repeat(np.arange(len(rows.kind)), np.diff(rows.first))
    compared = np.bincount(owner, weights=rows.present, minlength=len(rows.kind)) > 1
    used = np.flatnonzero(rows.present & compared[owner])
    place = np.full(K, -1)
    place[used] = np.arange(len(used))
    families, family = np.unique(owner[used], return_inverse=True)
    kept = np.flatnonzero(place[rows.statistic] >= 0)
    of_cell = np.bincount(np.repeat(np.arange(G), width)[kept], minlength=G)
    entry = np.repeat(np.arange(G), columns * width)  # the cell of each entry, and the class and the place within it
    output, within = np.divmod(np.arange(len(entry)) - columns * rows.start[entry], width[entry])
    source = rows.start[entry] + within
    return Layout(
        used,
        families,
        family.astype(np.int64),
        kept,
        np.concatenate([[0], np.cumsum(of_cell)]).astype(np.int64),
        place[rows.statistic[kept]].astype(np.int64),
        source,
        np.concatenate([[0], np.cumsum(np.repeat(width, columns))]).astype(np.int64),
        rows.statistic[source] + output * K,
        np.concatenate([[0], (rows.first[1:] + K * np.arange(columns)[:, None]).reshape(-1)]).astype(np.int64),
        np.tile(rows.present, columns),
    )


def column_rows(rows: Rows, layout: Layout, columns: int) -> Rows:
    """The same rows for every class."""
    return Rows(
        layout.all_start,
        layout.all_statistic,
        rows.value[layout.source],
        np.tile(rows.offset, columns),
        layout.present,
        layout.all_first,
        np.tile(rows.family, columns),
    )


def missed_by(values: np.ndarray, cell: np.ndarray, weights: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Sums of outputs (n, d) by cell and class, and (F,) by how much each family of rows may be missed, at most.

    cell, weights: (n,) of the samples; weights empty where all count alike. Rows are those of every class.
    """
    sums, error = np.empty(len(rows.start) - 1), np.empty(len(rows.start) - 1)
    missed, d = np.empty(rows.family.shape[1]), values.shape[1]
    if not len(weights):
        near_sums(values, cell, sums, error)
        shortfalls(rows, sums, error, missed)
        if (missed <= 0.0).all():
            return sums, missed
    exact_sums(values.reshape(-1), column_cells(cell, d), np.repeat(weights, d), sums, error)
    shortfalls(rows, sums, error, missed)
    return sums, missed


class ClassRows(NamedTuple):
    """Rows of every class, as the solver on the simplex takes them, and where they are among those they came from.

    Groups without a sample now, whose means stand still, are one statistic: means within t / 2 of a middle that is
    within t / 2 of all of these, so half way between the least and the greatest of them, but for what t leaves.
    """

    rows: tuple[np.ndarray, np.ndarray, np.ndarray]  # by cell of the samples
    offset: np.ndarray  # (K, d)
    family: np.ndarray  # (K,)
    half: np.ndarray  # (K, d)
    families: np.ndarray  # (F, d) places of the families
    low: np.ndarray  # (K, d) places of the statistics: where a mean stands still, of the least
    high: np.ndarray  # (K, d) and of the greatest


_PINNED = 1e-9  # half a tolerance, below which there is nothing left to choose


def by_class(rows: Rows, columns: int, blocks: int, moving: np.ndarray) -> ClassRows:
    """Rows that were stated for every class, in `blocks` that follow each other, brought together.

    moving: (G,) which cells have samples now.
    """
    K, F = len(rows.offset) // (blocks * columns), rows.family.shape[1] // (blocks * columns)
    block = np.arange(blocks)[:, None]
    place = (columns * K * block + np.arange(K)).reshape(-1, 1) + K * np.arange(columns)  # (blocks K, d)
    families = (columns * F * block + np.arange(F)).reshape(-1, 1) + F * np.arange(columns)
    width = np.diff(rows.start)
    first = np.repeat(np.arange(len(width)) % columns == 0, width)  # entries of the first class: all are alike
    of_entry = rows.statistic[first]
    of_entry = of_entry // (columns * K) * K + of_entry % (columns * K)
    here = np.zeros(blocks * K, dtype=bool)
    here[of_entry[np.repeat(moving[::columns], width[::columns])]] = True
    q, present = -rows.offset[place], rows.present[place[:, 0]]
    none = np.zeros((0, columns), dtype=np.int64)
    kept, family, used = [none[:, 0]], [none[:, 0]], [none]
    offset, half, low, high = [np.zeros((0, columns))], [np.zeros((0, columns))], [none], [none]
    for f, at in enumerate(families[:, 0].tolist()):
        begin = int(np.searchsorted(place[:, 0], rows.first[at]))
        members = np.arange(begin, begin + int(rows.first[at + 1] - rows.first[at]))
        moves, stands = members[present[members] & here[members]], members[present[members] & ~here[members]]
        if not len(moves) or len(moves) + len(stands) < 2:
            continue
        room = 0.5 * rows.upper[families[f]]
        kept.append(moves)
        offset.append(rows.offset[place[moves]])
        half.append(np.tile(room, (len(moves), 1)))
        low.append(place[moves])
        high.append(place[moves])
        if len(stands):
            least, most = stands[q[stands].argmin(axis=0)], stands[q[stands].argmax(axis=0)]
            each = np.arange(columns)
            bottom, top = q[least, each], q[most, each]
            left = np.maximum(room - 0.5 * (top - bottom), 0.0)
            offset.append(-0.5 * (top + bottom)[None])
            half.append(np.where(left < _PINNED, 0.0, left)[None])
            low.append(place[least, each][None])
            high.append(place[most, each][None])
            kept.append(np.array([-1]))
        family.append(np.full(len(moves) + (len(stands) > 0), len(used) - 1))
        used.append(families[f : f + 1])
    order = np.concatenate(kept)
    new = np.full(blocks * K, -1)
    new[order[order >= 0]] = np.flatnonzero(order >= 0)
    taken = new[of_entry] >= 0
    cell = np.repeat(np.arange(len(width) // columns), width[::columns])[taken]
    start = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=len(width) // columns))]).astype(np.int64)
    return ClassRows(
        (start, new[of_entry][taken].astype(np.int64), rows.value[first][taken]),
        np.concatenate(offset),
        np.concatenate(family),
        np.concatenate(half),
        np.concatenate(used),
        np.concatenate(low),
        np.concatenate(high),
    )


def class_problem(kind: Any, z: np.ndarray, cell: np.ndarray, weights: np.ndarray, rows: ClassRows) -> ClassProblem:
    """The problem of these points. kind: as simplex_passes.py has it; weights: (n,), or empty where all count alike."""
    total = float(weights.sum()) if len(weights) else float(len(z))
    start, statistic, value = rows.rows
    own = weights / total if len(weights) else weights
    return ClassProblem(
        kind, z, cell, own, 1.0 / total, (start, statistic, value * total), rows.offset, rows.family, rows.half
    )


def spread_multipliers(nu: np.ndarray, total: float, rows: ClassRows, size: int) -> np.ndarray:
    """(size,) multipliers of the statistics that `by_class` was given. total: weight of the points."""
    out = np.zeros(size)
    place = np.where(nu > 0.0, rows.high, rows.low)
    out[place.reshape(-1)] = total * nu.reshape(-1)
    return out
