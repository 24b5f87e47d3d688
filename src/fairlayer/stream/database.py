"""A database that streams live in: how to connect, begin and commit, and what to say when that fails.

Statements whose answer is not needed wait for the next one that is, and go with it: while a round trip lasts, others
wait for the lock. Names and labels are data: they are only ever bound as parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

from fairlayer.errors import StoreError

SCHEMA = 3

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
    """One connection. A subclass connects, begins, locks, and explains errors.

    read_only: the database is looked at as it is; nothing is made or locked in it.
    """

    mark: ClassVar[str]  # of a parameter
    types: ClassVar[dict[str, str]]
    has_tables: ClassVar[str]  # asks whether streams have been kept here before; NULL if not

    def __init__(self, location: str, timeout: float, read_only: bool = False):
        self.location = location
        self.timeout = timeout
        self.read_only = read_only
        self.place = location  # as messages may show it
        self.connection: Any = None
        self._waiting: list[tuple[Any, ...]] = []  # statements with their parameters, for the next round trip

    errors: Any  # the driver's

    @abstractmethod
    def _connect(self) -> Any:
        """A new connection."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin a transaction, with the next round trip."""

    @abstractmethod
    def explain(self, error: Exception) -> StoreError:
        """What a user is told of an error of the driver before anything was committed."""

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
            self._make_tables()
        except BaseException:
            self.close()
            raise

    def _make_tables(self) -> None:
        with self.atomic():
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

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self.connection is not None

    def begin(self) -> None:
        """Begin a transaction, with the next round trip."""
        self.check()
        self._waiting = []
        self._begin()

    def commit(self) -> None:
        """Make the transaction durable, and with it all that it read."""
        self.execute("COMMIT")

    def roll_back(self) -> None:
        """Undo the transaction."""
        self._waiting = []
        with suppress(self.errors):  # it may not have begun, or a full disk or a lost connection has ended it already
            if self.is_open:
                self.execute("ROLLBACK")

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """All or nothing."""
        self.begin()
        try:
            yield
        except BaseException:
            self.roll_back()
            raise
        self.commit()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """The driver's errors as errors of the store. The connection ends with any of them: the next one is new."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, (self.errors, StoreError)):
                self.close()
            if isinstance(error, self.errors):
                raise self.explain(error) from error
            raise

    def close(self) -> None:
        """Let go of the connection."""
        self._waiting = []
        if self.connection is not None:
            connection, self.connection = self.connection, None
            connection.close()
