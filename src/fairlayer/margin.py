"""A margin for the population: tolerances tightened until the data say that the population keeps the stated ones.

A projection stops exactly on its tolerance, so whatever an interval for the population is, it reaches beyond. Aiming at
less by what the interval takes settles the matter, where there are enough samples; where there are not, the margin says
how many would be. The intervals are those of an audit: they hold for all comparisons together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.errors import InputError
from fairlayer.intervals import UNIT, Range, observed_range, possible_residuals, row_intervals, stated_range
from fairlayer.problem.constraint_set import ConstraintSet
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
    plan, cell, n = system.view.plan, as_numpy(system.cell), len(y)
    letters = {"y": y.astype(np.float64), "w": system.weights if len(system.weights) else np.ones(n)}
    observed = Range.of(letters["y"])
    outputs = stated_range(observed, Range(*span) if math.isfinite(span[1] - span[0]) else None)
    outputs = outputs or observed_range(observed, n)
    if outputs is None:
        raise InputError(f"confidence needs bounds=(lo, hi): {n} outputs say too little about the range they can have.")
    possible: dict[str, Range | None] = {"output": outputs, "decision": UNIT}
    for constraint in rules.constraints:
        if constraint.quantity == "residual":
            letters["r"] = letters["y"] - as_numpy(targets).reshape(-1).astype(np.float64)
            possible["residual"] = possible_residuals(Range.of(letters["r"]), n, outputs)
        elif constraint.quantity == "decision":
            letters["d"] = (y >= y.dtype.type(constraint.threshold)).astype(np.float64)  # type: ignore[attr-defined]

    def total(what: str) -> np.ndarray:
        of_sample = np.prod([letters[one] for one in what], axis=0)
        return plan.totals(np.bincount(cell, weights=of_sample, minlength=len(system.weight)))

    ends, means, _ = row_intervals(system.view, rules, total, possible, confidence)
    return ends, system.view.values(means)
