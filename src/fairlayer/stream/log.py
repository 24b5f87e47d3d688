"""The log of a stream: one entry per transaction, each holding the hash of the one before it.

An entry says what was in the cells it touched before and after, which decisions began or ceased to wait for their
targets, the multipliers and the status; the first one holds the hash of the stream's name and settings. From the
entries alone the ledger can be computed again; a changed, missing or added entry breaks the chain.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairlayer.errors import FairlayerError, InputError
from fairlayer.plural import plural
from fairlayer.solution import Solution, Status
from fairlayer.stream.batch import Batch
from fairlayer.stream.state import RECORDED

if TYPE_CHECKING:
    from fairlayer.stream.store import Store

Head = tuple[int, str]  # number and hash of an entry
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_STATE_AT = 80  # characters at the end of a payload, within which it names the state
_NOTHING = [0.0] * RECORDED  # the sums of a cell before its first sample
_MOST_PROBLEMS = 20  # that are listed


class Entry(NamedTuple):
    """One entry, as it is stored."""

    number: int  # from 1
    batch_id: str | None
    payload: str  # JSON
    emitted: bytes | None  # the outputs, kept where a batch can be replayed
    previous: str
    hash: str


class Stored(NamedTuple):
    """A stream as it is stored."""

    number: int  # of the last entry
    hash: str
    block: bytes | None  # the state it left; None before the first entry
    configuration: str
    whole: bool = True  # whether the state is the one that the last entry left


@contextmanager
def readable(what: str, kind: type[FairlayerError], remedy: str) -> Iterator[None]:
    """Anything that goes wrong with data of the wrong form, in one sentence."""
    try:
        yield
    except (struct.error, ValueError, LookupError, TypeError, AttributeError) as error:
        raise kind(f"{what} cannot be read ({type(error).__name__}: {error}): {remedy}") from error


def origin(name: str, configuration: str) -> str:
    """What the first entry of a stream with this name and these settings refers to."""
    return hashlib.sha256(f"fairlayer stream {json.dumps(name)} {configuration}".encode()).hexdigest()


def make_entry(
    head: Head, batch_id: str | None, payload: dict[str, Any], emitted: bytes | None, state: bytes | None
) -> Entry:
    """Chain a new entry to the one before it. state: of the stream after it, where it is stored."""
    number, previous = head[0] + 1, head[1]
    payload["time"] = datetime.now(UTC).isoformat()
    payload["emitted"] = _hash(emitted)
    payload["state"] = _hash(state)
    text = _ENCODER.encode(payload)
    return Entry(number, batch_id, text, emitted, previous, _digest(number, batch_id, text, previous))


def leaves_state(payload: str, state: bytes) -> bool:
    """Whether an entry with this payload left this state."""
    return f'"state":"{_hash(state)}"' in payload[-_STATE_AT:]


def _hash(data: bytes | None) -> str | None:
    return hashlib.sha256(data).hexdigest() if data is not None else None


def _digest(number: int, batch_id: str | None, payload: str, previous: str) -> str:
    label = "null" if batch_id is None else json.dumps(batch_id)
    return hashlib.sha256(f'[{number}, {label}, "{previous}"]{payload}'.encode()).hexdigest()


# Replay


def for_replay(batch: Batch, cell: np.ndarray, value: np.ndarray, solution: Solution) -> dict[str, Any]:
    """What an entry of the log keeps of a batch that may be sent again, besides the outputs."""
    found = {"rows": solution.rows, "gaps": np.asarray(solution.gaps).tolist(), "vacuous": solution.vacuous}
    return {"input": _fingerprint(batch, cell), "dtype": value.dtype.name, **found}


def replay(entry: Entry, batch: Batch, cell: np.ndarray) -> Solution:
    """What was emitted when this batch came first."""
    payload = json.loads(entry.payload)
    if payload["input"] != _fingerprint(batch, cell) or entry.emitted is None:
        size = "" if payload["samples"] == batch.n else f" of {payload['samples']} samples, not {batch.n}"
        raise InputError(
            f"batch_id {entry.batch_id!r} was used for another batch{size}: give every batch an id of its own, and "
            "send a batch again with the same outputs, groups and targets."
        )
    value = batch.like(np.frombuffer(entry.emitted, dtype=payload["dtype"]).copy())
    rows, vacuous, status = tuple(payload["rows"]), tuple(payload["vacuous"]), Status[payload["status"]]
    multipliers = np.array([payload["multipliers"].get(row, 0.0) for row in rows])
    return Solution.recorded(value, rows, np.array(payload["gaps"]), multipliers, status, vacuous, payload["excess"])


def _fingerprint(batch: Batch, cell: np.ndarray) -> str:
    """A hash of what a batch brought. Outputs count in float32, so that a batch may come again in another dtype."""
    with np.errstate(over="ignore"):
        parts = [batch.raw.astype(np.float32).tobytes(), cell.astype(np.int32).tobytes()]
    parts += [b"" if batch.known is None else batch.known.tobytes(), repr(batch.ids).encode()]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


# Verification


@dataclass(frozen=True)
class Verification:
    """The outcome of checking a log against the ledger. True in a condition if nothing was found."""

    entries: int
    hash: str
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        entries, found = f"{self.entries} {plural(self.entries, 'entry', 'entries')}", len(self.problems)
        if self:
            return f"{entries}, as written; the ledger follows from the log."
        return f"{entries}, {found} {plural(found, 'problem')}: {'; '.join(self.problems)}"


def verify_log(store: Store, ledger: dict[str, list[float]], kept: Iterable[str] = ()) -> Verification:
    """Compute the ledger again from the log of a store, and compare.

    ledger: cell name -> what is recorded of it. kept: hashes that must be in the chain.
    """
    problems: list[str] = []
    cells: dict[str, list[float]] = {}
    waiting: dict[str, list[float]] = {}
    stored = store.load()
    previous, number, last = origin(store.name, stored.configuration), 0, None
    missing = set(kept) - {previous}
    for entry in store.entries():
        number += 1
        where = f"entry {entry.number}"
        if entry.number != number:
            problems.append(f"entry {number} is missing")
            number = entry.number
        if entry.previous != previous:
            before_it = "name and settings that are stored" if number == 1 else "one before it"
            problems.append(f"{where} does not follow the {before_it}")
        if entry.hash != _digest(entry.number, entry.batch_id, entry.payload, entry.previous):
            problems.append(f"{where} was changed")
        previous = entry.hash
        missing.discard(previous)
        try:
            payload = json.loads(entry.payload)
            changes = [(name, before, after) for name, (before, after) in payload["cells"].items()]
            outputs, last = payload["emitted"], payload["state"]
            waiting |= payload.get("waiting", {})
            observed = dict(payload.get("observed", {}))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            problems.append(f"{where} cannot be read")
            continue
        if _hash(entry.emitted) != outputs:
            problems.append(f"the outputs of {where} were changed")
        changed = [one for one, decision in observed.items() if waiting.pop(one, None) != decision]
        problems += [f"{where} has the target of decision {one!r}, which was changed before" for one in changed]
        for name, before, after in changes:
            if cells.get(name, _NOTHING) != before:
                problems.append(f"{where} does not continue from the sums of cell {name} before it")
            cells[name] = after
    if previous != stored.hash:
        problems.append(
            "entries at the end are missing: the ledger was written by a later one"
            if number
            else "the stream has no entries, and its beginning is not that of its name and settings"
        )
    if number != stored.number:
        problems.append(f"the stream counts {stored.number} entries, its log ends with entry {number}")
    problems += [f"the hash {one} is of no entry: this is another log, or it was rewritten" for one in sorted(missing)]
    if _hash(stored.block) != last:
        problems.append("the stored state is not the one that the last entry left")
    differing = [name for name in cells | ledger if cells.get(name, _NOTHING) != ledger.get(name, _NOTHING)]
    problems += [f"the ledger's sums of cell {name} do not follow from the log" for name in differing]
    there = {one: list(decision) for one, decision in store.pending().items()}
    differing = [one for one in waiting | there if waiting.get(one) != there.get(one)]
    problems += [f"decision {one!r}, which waits for its target, does not follow from the log" for one in differing]
    return Verification(number, stored.hash, tuple(problems[:_MOST_PROBLEMS]))
