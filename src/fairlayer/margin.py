"""A margin for the population: tolerances tightened until the data say that the population keeps the stated ones.

A projection stops exactly on its tolerance, so whatever an interval for the population is, it reaches beyond. Aiming at
less by what the interval takes settles the matter, where there are enough samples; where there are not, the margin says
how many would be. The intervals are those of an audit: they hold for all comparisons together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.errors import InputError
from fairlayer.intervals import Comparisons, Moments, Range, possible_range, possible_residuals, simultaneous
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.row_plan import PresentRows
from fairlayer.problem.system import System
from fairlayer.solution import Solution

ROUNDS = 12  # of tightening, each of which moves the aim by what the interval reached too far
CLOSE = 1.02  # that aim is moved a little further, so that the last rounds are not spent on crumbs


@dataclass(frozen=True)
class Margin:
    """What was aimed at so that the population keeps what was promised, and what the data do not suffice for."""

    confidence: float
    stated: tuple[float, ...]  # the largest gap that each constraint allows
    aimed: tuple[float, ...]  # the largest gap that was aimed at
    needed: tuple[tuple[str, int], ...] = ()  # comparisons that are not settled, and samples that would settle them

    @property
    def settled(self) -> bool:
        """Whether every interval lies within the tolerance: the population keeps the promise, at this confidence."""
        return not self.needed

    def __str__(self) -> str:
        level = f"{100 * self.confidence:g} % confidence"
        pairs = zip(self.stated, self.aimed, strict=True)
        aims = ", ".join(f"{aim:.4g} for {stated:g}" for stated, aim in pairs if aim != stated)
        first = f"Aimed at gaps of {aims}. " if aims else "Aimed at the tolerances as stated. "
        if self.settled:
            return f"{first}The population keeps the tolerance, at {level}."
        listed = "; ".join(f"{name} (about {count:,} samples of the smaller group)" for name, count in self.needed[:3])
        return f"{first}At {level}, too few samples to settle: {listed}."


def settle(
    rules: ConstraintSet,
    confidence: float,
    system: System,
    targets: Any,
    span: tuple[float, float],
    attempt: Callable[[ConstraintSet], Solution],
) -> Solution:
    """The solution for tolerances just so tight that intervals for the population lie within the stated ones.

    attempt: projects onto given constraints. span: the range of outputs, infinite ends where there is no bound.
    """
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence must be between 0 and 1, such as 0.95; got {confidence!r}.")
    stated, owner = rules.allowed(), system.view.owner
    aimed, hopeless = list(stated), set[int]()
    for _ in range(ROUNDS):
        solution = attempt(ConstraintSet([c.allowing(a) for c, a in zip(rules.constraints, aimed, strict=True)]))  # type: ignore[attr-defined]
        ends, gaps = _intervals(as_numpy(solution.value).reshape(-1), system, rules, targets, span, confidence)
        reach = np.abs(ends).max(axis=0)
        over = {c: float(reach[owner == c].max()) - stated[c] for c in set(owner.tolist()) - hopeless}
        if not any(excess > 0.0 for excess in over.values()):
            break
        for c, excess in over.items():
            if excess > 0.0 and aimed[c] == 0.0:  # not even equality leaves room enough
                hopeless.add(c)
                aimed[c] = stated[c]
            elif excess > 0.0:
                aimed[c] = max(0.0, min(aimed[c], float(np.abs(gaps[owner == c]).max())) - CLOSE * excess)
    solution.margin = Margin(confidence, stated, tuple(aimed), tuple(_needed(ends, system, stated)))
    return solution


def _needed(ends: np.ndarray, system: System, stated: tuple[float, ...]) -> list[tuple[str, int]]:
    """The comparisons that are not settled, and about how many samples of the smaller group would settle them."""
    view = system.view
    count = view.plan.totals(system.samples)
    found = []
    for j, (low, high) in enumerate(ends.T.tolist()):
        allowed = stated[view.owner[j]]
        if max(abs(low), abs(high)) <= allowed:
            continue
        smaller = min(count[k] for k in (view.plus[j], view.minus[j]) if k >= 0)
        half = 0.5 * (high - low)
        times = (half / (0.9 * allowed)) ** 2 if allowed > 0.0 else math.inf  # a tenth is left to the gap itself
        samples = max(int(smaller) + 1, math.ceil(smaller * times)) if math.isfinite(times) else 10**9
        found.append((view.names[j], samples))
    return sorted(found, key=lambda one: -one[1])


def _intervals(
    y: np.ndarray, system: System, rules: ConstraintSet, targets: Any, span: tuple[float, float], confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """(2, m): the interval of every row at outputs y; and (m,) its value."""
    plan, cell = system.view.plan, as_numpy(system.cell)
    w = system.weights if len(system.weights) else np.ones(len(y))
    values = y.astype(np.float64)
    stated = Range(*span) if math.isfinite(span[1] - span[0]) else None
    outputs = possible_range(Range(float(values.min()), float(values.max())), len(y), stated)
    if outputs is None:
        raise InputError(
            f"confidence needs bounds=(lo, hi): {len(y)} outputs say too little about the range they can have."
        )

    def totals(of_sample: np.ndarray) -> np.ndarray:
        return plan.totals(np.bincount(cell, weights=of_sample, minlength=len(system.weight)))

    def moments(q: np.ndarray, possible: Range | None) -> Moments:
        letters = {"w": w, "q": q}
        return Moments.of_sums(lambda what: totals(np.prod([letters[one] for one in what], axis=0)), "q", possible)

    found = {}
    for constraint in rules.constraints:
        if constraint.quantity == "residual":
            residual = values - as_numpy(targets).reshape(-1).astype(np.float64)
            observed = Range(float(residual.min()), float(residual.max()))
            found["residual"] = moments(residual, possible_residuals(observed, len(y), outputs))
        elif constraint.quantity == "decision":
            decision = y >= y.dtype.type(constraint.threshold)  # type: ignore[attr-defined]
            found["decision"] = moments(decision.astype(np.float64), Range(0.0, 1.0))
        else:
            found["output"] = moments(values, outputs)
    ends, compared = row_intervals(system.view, rules, found, confidence)
    return ends, system.view.values(compared.mean)


def row_intervals(
    view: PresentRows, rules: ConstraintSet, moments: Mapping[str, Moments], confidence: float
) -> tuple[np.ndarray, Moments]:
    """(2, m): intervals of all rows together; and the moments of what they compare.

    moments: of every statistic, by the quantity that its mean may be of.
    """
    plan = view.plan
    widths = [len(family.groups) for family in plan.families]
    quantity = np.repeat([rules.constraints[family.owner].quantity for family in plan.families], widths)
    kinds = list(moments)
    chosen = [quantity == kind for kind in kinds]
    compared = Moments(*(np.select(chosen, [moments[kind][j] for kind in kinds]) for j in range(5)))
    relative = np.zeros(len(view.plus), dtype=bool) if view.relative is None else view.relative
    rows = Comparisons(view.plus, view.minus, quantity[view.plus] == "decision", relative)
    return simultaneous(compared, rows, row_families(view), confidence), compared


def row_families(view: PresentRows) -> np.ndarray:
    """(m,) the family of comparisons that each row belongs to: a constraint, an attribute, and a condition."""
    return np.searchsorted(view.plan.begin, view.plus, side="right") - 1
