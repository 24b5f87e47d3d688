"""The log of a stream: one entry per transaction, each holding the hash of the one before it.

An entry says what was in the cells it touched before and after, the multipliers and the status. From the entries alone
the ledger can be computed again; a changed, missing or added entry breaks the chain.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

ORIGIN = hashlib.sha256(b"fairlayer stream").hexdigest()  # what the first entry refers to

_ENCODER = json.JSONEncoder(separators=(",", ":"))
_NOTHING = [0.0] * 5  # the sums of a cell before its first sample, see account.py


class Entry(NamedTuple):
    """One entry, as it is stored."""

    number: int  # from 1
    batch_id: str | None
    payload: str  # JSON
    emitted: bytes | None  # the outputs, kept where a batch can be replayed
    previous: str
    hash: str


def make_entry(
    number: int,
    previous: str,
    batch_id: str | None,
    payload: dict[str, Any],
    emitted: bytes | None,
    state: bytes | None,
) -> Entry:
    """Chain a new entry to the one before it. state: of the stream after it, where it is stored."""
    payload["time"] = datetime.now(UTC).isoformat()
    payload["emitted"] = _hash(emitted)
    payload["state"] = _hash(state)
    text = _ENCODER.encode(payload)
    return Entry(number, batch_id, text, emitted, previous, _digest(number, batch_id, text, previous))


def _hash(data: bytes | None) -> str | None:
    return hashlib.sha256(data).hexdigest() if data is not None else None


def _digest(number: int, batch_id: str | None, payload: str, previous: str) -> str:
    label = "null" if batch_id is None else json.dumps(batch_id)
    return hashlib.sha256(f'[{number}, {label}, "{previous}"]{payload}'.encode()).hexdigest()


@dataclass(frozen=True)
class Verification:
    """The outcome of checking a log against the ledger. True in a condition if nothing was found."""

    entries: int
    hash: str
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        if self:
            return f"{self.entries} entries, every one as it was written; the ledger follows from them."
        return f"{self.entries} entries, {len(self.problems)} problems: " + "; ".join(self.problems)


def verify_log(
    entries: Iterable[Entry], ledger: dict[str, list[float]], head: str, state: bytes | None
) -> Verification:
    """Compute the ledger again from its log, and compare.

    ledger: cell name -> what is recorded of it. head, state: the last hash and the state, as they are stored.
    """
    problems: list[str] = []
    cells: dict[str, list[float]] = {}
    previous, number, last = ORIGIN, 0, None
    for entry in entries:
        number += 1
        where = f"entry {entry.number}"
        if entry.number != number:
            problems.append(f"entry {number} is missing")
            number = entry.number
        if entry.previous != previous:
            problems.append(f"{where} does not follow the one before it")
        if entry.hash != _digest(entry.number, entry.batch_id, entry.payload, entry.previous):
            problems.append(f"{where} was changed")
        previous = entry.hash
        try:
            payload = json.loads(entry.payload)
            changes, outputs, last = dict(payload["cells"]), payload["emitted"], payload["state"]
        except (ValueError, KeyError, TypeError):
            problems.append(f"{where} cannot be read")
            continue
        if _hash(entry.emitted) != outputs:
            problems.append(f"the outputs of {where} were changed")
        for name, (before, after) in changes.items():
            if cells.get(name, _NOTHING) != before:
                problems.append(f"{where} does not continue from the sums of cell {name} before it")
            cells[name] = after
    if previous != head:
        problems.append("entries at the end are missing: the ledger was written by a later one")
    if _hash(state) != last:
        problems.append("the stored state is not the one that the last entry left")
    differing = [name for name in cells | ledger if cells.get(name, _NOTHING) != ledger.get(name, _NOTHING)]
    problems += [f"the ledger's sums of cell {name} do not follow from the log" for name in differing]
    return Verification(number, head, tuple(problems[:20]))
