"""A stream in a database: one transaction per batch, durable before it returns.

A stream is a row that holds its state; whoever writes locks it first (SQLite: the database; PostgreSQL: the row), so
several processes share one ledger and the promise holds for all of them together.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fairlayer.errors import StoreError, UncertainError
from fairlayer.stream.database import Database
from fairlayer.stream.log import Entry, origin
from fairlayer.stream.postgresql import PostgresDatabase
from fairlayer.stream.sqlite import SqliteDatabase
from fairlayer.stream.store import Pending, Stored, differences, readable

_PAUSE = 0.1  # seconds between two attempts to reach a database again


def open_database(location: str, timeout: float, read_only: bool = False) -> Database:
    """The database at a path or URL, not yet connected."""
    if location in ("", ":memory:"):
        raise StoreError(f"store {location!r} would not outlive its connection: pass a path, or None for memory.")
    if location.startswith(("postgresql://", "postgres://")):
        return PostgresDatabase(location, timeout, read_only)
    if "://" in location:
        scheme = location.split("://")[0]
        raise StoreError(f"store {scheme}:// is not known: pass a file's path for SQLite, or a postgresql:// URL.")
    return SqliteDatabase(location, timeout, read_only)


def stored_streams(location: str, timeout: float = 10.0) -> tuple[str, dict[str, str]]:
    """The place of a database as messages may show it, and the configuration of each stream in it, by name."""
    database = open_database(location, timeout, read_only=True)
    try:
        return database.place, database.streams()
    finally:
        database.close()


def stream_names(store: str | os.PathLike[str], timeout: float = 10.0) -> list[str]:
    """The names of all streams in a store: the path of a SQLite file, or a postgresql:// URL."""
    return list(stored_streams(str(store), timeout)[1])


