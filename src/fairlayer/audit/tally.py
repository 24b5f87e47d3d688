"""The tally: all that an audit knows of the samples, whether they came as arrays or from a file.

Samples with the same labels (of every attribute and region that is looked at) form a *cell*; the outputs of a cell are
counted in *bins*. For every bin of every cell, an *entry*, sums are kept:

    sums["wwy"][e] = sum of w w y over the samples of entry e, and sums[""][e] their number,

each letter a quantity: w weight, y output, t target, r = y - t, d decision (1 where y >= threshold, else 0), m 1 where
y is above the median of all outputs, else 0; of changes from raw outputs z, c = y - z, a = |c|, x 1 where c is not 0,
f 1 where the decision differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.constraints.plain_data import Label
from fairlayer.errors import InputError
from fairlayer.intervals import UNIT, Range
from fairlayer.problem.cells import assign_cells
from fairlayer.problem.exact_sums import exact_sums
from fairlayer.problem.families import GridColumn, Key
from fairlayer.problem.groups import Column

BINS = 40  # of the outputs, as histograms have them; a multiple of the bins of calibration curves
CHANGE_BINS = 500  # to either side of no change, which has a bin of its own
OUTPUT_SUMS = ("w", "ww", "wy", "wyy", "wwy", "wwyy", "d", "wd", "wwd", "m", "wm")
NUMERIC_SUMS = (*OUTPUT_SUMS, "wt", "wtt", "wr", "wrr", "wwr", "wwrr")
BINARY_SUMS = (*NUMERIC_SUMS, "t", "wwt", "dt", "wdt")
SUMS = {None: OUTPUT_SUMS, "classes": OUTPUT_SUMS, "numeric": NUMERIC_SUMS, "binary": BINARY_SUMS}  # by kind of targets
CHANGE_SUMS = ("w", "wc", "wa", "wx", "wf")
MOST_GROUPS = 400  # of one attribute, or of one intersection that a constraint compares
MOST_CELLS = 10_000


@dataclass(frozen=True, eq=False)
class Entries:
    """E combinations of a cell and a bin, and the sums over the samples of each."""

    cell: np.ndarray  # (E,)
    bin: np.ndarray  # (E,)
    sums: Mapping[str, np.ndarray]  # (E,) each

    def of_groups(self, of_cell: np.ndarray, size: int, bins: int = 1) -> GroupSums:
        """Sums over the cells of each of so many groups, each in so many bins, which are numbered from 0."""
        return GroupSums(self, of_cell[self.cell] * bins + (self.bin if bins > 1 else 0), size, bins)


class GroupSums(dict[str, np.ndarray]):
    """Sums of entries by group, (size,), or by group and bin, (size, bins): added up when they are asked for."""

    def __init__(self, entries: Entries, place: np.ndarray, size: int, bins: int):
        self.entries, self.place, self.size, self.bins = entries, place, size, bins

    def __missing__(self, what: str) -> np.ndarray:
        found = add_up(self.entries.sums[what], self.place, self.size * self.bins)
        self[what] = found if self.bins == 1 else found.reshape(self.size, self.bins)
        return self[what]

    def mean(self, what: str) -> np.ndarray:
        """By weight; 0 where there is none."""
        return self[f"w{what}"] / np.where(self["w"] > 0, self["w"], 1.0)


@dataclass(frozen=True, eq=False)
class Tally:
    """Cells, their labels, and the sums of their entries."""

    grid: Mapping[Key, GridColumn]  # label of each cell in everything that is looked at
    entries: Entries
    ranges: Mapping[str, Range]  # as observed, of y and, where there are such, z, t and r
    targets: str | None  # "binary", "numeric" or "classes"
    threshold: float | None  # outputs at it or above are decisions 1; None where there are no decisions
    raw: Entries | None = None  # raw outputs, in bins as the outputs are
    changes: Entries | None = None  # outputs less raw outputs, in bins ordered as they are; sums as of `CHANGE_SUMS`,
    # and the least and the greatest change of each entry as "lowest" and "highest"

    @property
    def attributes(self) -> tuple[Key, ...]:
        """The columns that are protected attributes."""
        return tuple(key for key in self.grid if key[0] == "group")

    @property
    def samples(self) -> int:
        """How many there are."""
        return int(self.entries.sums[""].sum())

    @property
    def cells(self) -> int:
        """How many there are, none of them empty."""
        return len(next(iter(self.grid.values())).digits) if self.grid else 1

    @property
    def reach(self) -> Range:
        """What the bins range over."""
        return reach_of(self.ranges)

    def number(self, keys: Sequence[Key]) -> tuple[list[tuple[Label, ...]], np.ndarray]:
        """The combinations of labels in these columns that have samples, and which of them each cell belongs to."""
        if not keys:
            return [()], np.zeros(self.cells, dtype=np.int64)
        found, of_cell = np.unique(np.stack([self.grid[key].digits for key in keys]), axis=1, return_inverse=True)
        labels = [[self.grid[key].labels[digit] for digit in own] for key, own in zip(keys, found, strict=True)]
        return list(zip(*labels, strict=True)), of_cell.reshape(-1)


def decision_threshold(stated: float | None, targets: str | None, outputs: Range) -> float | None:
    """As stated; else 0.5 where outputs are probabilities of something, and None where they are amounts.

    Targets that are 0 and 1 say that they are probabilities, other numbers that they are not, whatever their range.
    """
    if stated is not None or targets == "numeric":
        return stated
    return 0.5 if targets == "binary" or UNIT.holds(outputs) else None


def reach_of(ranges: Mapping[str, Range]) -> Range:
    """What bins range over: outputs, raw outputs, and [0, 1] where all lie in it."""
    known = [ranges[letter] for letter in ("y", "z") if letter in ranges]
    both = Range(min(known).low, max(known, key=lambda one: one.high).high)
    return UNIT if UNIT.holds(both) else both


def cells_of(columns: Mapping[Key, Column], n: int) -> tuple[dict[Key, GridColumn], np.ndarray]:
    """The cells that have samples, and the cell of each of n samples."""
    cells = assign_cells([Column(c.name, as_numpy(c.values), c.labels) for c in columns.values()], n)
    present = np.flatnonzero(cells.samples > 0)
    labels, digits = cells.levels.labels, cells.levels.digit_table()[present].T
    grid = {key: GridColumn(*column) for key, column in zip(columns, zip(labels, digits, strict=True), strict=True)}
    for key, column in grid.items():
        size = len(np.unique(column.digits))
        if key[0] == "group" and size > MOST_GROUPS:
            raise InputError(
                f"groups[{key[1]!r}] has {size:,} labels, more than {MOST_GROUPS}: it looks like a number or a name. "
                "Make groups of it, for instance age bands, or leave it out."
            )
    if len(present) > MOST_CELLS:
        raise InputError(
            f"The attributes have {len(present):,} combinations of labels, more than {MOST_CELLS:,}: pass fewer "
            "attributes, or coarser groups."
        )
    position = np.zeros(len(cells.samples), dtype=np.int64)
    position[present] = np.arange(len(present))
    return grid, position[np.asarray(cells.cell)]


def add_up(values: np.ndarray, index: np.ndarray, size: int) -> np.ndarray:
    """Sums of the values that share an index, each rounded once."""
    sums, error = np.zeros(size), np.zeros(size)
    exact_sums(np.ascontiguousarray(values, dtype=np.float64), index.astype(np.int32), np.empty(0), sums, error)
    return sums
