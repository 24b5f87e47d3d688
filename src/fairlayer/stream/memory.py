"""A stream that lives and dies with its process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fairlayer.stream.log import Entry, origin
from fairlayer.stream.store import Head, Pending, Stored


class MemoryStore:
    """A log, and the decisions that wait; the stream itself holds the state."""

    keeps_state = False
    place = "memory"

    def __init__(self, name: str, configuration: str) -> None:
        self.name = name
        self.configuration = configuration
        self._log: list[Entry] = []
        self._by_batch: dict[str, Entry] = {}
        self._pending: dict[str, Pending] = {}

    @contextmanager
    def transaction(
        self, current: str | None = None, batch_ids: Sequence[str] = (), as_found: bool = False
    ) -> Iterator[MemoryStore]:
        """Nothing to begin: there is one writer."""
        yield self

    def head(self) -> Head:
        """Number and hash of the last entry."""
        return (self._log[-1].number, self._log[-1].hash) if self._log else (0, origin(self.name, self.configuration))

    def seen(self) -> Head | None:
        """Nothing lasts."""
        return None

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
