"""What can be said of a stream so far: for those who answer for it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from fairlayer.binding.exact_sums import UNIT
from fairlayer.binding.rows import EACH, RATIO
from fairlayer.plural import plural
from fairlayer.stream.ledger import Ledger

_LEAST, _MOST, _MEAN, _GAP, _BATCHES = range(5)  # places in a row's shares, RowShares of ledger.cpp


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
    # What a stream promises of its gap now, and whether that is kept: of decisions, which are whole, the tolerance and
    # half a decision of each group (of each cell, where attributes overlap); of means the tolerance.
    bound: float | None = None
    kept: bool = False

    def __str__(self) -> str:
        text = self._text()
        if self.gap is None or self.satisfied or self.bound is None or self.bound == self.tolerance:
            return text
        within = "within" if self.kept else "NOT WITHIN"
        return f"{text} ({within} what is promised, as decisions are whole: a gap of {self.bound:.6g})"

    def _text(self) -> str:
        if self.gap is None:
            return f"{self.constraint}: pooled gap not known yet, nothing to compare; tolerance {self.tolerance:.6g}"
        if self.relative:
            return (
                f"{self.constraint}: pooled ratio {1.0 - self.gap:.6g}, {'at least' if self.satisfied else 'BELOW'} "
                f"{1.0 - self.tolerance:.6g}; least so far {1.0 - (self.largest_gap or 0.0):.6g}"
            )
        return (
            f"{self.constraint}: pooled gap {self.gap:.6g}, {'within' if self.satisfied else 'ABOVE'} tolerance "
            f"{self.tolerance:.6g}; largest so far {self.largest_gap:.6g}"
        )


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


def _closely(agreement: float | None) -> str:
    return "not at all (all are alike)" if agreement is None else f"with correlation {agreement:.2f}"


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
    aggregate_bound: float | None  # of Lemma 3.1, on the largest pooled gap, from the gaps within batches
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
        later = self.samples - self.early
        first = "The first decision follows" if self.early == 1 else f"The first {self.early} decisions follow"
        said = f"{first} the raw outputs {_closely(self.early_agreement)}"
        said += (
            f", the {later} after them {_closely(self.later_agreement)}." if later else "; there are no later ones yet."
        )
        return (
            f"{said} As a rule early decisions pay most for the promise: little has been decided that could offset "
            "a gap, so they are pulled together, and tell people apart less well than raw outputs do."
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
        if self.aggregate_bound is not None:
            lines.append(f"  bound of Lemma 3.1 on the pooled gap, from the batches alone: {self.aggregate_bound:.6g}")
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
    settings, totals = ledger.settings, ledger.state.totals
    samples, (early, later) = totals.samples, ledger.state.agreement.tolist()
    algorithm = settings.policy == "primal-dual"
    average = totals.weighted_gap / totals.judged if totals.judged else 0.0
    return Certificate(
        stream=name,
        policy=settings.policy,
        samples=int(samples),
        batches=int(totals.batches),
        waiting=int(ledger.state.count[ledger.index.waiting()].sum()) // ledger.index.width,
        constraints=report_constraints(ledger),
        groups=report_groups(ledger),
        changed=totals.changed / max(samples, 1.0),
        mean_change=totals.change / max(samples, 1.0),
        largest_change=totals.largest_change,
        mean_squared_change=totals.square_change / max(samples, 1.0),
        early=int(early[0]) // ledger.index.width,
        early_agreement=correlation(early),
        later_agreement=correlation(later),
        threshold=settings.threshold,
        overruled=int(totals.overruled) if settings.threshold is not None else None,
        excess=totals.excess,
        aggregate_bound=_aggregate_bound(ledger),
        weighted_average_gap=average if algorithm else None,
        multiplier=totals.multiplier if algorithm else None,
        largest_multiplier=totals.largest_multiplier if algorithm else None,
        accumulated_excess=totals.accumulated_excess if algorithm else None,
        accumulated_excess_bound=(
            float(np.sqrt(totals.soft_steps) * totals.multiplier / settings.eta) if algorithm else None
        ),
        entries=head[0],
        hash=head[1],
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )


class Promise(NamedTuple):
    """What a stream promises of the pooled gaps of one constraint at this moment, and whether it is kept.

    Of means it is the tolerance. Decisions are whole, so a group of N decisions in L cells may be off a fair rate by
    L / (2 N) besides: half a decision where attributes do not overlap, half a decision per cell where they do.
    """

    bound: float  # what the gap of the two groups farthest apart may be now
    kept: bool  # of any two groups


def correlation(moments: list[float]) -> float | None:
    """Of raw outputs and decisions; None where either are all alike, or nearly. moments: Agreement of ledger.cpp.

    How closely decisions follow the raw outputs is what they still say about people, apart from who is in which group.
    Early in a stream there is little that could make up for a gap, so decisions are drawn together; later ones may
    differ as the raw outputs do. The correlation says how much of that is left, without knowing what came true.
    """
    count, _, _, raw, decided, both = moments
    if count < 2 or raw <= 0.0 or decided <= 1e-12 * raw:
        return None
    return min(max(both / math.sqrt(raw) / math.sqrt(decided), -1.0), 1.0)


def report_constraints(ledger: Ledger) -> tuple[ConstraintReport, ...]:
    """Each constraint now."""
    reports, settings = [], ledger.settings
    promises: list[Promise | None] = [None] * len(settings.tolerances)
    if settings.threshold is not None:
        promises = decision_promises(ledger)
    for position, (constraint, gap) in enumerate(zip(settings.rules.constraints, largest_gaps(ledger), strict=True)):
        largest = ledger.state.largest[position] if gap is not None else None
        tolerance = settings.tolerances[position]
        title = str(constraint.name or getattr(constraint, "title", type(constraint).__name__))
        relative = getattr(constraint, "comparison", "") == "ratio"
        held = gap is not None and gap <= (tolerance + 4.0 * UNIT if relative else tolerance)
        bound, kept = promises[position] or Promise(tolerance, held)
        reports.append(ConstraintReport(title, tolerance, gap, largest, held, relative, bound, kept))
    return tuple(reports)


def decision_promises(ledger: Ledger) -> list[Promise | None]:
    """Of each constraint on decisions, by counts, in rational arithmetic; None where there is nothing to compare."""
    plan, count = ledger.index.plan, ledger.state.count
    totals = (plan.totals(each) for each in (count, ledger.state.total, (count > 0).astype(np.float64)))
    groups = [(int(n), int(yes), int(cells)) for n, yes, cells in zip(*(each.tolist() for each in totals), strict=True)]
    found: list[Promise | None] = [None] * len(ledger.settings.tolerances)
    for family, begin in zip(plan.families, plan.begin.tolist(), strict=False):
        here = [group for group in groups[begin : begin + len(family.groups)] if group[0]]
        if len(here) < 2:
            continue
        tolerance = 0.0 if family.kind == RATIO else ledger.settings.tolerances[family.owner]
        promise = _promise(here, Fraction(family.coefficient), Fraction(tolerance), family.kind == RATIO)
        before = found[family.owner]
        if before is not None:
            promise = Promise(max(before.bound, promise.bound), before.kept and promise.kept)
        found[family.owner] = promise
    return found


def _promise(groups: list[tuple[int, int, int]], coefficient: Fraction, tolerance: Fraction, relative: bool) -> Promise:
    """coefficient * (rate of a - its half decisions) - (rate of b + its half decisions) <= tolerance, for all a, b."""
    highest = max(Fraction(2 * yes - cells, 2 * n) for n, yes, cells in groups)
    lowest = min(Fraction(2 * yes + cells, 2 * n) for n, yes, cells in groups)
    most, least = (pick(groups, key=lambda group: Fraction(group[1], group[0])) for pick in (max, min))
    (off_most, rate), (off_least, _) = ((Fraction(g[2], 2 * g[0]), Fraction(g[1], g[0])) for g in (most, least))
    bound = (1 - coefficient) * rate + tolerance + coefficient * off_most + off_least
    if relative and rate:
        bound /= rate
    return Promise(float(bound), coefficient * highest - lowest <= tolerance)


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
    return tuple(
        GroupReport(label, int(count), total / count, raw / count, measure)
        for label, count, total, raw in zip(plan.labels, *sums, strict=True)
        if count > 0
    )


def _aggregate_bound(ledger: Ledger) -> float | None:
    """Lemma 3.1 for the worst row: gap of batches + deviation of shares x largest mean x (1/p + 1/(1-p)).

    It applies where every batch holds both groups of every row.
    """
    plan, view, shares = ledger.index.plan, ledger.view(), ledger.shares()
    if view.relative is not None:  # the lemma is about differences
        return None
    count = plan.totals(ledger.state.count)
    bound = 0.0
    for j, name in enumerate(view.names):
        kept = shares.get(name)
        if view.minus[j] < 0 or kept is None or kept[_BATCHES] < ledger.state.totals.batches:
            return None
        p = count[view.plus[j]] / (count[view.plus[j]] + count[view.minus[j]])
        deviation = max(kept[_MOST] - p, p - kept[_LEAST], 0.0)
        bound = max(bound, kept[_GAP] + deviation * kept[_MEAN] * (1.0 / p + 1.0 / (1.0 - p)))
    return float(bound) if len(view.names) else None
