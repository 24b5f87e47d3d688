"""Where a stream lives. A store gives one transaction at a time: the state as it is, and a place for what follows.

What a transaction wrote or read is durable when it has ended; one that ends in an exception leaves no trace. Several
processes may open the same stream, and each sees what the others have committed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol

from fairlayer.errors import FairlayerError, UncertainError
from fairlayer.stream.log import Entry

Head = tuple[int, str]  # number and hash of an entry


def differences(stored: str, asked: str) -> str:
    """The settings in which two configurations differ; classes may be named in one of them alone."""
    there, here = json.loads(stored), json.loads(asked)
    if not (there.get("classes") and here.get("classes")):
        there["classes"] = here["classes"] = None
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    return "; ".join(f"{name} {json.dumps(there.get(name))}, not {json.dumps(here.get(name))}" for name in names)


@contextmanager
def readable(what: str, kind: type[FairlayerError], remedy: str) -> Iterator[None]:
    """Anything that goes wrong with data of the wrong form, in one sentence."""
    try:
        yield
    except (struct.error, ValueError, LookupError, TypeError, AttributeError) as error:
        raise kind(f"{what} cannot be read ({type(error).__name__}: {error}): {remedy}") from error


def unknown_outcome(place: str, reason: str, batch_id: str | None, hash: str) -> UncertainError:  # noqa: A002
    """What a user is told where nobody can be asked whether a batch was counted. hash: of its entry."""
    remedy = (
        f"Send it again with the same batch_id, {batch_id!r}: it counts once."
        if batch_id is not None
        else f"Before you send it again, ask `stream.verify(hash={hash!r})` whether it is in the log."
    )
    return UncertainError(
        f"store {place!r}: {reason}; the connection was lost while the batch was being committed, and the store cannot "
        f"be reached now, or is not what it was. It is unknown whether the batch was counted. {remedy}",
        reason,
    )


class Stored(NamedTuple):
    """The state of a stream after `number` entries, the last of which has `hash`."""

    name: str
    block: bytes | None  # None before the first entry
    number: int
    hash: str
    configuration: str
    whole: bool = True  # whether the state is the one that the last entry left


class Pending(NamedTuple):
    """A decision whose target has not arrived."""

    cell: int
    output: float
    raw: float


class Transaction(Protocol):
    """What can be done while no other process writes to the stream."""

    def head(self) -> Head:
        """Number and hash of the last entry."""

    def seen(self) -> Head | None:
        """The last entry that is known to have been durable, in this transaction or an earlier one."""

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

    def transaction(
        self, current: str | None = None, batch_ids: Sequence[str] = (), as_found: bool = False
    ) -> AbstractContextManager[Transaction]:
        """Begin; commit at the end, roll back on an exception.

        current: hash of the entry whose state the caller has, which then is not read again. batch_ids: that will be
        looked for. as_found: go on even if the store no longer holds what was seen in it, for `verify` to say so.
        """

    def entries(self) -> Iterator[Entry]:
        """The log, from the first entry."""

    def close(self) -> None:
        """Let go of files and connections."""
