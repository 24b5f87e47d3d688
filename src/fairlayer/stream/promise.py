"""What a stream promises of its pooled gaps at this moment, and whether it is kept: in rational arithmetic.

Of means it is the tolerance. Decisions are whole, so a group of N decisions in L cells may be off a fair rate by
L / (2 N) besides: half a decision where attributes do not overlap, half a decision per cell where they do.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fairlayer.binding.rows import RATIO
from fairlayer.stream.ledger import Ledger


class Promise(NamedTuple):
    """Of one constraint."""

    bound: float  # what the gap of the two groups farthest apart may be now
    kept: bool  # of any two groups


def decision_promises(ledger: Ledger) -> list[Promise | None]:
    """Of each constraint on decisions, from the counts alone; None where there is nothing to compare."""
    plan, count = ledger.book.plan, ledger.account.count
    totals = (plan.totals(each) for each in (count, ledger.account.total, (count > 0).astype(np.float64)))
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
