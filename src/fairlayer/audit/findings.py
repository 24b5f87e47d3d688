"""The rows of the constraints over a tally: gaps, intervals, verdicts.

Constraints state their rows over cells, as for a projection or a stream; only the sums of cells are needed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fairlayer.audit.result import Finding, Interval, Verdict
from fairlayer.audit.tally import MOST_GROUPS, Tally
from fairlayer.constraints import Constraint
from fairlayer.errors import InputError
from fairlayer.intervals import UNIT, Range, possible_residuals, row_intervals
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.system import make_plan

ROUNDING = 2.0**-48  # times the largest output: what rounding may do to a mean in float64


class Judged(NamedTuple):
    """What constraints compare, and how it came out."""

    findings: tuple[Finding, ...]  # the farthest beyond its tolerance first
    not_compared: tuple[str, ...]  # absent groups
    empty: tuple[str, ...]  # constraints that compare nobody
    level: float  # the confidence of each family of comparisons


def judge(tally: Tally, rules: ConstraintSet, span: Range | None, confidence: float) -> Judged:
    """All findings. span: the range that outputs can have, None where it is not known."""
    residuals = tally.ranges.get("r")
    if residuals is None and any(constraint.quantity == "residual" for constraint in rules.constraints):
        raise InputError(
            f"targets are not numbers, and {rules.needs_targets} compares differences from them: pass numbers."
        )
    groupings, _ = rules.groupings(tuple(key[1] for key in tally.attributes))
    for grouping in (grouping for listed in groupings for grouping in listed):
        size = math.prod(len(np.unique(tally.grid["group", name].digits)) for name in grouping)
        if size > MOST_GROUPS:
            raise InputError(
                f"over={grouping!r} compares {size:,} groups with each other, more than {MOST_GROUPS}: intersect fewer "
                "attributes, or make coarser groups."
            )
    plan = make_plan(rules, groupings, tally.grid, tally.cells)
    of_cell = tally.entries.of_groups(np.arange(tally.cells), tally.cells)

    def total(what: str) -> np.ndarray:
        return plan.totals(of_cell[what])

    possible: dict[str, Range | None] = {"output": span, "decision": UNIT}
    magnitude = {"output": tally.ranges["y"].magnitude, "decision": 1.0}
    if residuals is not None:
        possible["residual"] = possible_residuals(residuals, tally.samples, span)
        magnitude["residual"] = residuals.magnitude
    view, count = plan.view(total("w") > 0), total("")
    ends, means, level = row_intervals(view, rules, total, possible, confidence)
    named = [(family.prefix, label) for family in plan.families for label in family.labels()]
    gaps, tolerances, findings = view.values(means), rules.allowed(), []
    for j, name in enumerate(view.names):
        constraint, tolerance = rules.constraints[view.owner[j]], tolerances[view.owner[j]]
        groups = [k for k in (view.plus[j], view.minus[j]) if k >= 0]
        gap, doubt = float(gaps[j]), 1.0 if constraint.comparison == "ratio" else magnitude[constraint.quantity]
        interval = None if math.isnan(ends[0, j]) else (float(ends[0, j]), float(ends[1, j]))
        findings.append(
            Finding(
                constraint=title(constraint),
                kind=type(constraint).__name__,
                quantity=constraint.quantity,
                within=next((condition.source for condition in constraint.conditions), ""),
                name=name,
                where=named[groups[0]][0],
                groups=tuple(named[k][1] for k in groups),
                counts=tuple(int(count[k]) for k in groups),
                means=tuple(float(means[k]) for k in groups),
                gap=gap,
                tolerance=tolerance,
                holds=abs(gap) <= tolerance + ROUNDING * doubt,
                interval=interval,
                verdict=verdict(interval, tolerance),
                comparison=constraint.comparison,
            )
        )
    present = set(view.owner.tolist())
    empty = tuple(title(c) for position, c in enumerate(rules.constraints) if position not in present)
    findings.sort(key=lambda finding: -finding.excess)
    return Judged(tuple(findings), view.vacuous, empty, level)


def title(constraint: Constraint) -> str:
    """What a constraint is called."""
    return str(constraint.name or getattr(constraint, "title", type(constraint).__name__))


def verdict(interval: Interval | None, tolerance: float) -> Verdict:
    """What an interval of the gap says about the tolerance."""
    if interval is None:
        return Verdict.UNDECIDED
    lower, upper = interval
    if lower > tolerance or upper < -tolerance:
        return Verdict.VIOLATED
    return Verdict.SATISFIED if -tolerance <= lower and upper <= tolerance else Verdict.UNDECIDED
