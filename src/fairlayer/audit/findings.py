"""The rows of the constraints over a tally: gaps, intervals, verdicts.

Constraints state their rows over cells, as for a projection or a stream; only the sums of cells are needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlayer.audit.intervals import possible_outputs, possible_residuals
from fairlayer.audit.result import Finding, Interval, Verdict
from fairlayer.audit.tally import MOST_GROUPS, CellTally, Range
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.row_plan import PresentRows
from fairlayer.binding.system import make_plan
from fairlayer.constraints import Constraint
from fairlayer.errors import InputError
from fairlayer.intervals import cautious_means, effective_count, log_ratio, welch

LETTERS = {"output": "y", "residual": "r", "decision": "d"}  # of the tally's sums
ROUNDING = 2.0**-48  # times the largest output: what rounding may do to a mean in float64


@dataclass(frozen=True, eq=False)
class Statistics:
    """The group means that the rows compare, K of them, m rows."""

    view: PresentRows
    named: list[tuple[str, str]]  # what is compared, and the group
    count: np.ndarray  # (K,) samples
    n: np.ndarray  # (K,) effective samples
    mean: np.ndarray  # (K,)
    variance: np.ndarray  # (K,) of the samples
    quantity: np.ndarray  # (K,) what each is the mean of: "output", "residual" or "decision"


def measure_rows(tally: CellTally, rules: ConstraintSet) -> Statistics:
    """Means of all groups that the constraints compare."""
    names = tuple(key[1] for key in tally.attributes)
    groupings, _ = rules.groupings(names)
    _check_groups(tally, groupings)
    plan = make_plan(rules, groupings, tally.grid(), tally.cells)

    def per_statistic(what: str) -> np.ndarray:
        return plan.totals(tally.total(what, tally.cell, tally.cells))

    weight = per_statistic("w")
    safe = np.where(weight > 0, weight, 1.0)
    widths = [len(family.groups) for family in plan.families]
    quantity = np.repeat([rules.constraints[family.owner].quantity for family in plan.families], widths)

    def of_quantity(sums: str) -> np.ndarray:
        total = np.zeros(len(quantity))
        for kind in set(quantity.tolist()):
            spelled = sums.replace("q", LETTERS[kind]).replace("dd", "d")  # a decision is its own square
            total = np.where(quantity == kind, per_statistic(spelled), total)
        return total

    mean, squared = of_quantity("wq") / safe, per_statistic("ww")
    n = effective_count(weight, squared)
    scatter = of_quantity("wwqq") - 2.0 * mean * of_quantity("wwq") + mean**2 * squared
    variance = np.maximum(scatter, 0.0) / np.where(squared > 0, squared, 1.0)
    named = [(family.prefix, label) for family in plan.families for label in family.labels()]
    count = per_statistic("")
    return Statistics(plan.view(weight > 0), named, count, n, mean, variance, quantity)


def _check_groups(tally: CellTally, groupings: Any) -> None:
    for grouping in (grouping for listed in groupings for grouping in listed):
        size = math.prod(len(tally.columns["group", name].labels or ()) for name in grouping)
        if size > MOST_GROUPS:
            raise InputError(
                f"over={grouping!r} compares {size:,} groups with each other, more than {MOST_GROUPS}: intersect fewer "
                "attributes, or make coarser groups."
            )


def find(
    tally: CellTally, rules: ConstraintSet, bounds: Range | None, confidence: float
) -> tuple[list[Finding], tuple[str, ...], tuple[str, ...]]:
    """All findings, the farthest beyond its tolerance first; absent groups; constraints that compare nobody."""
    s = measure_rows(tally, rules)
    intervals = _intervals(s, tally, bounds, confidence)
    magnitude = {"output": tally.outputs.magnitude, "decision": 1.0}
    magnitude["residual"] = tally.residuals.magnitude if tally.residuals else 0.0
    tolerances, gaps = rules.allowed(), s.view.values(s.mean)
    findings = []
    for j, name in enumerate(s.view.names):
        constraint, tolerance = rules.constraints[s.view.owner[j]], tolerances[s.view.owner[j]]
        compared = [k for k in (s.view.plus[j], s.view.minus[j]) if k >= 0]
        gap, relative = float(gaps[j]), constraint.comparison == "ratio"
        doubt = ROUNDING * (1.0 if relative else magnitude[constraint.quantity])
        findings.append(
            Finding(
                constraint=title(constraint),
                kind=type(constraint).__name__,
                quantity=constraint.quantity,
                within=next((condition.source for condition in constraint.conditions), ""),
                name=name,
                where=s.named[compared[0]][0],
                groups=tuple(s.named[k][1] for k in compared),
                counts=tuple(int(s.count[k]) for k in compared),
                means=tuple(float(s.mean[k]) for k in compared),
                gap=gap,
                tolerance=tolerance,
                holds=abs(gap) <= tolerance + doubt,
                interval=intervals[j],
                verdict=judge(intervals[j], tolerance),
                comparison=constraint.comparison,
            )
        )
    present = set(s.view.owner.tolist())
    empty = tuple(title(c) for position, c in enumerate(rules.constraints) if position not in present)
    return sorted(findings, key=lambda finding: -finding.excess), s.view.vacuous, empty


def title(constraint: Constraint) -> str:
    """What a constraint is called."""
    return str(constraint.name or getattr(constraint, "title", type(constraint).__name__))


def judge(interval: Interval | None, tolerance: float) -> Verdict:
    """What an interval of the gap says about the tolerance."""
    if interval is None:
        return Verdict.UNDECIDED
    lower, upper = interval
    if lower > tolerance or upper < -tolerance:
        return Verdict.VIOLATED
    return Verdict.SATISFIED if -tolerance <= lower and upper <= tolerance else Verdict.UNDECIDED


def _intervals(s: Statistics, tally: CellTally, bounds: Range | None, confidence: float) -> list[Interval | None]:
    """See `intervals`; None where the range of outputs is not known."""
    ranges = {"output": possible_outputs(tally, bounds), "residual": possible_residuals(tally, bounds)}
    ranges["decision"] = Range(0.0, 1.0)
    low, high = np.array([tuple(ranges[kind] or (0.0, 0.0)) for kind in s.quantity.tolist()]).reshape(-1, 2).T
    centre, variance = cautious_means(s.n, s.mean, s.variance, low, high)
    pairs = welch(s.n, centre, variance, s.mean, s.view.plus, s.view.minus, confidence)
    if s.view.relative is not None:
        shares = log_ratio(s.n, centre, variance, s.mean, s.view.plus, s.view.minus, confidence)
        pairs = np.where(s.view.relative, shares, pairs)
    known = [ranges[s.quantity[k]] is not None for k in s.view.plus.tolist()]
    return [(low, high) if there else None for low, high, there in zip(*pairs.tolist(), known, strict=True)]
