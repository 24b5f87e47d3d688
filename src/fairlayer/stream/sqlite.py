"""Streams in a SQLite file, which must remain the file it was."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from fairlayer.errors import StoreError
from fairlayer.stream.database import Database


class SqliteDatabase(Database):
    """A file. One that was deleted, replaced or cut short while it was open is noticed.

    SQLite would write on into nowhere, or answer from what it remembers of pages that are gone.
    """

    mark = "?"
    types: ClassVar[dict[str, str]] = {"blob": "BLOB", "real": "REAL"}
    has_tables = "SELECT max(name) FROM sqlite_master WHERE name = 'fairlayer_pending'"
    errors = sqlite3.Error

    def __init__(self, location: str, timeout: float, read_only: bool = False):
        super().__init__(location, timeout, read_only)
        self._path = Path(location).absolute()  # the working directory may change
        self._file: tuple[int, int] | None = None  # which file it is, once it has been opened
        self._size = 0  # how long it has been seen
        self._changed: StoreError | None = None  # what was noticed last of what became of it

    def _connect(self) -> Any:
        if self._file is not None:
            self.check()
        if self.read_only and not self._path.is_file():
            raise StoreError(f"store {self.place!r} does not exist.")
        address = str(self._path)
        if self.read_only:
            address = f"file:{quote(address)}?{self._manner()}"
        connection = sqlite3.connect(
            address, timeout=self.timeout, isolation_level=None, check_same_thread=False, uri=self.read_only
        )
        if self.read_only:
            connection.execute("PRAGMA query_only = ON")
        else:
            connection.execute("PRAGMA journal_mode = WAL")  # makes the file, where there is none
            connection.execute("PRAGMA synchronous = FULL")  # durable at every commit, not only consistent
        self._file, self._size = self._look() or (None, 0)
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

    def _look(self) -> tuple[tuple[int, int], int] | None:
        """What tells the file at the path from all others, and its size; None where there is none.

        It is not opened for that: to close it again would let go of all locks that this process holds on it.
        """
        try:
            status = self._path.stat()
        except OSError:
            return None
        return (status.st_dev, status.st_ino), status.st_size

    def check(self) -> None:
        """Refuse to go on if the file is not there any more, is another, or became shorter, which no stream does."""
        there, size = self._look() or (None, 0)
        if there is None or there != self._file or size < self._size:
            what = "was deleted or moved" if there is None else "was replaced by another file"
            if there is not None and there == self._file:
                what = f"was cut from {self._size:,} to {size:,} bytes"
            self._changed = StoreError(
                f"store {self.place!r} {what} while the stream was open: the batch was not counted. Put the file back, "
                "or create the stream again to continue with what is there now."
            )
            raise self._changed
        self._size = size

    def _begin(self) -> None:
        # A writer locks the whole database at once, so nothing read can be out of date.
        self.later("BEGIN" if self.read_only else "BEGIN IMMEDIATE")

    def explain(self, error: Exception) -> StoreError:
        """What a user is told of an error of the driver; of what became of the file, where that is the reason."""
        text = str(error)
        if self._file is not None:
            with suppress(StoreError):
                self.check()
        # As the last connection ends, SQLite writes back what stands beside the file: a cut one is then full of holes.
        if self._changed is not None and "malformed" in text:
            return self._changed
        advice = {
            "not a database": "it is a file of another kind; choose another path.",
            "locked": f"another process held it for more than {self.timeout} s; try again, or raise `timeout`.",
            "full": "free some space; the batch was not counted, and can be sent again.",
            "readonly": "it cannot be written to; check its permissions.",
            "unable to open": "its folder does not exist or cannot be written to.",
        }
        remedy = next(
            (advice[key] for key in advice if key in text), "the batch was not counted, and can be sent again."
        )
        return StoreError(f"store {self.place!r}: {text}; {remedy}")
