"""Bugs that a stream could have, planted one at a time: the simulator must find each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from fairlayer.stream import store
from fairlayer.stream.database import Database
from fairlayer.stream.postgresql import PostgresDatabase
from fairlayer.stream.store import SqlStore


@contextmanager
def told_before_the_disk_has_it() -> Iterator[None]:
    """A decision goes out when it is committed, not when it is durable."""
    with patch.object(PostgresDatabase, "commit", Database.commit):
        yield


@contextmanager
def a_lost_reply_counts_twice() -> Iterator[None]:
    """A COMMIT without a reply is taken for one that failed, without a look at the log."""

    def say_not_counted(store: Any, head: Any, written: Any, error: Exception) -> None:
        raise store.database.explain(error) from error

    with patch.object(SqlStore, "_find_out", say_not_counted):
        yield


@contextmanager
def a_stale_copy_is_taken() -> Iterator[None]:
    """A database that lacks what was seen is written to."""
    look = SqlStore._look

    def look_no_further(store: Any, *arguments: Any) -> None:
        look(store, *arguments)

    with patch.object(SqlStore, "_look", look_no_further):
        yield


@contextmanager
def the_lock_is_given_up_early() -> Iterator[None]:
    """The row is read and decided upon without keeping others out."""

    def lock(database: Any, name: str) -> None:
        database.later("SELECT 1 FROM fairlayer_streams WHERE name = ? FOR UPDATE", name)
        database.later("COMMIT")
        database.later("BEGIN")

    with patch.object(PostgresDatabase, "lock", lock):
        yield


@contextmanager
def half_a_write_is_taken() -> Iterator[None]:
    """A state that the last entry of the log did not leave is gone on from."""
    with patch.object(store, "_is_whole", lambda stored, end: True):
        yield


@contextmanager
def the_last_of_a_group_is_all() -> Iterator[None]:
    """Of the entries of one transaction only the last one is written, with the state after all of them."""
    commit = SqlStore.commit

    def commit_last(store: Any, *arguments: Any) -> None:
        if store._last is not None:
            store.database._waiting = [one for one in store.database._waiting if "fairlayer_log" not in one[0]]
        commit(store, *arguments)

    with patch.object(SqlStore, "commit", commit_last):
        yield


@contextmanager
def a_failed_batch_leaves_its_traces() -> Iterator[None]:
    """What a transaction did to the ledger in memory stays there, although it was rolled back."""
    from fairlayer.stream.stream import Stream

    catch_up = Stream._catch_up

    def believe_memory(stream: Any) -> None:
        if stream._at is None and stream.ledger.state.totals.batches:
            stream._at = stream._store.head()
            return
        catch_up(stream)

    with patch.object(Stream, "_catch_up", believe_memory):
        yield


BUGS = {
    "told before the disk has it": told_before_the_disk_has_it,
    "a lost reply counts twice": a_lost_reply_counts_twice,
    "a stale copy is taken": a_stale_copy_is_taken,
    "the lock is given up early": the_lock_is_given_up_early,
    "half a write is taken": half_a_write_is_taken,
    "the last of a group is all": the_last_of_a_group_is_all,
    "a failed batch leaves its traces": a_failed_batch_leaves_its_traces,
}
