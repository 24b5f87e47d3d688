"""Where a stream lives. A store gives one transaction at a time: the state as it is, and a place for what follows.

A state is durable before `commit` returns; a transaction that ends in an exception leaves no trace. Several processes
may open the same stream, and each sees what the others have committed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol

from fairlayer.errors import FairlayerError
from fairlayer.stream.log import Entry


def differences(stored: str, asked: str) -> str:
    """The settings in which two configurations differ."""
    there, here = json.loads(stored), json.loads(asked)
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    return "; ".join(f"{name} {json.dumps(there.get(name))}, not {json.dumps(here.get(name))}" for name in names)


@contextmanager
def readable(what: str, kind: type[FairlayerError], remedy: str) -> Iterator[None]:
    """Anything that goes wrong with data of the wrong form, in one sentence."""
    try:
        yield
    except (struct.error, ValueError, LookupError, TypeError, AttributeError) as error:
        raise kind(f"{what} cannot be read ({type(error).__name__}: {error}): {remedy}") from error


class Stored(NamedTuple):
    """The state of a stream after `number` entries, the last of which has `hash`."""

    name: str
    block: bytes | None  # None before the first entry
    number: int
    hash: str
    configuration: str


class Pending(NamedTuple):
    """A decision whose target has not arrived."""

    cell: int
    output: float
    raw: float


class Transaction(Protocol):
    """What can be done while no other process writes to the stream."""

    def head(self) -> tuple[int, str]:
        """Number and hash of the last entry."""

    def holds(self, number: int, hash: str) -> bool:  # noqa: A002
        """Whether the log has this entry; with number 0, whether it begins like this."""

    def load(self) -> Stored:
        """The state."""

    def find(self, batch_id: str) -> Entry | None:
        """The entry of a batch, if it was processed before."""

    def take_pending(self, ids: list[str]) -> dict[str, Pending]:
        """Decisions that wait for their targets, removed from those that wait."""

    def add_pending(self, decisions: dict[str, Pending]) -> None:
        """Decisions to wait for their targets."""

    def pending(self) -> dict[str, Pending]:
        """Every decision that waits for its target."""

    def commit(self, block: bytes | None, entry: Entry) -> None:
        """Write the state and the entry that led to it. block: None where the store keeps no state."""


class Store(Protocol):
    """A home of one stream."""

    keeps_state: bool  # whether `commit` wants the state as a block
    configuration: str  # the stream's settings, in JSON

    @property
    def place(self) -> str:
        """Where it is, for messages: without passwords."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin; commit at the end, roll back on an exception."""

    def entries(self) -> Iterator[Entry]:
        """The log, from the first entry."""

    def close(self) -> None:
        """Let go of files and connections."""
