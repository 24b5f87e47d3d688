"""What can be said of a stream, now and over time: for those who answer for it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, NamedTuple

from fairlayer.errors import StoreError
from fairlayer.plural import plural
from fairlayer.problem.exact_sums import UNIT
from fairlayer.problem.rows import EACH, RATIO
from fairlayer.stream.ledger import Ledger
from fairlayer.stream.log import Entry, readable


@dataclass(frozen=True)
class ConstraintReport:
    """One constraint: its tolerance, and the largest pooled gap now and ever.

    A gap is None, and the constraint not satisfied, while there is nothing to compare: no second group, or no targets.
    """

    constraint: str
    tolerance: float
    gap: float | None
    largest_gap: float | None
    satisfied: bool
    relative: bool = False  # gaps are shares of the larger mean: 1 less the ratio of the two
    # What a stream promises of its gap now, and whether that is kept: for decisions, the tolerance and half a decision
    # per group (per cell, where attributes overlap); for means, the tolerance.
    bound: float | None = None
    kept: bool = False

    def __str__(self) -> str:
        if self.gap is None:
            return f"{self.constraint}: pooled gap not known yet, nothing to compare; tolerance {self.tolerance:.6g}"
        largest = self.largest_gap or 0.0
        if self.relative:
            verdict = f"{'at least' if self.satisfied else 'BELOW'} {1.0 - self.tolerance:.6g}"
            text = f"pooled ratio {1.0 - self.gap:.6g}, {verdict}; least so far {1.0 - largest:.6g}"
        else:
            verdict = f"{'within' if self.satisfied else 'ABOVE'} tolerance {self.tolerance:.6g}"
            text = f"pooled gap {self.gap:.6g}, {verdict}; largest so far {largest:.6g}"
        if not self.satisfied and self.bound is not None and self.bound != self.tolerance:
            within = "within" if self.kept else "NOT WITHIN"
            text += f" ({within} what is promised, as decisions are whole: a gap of {self.bound:.6g})"
        return f"{self.constraint}: {text}"


@dataclass(frozen=True)
class GroupReport:
    """One group: how many decisions, and their mean, as emitted and before."""

    group: str
    count: int
    mean: float
    raw_mean: float
    measure: str = "mean"  # or "rate", of yes, where decisions are counted

    def __str__(self) -> str:
        made = f"{self.count} {plural(self.count, 'decision')}"
        return f"{self.group}: {made}, {self.measure} {self.mean:.6g} (raw {self.raw_mean:.6g})"


@dataclass(frozen=True)
class Certificate:
    """A stream so far. Plain data; `str` makes it readable, `to_dict` ready for JSON."""

    stream: str
    policy: str
    samples: int
    batches: int
    waiting: int  # decisions whose target is not known: constraints that need targets leave them out
    constraints: tuple[ConstraintReport, ...]
    groups: tuple[GroupReport, ...]
    changed: float  # share of samples whose output differs from the raw one
    mean_change: float  # absolute, over all samples
    largest_change: float
    mean_squared_change: float
    early: int  # decisions in the first batches, up to about 200
    early_agreement: float | None  # correlation of these with the raw outputs; None where all are alike
    later_agreement: float | None  # the same of all after them
    threshold: float | None  # at which a score is a yes, where decisions are counted
    overruled: int | None  # decisions that the ledger took against the leader's threshold, to keep the promise
    excess: float  # largest amount by which tolerances had to give way; 0 where they never had
    weighted_average_gap: float | None  # of batches: what Algorithm 1 is about
    multiplier: float | None  # of Algorithm 1, and the rest of what it promises
    largest_multiplier: float | None
    accumulated_excess: float | None
    accumulated_excess_bound: float | None
    entries: int  # of the log
    hash: str  # of the log's last entry
    time: str = field(compare=False)  # when this was drawn up, in UTC

    @property
    def satisfied(self) -> bool:
        """Whether every pooled gap is known, and within its tolerance now."""
        return all(report.satisfied for report in self.constraints)

    @property
    def kept(self) -> bool:
        """Whether every pooled gap is known, and within what is promised of it now."""
        return all(report.kept for report in self.constraints)

    @property
    def broken(self) -> bool:
        """Whether some pooled gap is known, and beyond what is promised of it now."""
        return any(report.gap is not None and not report.kept for report in self.constraints)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "satisfied": self.satisfied, "kept": self.kept}

    @property
    def cost(self) -> str:
        """What it cost to keep the promise from the first decision on."""
        early, later = (
            "not at all (all are alike)" if one is None else f"with correlation {one:.2f}"
            for one in (self.early_agreement, self.later_agreement)
        )
        first = "The first decision follows" if self.early == 1 else f"The first {self.early} decisions follow"
        rest = self.samples - self.early
        after = f", the {rest} after them {later}." if rest else "; there are no later ones yet."
        return (
            f"{first} the raw outputs {early}{after} As a rule early decisions pay most for the promise: little has "
            "been decided that could offset a gap, so they are pulled together, and tell people apart less well than "
            "raw outputs do."
        )

    def __str__(self) -> str:
        made = f"{self.samples} {plural(self.samples, 'decision')}"
        batches = f"{self.batches} {plural(self.batches, 'batch', 'batches')}"
        lines = [f"Stream {self.stream!r} ({self.policy}): {made} in {batches}"]
        lines += [f"  {report}" for report in self.constraints]
        if self.waiting:
            lines.append(
                f"  {self.waiting} {plural(self.waiting, 'decision is', 'decisions are')} waiting for "
                f"{plural(self.waiting, 'its target', 'their targets')}, and left out of gaps that need targets"
            )
        lines += [f"  {group}" for group in self.groups]
        lines.append(
            f"  changed: {self.changed:.1%} of decisions, by {self.mean_change:.6g} on average over all, "
            f"{self.largest_change:.6g} at most"
        )
        if self.overruled is not None:
            share = self.overruled / max(self.samples, 1)
            lines.append(f"  yes at {self.threshold:g}; thresholds overruled: {self.overruled} times ({share:.2%})")
        if self.samples:
            lines.append(f"  {self.cost}")
        if self.multiplier is not None:
            lines.append(
                f"  Algorithm 1: average gap of batches {self.weighted_average_gap:.6g}, multiplier "
                f"{self.multiplier:.6g} (at most {self.largest_multiplier:.6g}), accumulated excess "
                f"{self.accumulated_excess:.6g} <= {self.accumulated_excess_bound:.6g}"
            )
        lines.append(f"  drawn up {self.time}, after entry {self.entries} of the log, whose hash is {self.hash}")
        return "\n".join(lines)


def certify(name: str, ledger: Ledger, head: tuple[int, str]) -> Certificate:
    """Draw up the certificate of a stream. head: number and hash of the last entry of its log."""
    settings, totals, index = ledger.settings, ledger.state.totals, ledger.index
    early, later = ledger.state.agreement.tolist()
    samples, algorithm = max(totals.samples, 1), settings.policy == "primal-dual"
    return Certificate(
        stream=name,
        policy=settings.policy,
        samples=totals.samples,
        batches=totals.batches,
        waiting=int(ledger.state.count[index.waiting()].sum()) // index.width,
        constraints=report_constraints(ledger),
        groups=report_groups(ledger),
        changed=totals.changed / samples,
        mean_change=totals.change / samples,
        largest_change=totals.largest_change,
        mean_squared_change=totals.square_change / samples,
        early=int(early[0]) // index.width,
        early_agreement=correlation(early),
        later_agreement=correlation(later),
        threshold=settings.threshold,
        overruled=totals.overruled if settings.threshold is not None else None,
        excess=totals.excess,
        weighted_average_gap=totals.weighted_gap / max(totals.judged, 1) if algorithm else None,
        multiplier=totals.multiplier if algorithm else None,
        largest_multiplier=totals.largest_multiplier if algorithm else None,
        accumulated_excess=totals.accumulated_excess if algorithm else None,
        accumulated_excess_bound=math.sqrt(totals.soft_steps) * totals.multiplier / settings.eta if algorithm else None,
        entries=head[0],
        hash=head[1],
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def correlation(moments: list[float]) -> float | None:
    """Of raw outputs and decisions; None where either are all alike, or nearly. moments: Agreement of ledger.cpp.

    How closely decisions follow the raw outputs is what they still say about people, apart from who is in which group.
    """
    count, _, _, raw, decided, both = moments
    if count < 2 or raw <= 0.0 or decided <= 1e-12 * raw:
        return None
    return min(max(both / math.sqrt(raw) / math.sqrt(decided), -1.0), 1.0)


def report_constraints(ledger: Ledger) -> tuple[ConstraintReport, ...]:
    """Each constraint now."""
    reports, settings = [], ledger.settings
    promises = {} if settings.threshold is None else decision_promises(ledger)
    for position, (constraint, gap) in enumerate(zip(settings.rules.constraints, largest_gaps(ledger), strict=True)):
        largest = ledger.state.largest[position] if gap is not None else None
        tolerance = settings.tolerances[position]
        title = str(constraint.name or getattr(constraint, "title", type(constraint).__name__))
        relative = getattr(constraint, "comparison", "") == "ratio"
        within = gap is not None and gap <= (tolerance + 4.0 * UNIT if relative else tolerance)
        bound, kept = promises.get(position, (tolerance, within))
        reports.append(ConstraintReport(title, tolerance, gap, largest, within, relative, bound, kept))
    return tuple(reports)


def decision_promises(ledger: Ledger) -> dict[int, tuple[float, bool]]:
    """Of each constraint on decisions that compares anything: what the gap of the two groups farthest apart may be now,
    and whether the promise is kept between any two. By counts, in rational arithmetic.

    Decisions are whole, so a group of N decisions in L cells may be off a fair rate by L / (2 N) besides.
    """
    plan, count = ledger.index.plan, ledger.state.count
    found: dict[int, tuple[float, bool]] = {}
    totals = (ledger.index.by_statistic(each) for each in (count, ledger.state.total, count > 0))
    groups = [(int(n), int(yes), int(cells)) for n, yes, cells in zip(*(each.tolist() for each in totals), strict=True)]
    for family, begin in zip(plan.families, plan.begin.tolist(), strict=False):
        here = [group for group in groups[begin : begin + len(family.groups)] if group[0]]
        if len(here) < 2:
            continue
        relative = family.kind == RATIO
        r = Fraction(family.coefficient)
        tolerance = Fraction(0.0 if relative else ledger.settings.tolerances[family.owner])
        # r * (rate of a - its half decisions) - (rate of b + its half decisions) <= tolerance, for all a, b.
        highest = max(Fraction(2 * yes - cells, 2 * n) for n, yes, cells in here)
        lowest = min(Fraction(2 * yes + cells, 2 * n) for n, yes, cells in here)
        most, least = (pick(here, key=lambda group: Fraction(group[1], group[0])) for pick in (max, min))
        rate, off = Fraction(most[1], most[0]), r * Fraction(most[2], 2 * most[0]) + Fraction(least[2], 2 * least[0])
        bound = (1 - r) * rate + tolerance + off
        bound = bound / rate if relative and rate else bound
        before = found.get(family.owner, (0.0, True))
        found[family.owner] = max(before[0], float(bound)), before[1] and r * highest - lowest <= tolerance
    return found


def largest_gaps(ledger: Ledger) -> tuple[float | None, ...]:
    """The largest pooled gap of each constraint now; None where there is nothing to compare."""
    view, plan = ledger.view(), ledger.index.plan
    gaps = view.largest(ledger.statistics(), len(ledger.settings.tolerances))
    compared = {
        family.owner
        for family, begin in zip(plan.families, plan.begin.tolist(), strict=False)
        if view.present[begin : begin + len(family.groups)].sum() >= (1 if family.kind == EACH else 2)
    }
    return tuple(gap if position in compared else None for position, gap in enumerate(gaps))


def report_groups(ledger: Ledger) -> tuple[GroupReport, ...]:
    """Each group that has decisions."""
    state, plan = ledger.state, ledger.index.plan
    measure = "mean" if ledger.settings.threshold is None else "rate"
    sums = [plan.totals(each).tolist() for each in (state.count, state.total, state.cells["raw"])]
    each = zip(plan.labels, *sums, strict=True)
    return tuple(GroupReport(label, int(n), total / n, raw / n, measure) for label, n, total, raw in each if n > 0)


# Over time


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
                entry.number, payload["time"], payload["kind"], entry.batch_id, decisions, samples,
                payload.get("status", ""), largest_gaps(ledger), payload.get("changed", 0.0),
                payload.get("change", 0.0), report_groups(ledger),
            )  # fmt: skip
            steps.append(step)
    return Timeline(tuple(steps))