class SqlStore:
    """The stream `name` in a database, with this configuration; made if it is new, unless it is only to be read."""

    keeps_state = True

    def __init__(self, database: Database, name: str, configuration: str):
        self.database = database
        self.name = name
        self.configuration = configuration
        self._written: Entry | None = None  # the last entry of the transaction
        with database.explained():
            self._open()

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return self.database.place

    def _open(self) -> None:
        self.database.open()
        with self.database.whole():
            if not self.database.read_only:
                self._execute(
                    "INSERT INTO fairlayer_streams (name, configuration, state, number, hash) "
                    "VALUES (?, ?, NULL, 0, ?) ON CONFLICT (name) DO NOTHING",
                    self.name, self.configuration, origin(self.name, self.configuration),
                )  # fmt: skip
            row = self._execute("SELECT configuration FROM fairlayer_streams WHERE name = ?", self.name).fetchone()
            what = f"the settings of stream {self.name!r} in {self.place!r}"
            with readable(what, StoreError, "they were damaged; restore a copy."):
                different = differences(row[0], self.configuration)
            if different:
                raise StoreError(
                    f"stream {self.name!r} in {self.place!r} was made with other settings: {different}. "
                    "Use the same, or another name."
                )
            self.configuration = row[0]  # as it is stored, on which the log rests

    def _execute(self, statement: str, *parameters: Any) -> Any:
        return self.database.execute(statement, *parameters)

    @contextmanager
    def transaction(self) -> Iterator[SqlStore]:
        """Begin and lock; commit at the end, roll back on an exception."""
        database = self.database
        self._written = None
        with database.explained():
            if not database.is_open:
                self._open()
            database.begin()
            try:
                database.lock(self.name)
                yield self
                database.check()
            except BaseException:
                database.roll_back()
                raise
        try:
            database.commit()
        except BaseException as error:
            database.close()
            if not isinstance(error, database.errors):
                raise
            if self._written is not None:  # what was only read is as good as it was
                self._find_out(self._written, error)

    def _find_out(self, entry: Entry, error: Exception) -> None:
        """COMMIT ended in an error, which may be that its reply was lost: return if the entry is in the log."""
        deadline = time.monotonic() + self.database.timeout
        while True:
            try:
                self._open()
                with self.database.whole():
                    self.database.lock(self.name)  # an earlier connection that is still at it holds the lock
                    found = self.holds(entry.number, entry.hash)
            except (StoreError, self.database.errors) as unreachable:
                self.database.close()
                if time.monotonic() < deadline and not isinstance(unreachable, StoreError):
                    time.sleep(_PAUSE)
                    continue
                raise self._uncertain(entry, error) from error
            if found:
                return
            raise self.database.explain(error) from error

    def _uncertain(self, entry: Entry, error: Exception) -> UncertainError:
        """What a user is told where nobody can be asked."""
        remedy = (
            f"Send it again with the same batch_id, {entry.batch_id!r}: it counts once."
            if entry.batch_id is not None
            else f"Before you send it again, ask `stream.verify(hash={entry.hash!r})` whether it is in the log."
        )
        return UncertainError(
            f"store {self.place!r}: {str(error).strip()}; the connection was lost while the batch was being committed, "
            f"and the store cannot be reached now. It is unknown whether the batch was counted. {remedy}"
        )

    def head(self) -> tuple[int, str]:
        """Number and hash of the last entry."""
        row = self._execute("SELECT number, hash FROM fairlayer_streams WHERE name = ?", self.name).fetchone()
        if row is None:
            raise StoreError(
                f"stream {self.name!r} is no longer in {self.place!r}: create it again, or restore a copy."
            )
        return row

    def holds(self, number: int, hash: str) -> bool:  # noqa: A002
        """Whether the log has this entry; with number 0, whether it begins like this."""
        if number == 0:
            return hash == origin(self.name, self.configuration)
        statement = "SELECT hash FROM fairlayer_log WHERE stream = ? AND number = ?"
        return self._execute(statement, self.name, number).fetchone() == (hash,)

    def load(self) -> Stored:
        """The state."""
        block, *rest = self._execute(
            "SELECT state, number, hash, configuration FROM fairlayer_streams WHERE name = ?", self.name
        ).fetchone()
        return Stored(self.name, bytes(block) if block is not None else None, *rest)

    def find(self, batch_id: str) -> Entry | None:
        """The entry of a batch, if it was processed before."""
        rows = self._execute(
            "SELECT number, batch_id, payload, emitted, previous, hash FROM fairlayer_log "
            "WHERE stream = ? AND batch_id = ?", self.name, batch_id,
        )  # fmt: skip
        return next(map(_entry, rows), None)

    def take_pending(self, ids: list[str]) -> dict[str, Pending]:
        """Decisions that wait for their targets, removed from those that wait."""
        taken = {}
        for one in ids:
            key = (self.name, one)
            row = self._execute("SELECT cell, output, raw FROM fairlayer_pending WHERE stream = ? AND id = ?", *key)
            found = row.fetchone()
            if found is not None:
                taken[one] = Pending(*found)
                self._execute("DELETE FROM fairlayer_pending WHERE stream = ? AND id = ?", *key)
        return taken

    def add_pending(self, decisions: dict[str, Pending]) -> None:
        """Decisions to wait for their targets."""
        for one, pending in decisions.items():
            self._execute(
                "INSERT INTO fairlayer_pending (stream, id, cell, output, raw) VALUES (?, ?, ?, ?, ?)",
                self.name, one, *pending,
            )  # fmt: skip

    def pending(self) -> dict[str, Pending]:
        """Every decision that waits for its target."""
        rows = self._execute("SELECT id, cell, output, raw FROM fairlayer_pending WHERE stream = ?", self.name)
        return {one: Pending(*decision) for one, *decision in rows}

    def commit(self, block: bytes | None, entry: Entry) -> None:
        """Write the state and the entry that led to it."""
        self._execute(
            "INSERT INTO fairlayer_log (stream, number, batch_id, payload, emitted, previous, hash) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)", self.name, *entry,
        )  # fmt: skip
        self._execute(
            "UPDATE fairlayer_streams SET state = ?, number = ?, hash = ? WHERE name = ?",
            block, entry.number, entry.hash, self.name,
        )  # fmt: skip
        self._written = entry

    def entries(self) -> Iterator[Entry]:
        """The log, from the first entry."""
        rows = self._execute(
            "SELECT number, batch_id, payload, emitted, previous, hash FROM fairlayer_log WHERE stream = ? "
            "ORDER BY number", self.name,
        )  # fmt: skip
        return map(_entry, rows)

    def close(self) -> None:
        """Let go of the connection."""
        self.database.close()


def _entry(row: Any) -> Entry:
    return Entry(row[0], row[1], row[2], bytes(row[3]) if row[3] is not None else None, row[4], row[5])
