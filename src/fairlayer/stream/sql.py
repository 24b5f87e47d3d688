"""Streams in a database: SQLite by path, PostgreSQL by URL. One transaction per batch, durable before it returns.

A stream is a row that holds its state; whoever writes locks it first (SQLite: the database; PostgreSQL: the row), so
several processes share one ledger and the promise holds for all of them together. Names and labels are data: they
are only ever bound as parameters.
"""

from __future__ import annotations

import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

from fairlayer.errors import StoreError
from fairlayer.extras import needs
from fairlayer.stream.log import Entry, origin
from fairlayer.stream.store import Pending, Store, Stored, differences, readable

SCHEMA = 2

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

_URL = re.compile(r"\w+://([^@/?]*@)?(?P<host>[^@/?]*)(?P<path>/[^@?]*)?(\?[^@]*)?")


def open_store(location: str, name: str, configuration: str, timeout: float) -> Store:
    """The store at a path or URL, for the stream `name` with this configuration (made if it is new)."""
    if location in ("", ":memory:"):
        raise StoreError(f"store {location!r} would not outlive its connection: pass a path, or None for memory.")
    if location.startswith(("postgresql://", "postgres://")):
        return PostgresStore(location, name, configuration, timeout)
    if "://" in location:
        scheme = location.split("://")[0]
        raise StoreError(f"store {scheme}:// is not known: pass a file's path for SQLite, or a postgresql:// URL.")
    return SqliteStore(location, name, configuration, timeout)


class SqlStore(ABC):
    """What both databases have in common. A subclass connects, begins, locks, and explains errors."""

    keeps_state = True
    mark: ClassVar[str]  # of a parameter
    types: ClassVar[dict[str, str]]

    def __init__(self, location: str, name: str, configuration: str, timeout: float):
        self.location = location
        self.name = name
        self.configuration = configuration
        self.timeout = timeout
        self.place = self._shown()
        self.connection: Any = None
        self._open()

    def _shown(self) -> str:
        """The location as messages may show it."""
        return self.location

    @abstractmethod
    def _connect(self) -> Any:
        """A new connection."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin a transaction."""

    @abstractmethod
    def _lock(self) -> None:
        """Keep other writers of the stream out until its end."""

    @abstractmethod
    def _explain(self, error: Exception) -> StoreError:
        """What a user is told of an error of the driver."""

    @property
    @abstractmethod
    def _errors(self) -> type[Exception]:
        """The driver's errors."""

    def _execute(self, statement: str, *parameters: Any) -> Any:
        return self.connection.execute(statement.replace("?", self.mark), parameters)

    def _open(self) -> None:
        try:
            self.connection = self._connect()
            with self._whole():
                for table in _TABLES:
                    self._execute(table.format(**self.types))
                version = self._execute("SELECT version FROM fairlayer_schema").fetchone()
                if version is None:
                    self._execute("INSERT INTO fairlayer_schema (version) VALUES (?)", SCHEMA)
                elif version[0] != SCHEMA:
                    raise StoreError(
                        f"store {self.place!r} has schema {version[0]}, this fairlayer knows {SCHEMA}: "
                        + ("update fairlayer." if version[0] > SCHEMA else "open it with the release that wrote it.")
                    )
                self._execute(
                    "INSERT INTO fairlayer_streams (name, configuration, state, number, hash) "
                    "VALUES (?, ?, NULL, 0, ?) ON CONFLICT (name) DO NOTHING",
                    self.name, self.configuration, origin(self.configuration),
                )  # fmt: skip
                (stored,) = self._execute(
                    "SELECT configuration FROM fairlayer_streams WHERE name = ?", self.name
                ).fetchone()
                what = f"the settings of stream {self.name!r} in {self.place!r}"
                with readable(what, StoreError, "they were damaged; go back to a copy."):
                    different = differences(stored, self.configuration)
                if different:
                    raise StoreError(
                        f"stream {self.name!r} in {self.place!r} was made with other settings: {different}. "
                        "Use the same, or another name."
                    )
        except BaseException as error:
            self.close()
            if isinstance(error, self._errors):
                raise self._explain(error) from error
            raise

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """All or nothing."""
        self._begin()
        try:
            yield
        except BaseException:
            with suppress(self._errors):  # a full disk or a lost connection has ended the transaction already
                self._execute("ROLLBACK")
            raise
        self._execute("COMMIT")

    @contextmanager
    def transaction(self) -> Iterator[SqlStore]:
        """Begin and lock; commit at the end, roll back on an exception."""
        if self.connection is None:
            self._open()
        try:
            with self._whole():
                self._lock()
                yield self
        except self._errors as error:
            self.close()  # the next transaction connects anew
            raise self._explain(error) from error

    def head(self) -> tuple[int, str]:
        """Number and hash of the last entry."""
        return self._execute("SELECT number, hash FROM fairlayer_streams WHERE name = ?", self.name).fetchone()

    def load(self) -> Stored:
        """The state."""
        block, *rest = self._execute(
            "SELECT state, number, hash, configuration FROM fairlayer_streams WHERE name = ?", self.name
        ).fetchone()
        return Stored(bytes(block) if block is not None else None, *rest)

    def find(self, batch_id: str) -> Entry | None:
        """The entry of a batch, if it was processed before."""
        return self._entry(
            self._execute(
                "SELECT number, batch_id, payload, emitted, previous, hash FROM fairlayer_log "
                "WHERE stream = ? AND batch_id = ?", self.name, batch_id,
            ).fetchone()
        )  # fmt: skip

    @staticmethod
    def _entry(row: Any) -> Entry | None:
        if row is None:
            return None
        return Entry(row[0], row[1], row[2], bytes(row[3]) if row[3] is not None else None, row[4], row[5])

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

    def entries(self) -> Iterator[Entry]:
        """The log, from the first entry."""
        if self.connection is None:
            self._open()
        rows = self._execute(
            "SELECT number, batch_id, payload, emitted, previous, hash FROM fairlayer_log WHERE stream = ? "
            "ORDER BY number", self.name,
        )  # fmt: skip
        for row in rows:
            entry = self._entry(row)
            if entry is not None:
                yield entry

    def close(self) -> None:
        """Let go of the connection."""
        if self.connection is not None:
            connection, self.connection = self.connection, None
            connection.close()


