"""What a batch is, and loaders that make batches of a table, in any order or with equal shares of every group.

A batch has whatever is needed to train on it: input, targets, protected attributes, features that constraints condition
on, and weights. `fit` and `evaluate` take any iterable of batches: a `Batch`, a tuple in that order, or a mapping with
those names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from fairlayer.arrays import as_numpy
from fairlayer.errors import InputError
from fairlayer.frames import frame_columns, is_frame, is_pandas
from fairlayer.problem.groups import CodedGroups, SoftGroup, code_groups

Tiny = Literal["spread", "repeat"]


class Batch(NamedTuple):
    """Samples that are processed together; all but the input may be None."""

    x: Any
    targets: Any = None
    groups: Any = None
    features: Any = None
    weights: Any = None

    def rows(self, index: Any) -> Batch:
        """The samples at `index`, a slice or an array of integers."""
        return Batch(*(take(part, index) for part in self))


def as_batch(item: Any) -> Batch:
    """A batch from a `Batch`, a tuple in its order, or a mapping with its names ("y" is read as "targets")."""
    if isinstance(item, Batch):
        return item
    if isinstance(item, Mapping):
        named = {"targets" if name == "y" else name: value for name, value in item.items()}
        if "x" not in named or not set(named) <= set(Batch._fields):
            raise InputError(f"A batch has keys {list(item)}: give 'x' and any of {list(Batch._fields[1:])}.")
        return Batch(**named)
    if isinstance(item, tuple | list) and 1 <= len(item) <= len(Batch._fields):
        return Batch(*item)
    raise InputError(
        f"A batch is a {type(item).__name__}: yield a Batch, a tuple {Batch._fields}, or a mapping with these names."
    )


def take(values: Any, index: Any) -> Any:
    """The samples at `index`, a slice or an array of integers, of a column or a collection of columns."""
    if values is None:
        return None
    if isinstance(values, Mapping):
        return {name: take(column, index) for name, column in values.items()}
    if hasattr(values, "iloc"):
        return values.iloc[index]
    if is_frame(values):
        return take(frame_columns(values), index)
    if isinstance(values, list | tuple):
        return values[index] if isinstance(index, slice) else [values[i] for i in index]
    if isinstance(values, Tensor) and not isinstance(index, slice):
        return values[torch.as_tensor(index)]
    return values[index]


def join(parts: Sequence[Any]) -> Any:
    """Columns of several batches as those of one."""
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return torch.cat(list(parts))
    if isinstance(first, CodedGroups):
        return CodedGroups.joined(parts)
    if isinstance(first, SoftGroup):
        return SoftGroup(np.concatenate([part.probabilities for part in parts]), first.labels)
    if isinstance(first, Mapping) or is_frame(first):
        columns = [frame_columns(part) for part in parts]
        return {name: join([part[name] for part in columns]) for name in columns[0]}
    return np.concatenate([np.asarray(part) for part in parts])


def move(values: Any, device: torch.device | None) -> Any:
    """Tensors, alone or in collections, on a device; anything else as it is."""
    if device is None:
        return values
    if isinstance(values, Tensor):
        return values.to(device, non_blocking=True)
    if isinstance(values, Mapping):
        return {name: move(value, device) for name, value in values.items()}
    if isinstance(values, tuple | list):
        moved = [move(value, device) for value in values]
        return type(values)(*moved) if hasattr(values, "_fields") else type(values)(moved)
    return values


class _EpochBatches(Sampler[Any]):
    """Positions of samples, batch by batch, in an order that is made of the seed and the epoch."""

    def __init__(self, shuffle: bool, seed: int):
        self.shuffle, self.seed, self.epoch = shuffle, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Which order comes next; each pass moves on by one."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        return iter(self._deal(np.random.default_rng((self.seed, epoch)) if self.shuffle else None))

    def _deal(self, random: np.random.Generator | None) -> list[Any]:
        raise NotImplementedError


class PlainBatches(_EpochBatches):
    """Consecutive samples of an order; the last batch may be smaller."""

    def __init__(self, n: int, batch_size: int, shuffle: bool = False, seed: int = 0):
        super().__init__(shuffle, seed)
        self.n, self.batch_size = n, batch_size

    def __len__(self) -> int:
        return -(-self.n // self.batch_size)

    def _deal(self, random: np.random.Generator | None) -> list[Any]:
        rows = [slice(start, start + self.batch_size) for start in range(0, self.n, self.batch_size)]
        if random is None:
            return rows
        order = random.permutation(self.n)
        return [order[part] for part in rows]


class StratifiedBatches(_EpochBatches):
    """A batch sampler: positions of samples, batch by batch, with the same number of every cell in each.

    Constraints that hold in every batch hold for all samples together if groups have the same shares in all batches
    (Lemma 3.1 of the paper bounds the difference). So samples are sorted by cell (a combination of labels of all
    attributes), shuffled within it, and dealt to the batches like cards: every batch gets the same number of each cell,
    give or take one, and all batches the same size, give or take one. Nothing is left out.

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
        super().__init__(shuffle, seed)
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1; got {batch_size}.")
        if tiny not in ("spread", "repeat"):
            raise InputError(f"tiny must be 'spread' or 'repeat'; got {tiny!r}.")
        if not 0 <= rank < world_size:
            raise InputError(f"rank must be from 0 to world_size - 1; got {rank} of {world_size}.")
        self.cells = _cells(groups)
        self.samples = sum(len(cell) for _, cell in self.cells)
        self.steps = -(-self.samples // (batch_size * world_size))
        self.batches = self.steps * world_size  # over all ranks
        if self.samples < self.batches:
            raise InputError(f"There are {self.samples} samples for {world_size} ranks: use fewer ranks.")
        self.tiny, self.rank = tiny, rank

    def __len__(self) -> int:
        return self.steps

    def _deal(self, random: np.random.Generator | None) -> list[np.ndarray]:
        stacks = [cell if random is None else random.permutation(cell) for _, cell in self.cells]
        deck = np.concatenate([np.resize(stack, self._dealt(stack)) for stack in stacks])  # repeats one too small
        hands = [deck[b :: self.batches] for b in range(self.batches)]
        if random is not None:
            # Which batches get the odd sample of a cell depends on where dealing starts.
            start = int(random.integers(self.batches))
            hands = [random.permutation(hands[(b - start) % self.batches]) for b in random.permutation(self.batches)]
        return hands[self.rank :: self.batches // self.steps]

    def _dealt(self, cell: np.ndarray) -> int:
        """How many samples of a cell an epoch has, repeated ones counted."""
        return max(len(cell), self.batches) if self.tiny == "repeat" else len(cell)

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
    columns: list[Any] = list(code_groups(groups).attributes.values())
    if any(isinstance(column, SoftGroup) for column in columns):
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


class Loader:
    """Batches of a table in memory, in the order of a sampler."""

    def __init__(self, table: Batch, batch_sampler: PlainBatches | StratifiedBatches):
        self.table, self.batch_sampler = table, batch_sampler

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Batch]:
        return (self.table.rows(rows) for rows in self.batch_sampler)


def batches(
    x: Any,
    targets: Any = None,
    groups: Any = None,
    features: Any = None,
    weights: Any = None,
    *,
    batch_size: int | None = None,
    shuffle: bool = False,
    stratify: bool = False,
    tiny: Tiny = "spread",
    seed: int = 0,
) -> Loader:
    """A loader of batches, in which every sample occurs.

    x: a tensor, array, numeric frame, mapping of these, or a list. groups: protected attributes in any form that
    `project` takes. Arrays of numbers become tensors of torch's default dtype; tensors stay as they are.
    batch_size: None for all samples at once. shuffle: another order in every epoch. stratify: `StratifiedBatches` over
    all attributes, whose remaining arguments are `tiny` and `seed`.
    """
    inputs = _numbers(x)
    n = len(next(iter(inputs.values())) if isinstance(inputs, Mapping) else inputs)
    table = Batch(inputs, _numbers(targets), _coded(groups), features, _numbers(weights))
    for name, part in zip(Batch._fields, table, strict=True):
        for column in part.values() if isinstance(part, Mapping) else [part]:
            if column is not None and len(column) != n:
                raise InputError(f"{name} has {len(column)} entries for {n} samples of x: pass one per sample.")
    if n == 0:
        raise InputError("x is empty: there is nothing to make batches of.")
    size = n if batch_size is None else batch_size
    if size < 1:
        raise InputError(f"batch_size must be at least 1, or None for all samples at once; got {batch_size}.")
    if not stratify:
        return Loader(table, PlainBatches(n, size, shuffle, seed))
    if groups is None:
        raise InputError("groups is missing: stratify=True needs the attributes to balance.")
    return Loader(table, StratifiedBatches(table.groups, size, shuffle=shuffle, tiny=tiny, seed=seed))


def _numbers(values: Any) -> Any:
    """Arrays and frames of numbers as tensors; anything else as it is."""
    if isinstance(values, Mapping):
        return {name: _numbers(column) for name, column in values.items()}
    if is_frame(values) and not is_pandas(values):
        values = np.column_stack(list(frame_columns(values).values()))
    elif hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if not isinstance(values, np.ndarray):
        return values
    if values.dtype.kind not in "biuf":
        raise InputError(f"An array of {values.dtype} cannot go into a network: encode it as numbers first.")
    return torch.tensor(values, dtype=torch.get_default_dtype())


def _coded(groups: Any) -> Any:
    """Labels as integers, once for all batches. Tables of integers are tensors."""
    if isinstance(groups, np.ndarray) and groups.ndim == 2 and groups.dtype.kind in "iu":
        return torch.from_numpy(groups.astype(np.int64))
    return groups if groups is None or isinstance(groups, Tensor) else code_groups(groups)
