"""Where a stream lives. A store gives one transaction at a time: the state as it is, and a place for what follows.

A state is durable before `commit` returns; a transaction that ends in an exception leaves no trace. Several processes
may open the same stream, and each sees what the others have committed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol

from fairlayer.errors import FairlayerError
from fairlayer.stream.log import Entry, origin


def differences(stored: str, asked: str) -> str:
    """The settings in which two configurations differ."""
    there, here = json.loads(stored), json.loads(asked)
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    return "; ".join(f"{name} {json.dumps(there.get(name))}, not {json.dumps(here.get(name))}" for name in names)


@contextmanager
def readable(what: str, kind: type[FairlayerError], remedy: str) -> Iterator[None]:
    """Anything that goes wrong with data of the wrong form, in one sentence."""
    try:
        yield
    except (struct.error, ValueError, LookupError, TypeError, AttributeError) as error:
        raise kind(f"{what} cannot be read ({type(error).__name__}: {error}): {remedy}") from error


class Stored(NamedTuple):
    """The state of a stream after `number` entries, the last of which has `hash`."""

    block: bytes | None  # None before the first entry
    number: int
    hash: str
    configuration: str


class Pending(NamedTuple):
    """A decision whose target has not arrived."""

    cell: int
    output: float
    raw: float


class Transaction(Protocol):
    """What can be done while no other process writes to the stream."""

    def head(self) -> tuple[int, str]:
        """Number and hash of the last entry."""

    def load(self) -> Stored:
        """The state."""

    def find(self, batch_id: str) -> Entry | None:
        """The entry of a batch, if it was processed before."""

    def take_pending(self, ids: list[str]) -> dict[str, Pending]:
        """Decisions that wait for their targets, removed from those that wait."""

    def add_pending(self, decisions: dict[str, Pending]) -> None:
        """Decisions to wait for their targets."""

    def pending(self) -> dict[str, Pending]:
        """Every decision that waits for its target."""

    def commit(self, block: bytes | None, entry: Entry) -> None:
        """Write the state and the entry that led to it. block: None where the store keeps no state."""


class Store(Protocol):
    """A home of one stream."""

    keeps_state: bool  # whether `commit` wants the state as a block
    place: str  # where it is, for messages: without passwords

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin; commit at the end, roll back on an exception."""

    def entries(self) -> Iterator[Entry]:
        """The log, from the first entry."""

    def close(self) -> None:
        """Let go of files and connections."""


class MemoryStore:
    """A stream that lives and dies with its process."""

    keeps_state = False
    place = "memory"

    def __init__(self, configuration: str) -> None:
        self.configuration = configuration
        self._log: list[Entry] = []
        self._by_batch: dict[str, Entry] = {}
        self._pending: dict[str, Pending] = {}

    @contextmanager
    def transaction(self) -> Iterator[MemoryStore]:
        """Nothing to begin: there is one writer."""
        yield self

    def head(self) -> tuple[int, str]:
        """Number and hash of the last entry."""
        return (self._log[-1].number, self._log[-1].hash) if self._log else (0, origin(self.configuration))

    def load(self) -> Stored:
        """The stream itself holds the state."""
        return Stored(None, *self.head(), self.configuration)

    def find(self, batch_id: str) -> Entry | None:
        """The entry of a batch."""
        return self._by_batch.get(batch_id)

    def take_pending(self, ids: list[str]) -> dict[str, Pending]:
        """Decisions that wait for their targets."""
        return {one: self._pending.pop(one) for one in ids if one in self._pending}

    def add_pending(self, decisions: dict[str, Pending]) -> None:
        """Decisions to wait for their targets."""
        self._pending.update(decisions)

    def pending(self) -> dict[str, Pending]:
        """Every decision that waits for its target."""
        return self._pending

    def commit(self, block: bytes | None, entry: Entry) -> None:
        """Append to the log."""
        self._log.append(entry)
        if entry.batch_id is not None:
            self._by_batch[entry.batch_id] = entry

    def entries(self) -> Iterator[Entry]:
        """The log."""
        return iter(self._log)

    def close(self) -> None:
        """Nothing to let go of."""

    def to_data(self) -> dict[str, Any]:
        """Plain data, for `load_data` of another."""
        return {"log": [tuple(e) for e in self._log], "pending": {k: tuple(p) for k, p in self._pending.items()}}

    def load_data(self, data: dict[str, Any]) -> None:
        """What `to_data` gave."""
        log = [Entry(*entry) for entry in data["log"]]
        pending = {key: Pending(*one) for key, one in data["pending"].items()}
        self._log, self._pending = log, pending
        self._by_batch = {entry.batch_id: entry for entry in log if entry.batch_id is not None}
