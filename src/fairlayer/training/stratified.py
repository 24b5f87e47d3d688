"""Batches in which every group has the same share.

Constraints that hold in every batch hold for all samples together if groups have the same shares in all batches
(`aggregate.py` says how nearly). So samples are sorted by cell (a combination of labels of all attributes), shuffled
within it, and dealt to the batches like cards: every batch gets the same number of each cell, give or take one, and all
batches the same size, give or take one. Nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch.utils.data import Sampler

from fairlayer.arrays import as_numpy
from fairlayer.binding.groups import Column, SoftGroup, code_groups
from fairlayer.errors import InputError

Tiny = Literal["spread", "repeat"]


@dataclass(frozen=True)
class CellReport:
    """One combination of labels."""

    name: str
    rows: int  # samples in the data
    least: int  # in any batch
    most: int
    repeated: int  # further occurrences of its samples in an epoch


@dataclass(frozen=True)
class StratifiedReport:
    """What `StratifiedBatches` does with the data; `str()` is readable."""

    rows: int
    batches: int  # over all ranks
    smallest: int  # batch
    largest: int
    cells: tuple[CellReport, ...]

    @property
    def repeated(self) -> int:
        """Occurrences of samples beyond their first, in an epoch."""
        return sum(cell.repeated for cell in self.cells)

    @property
    def missing(self) -> tuple[str, ...]:
        """Cells that some batches lack."""
        return tuple(cell.name for cell in self.cells if cell.least == 0)

    def __str__(self) -> str:
        size = f"{self.smallest}" if self.smallest == self.largest else f"{self.smallest} or {self.largest}"
        lines = [f"{self.rows} samples in {self.batches} batches of {size}; none dropped, {self.repeated} repeated."]
        for cell in self.cells:
            count = f"{cell.least}" if cell.least == cell.most else f"{cell.least} or {cell.most}"
            note = f", {cell.repeated} of them repeated" if cell.repeated else ""
            note += ", so some batches lack it" if cell.least == 0 else ""
            lines.append(f"  {cell.name}: {cell.rows} samples, {count} in each batch{note}")
        return "\n".join(lines)


class StratifiedBatches(Sampler[np.ndarray]):
    """A batch sampler: positions of samples, batch by batch, with the same number of every cell in each.

    groups: attributes in any form that `project` takes (add the target as one more to balance it too). batch_size: at
    most, on one rank. tiny: what to do about cells with fewer samples than there are batches: "spread" them over as
    many batches as they fill, or "repeat" samples so that no batch lacks them. With world_size > 1 every rank gets its
    own batches, as many as the others, of the same deal.

    Give it to a DataLoader as `batch_sampler=`. Call `set_epoch` to repeat or skip a reshuffling; each pass moves on by
    one by itself.
    """

    def __init__(
        self,
        groups: Any,
        batch_size: int,
        *,
        shuffle: bool = True,
        tiny: Tiny = "spread",
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ):
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1; got {batch_size}.")
        if tiny not in ("spread", "repeat"):
            raise InputError(f"tiny must be 'spread' or 'repeat'; got {tiny!r}.")
        if not 0 <= rank < world_size:
            raise InputError(f"rank must be from 0 to world_size - 1; got {rank} of {world_size}.")
        self._cells, self._names = _cells(groups)
        rows = sum(map(len, self._cells))
        self.steps = -(-rows // (batch_size * world_size))
        self.batches = self.steps * world_size
        if rows < self.batches:
            raise InputError(f"There are {rows} samples for {world_size} ranks: use fewer ranks.")
        self.shuffle = shuffle
        self.tiny = tiny
        self.seed = seed
        self.rank = rank
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Which shuffle comes next."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[np.ndarray]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        world_size = self.batches // self.steps
        yield from self._deal(epoch)[self.rank :: world_size]

    def _deal(self, epoch: int) -> list[np.ndarray]:
        """All batches of an epoch, over all ranks."""
        random = np.random.default_rng((self.seed, epoch)) if self.shuffle else None
        stacks = []
        for cell in self._cells:
            stack = cell if random is None else random.permutation(cell)
            if self.tiny == "repeat" and len(stack) < self.batches:
                stack = np.resize(stack, self.batches)  # over and over
            stacks.append(stack)
        deck = np.concatenate(stacks)
        if random is None:
            return [deck[b :: self.batches] for b in range(self.batches)]
        # Which batches get the odd sample of a cell depends on where dealing starts.
        start = int(random.integers(self.batches))
        hands = [deck[(b - start) % self.batches :: self.batches] for b in range(self.batches)]
        return [random.permutation(hands[b]) for b in random.permutation(self.batches)]

    def report(self) -> StratifiedReport:
        """What becomes of every cell."""
        cells = []
        total = 0
        for name, cell in zip(self._names, self._cells, strict=True):
            dealt = max(len(cell), self.batches) if self.tiny == "repeat" else len(cell)
            total += dealt
            least, rest = divmod(dealt, self.batches)
            cells.append(CellReport(name, len(cell), least, least + bool(rest), dealt - len(cell)))
        smallest, rest = divmod(total, self.batches)
        rows = sum(map(len, self._cells))
        return StratifiedReport(rows, self.batches, smallest, smallest + bool(rest), tuple(cells))


def _cells(groups: Any) -> tuple[list[np.ndarray], list[str]]:
    """Positions of the samples of every combination of labels that occurs, and its name."""
    columns = [hard_column(column) for column in code_groups(groups).attributes.values()]
    table = np.stack([as_numpy(column.values) for column in columns], axis=1)
    combos, code = np.unique(table, axis=0, return_inverse=True)
    order = np.argsort(code.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(code.reshape(-1), minlength=len(combos)))
    names = [
        " & ".join(f"{column.name}={label_of(column, value)}" for column, value in zip(columns, combo, strict=True))
        for combo in combos.tolist()
    ]
    return np.split(order, ends[:-1]), names


def hard_column(column: Column | SoftGroup) -> Column:
    """A column of labels; soft groups have none."""
    if isinstance(column, SoftGroup):
        raise InputError("Soft groups have no cells to balance: give labels, or shuffle without stratifying.")
    return column


def label_of(column: Column, value: int) -> Any:
    """What an integer of a column stands for."""
    return value if column.labels is None else column.labels[value]
