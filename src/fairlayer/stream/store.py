"""The store of a stream in memory, and what it has in common with that in a database (`SqlStore`).

A store gives one transaction at a time: the state as it is, and a place for what follows. What a transaction wrote or
read is durable when it has ended; one that ends in an exception leaves no trace.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from fairlayer.errors import FairlayerError, UncertainError
from fairlayer.stream.ledger import Pending
from fairlayer.stream.log import Entry, Stored, origin

Head = tuple[int, str]  # number and hash of an entry


@contextmanager
def readable(what: str, kind: type[FairlayerError], remedy: str) -> Iterator[None]:
    """Anything that goes wrong with data of the wrong form, in one sentence."""
    try:
        yield
    except (struct.error, ValueError, LookupError, TypeError, AttributeError) as error:
        raise kind(f"{what} cannot be read ({type(error).__name__}: {error}): {remedy}") from error


def unknown_outcome(place: str, reason: str, batch_id: str | None, hash: str) -> UncertainError:  # noqa: A002
    """What a user is told where it cannot be found out whether a batch was counted. hash: of its entry."""
    remedy = (
        f"Send it again with the same batch_id, {batch_id!r}: it counts once."
        if batch_id is not None
        else f"Before you send it again, ask `stream.verify(hash={hash!r})` whether it is in the log."
    )
    return UncertainError(
        f"store {place!r}: {reason}; the connection was lost while the batch was being committed, and the store cannot "
        f"be reached now, or is not what it was. It is unknown whether the batch was counted. {remedy}",
        reason,
    )


class MemoryStore:
    """The log of a stream that lives and dies with its process, which itself holds the state."""

    keeps_state = False
    place = "memory"
    seen = None  # nothing lasts

    def __init__(self, name: str, configuration: str) -> None:
        self.name = name
        self.configuration = configuration
        self._log: list[Entry] = []
        self._by_batch: dict[str, Entry] = {}
        self._pending: dict[str, Pending] = {}

    def transaction(
        self, current: str | None = None, batch_ids: Sequence[str] = (), as_found: bool = False
    ) -> AbstractContextManager[None]:
        """Nothing to begin: there is one writer."""
        return nullcontext()

    def head(self) -> Head:
        """Number and hash of the last entry."""
        return (self._log[-1].number, self._log[-1].hash) if self._log else (0, origin(self.name, self.configuration))

    def load(self) -> Stored:
        """Everything but the state."""
        return Stored(self.name, None, *self.head(), self.configuration)

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
        log, pending = [tuple(e) for e in self._log], {k: tuple(p) for k, p in self._pending.items()}
        return {"name": self.name, "configuration": self.configuration, "log": log, "pending": pending}

    def load_data(self, data: dict[str, Any]) -> None:
        """What `to_data` gave."""
        log = [Entry(*entry) for entry in data["log"]]
        pending = {key: Pending(*one) for key, one in data["pending"].items()}
        self._log, self._pending = log, pending
        self._by_batch = {entry.batch_id: entry for entry in log if entry.batch_id is not None}