class SqliteStore(SqlStore):
    """A stream in a file."""

    mark = "?"
    types: ClassVar[dict[str, str]] = {"blob": "BLOB", "real": "REAL"}
    _errors = sqlite3.Error

    def _connect(self) -> Any:
        connection = sqlite3.connect(self.location, timeout=self.timeout, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # durable at every commit, not only consistent
        return connection

    def _begin(self) -> None:
        self._execute("BEGIN IMMEDIATE")  # takes the write lock at once, so nothing read can be out of date

    def _lock(self) -> None:
        pass

    def _explain(self, error: Exception) -> StoreError:
        text = str(error)
        advice = {
            "not a database": "it is a file of another kind; choose another path.",
            "locked": f"another process held it for more than {self.timeout} s; try again, or raise `timeout`.",
            "full": "free some space; the batch was not counted, and can be sent again.",
            "readonly": "it cannot be written to; check its permissions.",
            "unable to open": "its folder does not exist or cannot be written to.",
        }
        remedy = next((advice[key] for key in advice if key in text), "the batch was not counted.")
        return StoreError(f"store {self.place!r}: {text}; {remedy}")


class PostgresStore(SqlStore):
    """A stream in a PostgreSQL database."""

    mark = "%s"
    types: ClassVar[dict[str, str]] = {"blob": "BYTEA", "real": "DOUBLE PRECISION"}

    def _shown(self) -> str:
        """Without user, password and options. What cannot be taken apart for sure is refused, and not shown."""
        parts = _URL.fullmatch(self.location)
        if parts is None:
            raise StoreError(
                "store is not a URL of the form postgresql://user:password@host:port/database: write @, / and ? within "
                "a part as %40, %2F and %3F."
            )
        return f"postgresql://{parts['host']}{parts['path'] or ''}"

    @property
    def _errors(self) -> type[Exception]:
        return self._driver().Error

    @staticmethod
    def _driver() -> Any:
        with needs("A stream in PostgreSQL", "psycopg"):
            import psycopg
        return psycopg

    def _connect(self) -> Any:
        connection = self._driver().connect(self.location, autocommit=True, connect_timeout=max(int(self.timeout), 2))
        connection.execute(f"SET lock_timeout = {int(self.timeout * 1000)}")
        return connection

    def _begin(self) -> None:
        self._execute("BEGIN")
        if self._making:
            # Two processes that make the tables at once would collide even with IF NOT EXISTS.
            self._execute("SELECT pg_advisory_xact_lock(7026473541)")

    @property
    def _making(self) -> bool:
        row = self._execute("SELECT to_regclass('fairlayer_pending')").fetchone()
        return row[0] is None

    def _lock(self) -> None:
        self._execute("SELECT 1 FROM fairlayer_streams WHERE name = ? FOR UPDATE", self.name)

    def _explain(self, error: Exception) -> StoreError:
        text = str(error).strip() or type(error).__name__
        remedy = "the batch was not counted, and can be sent again."
        if "lock timeout" in text:
            remedy = f"another process held the stream for more than {self.timeout} s; try again, or raise `timeout`."
        return StoreError(f"store {self.place!r}: {text}; {remedy}")
