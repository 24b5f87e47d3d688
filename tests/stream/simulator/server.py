"""A server like PostgreSQL, as far as a stream can tell: transactions, row locks, commits that reach the disk later.

Every connection has its process on the server, which goes on with a request even if nobody waits for the reply any more.
SQL is run by SQLite: a transaction sees what is committed, and what it wrote itself. What was committed is kept version by
version; those up to `flushed` survive a crash, later ones only by chance.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from fairlayer.stream.postgresql import PostgresDatabase
from simulator.scheduler import Scheduler


class ServerError(Exception):
    """What the driver raises."""


class Answer(list):
    """Rows, as a driver gives them."""

    def fetchone(self) -> Any:
        """The next row."""
        return self.pop(0) if self else None

    def fetchall(self) -> list[Any]:
        """All rows."""
        return list(self)


def _database(image: bytes | None) -> sqlite3.Connection:
    made = sqlite3.connect(":memory:", isolation_level=None)
    if image is None:
        made.execute("PRAGMA user_version = 1")  # SQLite has no image of nothing
    else:
        made.deserialize(image)
    return made


class Server:
    """The database, and who is connected. fault: whether one befalls this connection or the server now, see faults.py."""

    def __init__(self, scheduler: Scheduler, fault: Callable[[str], bool]):
        self.scheduler = scheduler
        self.fault = fault
        self.database = _database(None)  # as it is committed
        self.versions: list[bytes] = [self.database.serialize()]
        self.flushed = 0
        self.up_at = 0.0
        self.lock: Backend | None = None  # who holds the lock on the stream's row
        self.backends: list[Backend] = []

    @property
    def up(self) -> bool:
        """Whether it can be reached."""
        return self.scheduler.now >= self.up_at

    def crash(self, down: float, image: bytes | None = None) -> None:
        """End every connection, and lose what the disk does not have. image: what the disk has, in place of that."""
        self.up_at = self.scheduler.now + down
        if image is None:
            kept = self.scheduler.rng.randint(self.flushed, len(self.versions) - 1)
            self.versions = self.versions[: kept + 1]
        else:
            self.versions = [image]
        self.flushed = len(self.versions) - 1
        self.database = _database(self.versions[-1])
        self.lock = None
        gone, self.backends = self.backends, []
        for backend in gone:
            backend.connected = False
        tasks = [backend.task for backend in gone]
        self.scheduler.end(lambda task: task in tasks)

    def commit(self, writes: list[tuple[Any, ...]]) -> None:
        """A new version; what cannot be written leaves none."""
        self.database.execute("BEGIN")
        try:
            for statement, *parameters in writes:
                self.database.execute(statement, parameters)
        except BaseException:
            self.database.execute("ROLLBACK")
            raise
        self.database.execute("COMMIT")
        self.versions.append(self.database.serialize())


class Backend:
    """The server's side of a connection."""

    def __init__(self, server: Server, owner: Any, timeout: float):
        self.server = server
        self.owner = owner
        self.timeout = timeout
        self.connected = True  # as the client sees it
        self.gone = False  # the client is: noticed at the next request
        self.request: list[tuple[Any, ...]] | None = None
        self.reply: list[Any] | Exception | None = None
        self._forget()
        server.backends.append(self)
        self.task = server.scheduler.start(f"server of {owner.name}", self._serve)

    def _forget(self) -> None:
        self.begun = self.failed = self.relaxed = False
        self.writes: list[tuple[Any, ...]] = []

    def _serve(self) -> None:
        scheduler = self.server.scheduler
        while True:
            scheduler.wait(lambda: self.request is not None or self.gone)
            request, self.request = self.request, None
            if request is None:
                break
            try:
                answers: list[Any] | Exception = [self._run(*statement) for statement in request]
            except (ServerError, sqlite3.Error) as error:
                self.failed = self.begun
                answers = ServerError(str(error))
            self.reply = answers
        self._end()
        self.server.backends.remove(self)

    def _end(self) -> None:
        if self.server.lock is self:
            self.server.lock = None
        self._forget()

    def _run(self, statement: str, *parameters: Any) -> Answer:
        server = self.server
        server.scheduler.pause()
        server.fault("statement")
        word = statement.split()[0]
        if word == "BEGIN":
            self._end()
            self.begun = True
        elif word == "ROLLBACK":
            self._end()
        elif self.failed:
            raise ServerError("current transaction is aborted")
        elif word == "SET":
            self.relaxed = "synchronous_commit TO OFF" in statement
        elif word == "COMMIT":
            if self.writes:
                server.commit(self.writes)
                if not self.relaxed:
                    server.flushed = len(server.versions) - 1
            server.scheduler.note(f"COMMIT, version {len(server.versions) - 1}")
            self._end()
        elif "pg_logical_emit_message" in statement:
            end = len(server.versions) - 1
            server.scheduler.pause()
            server.fault("disk")
            server.flushed = max(server.flushed, end)
        elif "pg_advisory_xact_lock" in statement:
            self._lock()
        elif "to_regclass" in statement:
            found = self._execute("SELECT name FROM sqlite_master WHERE name = 'fairlayer_pending'")
            return found or Answer([(None,)])
        elif statement.endswith("FOR UPDATE"):
            self._lock()
        else:
            return self._execute(statement, *parameters)
        return Answer()

    def _lock(self) -> None:
        server = self.server
        if server.lock is not self:
            if not server.scheduler.wait(lambda: server.lock is None, self.timeout):
                raise ServerError("canceling statement due to lock timeout")
            server.lock = self

    def _execute(self, statement: str, *parameters: Any) -> Answer:
        server = self.server
        if statement.startswith("SELECT"):
            database = server.database
            if self.writes:
                database = _database(server.versions[-1])
                for earlier, *values in self.writes:
                    database.execute(earlier, values)
            return Answer(database.execute(statement, parameters).fetchall())
        self.writes.append((statement, *parameters))
        if not self.begun:
            server.commit(self.writes)
            server.flushed = len(server.versions) - 1
            self._forget()
        return Answer()


