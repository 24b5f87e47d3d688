"""Where a stream is kept: in memory, or in a database, durable before a transaction returns.

A store gives one transaction at a time: the stream as it is, and a place for what follows. What a transaction wrote or
read is durable when it has ended; one that ends in an exception leaves no trace.

In a database a stream is a row that holds its state; a writer locks it first (SQLite: the database; PostgreSQL: the
row), so several processes share one ledger and the promise holds for all of them together. A store remembers the last
entry it knows to be durable. A database that no longer holds it is refused: it is an earlier copy, or a standby that
took over without the last commits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from fairlayer.errors import StoreError, UncertainError
from fairlayer.stream.database import Database, SqliteDatabase
from fairlayer.stream.ledger import Pending
from fairlayer.stream.log import Entry, Head, Stored, leaves_state, origin, readable
from fairlayer.stream.postgresql import PostgresDatabase
from fairlayer.stream.settings import differences

_PAUSE = 0.1  # seconds between two attempts to reach a database again
_ENTRIES = "SELECT number, batch_id, payload, emitted, previous, hash FROM fairlayer_log WHERE stream = ?"


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

    def transaction(self, *_: Any) -> AbstractContextManager[None]:
        """Nothing to begin: there is one writer."""
        return nullcontext()

    def head(self) -> Head:
        """Number and hash of the last entry."""
        return (self._log[-1].number, self._log[-1].hash) if self._log else (0, origin(self.name, self.configuration))

    def load(self) -> Stored:
        """Everything but the state."""
        return Stored(*self.head(), None, self.configuration)

    def find(self, batch_id: str) -> Entry | None:
        """The entry of a batch."""
        return self._by_batch.get(batch_id)

    def pending(self, ids: Sequence[str] | None = None) -> dict[str, Pending]:
        """Decisions that wait for their targets: those of some ids, or all."""
        return {one: self._pending[one] for one in (self._pending if ids is None else ids) if one in self._pending}

    def commit(
        self, block: bytes | None, entry: Entry, waiting: Mapping[str, Pending], observed: Mapping[str, Pending]
    ) -> None:
        """Append to the log. waiting, observed: decisions that begin or cease to wait for their targets."""
        self._log.append(entry)
        self._pending |= waiting
        for one in observed:
            del self._pending[one]
        if entry.batch_id is not None:
            self._by_batch[entry.batch_id] = entry

    def entries(self) -> Iterator[Entry]:
        """The log."""
        return iter(self._log)

    def close(self) -> None:
        """Nothing to let go of."""

    def snapshot(self) -> Any:
        """Everything, to go back to, or to give to another."""
        return list(self._log), dict(self._by_batch), dict(self._pending)

    def restore(self, snapshot: Any) -> None:
        """What `snapshot` gave."""
        self._log, self._by_batch, self._pending = snapshot


class SqlStore:
    """The stream `name` in a database, with this configuration; made if it is new, unless it is only to be read."""

    keeps_state = True

    def __init__(self, database: Database, name: str, configuration: str):
        self.database = database
        self.place = database.place
        self.name = name
        self.configuration = configuration
        self.seen: Head | None = None  # the last entry that is known to be durable
        # As the transaction found the stream, or has left it so far; without the state where the caller has it.
        self._stored: Stored
        self._last: Entry | None = None  # written in the transaction
        self._found: dict[str, Entry | None] = {}  # entries of batches looked for or written in the transaction
        with database.explained():
            self._open()

    def _open(self) -> None:
        self.database.open()
        with self.database.atomic():
            if not self.database.read_only:
                self.database.execute(
                    "INSERT INTO fairlayer_streams (name, configuration, state, number, hash) "
                    "VALUES (?, ?, NULL, 0, ?) ON CONFLICT (name) DO NOTHING",
                    self.name, self.configuration, origin(self.name, self.configuration),
                )  # fmt: skip
            query = "SELECT configuration FROM fairlayer_streams WHERE name = ?"
            what = f"the settings of stream {self.name!r} in {self.place!r}"
            with readable(what, StoreError, "they were damaged; restore a copy."):
                (stored,) = self.database.execute(query, self.name).fetchone()
                different = differences(stored, self.configuration)
            if different:
                raise StoreError(
                    f"stream {self.name!r} in {self.place!r} was made with other settings: {different}. "
                    "Use the same, or another name."
                )
            self.configuration = stored  # on which the log rests

    @contextmanager
    def transaction(
        self, current: str | None = None, batch_ids: Sequence[str] = (), as_found: bool = False
    ) -> Iterator[None]:
        """Begin and lock; commit at the end, roll back on an exception.

        current: hash of the entry whose state the caller has, which then is not read again. batch_ids: that will be
        looked for. as_found: go on even if the store no longer holds what was seen in it, for `verify` to say so.
        """
        database = self.database
        with database.explained():
            if database.connection is None:
                self._open()
            with database.begun():
                missing = self._look(current, batch_ids)
                if missing is not None and not as_found:
                    raise missing
                yield
                if self._last is not None:  # the state it left; those in between are nobody's concern
                    statement = "UPDATE fairlayer_streams SET state = ?, number = ?, hash = ? WHERE name = ?"
                    database.later(statement, self._stored.block, *self.head(), self.name)
                database.check()
        head = self.head()
        try:
            database.commit()
        except BaseException as error:
            database.close()
            if not isinstance(error, database.errors):
                raise
            self._find_out(head, self._last, error)
        if missing is None:
            self.seen = head

    def _look(self, current: str | None = None, batch_ids: Sequence[str] = ()) -> StoreError | None:
        """Lock, and read what the transaction needs, in one round trip; the error if what was seen is missing."""
        self._last, self._found = None, dict.fromkeys(batch_ids)
        number, seen = self.seen or (0, "")
        questions: list[tuple[Any, ...]] = [
            ("SELECT number, hash, CASE WHEN hash = ? THEN NULL ELSE state END, configuration FROM fairlayer_streams "
             "WHERE name = ?", current or "", self.name),
            ("SELECT payload, hash FROM fairlayer_log WHERE stream = ? AND number = "
             "(SELECT number FROM fairlayer_streams WHERE name = ?)", self.name, self.name),
            ("SELECT hash FROM fairlayer_log WHERE stream = ? AND number = ?", self.name, number),
        ]  # fmt: skip
        if self._found:
            marks = ", ".join("?" * len(self._found))
            questions.append((f"{_ENTRIES} AND batch_id IN ({marks})", self.name, *self._found))
        self.database.lock(self.name)
        rows, ends, held, *entries = self.database.ask(*questions)
        row, end, there = rows.fetchone(), ends.fetchone(), held.fetchone()
        if row is None:
            raise StoreError(
                f"stream {self.name!r} is no longer in {self.place!r}: make it anew, or go back to a copy."
            )
        stored = Stored(row[0], row[1], _bytes(row[2]), row[3])
        self._stored = stored._replace(whole=_is_whole(stored, end))
        for entry in map(_entry, entries[0] if entries else ()):
            self._found[str(entry.batch_id)] = entry
        if not number or (there == (seen,) and stored.number >= number):
            return None
        now = "it ends with" if stored.number < number else "it has another, and ends with"
        return StoreError(
            f"store {self.place!r} no longer holds what stream {self.name!r} has written: it was replaced, went back "
            f"to an earlier copy, or is a standby that lacks the last commits. Entry {number} of the log was seen, and "
            f"now {now} entry {stored.number}. The batch was not counted. Bring the missing entries back, or make the "
            "stream anew to go on from there."
        )

    def _find_out(self, head: Head, written: Entry | None, error: Exception) -> None:
        """COMMIT ended in an error, which may be that its reply was lost: return if the last entry is in the log.

        head: number and hash of that entry, `written` if the transaction made it.
        """
        deadline, found, certain = time.monotonic() + self.database.timeout, False, False
        while True:
            try:
                self._open()
                with self.database.atomic():
                    missing = self._look()  # an earlier connection that is still at it holds the lock
                    query = "SELECT hash FROM fairlayer_log WHERE stream = ? AND number = ?"
                    there = not head[0] or self.database.execute(query, self.name, head[0]).fetchone() == (head[1],)
                # A copy that lacks what was seen, or a part of itself, may lack this entry as well.
                found, certain = there, missing is None and self._stored.whole
            except (StoreError, self.database.errors) as unreachable:
                self.database.close()
                if time.monotonic() < deadline and not isinstance(unreachable, StoreError):
                    time.sleep(_PAUSE)
                    continue
            break
        if found:
            return
        if certain or written is None:  # without an entry there is nothing to count
            raise self.database.explain(error) from error
        raise unknown_outcome(self.place, str(error).strip(), written.batch_id, written.hash) from error

    def head(self) -> Head:
        """Number and hash of the last entry."""
        return self._stored.number, self._stored.hash

    def load(self) -> Stored:
        """The stream, with its state."""
        if self._stored.block is None and self._stored.number:  # it was not read, as the caller has it
            query = "SELECT state FROM fairlayer_streams WHERE name = ?"
            self._stored = self._stored._replace(block=_bytes(self.database.execute(query, self.name).fetchone()[0]))
        return self._stored

    def find(self, batch_id: str) -> Entry | None:
        """The entry of a batch, if it was processed before."""
        self._refuse_half()
        if batch_id not in self._found:
            rows = self.database.execute(f"{_ENTRIES} AND batch_id = ?", self.name, batch_id)
            self._found[batch_id] = next(map(_entry, rows), None)
        return self._found[batch_id]

    def pending(self, ids: Sequence[str] | None = None) -> dict[str, Pending]:
        """Decisions that wait for their targets: those of some ids, or all."""
        query = "SELECT id, cell, output, raw FROM fairlayer_pending WHERE stream = ?"
        questions = [(query, self.name)] if ids is None else [(f"{query} AND id = ?", self.name, one) for one in ids]
        return {one: Pending(*rest) for rows in self.database.ask(*questions) for one, *rest in rows}

    def commit(
        self, block: bytes | None, entry: Entry, waiting: Mapping[str, Pending], observed: Mapping[str, Pending]
    ) -> None:
        """Write an entry, and the state that it left; durable when the transaction has ended.

        waiting, observed: decisions that begin or cease to wait for their targets.
        """
        self._refuse_half()
        later = self.database.later
        for one, decision in waiting.items():
            statement = "INSERT INTO fairlayer_pending (stream, id, cell, output, raw) VALUES (?, ?, ?, ?, ?)"
            later(statement, self.name, one, *decision)
        for one in observed:
            later("DELETE FROM fairlayer_pending WHERE stream = ? AND id = ?", self.name, one)
        later(
            "INSERT INTO fairlayer_log (stream, number, batch_id, payload, emitted, previous, hash) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)", self.name, *entry,
        )  # fmt: skip
        self._last = entry
        self._stored = self._stored._replace(number=entry.number, hash=entry.hash, block=block)
        if entry.batch_id is not None:
            self._found[entry.batch_id] = entry

    def _refuse_half(self) -> None:
        """Neither decide nor repeat anything on a state that does not belong to its log."""
        if not self._stored.whole:
            raise StoreError(
                f"stream {self.name!r} in {self.place!r} was written only in part: its state is not the one that the "
                "last entry of its log left. The batch was not counted; go back to a copy that `verify` finds whole."
            )

    def entries(self) -> Iterator[Entry]:
        """The log, from the first entry."""
        return map(_entry, self.database.execute(f"{_ENTRIES} ORDER BY number", self.name))

    def close(self) -> None:
        """Let go of the connection."""
        self.database.close()


Store = MemoryStore | SqlStore


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


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


def _entry(row: Any) -> Entry:
    number, batch_id, payload, emitted, previous, hash = row  # noqa: A001
    return Entry(number, batch_id, payload, _bytes(emitted), previous, hash)


def _is_whole(stored: Stored, end: Any) -> bool:
    """Whether the state is the one that the last entry left. end: its payload and hash, None if it is missing."""
    if end is None:
        return stored.number == 0
    return end[1] == stored.hash and (stored.block is None or leaves_state(end[0], stored.block))


# Databases as a whole


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


@contextmanager
def _opened(location: str, timeout: float, read_only: bool = False) -> Iterator[Database]:
    """The database at a path or URL, for as long as it is needed."""
    database = open_database(location, timeout, read_only)
    try:
        with database.explained():
            database.open()
            yield database
    finally:
        database.close()


def stored_streams(location: str, timeout: float = 10.0) -> tuple[str, dict[str, str]]:
    """The place of a database as messages may show it, and the configuration of each stream in it, by name."""
    with _opened(location, timeout, read_only=True) as database:
        streams = database.execute("SELECT name, configuration FROM fairlayer_streams ORDER BY name")
        return database.place, dict(streams.fetchall())


def stream_names(store: str | os.PathLike[str], timeout: float = 10.0) -> list[str]:
    """The names of all streams in a store: the path of a SQLite file, or a postgresql:// URL."""
    return list(stored_streams(str(store), timeout)[1])


def forget_undecided(location: str, name: str, timeout: float = 10.0) -> None:
    """Remove a stream that has decided nothing, and with it a file that holds no other: as if it had never been made.

    What others wrote meanwhile stays: a stream with a decision in it is kept.
    """
    path = None if "://" in location else Path(location)
    if path is not None and not path.exists():
        return
    with _opened(location, timeout) as database, database.atomic():
        database.lock(name)
        decided = "SELECT 1 FROM fairlayer_log WHERE stream = ? AND emitted IS NOT NULL"
        if database.execute(decided, name).fetchone() is not None:
            return
        for table, column in (("log", "stream"), ("pending", "stream"), ("streams", "name")):
            database.execute(f"DELETE FROM fairlayer_{table} WHERE {column} = ?", name)
        if path is not None and database.execute("SELECT 1 FROM fairlayer_streams").fetchone() is None:
            for end in ("", "-wal", "-shm"):  # under the lock, so that nobody begins in it meanwhile
                with suppress(OSError):  # in use, where the system keeps such files
                    path.with_name(path.name + end).unlink(missing_ok=True)
