"""A database that streams live in: how to connect, begin and commit, and what to say when that fails.

Statements whose answer is not needed wait for the next one that is, and go with it: while a round trip lasts, others
wait for the lock. Names and labels are data: they are only ever bound as parameters.
"""

from __future__ import annotations

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from fairlayer.errors import StoreError

SCHEMA = 3
HELD = "another process held it for more than {timeout} s; try again, or raise `timeout`."

_TABLES = (
    "CREATE TABLE IF NOT EXISTS fairlayer_schema (version INTEGER NOT NULL)",
    """CREATE TABLE IF NOT EXISTS fairlayer_streams (
        name TEXT PRIMARY KEY, configuration TEXT NOT NULL, state {blob}, number INTEGER NOT NULL, hash TEXT NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS fairlayer_log (
        stream TEXT NOT NULL, number INTEGER NOT NULL, batch_id TEXT, payload TEXT NOT NULL, emitted {blob},
        previous TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (stream, number), UNIQUE (stream, batch_id)
    )""",
    """CREATE TABLE IF NOT EXISTS fairlayer_pending (
        stream TEXT NOT NULL, id TEXT NOT NULL, cell INTEGER NOT NULL, output {real} NOT NULL, raw {real} NOT NULL,
        PRIMARY KEY (stream, id)
    )""",
)


class Database(ABC):
    """One connection. A subclass connects, and speaks a dialect.

    read_only: the database is looked at as it is; nothing is made or locked in it.
    """

    mark: ClassVar[str] = "?"  # of a parameter
    types: ClassVar[dict[str, str]]
    has_tables: ClassVar[str]  # asks whether streams have been kept here before; NULL if not
    begin_reading: ClassVar[tuple[str, ...]]  # statements that begin a transaction
    begin_writing: ClassVar[tuple[str, ...]]
    advice: ClassVar[dict[str, str]]  # of what the driver may say, what a user can do about it
    errors: Any  # the driver's

    def __init__(self, location: str, timeout: float, read_only: bool = False):
        self.location = location
        self.timeout = timeout
        self.read_only = read_only
        self.place = location  # as messages may show it
        self.connection: Any = None
        self._waiting: list[tuple[Any, ...]] = []  # statements with their parameters, for the next round trip

    @abstractmethod
    def _connect(self) -> Any:
        """A new connection."""

    def explain(self, error: Exception) -> StoreError:
        """What a user is told of an error of the driver before anything was committed."""
        text = str(error).strip() or type(error).__name__
        known = (remedy for said, remedy in self.advice.items() if said in text)
        remedy = next(known, "the batch was not counted, and can be sent again.").format(timeout=self.timeout)
        return StoreError(f"store {self.place!r}: {text}; {remedy}")

    def _keep_makers_out(self) -> None:  # noqa: B027  (SQLite has locked everything already)
        """Let no other process make the tables at the same time."""

    def lock(self, name: str) -> None:  # noqa: B027
        """Keep other writers of a stream out until the end of the transaction; goes with the next round trip."""

    def check(self) -> None:  # noqa: B027
        """Refuse to go on where what is written would be lost."""

    def later(self, statement: str, *parameters: Any) -> None:
        """A statement, whose parameters are marked by `?`, that goes with the next round trip."""
        self._waiting.append((statement, *parameters))

    def execute(self, statement: str, *parameters: Any) -> Any:
        """Run one statement, after those that wait; its answer."""
        return self.ask((statement, *parameters))[0]

    def ask(self, *statements: tuple[Any, ...]) -> list[Any]:
        """Run some statements, each with its parameters, after those that wait; their answers, in one round trip."""
        waiting, self._waiting = self._waiting, []
        return self._run([*waiting, *statements])[len(waiting) :]

    def _run(self, statements: list[tuple[Any, ...]]) -> list[Any]:
        """Run statements one after another. A driver that can send them all at once does that instead."""
        return [self.connection.execute(one.replace("?", self.mark), values) for one, *values in statements]

    def open(self) -> None:
        """Connect, and make the tables where there are none."""
        self.connection = self._connect()
        try:
            with self.atomic():
                self._make_tables()
        except BaseException:
            self.close()
            raise

    def _make_tables(self) -> None:
        if self.execute(self.has_tables).fetchone()[0] is None:
            if self.read_only:
                raise StoreError(f"store {self.place!r} holds no streams: name a file or URL that a Stream wrote.")
            self._keep_makers_out()
            for table in _TABLES:
                self.execute(table.format(**self.types))
        version = self.execute("SELECT version FROM fairlayer_schema").fetchone()
        if version is None:
            self.execute("INSERT INTO fairlayer_schema (version) VALUES (?)", SCHEMA)
        elif version[0] != SCHEMA:
            raise StoreError(
                f"store {self.place!r} has schema {version[0]}, this fairlayer knows {SCHEMA}: "
                + ("update fairlayer." if version[0] > SCHEMA else "open it with the release that wrote it.")
            )

    def commit(self) -> None:
        """Make the transaction durable, and with it all that it read."""
        self.execute("COMMIT")

    @contextmanager
    def begun(self) -> Iterator[None]:
        """A transaction, to be committed afterwards; rolled back on an exception."""
        self.check()
        self._waiting = [(one,) for one in (self.begin_reading if self.read_only else self.begin_writing)]
        try:
            yield
        except BaseException:
            self._waiting = []
            with suppress(self.errors):  # it may not have begun, or a full disk or lost connection has ended it already
                if self.connection is not None:
                    self.execute("ROLLBACK")
            raise

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """A transaction: all or nothing."""
        with self.begun():
            yield
        self.commit()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """The driver's errors as errors of the store. The connection ends with any of them: the next one is new."""
        try:
            yield
        except StoreError:
            self.close()
            raise
        except self.errors as error:
            self.close()
            raise self.explain(error) from error

    def close(self) -> None:
        """Let go of the connection."""
        self._waiting = []
        if self.connection is not None:
            connection, self.connection = self.connection, None
            connection.close()


