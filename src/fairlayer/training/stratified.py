"""Batches in which every group has the same share.

Constraints that hold in every batch hold for all samples together if groups have the same shares in all batches (Lemma
3.1 of the paper bounds the difference). So samples are sorted by cell (a combination of labels of all attributes),
shuffled within it, and dealt to the batches like cards: every batch gets the same number of each cell, give or take
one, and all batches the same size, give or take one. Nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from torch.utils.data import Sampler

from fairlayer.arrays import as_numpy
from fairlayer.errors import InputError
from fairlayer.problem.groups import SoftGroup, code_groups

Tiny = Literal["spread", "repeat"]


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
        self.cells = _cells(groups)
        self.samples = sum(len(cell) for _, cell in self.cells)
        self.steps = -(-self.samples // (batch_size * world_size))
        self.batches = self.steps * world_size
        if self.samples < self.batches:
            raise InputError(f"There are {self.samples} samples for {world_size} ranks: use fewer ranks.")
        self.shuffle, self.tiny, self.seed, self.rank = shuffle, tiny, seed, rank
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Which shuffle comes next."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[np.ndarray]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        yield from self._deal(epoch)[self.rank :: self.batches // self.steps]

    def _deal(self, epoch: int) -> list[np.ndarray]:
        """All batches of an epoch, over all ranks."""
        random = np.random.default_rng((self.seed, epoch)) if self.shuffle else None
        stacks = []
        for _, cell in self.cells:
            stack = cell if random is None else random.permutation(cell)
            stacks.append(np.resize(stack, self._dealt(cell)))  # over and over, where the cell is too small
        deck = np.concatenate(stacks)
        if random is None:
            return [deck[b :: self.batches] for b in range(self.batches)]
        # Which batches get the odd sample of a cell depends on where dealing starts.
        start = int(random.integers(self.batches))
        hands = [deck[(b - start) % self.batches :: self.batches] for b in range(self.batches)]
        return [random.permutation(hands[b]) for b in random.permutation(self.batches)]

    def _dealt(self, cell: np.ndarray) -> int:
        """How many samples of a cell an epoch has, repeated ones counted."""
        return max(len(cell), self.batches) if self.tiny == "repeat" else len(cell)

    @property
    def missing(self) -> tuple[str, ...]:
        """Cells that some batches lack."""
        return tuple(name for name, cell in self.cells if self._dealt(cell) < self.batches)

    def report(self) -> str:
        """What becomes of every cell, in words."""
        total = sum(self._dealt(cell) for _, cell in self.cells)
        lines = [
            f"{self.samples} samples in {self.batches} batches of {self._each(total)}; none dropped, "
            f"{total - self.samples} repeated."
        ]
        for name, cell in self.cells:
            dealt = self._dealt(cell)
            note = f", {dealt - len(cell)} of them repeated" if dealt > len(cell) else ""
            note += ", so some batches lack it" if dealt < self.batches else ""
            lines.append(f"  {name}: {len(cell)} samples, {self._each(dealt)} in each batch{note}")
        return "\n".join(lines)

    def _each(self, count: int) -> str:
        least, rest = divmod(count, self.batches)
        return f"{least} or {least + 1}" if rest else f"{least}"


def _cells(groups: Any) -> list[tuple[str, np.ndarray]]:
    """Every combination of labels that occurs: its name, and the positions of its samples."""
    attributes = code_groups(groups).attributes.values()
    columns = [column for column in attributes if not isinstance(column, SoftGroup)]
    if len(columns) < len(attributes):
        raise InputError("Soft groups have no cells to balance: give labels, or shuffle without stratifying.")
    table = np.stack([as_numpy(column.values) for column in columns], axis=1)
    combinations, code = np.unique(table, axis=0, return_inverse=True)
    order = np.argsort(code.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(code.reshape(-1), minlength=len(combinations)))
    names = [
        " & ".join(
            f"{column.name}={value if column.labels is None else column.labels[value]}"
            for column, value in zip(columns, combination, strict=True)
        )
        for combination in combinations.tolist()
    ]
    return list(zip(names, np.split(order, ends[:-1]), strict=True))
