"""A process group of torch.distributed, as the layer uses it: sums of whole numbers over all ranks, and little else.

Whole numbers add up to the same in any order, so every rank gets the same sums, to the bit, and goes on by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
import torch.distributed as dist

from fairlayer.binding.shared_labels import SharedLabels
from fairlayer.errors import InputError, RankError

ProcessGroup = Any  # torch.distributed.ProcessGroup, which builds of torch without it do not have
Group = Literal["default"] | ProcessGroup | None
# Ranks up to which everyone sends all others its words and adds them up by itself: these few kilobytes arrive in one
# hop, where an all-reduce takes two for each rank.
FEW = 8


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
        self.labels = SharedLabels()

    @property
    def group(self) -> ProcessGroup:
        """The group itself."""
        return self._group()

    @property
    def few(self) -> bool:
        """Whether everyone sends its words to everyone."""
        return self.size <= FEW

    def parts(self, words: np.ndarray) -> np.ndarray:
        """Arrays that add up to the sums over all ranks of an int64 array, which must have the same size on each.

        One of every rank, in their order, where ranks are few; otherwise their sum.
        """
        if self.size == 1:
            return words[None]
        tensor = torch.from_numpy(words).to(self.device)
        if self.few:
            to_each = tensor.expand(self.size, *tensor.shape).contiguous()
            parts = torch.empty_like(to_each)
            # What `all_to_all_single` calls, without its checks and records, which take as long as the exchange.
            self._ask(lambda: self.group.alltoall_base(parts, to_each, [], []).wait())
        else:
            parts = tensor[None]
            self._ask(lambda: dist.all_reduce(parts, group=self.group))
        return parts.cpu().numpy()

    def total(self, words: np.ndarray) -> np.ndarray:
        """Sums over all ranks."""
        return self.parts(words).sum(axis=0)

    def from_each(self, mine: Any) -> list[Any]:
        """An object of every rank."""
        found: list[Any] = [None] * self.size
        self._ask(lambda: dist.all_gather_object(found, mine, group=self.group))
        return found

    def from_first(self, mine: Any) -> Any:
        """The object of the first rank; what the others pass is not looked at."""
        found = [mine]
        first = dist.get_global_rank(self.group, 0)
        self._ask(lambda: dist.broadcast_object_list(found, first, group=self.group))
        return found[0]

    def _ask(self, collective: Callable[[], Any]) -> None:
        try:
            collective()
        except RuntimeError as error:
            raise RankError(
                f"Rank {self.rank} of {self.size} lost the others: one of them failed, hangs, or calls the layer "
                f"another number of times ({error}). See what the other ranks say, and start all of them again."
            ) from error


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
