"""The tally: all that an audit knows of the samples, whether they came as arrays or from a file.

Samples with the same labels (of every attribute, region and class that is looked at) form a *cell*; the outputs of a
cell are counted in *bins*. For every bin of every cell, an *entry*, sums are kept:

    sums["wwy"][e] = sum of w w y over the samples of entry e,

each letter a quantity: w weight, y output, t target, r = y - t, d decision (1 where y >= threshold, else 0), m 1 where
y is above the median of all outputs, else 0; of changes from raw outputs z, c = y - z, a = |c|, x 1 where c is not 0,
f 1 where the decision differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairlayer.constraints.plain_data import Label
from fairlayer.errors import InputError
from fairlayer.intervals import Range
from fairlayer.problem.exact_sums import exact_sums
from fairlayer.problem.families import GridColumn, Key
from fairlayer.problem.groups import Column

BINS = 200  # of the outputs; a multiple of the bins of histograms and calibration curves
CHANGE_BINS = 500  # to either side of no change, which has a bin of its own
CLASS: Key = ("class",)  # the column of targets that are 0 and 1
OUTPUT_SUMS = ("w", "ww", "wy", "wyy", "wwy", "wwyy", "d", "wd", "wwd")
MEDIAN_SUMS = ("m", "wm")
TARGET_SUMS = ("wt", "wtt", "wr", "wrr", "wwr", "wwrr")
CHANGE_SUMS = ("w", "wc", "wa", "wx", "wf")
MOST_GROUPS = 400  # of one attribute or one intersection that a constraint compares
MOST_CELLS = 10_000


@dataclass(frozen=True, eq=False)
class Entries:
    """E combinations of a cell and a bin, and the sums over the samples of each."""

    cell: np.ndarray  # (E,)
    bin: np.ndarray  # (E,)
    count: np.ndarray  # (E,)
    sums: dict[str, np.ndarray]  # (E,) each

    def total(self, what: str, of_entry: np.ndarray, size: int) -> np.ndarray:
        """Sums of entries that share a number; of samples where `what` is empty."""
        return add_up(self.count.astype(np.float64) if what == "" else self.sums[what], of_entry, size)


@dataclass(frozen=True, eq=False)
class Tally:
    """Cells, their labels, and the sums of their entries."""

    attributes: tuple[Key, ...]  # keys of the protected attributes in `columns`
    columns: Mapping[Key, Column]  # label of each cell in everything that is looked at; all columns have labels
    entries: Entries
    outputs: Range  # as observed
    residuals: Range | None
    reach: Range  # what the bins range over: outputs, raw outputs, and [0, 1] where all lie in it
    targets: str | None  # "binary", "numeric" or "classes"
    threshold: float | None  # outputs at it or above are decisions 1; None where there are no decisions
    raw: Entries | None = None  # raw outputs, in bins as the outputs are
    changes: Entries | None = None  # outputs less raw outputs, in bins ordered as they are; sums as of `CHANGE_SUMS`,
    # and the least and the greatest change of each entry as "lowest" and "highest"

    @property
    def samples(self) -> int:
        """How many there are."""
        return int(self.entries.count.sum())

    @property
    def cells(self) -> int:
        """How many there are, none of them empty."""
        return len(next(iter(self.columns.values())).values) if self.columns else 1

    def number(self, keys: Sequence[Key]) -> tuple[list[tuple[Label, ...]], np.ndarray]:
        """The combinations of labels in these columns that have samples, and which of them each cell belongs to."""
        if not keys:
            return [()], np.zeros(self.cells, dtype=np.int64)
        codes = np.stack([np.asarray(self.columns[key].values) for key in keys], axis=1)
        found, of_cell = np.unique(codes, axis=0, return_inverse=True)
        labels = [[self.columns[key].labels[v] for v in found[:, j]] for j, key in enumerate(keys)]  # type: ignore[index]
        return list(zip(*labels, strict=True)), of_cell.reshape(-1)

    def grid(self) -> dict[Key, GridColumn]:
        """The cells as constraints see them."""
        return {key: GridColumn(column.labels or (), np.asarray(column.values)) for key, column in self.columns.items()}


def decision_threshold(stated: float | None, targets: str | None, outputs: Range) -> float | None:
    """As stated; else 0.5 where outputs are probabilities of something, and None where they are amounts.

    Targets that are 0 and 1 say that they are probabilities, other numbers that they are not, whatever their range.
    """
    if stated is not None or targets == "numeric":
        return stated
    return 0.5 if targets == "binary" or (outputs.low >= 0.0 and outputs.high <= 1.0) else None


def reach_of(outputs: Range, raw: Range | None) -> Range:
    """What the bins range over."""
    low, high = min(outputs.low, (raw or outputs).low), max(outputs.high, (raw or outputs).high)
    return Range(0.0, 1.0) if low >= 0.0 and high <= 1.0 else Range(low, high)


def add_up(values: np.ndarray, index: np.ndarray, size: int) -> np.ndarray:
    """Sums of the values that share an index, each rounded once."""
    sums, error = np.zeros(size), np.zeros(size)
    exact_sums(np.ascontiguousarray(values, dtype=np.float64), index.astype(np.int32), np.empty(0), sums, error)
    return sums


def check_size(columns: Mapping[Key, Column]) -> None:
    """Refuse attributes that are no groups but numbers or names of individuals."""
    for key, column in columns.items():
        if key[0] == "group" and len(column.labels or ()) > MOST_GROUPS:
            raise InputError(
                f"groups[{column.name!r}] has {len(column.labels or ()):,} labels, more than {MOST_GROUPS}: it looks "
                "like a number or a name. Make groups of it, for instance age bands, or leave it out."
            )


def check_cells(size: int) -> None:
    """Refuse more combinations of labels than a report can be about."""
    if size > MOST_CELLS:
        raise InputError(
            f"The attributes have {size:,} combinations of labels, more than {MOST_CELLS:,}: pass fewer attributes, or "
            "coarser groups."
        )
