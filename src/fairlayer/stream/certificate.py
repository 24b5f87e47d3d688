"""What can be said of a stream so far: for those who answer for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fairlayer.stream.stream import Stream

_LEAST, _MOST, _MEAN, _GAP, _BATCHES = range(5)  # places in a row's shares, see kernels.note_shares


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

    def __str__(self) -> str:
        if self.gap is None:
            return f"{self.constraint}: pooled gap not known yet, nothing to compare; tolerance {self.tolerance:.6g}"
        return (
            f"{self.constraint}: pooled gap {self.gap:.6g}, {'within' if self.satisfied else 'ABOVE'} tolerance "
            f"{self.tolerance:.6g}; largest so far {self.largest_gap:.6g}"
        )


@dataclass(frozen=True)
class GroupReport:
    """One group: how many decisions, and their mean."""

    group: str
    count: int
    mean: float


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
    excess: float  # largest amount by which tolerances had to give way; 0 where they never had
    aggregate_bound: float | None  # of Lemma 3.1, on the largest pooled gap, from the gaps within batches
    weighted_average_gap: float | None  # of batches: what Algorithm 1 is about
    multiplier: float | None  # of Algorithm 1, and the rest of what it promises
    largest_multiplier: float | None
    accumulated_excess: float | None
    accumulated_excess_bound: float | None
    hash: str  # of the log's last entry

    @property
    def satisfied(self) -> bool:
        """Whether every pooled gap is known, and within its tolerance now."""
        return all(report.satisfied for report in self.constraints)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"Stream {self.stream!r} ({self.policy}): {self.samples} decisions in {self.batches} batches"]
        lines += [f"  {report}" for report in self.constraints]
        if self.waiting:
            lines.append(f"  {self.waiting} decisions wait for their target, and are not in gaps that need it")
        lines += [f"  {group.group}: {group.count} decisions, mean {group.mean:.6g}" for group in self.groups]
        lines.append(
            f"  changed: {self.changed:.1%} of decisions, by {self.mean_change:.6g} on average over all, "
            f"{self.largest_change:.6g} at most"
        )
        if self.aggregate_bound is not None:
            lines.append(f"  bound of Lemma 3.1 on the pooled gap, from the batches alone: {self.aggregate_bound:.6g}")
        if self.multiplier is not None:
            lines.append(
                f"  Algorithm 1: average gap of batches {self.weighted_average_gap:.6g}, multiplier "
                f"{self.multiplier:.6g} (at most {self.largest_multiplier:.6g}), accumulated excess "
                f"{self.accumulated_excess:.6g} <= {self.accumulated_excess_bound:.6g}"
            )
        lines.append(f"  ledger {self.hash}")
        return "\n".join(lines)


def certify(stream: Stream, head: str) -> Certificate:
    """Draw up the certificate of a stream."""
    account, plan, view = stream.ledger.account, stream.ledger.book.plan, stream.ledger.view()
    numbers = account.numbers
    gaps = np.abs(stream.ledger.gaps(view))
    reports = []
    for position, constraint in enumerate(stream.rules.constraints):
        here = gaps[view.owner == position]
        gap = float(here.max()) if len(here) else None
        largest = account.largest[position] if gap is not None else None
        tolerance = stream.tolerances[position]
        title = str(constraint.name or getattr(constraint, "title", type(constraint).__name__))
        reports.append(ConstraintReport(title, tolerance, gap, largest, gap is not None and gap <= tolerance))
    count, total = account.count @ plan.membership, account.total @ plan.membership
    groups = tuple(
        GroupReport(label, int(c), float(t / c))
        for label, c, t in zip(plan.labels, count.tolist(), total.tolist(), strict=True)
        if c > 0
    )
    samples = max(numbers["samples"], 1.0)
    algorithm = stream.policy == "primal-dual"
    average = numbers["weighted_gap"] / numbers["judged"] if numbers["judged"] else 0.0
    return Certificate(
        stream=stream.name,
        policy=stream.policy,
        samples=int(numbers["samples"]),
        batches=int(numbers["batches"]),
        waiting=int(account.count[stream.ledger.book.waiting()].sum()),
        constraints=tuple(reports),
        groups=groups,
        changed=numbers["changed"] / samples,
        mean_change=numbers["change"] / samples,
        largest_change=numbers["largest_change"],
        mean_squared_change=numbers["square_change"] / samples,
        excess=numbers["excess"],
        aggregate_bound=_aggregate_bound(stream),
        weighted_average_gap=average if algorithm else None,
        multiplier=numbers["multiplier"] if algorithm else None,
        largest_multiplier=numbers["largest_multiplier"] if algorithm else None,
        accumulated_excess=numbers["accumulated_excess"] if algorithm else None,
        accumulated_excess_bound=(
            float(np.sqrt(numbers["soft_steps"]) * numbers["multiplier"] / stream.eta) if algorithm else None
        ),
        hash=head,
    )


def _aggregate_bound(stream: Stream) -> float | None:
    """Lemma 3.1 for the worst row: gap of batches + deviation of shares x largest mean x (1/p + 1/(1-p)).

    It applies where every batch holds both groups of every row.
    """
    plan, view, shares = stream.ledger.book.plan, stream.ledger.view(), stream.ledger.shares()
    count = stream.ledger.account.count @ plan.membership
    bound = 0.0
    for j, name in enumerate(view.names):
        kept = shares.get(name)
        if view.minus[j] < 0 or kept is None or kept[_BATCHES] < stream.ledger.account.numbers["batches"]:
            return None
        p = count[view.plus[j]] / (count[view.plus[j]] + count[view.minus[j]])
        deviation = max(kept[_MOST] - p, p - kept[_LEAST], 0.0)
        bound = max(bound, kept[_GAP] + deviation * kept[_MEAN] * (1.0 / p + 1.0 / (1.0 - p)))
    return float(bound) if len(view.names) else None
