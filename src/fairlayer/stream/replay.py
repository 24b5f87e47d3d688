"""A batch that is sent again: how it is known, and what it gets."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from fairlayer.errors import InputError
from fairlayer.solution import Facts, RecordedFacts, Solution, Status
from fairlayer.stream.log import Entry


def fingerprint(raw: np.ndarray, cell: np.ndarray, targets: np.ndarray | None, ids: list[str]) -> str:
    """A hash of what a batch brought. Outputs count in float32, so that a batch may come again in another dtype."""
    with np.errstate(over="ignore"):
        parts = [raw.astype(np.float32).tobytes(), cell.astype(np.int32).tobytes()]
    parts += [b"" if targets is None else targets.tobytes(), repr(ids).encode()]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def kept_for_replay(batch: str, value: np.ndarray, facts: Facts) -> dict[str, Any]:
    """What an entry of the log keeps besides the outputs. batch: its fingerprint."""
    kept = {"rows": facts.rows, "gaps": facts.gaps.tolist(), "vacuous": facts.vacuous}
    return {"input": batch, "dtype": value.dtype.name, **kept}


def replay(entry: Entry, n: int, batch: str, like: Any) -> Solution:
    """What was emitted when this batch came first. batch: its fingerprint."""
    payload = json.loads(entry.payload)
    if payload["input"] != batch or entry.emitted is None:
        size = "" if payload["samples"] == n else f" of {payload['samples']} samples, not {n}"
        raise InputError(
            f"batch_id {entry.batch_id!r} was used for another batch{size}: give every batch an id of its own, and "
            "send a batch again with the same outputs, groups and targets."
        )
    multipliers = [payload["multipliers"].get(row, 0.0) for row in payload["rows"]]
    facts = RecordedFacts(
        tuple(payload["rows"]),
        np.array(payload["gaps"]),
        np.array(multipliers),
        Status[payload["status"]],
        tuple(payload["vacuous"]),
        payload["excess"],
    )
    return Solution(like(np.frombuffer(entry.emitted, dtype=payload["dtype"]).copy()), facts)
