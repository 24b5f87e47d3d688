"""Streams in a PostgreSQL database."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from fairlayer.errors import StoreError
from fairlayer.extras import needs
from fairlayer.stream.database import Database

_URL = re.compile(r"\w+://([^@/?]*@)?(?P<host>[^@/?]*)(?P<path>/[^@?]*)?(\?[^@]*)?")


class PostgresDatabase(Database):
    """A server's database, by its URL."""

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
    def errors(self) -> type[Exception]:
        """The driver's errors."""
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
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" if self.read_only else "BEGIN")

    def _keep_makers_out(self) -> None:
        # Two processes that make the tables at once would collide even with IF NOT EXISTS.
        self.execute("SELECT pg_advisory_xact_lock(7026473541)")

    def _has_tables(self) -> bool:
        row = self.execute("SELECT to_regclass('fairlayer_pending')").fetchone()
        return row[0] is not None

    def check(self) -> None:
        """A server's connection ends with its database."""

    def lock(self, name: str) -> None:
        """Lock the stream's row."""
        if not self.read_only:
            self.execute("SELECT 1 FROM fairlayer_streams WHERE name = ? FOR UPDATE", name)

    def explain(self, error: Exception) -> StoreError:
        """What a user is told of an error of the driver."""
        text = str(error).strip() or type(error).__name__
        remedy = "the batch was not counted, and can be sent again."
        if "lock timeout" in text:
            remedy = f"another process held the stream for more than {self.timeout} s; try again, or raise `timeout`."
        return StoreError(f"store {self.place!r}: {text}; {remedy}")
