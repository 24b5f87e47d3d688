"""Streams in a PostgreSQL database.

The lock on a stream is held as briefly as possible. A transaction is two round trips: one locks and reads, one writes,
commits and waits for the disk. It releases the lock before the disk has it, and the next transaction may build on it
at once: the server writes its log in order, so what builds on it cannot be durable before it is. No result is returned
before that: after each transaction, even one that only read, a small one of its own waits for the disk (or the
standbys, whatever `synchronous_commit` asks for), and with it for all that came before. The server lets many wait for
the same write.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from functools import cache
from typing import Any, ClassVar

from fairlayer.errors import StoreError
from fairlayer.extras import needs
from fairlayer.stream.database import HELD, Database

_GRACE = 1.0  # seconds beyond `timeout`, after which the server itself says that a lock is taken
_PAUSE = 0.01  # seconds between two looks at what is durable
_URL = re.compile(r"\w+://([^@/?]*@)?(?P<host>[^@/?]*)(?P<path>/[^@?]*)?(\?[^@]*)?")


class PostgresDatabase(Database):
    """A server's database, by its URL."""

    mark = "%s"
    types: ClassVar[dict[str, str]] = {"blob": "BYTEA", "real": "DOUBLE PRECISION"}
    has_tables = "SELECT to_regclass('fairlayer_pending')"
    begin_reading = ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",)
    begin_writing = ("BEGIN", "SET LOCAL synchronous_commit TO OFF")
    advice: ClassVar[dict[str, str]] = {"lock timeout": HELD}

    def __init__(self, location: str, timeout: float, read_only: bool = False):
        super().__init__(location, timeout, read_only)
        parts = _URL.fullmatch(location)
        if parts is None:  # what cannot be taken apart for sure is refused, and not shown
            raise StoreError(
                "store is not a URL of the form postgresql://user:password@host:port/database: write @, / and ? within "
                "a part as %40, %2F and %3F."
            )
        self.place = f"postgresql://{parts['host']}{parts['path'] or ''}"

    @property
    def errors(self) -> Any:
        """The driver's errors."""
        return _driver().Error

    def _connect(self) -> Any:
        patience = self.timeout + _GRACE
        connection = _patient().connect(
            self.location,
            autocommit=True,
            connect_timeout=max(int(self.timeout), 2),
            tcp_user_timeout=int(1000 * patience),
        )
        connection.patience = patience
        connection.execute(f"SET lock_timeout = {int(self.timeout * 1000)}")
        return connection

    def _run(self, statements: list[tuple[Any, ...]]) -> list[Any]:
        if len(statements) == 1 or not _driver().Pipeline.is_supported():
            return super()._run(statements)
        failed = None
        try:
            with self.connection.pipeline():
                try:
                    return super()._run(statements)
                except self.errors as error:  # left with an error, the driver would log what follows from it
                    failed = error
        except self.errors as error:
            failed = failed or error
        raise failed

    def commit(self) -> None:
        """Make the transaction durable, and with it all that it read."""
        if self.read_only:
            super().commit()
            self._await_disk()
        else:
            self.later("COMMIT")
            self.execute("SELECT pg_logical_emit_message(true, 'fairlayer', '')")

    def _await_disk(self) -> None:
        """Wait until what was read is durable, without writing. The server sees to it within three of its delays."""
        end, delay = self.execute(
            "SELECT CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_current_wal_insert_lsn() END::text, "
            "(SELECT setting::float FROM pg_settings WHERE name = 'wal_writer_delay')"
        ).fetchone()
        deadline = time.monotonic() + 3e-3 * delay
        while end is not None and time.monotonic() < deadline:
            if self.execute("SELECT pg_current_wal_flush_lsn() >= ?::pg_lsn", end).fetchone()[0]:
                return
            time.sleep(_PAUSE)

    def _keep_makers_out(self) -> None:
        # Two processes that make the tables at once would collide even with IF NOT EXISTS.
        self.execute("SELECT pg_advisory_xact_lock(7026473541)")

    def lock(self, name: str) -> None:
        """Lock the stream's row."""
        if not self.read_only:
            self.later("SELECT 1 FROM fairlayer_streams WHERE name = ? FOR UPDATE", name)


def _driver() -> Any:
    with needs("A stream in PostgreSQL", "psycopg"):
        import psycopg
    return psycopg


@cache
def _patient() -> Any:
    """A connection that does not wait for an answer for ever: a server may hang, or a network swallow everything."""
    psycopg = _driver()
    connection: Any = psycopg.Connection

    class Patient(connection):
        patience = 10.0

        def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
            try:
                return super().wait(_until(gen, time.monotonic() + self.patience), *args, **options)
            except TimeoutError:
                self.close()  # what may still come would be taken for the answer to something else
                raise psycopg.OperationalError(f"no answer within {self.patience:g} s") from None

    return Patient


def _until(steps: Generator[Any, Any, Any], deadline: float) -> Generator[Any, Any, Any]:
    """The steps of waiting for an answer; the driver says every now and then that nothing has come."""
    try:
        step = next(steps)
        while True:
            ready = yield step
            if not ready and time.monotonic() > deadline:
                raise TimeoutError
            step = steps.send(ready)
    except StopIteration as end:
        return end.value
