"""What must be true of a log after every step. Shares nothing with the code that wrote it."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from pooled import Pool

TOLERANCE = 0.05
_ROUNDING = Fraction(1, 10**12)


class BrokenError(AssertionError):
    """An invariant does not hold."""


class Row(NamedTuple):
    """An entry of the log."""

    number: int
    batch_id: str | None
    payload: str
    emitted: bytes | None
    previous: str
    hash: str


@lru_cache(maxsize=64)
def read(image: bytes) -> tuple[list[Row], Any]:
    """The log in the image of a database, and the stream's state, number and hash."""
    database = sqlite3.connect(":memory:")
    database.deserialize(image)
    try:
        rows = database.execute(
            "SELECT number, batch_id, payload, emitted, previous, hash FROM fairlayer_log ORDER BY number"
        )
        log = [Row(*row) for row in rows]
        return log, database.execute("SELECT state, number, hash FROM fairlayer_streams").fetchone()
    except sqlite3.OperationalError:  # no tables yet
        return [], None
    finally:
        database.close()


def judge(image: bytes, groups: dict[str, np.ndarray], known: set[str]) -> list[Row]:
    """Look through the whole log. groups: of each batch, by its id. known: hashes of entries looked at before."""
    log, stream = read(image)
    previous, sums, pool, ids = None, {}, Pool(), set()
    for number, entry in enumerate(log, 1):
        if entry.number != number:
            raise BrokenError(f"entry {number} is missing")
        if previous is not None and entry.previous != previous:
            raise BrokenError(f"entry {number} does not follow the one before it")
        label = "null" if entry.batch_id is None else json.dumps(entry.batch_id)
        text = f'[{entry.number}, {label}, "{entry.previous}"]{entry.payload}'
        if hashlib.sha256(text.encode()).hexdigest() != entry.hash:
            raise BrokenError(f"the hash of entry {number} is wrong")
        previous = entry.hash
        payload = json.loads(entry.payload)
        for cell, (before, after) in payload["cells"].items():
            if sums.get(cell, [0.0] * len(before)) != before:
                raise BrokenError(f"entry {number} does not go on from what cell {cell} held: a batch was lost")
            sums[cell] = after
        if entry.batch_id is not None:
            if entry.batch_id in ids:
                raise BrokenError(f"batch {entry.batch_id} counted twice")
            ids.add(entry.batch_id)
            outputs = np.frombuffer(entry.emitted or b"", np.float64)
            pool.add(outputs, {"g": groups[entry.batch_id].tolist()})
            if previous not in known and not pool.keeps(TOLERANCE):
                raise BrokenError(f"pooled gap {float(pool.largest_gap())} after entry {number}")
        elif previous not in known and _gap(sums) > Fraction(TOLERANCE) + _ROUNDING:
            raise BrokenError(f"pooled gap {float(_gap(sums))} after entry {number}")
        known.add(previous)
    if log:
        state, number, end = stream
        if (number, end) != (len(log), previous):
            raise BrokenError(f"the stream is at entry {number}, its log at {len(log)}")
        if hashlib.sha256(state).hexdigest() != json.loads(log[-1].payload)["state"]:
            raise BrokenError("the state is not the one that the last entry left")
    return log


def _gap(sums: dict[str, list[float]]) -> Fraction:
    """Of the sums that the log has: count, then the sum of outputs in two parts."""
    means = [(Fraction(one[1]) + Fraction(one[2])) / int(one[0]) for one in sums.values() if one[0]]
    return max(means) - min(means) if means else Fraction(0)
