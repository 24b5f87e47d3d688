"""A stream in a database, durable before a transaction returns.

A stream is a row that holds its state; a writer locks it first (SQLite: the database; PostgreSQL: the row), so
several processes share one ledger and the promise holds for all of them together. A store remembers the last entry it
knows to be durable. A database that no longer holds it is refused: it is an earlier copy, or a standby that took over
without the last commits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fairlayer.errors import StoreError
from fairlayer.stream.database import Database
from fairlayer.stream.ledger import Pending
from fairlayer.stream.log import Entry, Stored, leaves_state, origin
from fairlayer.stream.postgresql import PostgresDatabase
from fairlayer.stream.settings import differences
from fairlayer.stream.sqlite import SqliteDatabase
from fairlayer.stream.store import Head, readable, unknown_outcome

_PAUSE = 0.1  # seconds between two attempts to reach a database again
_ENTRIES = "SELECT number, batch_id, payload, emitted, previous, hash FROM fairlayer_log WHERE stream = ?"


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


class SqlStore:
    """The stream `name` in a database, with this configuration; made if it is new, unless it is only to be read."""

    keeps_state = True

    def __init__(self, database: Database, name: str, configuration: str):
        self.database = database
        self.place = database.place
        self.name = name
        self.configuration = configuration
        self.seen: Head | None = None  # the last entry that is known to be durable
        self._stored: Stored | None = None  # as the transaction found it; without the state, where the caller has it
        self._found: dict[str, Entry | None] = {}  # entries of batches looked for or written in the transaction
        self._written: list[Entry] = []  # in the transaction
        self._block: bytes | None = None  # the state that the last of them left, not yet sent
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
            row = self.database.execute(
                "SELECT configuration FROM fairlayer_streams WHERE name = ?", self.name
            ).fetchone()
            what = f"the settings of stream {self.name!r} in {self.place!r}"
            with readable(what, StoreError, "they were damaged; restore a copy."):
                different = differences(row[0], self.configuration)
            if different:
                raise StoreError(
                    f"stream {self.name!r} in {self.place!r} was made with other settings: {different}. "
                    "Use the same, or another name."
                )
            self.configuration = row[0]  # as it is stored, on which the log rests

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
            if not database.is_open:
                self._open()
            database.begin()
            try:
                missing = self._look(current, batch_ids)
                if missing is not None and not as_found:
                    raise missing
                yield
                self._send_state()
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
            self._find_out(self.head(), error)
        if missing is None:
            self.seen = self.head()

    def _look(self, current: str | None, batch_ids: Sequence[str]) -> StoreError | None:
        """Lock, and read what the transaction needs, in one round trip; the error if what was seen is missing."""
        self._written, self._block, self._found = [], None, dict.fromkeys(batch_ids)
        number, seen = self.seen or (0, "")
        questions: list[tuple[Any, ...]] = [
            ("SELECT CASE WHEN hash = ? THEN NULL ELSE state END, number, hash, configuration FROM fairlayer_streams "
             "WHERE name = ?", current or "", self.name),
            ("SELECT payload, hash FROM fairlayer_log WHERE stream = ? AND number = "
             "(SELECT number FROM fairlayer_streams WHERE name = ?)", self.name, self.name),
            ("SELECT hash FROM fairlayer_log WHERE stream = ? AND number = ?", self.name, number),
        ]  # fmt: skip
        if self._found:
            marks = ", ".join("?" * len(self._found))
            questions.append((f"{_ENTRIES} AND batch_id IN ({marks})", self.name, *self._found))
        self.database.lock(self.name)
        rows, last, held, *entries = self.database.ask(*questions)
        row, end, there = rows.fetchone(), last.fetchone(), held.fetchone()
        if row is None:
            raise StoreError(
                f"stream {self.name!r} is no longer in {self.place!r}: make it anew, or go back to a copy."
            )
        stored = _stored(self.name, row)
        self._stored = stored._replace(whole=_is_whole(stored, end))
        for entry in map(_entry, entries[0] if entries else ()):
            self._found[str(entry.batch_id)] = entry
        if not number or (there == (seen,) and self._stored.number >= number):
            return None
        last = "it ends with" if self._stored.number < number else "it has another, and ends with"
        return StoreError(
            f"store {self.place!r} no longer holds what stream {self.name!r} has written: it was replaced, went back "
            f"to an earlier copy, or is a standby that lacks the last commits. Entry {number} of the log was seen, and "
            f"now {last} entry {self._stored.number}. The batch was not counted. Bring the missing entries back, or "
            "make the stream anew to go on from there."
        )

    def _find_out(self, head: Head, error: Exception) -> None:
        """COMMIT ended in an error, which may be that its reply was lost: return if the last entry is in the log."""
        written, deadline = self._written, time.monotonic() + self.database.timeout
        while True:
            try:
                self._open()
                with self.database.atomic():
                    missing = self._look(None, ())  # an earlier connection that is still at it holds the lock
                    found = self._holds(*head)
            except (StoreError, self.database.errors) as unreachable:
                self.database.close()
                if time.monotonic() < deadline and not isinstance(unreachable, StoreError):
                    time.sleep(_PAUSE)
                    continue
                certain = found = False
            else:
                # A copy that lacks what was seen, or a part of itself, may lack this entry as well.
                certain = missing is None and self._stored is not None and self._stored.whole
            self._written = written
            if found:
                return
            if certain or not written:  # without entries there is nothing to count
                raise self.database.explain(error) from error
            raise unknown_outcome(self.place, str(error).strip(), written[-1].batch_id, written[-1].hash) from error

    def _holds(self, number: int, hash: str) -> bool:  # noqa: A002
        """Whether the log has this entry; with number 0, whether it begins like this."""
        if number == 0:
            return hash == origin(self.name, self.configuration)
        statement = "SELECT hash FROM fairlayer_log WHERE stream = ? AND number = ?"
        return self.database.execute(statement, self.name, number).fetchone() == (hash,)

    def head(self) -> Head:
        """Number and hash of the last entry."""
        if self._written:
            return self._written[-1].number, self._written[-1].hash
        assert self._stored is not None  # a transaction has begun
        return self._stored.number, self._stored.hash

    def load(self) -> Stored:
        """The state."""
        assert self._stored is not None
        if self._written or (self._stored.block is None and self._stored.number):
            self._send_state()
            statement = "SELECT state, number, hash, configuration FROM fairlayer_streams WHERE name = ?"
            row = self.database.execute(statement, self.name).fetchone()
            return _stored(self.name, row)._replace(whole=self._stored.whole)
        return self._stored

    def find(self, batch_id: str) -> Entry | None:
        """The entry of a batch, if it was processed before."""
        self._refuse_half()
        if batch_id not in self._found:
            rows = self.database.execute(f"{_ENTRIES} AND batch_id = ?", self.name, batch_id)
            self._found[batch_id] = next(map(_entry, rows), None)
        return self._found[batch_id]

    def take_pending(self, ids: list[str]) -> dict[str, Pending]:
        """Decisions that wait for their targets, removed from those that wait."""
        which = "FROM fairlayer_pending WHERE stream = ? AND id = ?"
        answers = self.database.ask(*((f"SELECT cell, output, raw {which}", self.name, one) for one in ids))
        found = {one: answer.fetchone() for one, answer in zip(ids, answers, strict=True)}
        taken = {one: Pending(*row) for one, row in found.items() if row is not None}
        for one in taken:
            self.database.later(f"DELETE {which}", self.name, one)
        return taken

    def add_pending(self, decisions: dict[str, Pending]) -> None:
        """Decisions to wait for their targets."""
        for one, pending in decisions.items():
            self.database.later(
                "INSERT INTO fairlayer_pending (stream, id, cell, output, raw) VALUES (?, ?, ?, ?, ?)",
                self.name, one, *pending,
            )  # fmt: skip

    def pending(self) -> dict[str, Pending]:
        """Every decision that waits for its target."""
        rows = self.database.execute("SELECT id, cell, output, raw FROM fairlayer_pending WHERE stream = ?", self.name)
        return {one: Pending(*decision) for one, *decision in rows}

    def commit(self, block: bytes | None, entry: Entry) -> None:
        """Write the state and the entry that led to it."""
        self._refuse_half()
        self.database.later(
            "INSERT INTO fairlayer_log (stream, number, batch_id, payload, emitted, previous, hash) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)", self.name, *entry,
        )  # fmt: skip
        self._written.append(entry)
        self._block = block
        if entry.batch_id is not None:
            self._found[entry.batch_id] = entry

    def _refuse_half(self) -> None:
        """Neither decide nor repeat anything on a state that does not belong to its log."""
        if self._stored is not None and not self._stored.whole:
            raise StoreError(
                f"stream {self.name!r} in {self.place!r} was written only in part: its state is not the one that the "
                "last entry of its log left. The batch was not counted; go back to a copy that `verify` finds whole."
            )

    def _send_state(self) -> None:
        """Write the state that the last entry left: those in between are nobody's concern."""
        if self._block is not None:
            statement = "UPDATE fairlayer_streams SET state = ?, number = ?, hash = ? WHERE name = ?"
            self.database.later(statement, self._block, *self.head(), self.name)
            self._block = None

    def entries(self) -> Iterator[Entry]:
        """The log, from the first entry."""
        return map(_entry, self.database.execute(f"{_ENTRIES} ORDER BY number", self.name))

    def close(self) -> None:
        """Let go of the connection."""
        self.database.close()


def _stored(name: str, row: Any) -> Stored:
    block, *rest = row
    return Stored(name, bytes(block) if block is not None else None, *rest)


def _is_whole(stored: Stored, end: Any) -> bool:
    """Whether the state is the one that the last entry left. end: its payload and hash, None if it is missing."""
    if end is None:
        return stored.number == 0
    return end[1] == stored.hash and (stored.block is None or leaves_state(end[0], stored.block))


def _entry(row: Any) -> Entry:
    return Entry(row[0], row[1], row[2], bytes(row[3]) if row[3] is not None else None, row[4], row[5])