class SimulatedPostgres(PostgresDatabase):
    """The client's side of a connection: what PostgresDatabase sends goes to the simulated server."""

    mark = "?"
    errors = ServerError  # type: ignore[assignment]

    def __init__(self, server: Server, owner: Any, timeout: float, read_only: bool = False):
        super().__init__("postgresql://simulated/streams", timeout, read_only)
        self.server = server
        self.owner = owner

    def _connect(self) -> Any:
        self.server.scheduler.pause()
        if not self.server.up:
            raise ServerError("connection refused")
        return _Connection(Backend(self.server, self.owner, self.timeout))

    def _run(self, statements: list[tuple[Any, ...]]) -> list[Any]:
        return self.connection.send(statements)


class _Connection:
    def __init__(self, backend: Backend):
        self.backend = backend

    def send(self, statements: list[tuple[Any, ...]]) -> list[Any]:
        """A request and its reply, either of which may be lost, or the request cut short."""
        backend, server = self.backend, self.backend.server
        server.scheduler.pause()
        if not backend.connected:
            raise ServerError("the connection is lost")
        if server.fault("request"):
            arrive = server.scheduler.rng.randint(0, len(statements))
            server.scheduler.note(f"{arrive} of {len(statements)} statements arrive, no reply")
            if arrive:
                backend.request = statements[:arrive]
            self.close()
            raise ServerError("the connection was lost")
        backend.request, backend.reply = list(statements), None
        server.scheduler.wait(lambda: backend.reply is not None or not backend.connected)
        if server.fault("reply") or not backend.connected:
            server.scheduler.note("no reply")
            self.close()
            raise ServerError("the connection was lost")
        reply = backend.reply
        if isinstance(reply, Exception):
            raise reply
        assert reply is not None
        return reply

    def close(self) -> None:
        """Let go; the server notices when it looks for the next request."""
        self.backend.connected = False
        self.backend.gone = True
