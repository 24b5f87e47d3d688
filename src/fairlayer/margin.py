"""A margin for the population: tolerances tightened until the data say that the population keeps the stated ones.

A projection stops exactly on its tolerance, so whatever an interval for the population is, it reaches beyond. Aiming at
less by what the interval takes settles the matter, where there are enough samples; where there are not, the margin says
how many would be. The intervals are those of an audit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.system import System
from fairlayer.errors import InputError
from fairlayer.intervals import LEAST_TO_OBSERVE, cautious_means, effective_count, log_ratio, welch
from fairlayer.solution import Solution

ROUNDS = 12  # of tightening, each of which moves the aim by what the interval reached too far
CLOSE = 1.02  # the same, a little further, so that the last rounds are not spent on crumbs


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
    stated = rules.allowed()
    aimed, hopeless = list(stated), set[int]()
    for _ in range(ROUNDS):
        solution = attempt(ConstraintSet([c.allowing(a) for c, a in zip(rules.constraints, aimed, strict=True)]))  # type: ignore[attr-defined]
        ends = _reach(as_numpy(solution.value).reshape(-1), system, rules, targets, span, confidence)
        over = {c: excess for c, excess in _excesses(ends, system, stated).items() if c not in hopeless}
        if not over or max(over.values()) <= 0.0:
            break
        for c, excess in over.items():
            if excess > 0.0:
                if aimed[c] == 0.0:  # not even equality leaves room enough
                    hopeless.add(c)
                    aimed[c] = stated[c]
                else:
                    aimed[c] = max(0.0, aimed[c] - CLOSE * excess)
    needed = _needed(ends, system, stated)
    solution.margin = Margin(confidence, stated, tuple(aimed), tuple(needed))
    return solution


def _excesses(ends: np.ndarray, system: System, stated: tuple[float, ...]) -> dict[int, float]:
    """By how much the interval that reaches farthest exceeds the tolerance of each constraint."""
    owner, farthest = system.view.owner, np.abs(ends).max(axis=0)
    return {c: float(farthest[owner == c].max()) - stated[c] for c in sorted(set(owner.tolist()))}


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


def _reach(
    y: np.ndarray, system: System, rules: ConstraintSet, targets: Any, span: tuple[float, float], confidence: float
) -> np.ndarray:
    """(2, m): the interval of every row, as an audit takes it."""
    plan, view, cell = system.view.plan, system.view, as_numpy(system.cell)
    weights = system.weights if len(system.weights) else np.ones(len(y))
    quantity = np.repeat(
        [rules.constraints[family.owner].quantity for family in plan.families],
        [len(family.groups) for family in plan.families],
    )
    low, high = span
    if not math.isfinite(high - low):
        low, high = (0.0, 1.0) if y.min() >= 0.0 and y.max() <= 1.0 else (float(y.min()), float(y.max()))
        if not (low, high) == (0.0, 1.0) and len(y) < LEAST_TO_OBSERVE:
            raise InputError(
                f"confidence needs bounds=(lo, hi): {len(y)} outputs say too little about the range they can have."
            )

    def totals(of_sample: np.ndarray) -> np.ndarray:
        return plan.totals(np.bincount(cell, weights=of_sample, minlength=len(system.weight)))

    weight, squared = totals(weights), totals(weights**2)
    mean, variance = np.zeros(len(quantity)), np.zeros(len(quantity))
    least, most = np.full(len(quantity), low), np.full(len(quantity), high)
    for kind in set(quantity.tolist()):
        q, mine = y.astype(np.float64), quantity == kind
        if kind == "residual":
            q = q - as_numpy(targets).reshape(-1).astype(np.float64)
            least, most = np.where(mine, low - high, least), np.where(mine, high - low, most)
        elif kind == "decision":
            threshold = next(c.threshold for c in rules.constraints if c.quantity == kind)  # type: ignore[attr-defined]
            q = (q >= threshold).astype(np.float64)
            least, most = np.where(mine, 0.0, least), np.where(mine, 1.0, most)
        safe = np.where(weight > 0, weight, 1.0)
        centre = totals(weights * q) / safe
        scatter = totals(weights**2 * q**2) - 2.0 * centre * totals(weights**2 * q) + centre**2 * squared
        mean = np.where(mine, centre, mean)
        variance = np.where(mine, np.maximum(scatter, 0.0) / np.where(squared > 0, squared, 1.0), variance)
    n = effective_count(weight, squared)
    cautious, spread = cautious_means(n, mean, variance, least, most)
    asked = (n, cautious, spread, mean, view.plus, view.minus, confidence)
    ends = welch(*asked)
    return ends if view.relative is None else np.where(view.relative, log_ratio(*asked), ends)
