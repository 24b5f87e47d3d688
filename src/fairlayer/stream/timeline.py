"""How a stream came to be what it is, computed again from its log alone: gaps, groups and changes over time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairlayer.errors import StoreError
from fairlayer.stream.certificate import GroupReport, largest_gaps, report_groups
from fairlayer.stream.ledger import Ledger
from fairlayer.stream.log import Entry
from fairlayer.stream.store import readable


class Step(NamedTuple):
    """The stream after one entry of its log, or after several."""

    number: int  # of the entry, the last one of several
    time: str
    kind: str  # batch, targets or warm start
    batch_id: str | None
    decisions: int  # made in it
    samples: int  # decisions so far
    status: str  # of a batch, the last one of several
    gaps: tuple[float | None, ...]  # largest pooled gap by constraint, at any time within; None: nothing to compare
    changed: float  # decisions in it whose output differs from the raw one
    change: float  # sum of absolute changes in it
    groups: tuple[GroupReport, ...]


@dataclass(frozen=True)
class Timeline:
    """Every entry of a log as a step."""

    steps: tuple[Step, ...]

    def condensed(self, most: int) -> tuple[Step, ...]:
        """At most so many steps; of the gaps within one, the largest are kept."""
        total = len(self.steps)
        if total <= most:
            return self.steps
        ends = [total * (k + 1) // most for k in range(most)]
        starts = [0, *ends[:-1]]
        return tuple(_merged(self.steps[start:end]) for start, end in zip(starts, ends, strict=True))


def _merged(steps: Sequence[Step]) -> Step:
    gaps = tuple(
        max((gap for gap in column if gap is not None), default=None)
        for column in zip(*(step.gaps for step in steps), strict=True)
    )
    return steps[-1]._replace(
        decisions=sum(step.decisions for step in steps),
        gaps=gaps,
        changed=sum(step.changed for step in steps),
        change=sum(step.change for step in steps),
    )


def trace(ledger: Ledger, entries: Iterable[Entry]) -> Timeline:
    """Go through a log with a ledger that knows its cells, whose sums are computed anew."""
    sums = ledger.rewind()
    steps: list[Step] = []
    samples = 0
    for entry in entries:
        with readable(f"entry {entry.number} of the log", StoreError, "it was changed; `verify` says what else was."):
            payload = json.loads(entry.payload)
            for name, (_, after) in payload["cells"].items():
                sums[name][:] = after
            decisions = payload["samples"] if payload["kind"] == "batch" else 0
            samples += decisions
            step = Step(
                entry.number,
                payload["time"],
                payload["kind"],
                entry.batch_id,
                decisions,
                samples,
                payload.get("status", ""),
                largest_gaps(ledger),
                payload.get("changed", 0.0),
                payload.get("change", 0.0),
                report_groups(ledger),
            )
            steps.append(step)
    return Timeline(tuple(steps))