class SqliteDatabase(Database):
    """A SQLite file. One that was deleted, replaced or cut short while it was open is noticed.

    SQLite would write on into nowhere, or answer from what it remembers of pages that are gone.
    """

    types: ClassVar[dict[str, str]] = {"blob": "BLOB", "real": "REAL"}
    has_tables = "SELECT max(name) FROM sqlite_master WHERE name = 'fairlayer_pending'"
    begin_reading = ("BEGIN",)
    begin_writing = ("BEGIN IMMEDIATE",)  # locks the whole database at once, so nothing read can be out of date
    advice: ClassVar[dict[str, str]] = {
        "not a database": "it is a file of another kind; choose another path.",
        "locked": HELD,
        "full": "free some space; the batch was not counted, and can be sent again.",
        "readonly": "it cannot be written to; check its permissions.",
        "unable to open": "its folder does not exist or cannot be written to.",
        "malformed": "the file was damaged; the batch was not counted. Go back to a copy.",
    }
    errors = sqlite3.Error

    def __init__(self, location: str, timeout: float, read_only: bool = False):
        super().__init__(location, timeout, read_only)
        self._path = Path(location).absolute()  # the working directory may change
        self._file: tuple[int, int] | None = None  # which file it is, once it has been opened
        self._size = 0  # how long it has been seen

    def _connect(self) -> Any:
        if self._file is not None:
            self.check()
        if self.read_only and not self._path.is_file():
            raise StoreError(f"store {self.place!r} does not exist.")
        address = f"file:{quote(str(self._path))}?{self._manner()}" if self.read_only else str(self._path)
        connection = sqlite3.connect(
            address, timeout=self.timeout, isolation_level=None, check_same_thread=False, uri=self.read_only
        )
        if self.read_only:
            connection.execute("PRAGMA query_only = ON")
        else:
            connection.execute("PRAGMA journal_mode = WAL")  # makes the file, where there is none
            connection.execute("PRAGMA synchronous = FULL")  # durable at every commit, not only consistent
        self._file, self._size = self._look()
        return connection

    def _manner(self) -> str:
        """How to open a file that is only read. Beside one that is in use SQLite keeps two more.

        It makes them where it can, and only who may write removes them again. Where nobody can make them they need not
        be there.
        """
        if self._path.with_name(self._path.name + "-wal").exists():
            return "mode=ro"
        if not os.access(self._path.parent, os.W_OK):
            return "mode=ro&immutable=1"
        return "mode=rw" if os.access(self._path, os.W_OK) else "mode=ro"

    def _look(self) -> tuple[tuple[int, int] | None, int]:
        """What tells the file at the path from all others, and its size; None where there is none.

        It is not opened for that: to close it again would let go of all locks that this process holds on it.
        """
        try:
            status = self._path.stat()
        except OSError:
            return None, 0
        return (status.st_dev, status.st_ino), status.st_size

    def check(self) -> None:
        """Refuse to go on if the file is not there any more, is another, or became shorter, which no stream does."""
        there, size = self._look()
        if there == self._file and size >= self._size:
            self._size = size
            return
        what = "was deleted or moved" if there is None else "was replaced by another file"
        if there == self._file:
            what = f"was cut from {self._size:,} to {size:,} bytes"
        raise StoreError(
            f"store {self.place!r} {what} while the stream was open: the batch was not counted. Put the file back, or "
            "create the stream again to continue with what is there now."
        )

    def explain(self, error: Exception) -> StoreError:
        """What a user is told of an error of the driver; of what became of the file, where that is the reason."""
        try:
            if self._file is not None:
                self.check()
        except StoreError as reason:
            return reason
        return super().explain(error)
