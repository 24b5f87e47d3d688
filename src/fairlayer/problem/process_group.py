"""A process group of torch.distributed, as the layer uses it: every rank sends all others what it has.

An exchange begins with a message of a size that all ranks know, which says what call it belongs to, so that ranks that
make different calls, or another number of them, find out instead of mixing what does not belong together. It has room
for what the last exchanges took, so that as a rule nothing follows it.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
import torch.distributed as dist

from fairlayer.errors import InputError, RankError

ProcessGroup = Any  # torch.distributed.ProcessGroup, which builds of torch without it do not have
Group = Literal["default"] | ProcessGroup | None
_LEAST_ROOM = 4096  # words
_HEADER = 5


@lru_cache
def digest_of(text: str) -> int:
    """A whole number of 63 bits, never 0, that two different texts hardly share."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1 | 1


class Message(NamedTuple):
    """What a rank says in an exchange."""

    kind: str  # of call: the same on all ranks
    words: np.ndarray  # (any number,) int64
    digest: int = 0  # of something that the others may know already
    failure: Exception | None = None  # why it cannot take part


class Ranks:
    """The ranks of a process group."""

    def __init__(self, group: ProcessGroup):
        self._group = ref(group)  # what is known of a group does not keep it beyond its end
        self.rank: int = dist.get_rank(group)
        self.size: int = dist.get_world_size(group)
        if self.rank < 0:
            raise InputError("process_group does not hold this rank: call the layer only on ranks that belong to it.")
        backend = dist.get_backend(group)
        on_host = "gloo" in backend or "mpi" in backend
        self.device = torch.device("cpu") if on_host else torch.accelerator.current_accelerator()
        self.known: dict[int, Any] = {}  # by digest, what every rank has been told
        self.calls = 0  # exchanges so far
        self._longest: deque[int] = deque(
            [_LEAST_ROOM], maxlen=4
        )  # messages of the last exchanges, the same everywhere

    @property
    def group(self) -> ProcessGroup:
        """The group itself."""
        group = self._group()
        if group is None:
            raise RankError("The process group of this batch is gone: call backward before it is destroyed.")
        return group

    def exchange(self, message: Message) -> tuple[list[np.ndarray], list[int]]:
        """The words of every rank, and their digests. Whatever goes wrong on one rank is an error on all."""
        self.calls += 1
        room = 1 << (max(self._longest) - 1).bit_length()
        first = np.zeros(_HEADER + room, dtype=np.int64)
        length = len(message.words)
        first[:_HEADER] = digest_of(message.kind), self.calls, message.digest, length, message.failure is not None
        if length <= room:
            first[_HEADER : _HEADER + length] = message.words
        everyone = self.gather(first)
        heads = everyone[:, :_HEADER]
        if heads[:, 4].any():
            raise self._failed(message.failure)
        if (heads[:, :2] != heads[0, :2]).any():
            raise self._out_of_step(self.from_each((message.kind, self.calls)))
        lengths = heads[:, 3].tolist()
        self._longest.append(max(*lengths, _LEAST_ROOM))
        everyone = everyone[:, _HEADER:]
        if max(lengths) > room:
            padded = np.zeros(max(lengths), dtype=np.int64)
            padded[:length] = message.words
            everyone = self.gather(padded)
        return [own[:taken] for own, taken in zip(everyone, lengths, strict=True)], heads[:, 2].tolist()

    def from_each(self, mine: Any) -> list[Any]:
        """An object of every rank."""
        found: list[Any] = [None] * self.size
        self._ask(lambda: dist.all_gather_object(found, mine, group=self.group))
        return found

    def gather(self, words: np.ndarray) -> np.ndarray:
        """(ranks, ...) the words of every rank, as many on each."""
        if self.size == 1:
            return words[None]
        tensor = torch.from_numpy(words).to(self.device)
        everyone = tensor.new_empty(self.size, len(tensor))
        self._ask(lambda: dist.all_gather([*everyone], tensor, group=self.group))
        return everyone.cpu().numpy()

    def _ask(self, collective: Callable[[], Any]) -> None:
        try:
            collective()
        except RuntimeError as error:
            raise RankError(
                f"Rank {self.rank} of {self.size} lost the others: one of them failed, hangs, or calls the layer "
                f"another number of times ({error}). See what the other ranks say, and start all of them again."
            ) from error

    def _failed(self, failure: Exception | None) -> Exception:
        """This rank's own error, or what another says of its."""
        said = self.from_each(None if failure is None else f"{type(failure).__name__}: {failure}")
        if failure is not None:
            return failure
        where, what = next((rank, text) for rank, text in enumerate(said) if text is not None)
        return RankError(f"Rank {where} cannot take part, and so no rank can. It says: {what}")

    def _out_of_step(self, calls: list[tuple[str, int]]) -> RankError:
        self.calls = max(number for _, number in calls)  # ranks that go on after this error are in step again
        told = "; ".join(f"rank {rank}: {what}, call {number}" for rank, (what, number) in enumerate(calls))
        return RankError(
            f"Ranks make different calls ({told}). Every rank must call the layer, and backward, equally often and in "
            "the same order, if need be with an empty batch."
        )


_KNOWN: WeakKeyDictionary[ProcessGroup, Ranks] = WeakKeyDictionary()


def find_ranks(group: Group) -> Ranks | None:
    """The ranks of a process group, or None for this process by itself."""
    if group is None:
        return None
    if isinstance(group, str) and group == "default":
        if not (dist.is_available() and dist.is_initialized()):
            if int(os.environ.get("WORLD_SIZE", "1")) > 1:
                raise InputError(
                    'process_group="default" was asked for before there is one: call '
                    "torch.distributed.init_process_group first."
                )
            return None  # a script that was started by itself, not by torchrun
        group = dist.group.WORLD
    if dist.is_available() and group == dist.GroupMember.NON_GROUP_MEMBER:
        raise InputError("process_group does not hold this rank: call the layer only on ranks that belong to it.")
    if not hasattr(group, "size"):
        raise InputError(f'process_group must be None, "default" or a ProcessGroup; got {group!r}.')
    ranks = _KNOWN.get(group)
    if ranks is None:
        ranks = _KNOWN[group] = Ranks(group)
    return ranks
