"""The projection onto rates: the nearest scores whose decisions are nearly as often yes in every group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.exact_sums import exact_cell_sums
from fairlayer.binding.rows import RATIO
from fairlayer.binding.system import System
from fairlayer.decisions.cost import Costs, cell_costs
from fairlayer.decisions.counts import Comparison, Part, best_counts, split, thresholds
from fairlayer.decisions.scores import Turns, count_ties, decide, read_turns, threshold_in, write_scores
from fairlayer.decisions.surrogate import follow
from fairlayer.decisions.sweep import closest
from fairlayer.errors import InfeasibleError, InputError
from fairlayer.solution import Facts, Solution

_MOST_REPAIRS = 4
_STEPS = 24  # of a bisection


def read_threshold(rules: ConstraintSet) -> float:
    """The threshold that all constraints share; refuse lists that are not about decisions alone."""
    others = [type(c).__name__ for c in rules.constraints if c.quantity != "decision"]
    names = [type(c).__name__ for c in rules.constraints if c.quantity == "decision"]
    if others:
        raise InputError(
            f"constraints mixes {names[0]}, which is about decisions, with {others[0]}, which is about means: a score "
            "that one moves across the threshold changes what the other needs, and there is no nearest output that "
            f"can be found exactly. Project onto {others[0]} first and onto {names[0]} after it, and measure the first "
            "again."
        )
    found = sorted({float(c.threshold) for c in rules.constraints})  # type: ignore[attr-defined]
    if len(found) > 1:
        raise InputError(f"constraints have different thresholds, {found}: all must decide at the same one.")
    if any(isinstance(tolerance, Tensor) for tolerance in rules.tolerances()):
        raise InputError("the tolerance of a decision must be a number: gradients do not flow to it.")
    return found[0]


def project_decisions(
    z: Tensor,  # (n,)
    system: System,
    rules: ConstraintSet,
    box: Box,
    relax: bool = False,
    surrogate: str | None = None,
    temperature: float = 0.1,
) -> Solution:
    """Project scores. relax: where bounds leave no answer, take the least excess instead of raising."""
    threshold = read_threshold(rules)
    if any(family.member.ndim == 2 for family in system.view.plan.families):
        raise InputError("groups holds probabilities: decisions are counted by group, so pass labels.")
    problem = _Problem(read_turns(z, box, threshold), system, rules)
    answer = problem.solve(relax)
    scores = z.detach().double().cpu().numpy()
    moved = answer.decided != problem.turns.yes
    value = write_scores(z, box, moved, problem.turns.target)
    at, _ = threshold_in(threshold, z.dtype)
    rates, missed = exact_rates(value.detach().double().cpu().numpy() >= at, system)
    ties = sum(count_ties(scores, costs, yeses) for _, costs, yeses in answer.parts)
    if surrogate is not None and torch.is_grad_enabled() and z.requires_grad:
        value = follow(z, value, problem.held(answer.decided, rates), system.weights, at, temperature)
    elif not torch.is_grad_enabled():
        value = value.detach()
    return Solution(value, Facts(system.view, rates, np.zeros(len(rates)), missed, answer.excess, answer.gap, ties))


def fit_thresholds(z: Tensor, system: System, rules: ConstraintSet, box: Box) -> np.ndarray:
    """(G,) from which raw score on each cell says yes in the nearest batch; the stated threshold where nobody moved."""
    threshold = read_threshold(rules)
    answer = _Problem(read_turns(z, box, threshold), system, rules).solve(relax=False)
    of_cell = np.full(len(system.weight), threshold)
    for part, costs, yeses in answer.parts:
        of_unit = np.where(yeses == costs.now, threshold, thresholds(z.double().numpy(), costs, yeses))
        of_cell[part.unit >= 0] = of_unit[part.unit[part.unit >= 0]]
    return of_cell


@dataclass(frozen=True)
class _Answer:
    decided: np.ndarray  # (n,)
    parts: list[tuple[Part, Costs, np.ndarray]]  # with the yeses of each unit
    gap: float  # to the optimum
    excess: float  # by which the tolerances had to grow


class _Problem:
    """Costs of decisions, and what is compared."""

    def __init__(self, turns: Turns, system: System, rules: ConstraintSet):
        self.turns = turns
        self.system = system
        self.rules = rules
        self.cell = as_numpy(system.cell).astype(np.int64)
        own = system.weights
        self.weights = own if len(own) and own.min() < own.max() else None
        self.scale = float(own[0]) if len(own) and self.weights is None else 1.0
        self.members = [np.where(system.weight > 0, family.member, -1) for family in system.view.plan.families]
        self.families = [f for f, member in enumerate(self.members) if len(np.unique(member[member >= 0])) > 1]

    def comparisons(self, tighter: np.ndarray) -> list[Comparison]:
        """What is compared. tighter: (families,) by how much each tolerance is to be smaller, or ratio greater."""
        listed, plan = [], self.system.view.plan
        for position, f in enumerate(self.families):
            family, less = plan.families[f], float(tighter[position])
            if family.kind == RATIO:
                listed.append(Comparison(self.members[f], min(family.coefficient + less, 1.0), True))
            else:
                tolerance = float(self.rules.tolerances()[family.owner])
                listed.append(Comparison(self.members[f], max(tolerance - less, 0.0)))
        return listed

    def _costs(self, part: Part) -> Costs:
        unit = part.unit[self.cell]
        if len(self.system.weights):
            unit = np.where(self.system.weights > 0, unit, -1)
        change = self.turns.change * self.scale
        return cell_costs(change, self.turns.yes, unit, part.member.shape[1], self.weights)

    def solve(self, relax: bool) -> _Answer:
        """Decisions that keep every comparison, checked in rational arithmetic."""
        tighter, excess = np.zeros(len(self.families)), 0.0
        comparisons = self.comparisons(tighter)
        parts = split(comparisons, len(self.system.weight))
        tables = [self._costs(part) for part in parts]
        best = [best_counts(costs, part, comparisons) for part, costs in zip(parts, tables, strict=True)]
        for number, (part, costs) in enumerate(zip(parts, tables, strict=True)):
            if len(best[number].yeses):
                continue
            wider = self._least_excess(costs, part, comparisons)
            if not relax:
                raise self._infeasible(part, comparisons, wider)
            tighter[list(part.comparisons)] = -wider
            excess = max(excess, wider)
            best[number] = best_counts(costs, part, self.comparisons(tighter))
        for repairs in range(_MOST_REPAIRS + 1):
            decided = self.turns.yes
            for costs, one in zip(tables, best, strict=True):
                decided = decide(decided, costs, one.yeses)
            _, missed = exact_rates(decided, self.system)
            if excess or (missed <= 0.0).all() or repairs == _MOST_REPAIRS:
                break
            # Sums of weights are rounded: aim inside by twice what was missed.
            tighter = tighter + np.maximum(2.0 * missed[self._solver_families()], 0.0)
            comparisons = self.comparisons(tighter)
            best = [best_counts(costs, part, comparisons) for part, costs in zip(parts, tables, strict=True)]
        found = [(part, costs, one.yeses) for part, costs, one in zip(parts, tables, best, strict=True)]
        gap = sum(one.cost - one.least for one in best)
        return _Answer(decided, found, gap, excess)

    def _solver_families(self) -> np.ndarray:
        """The place of each family among the solver's."""
        plan = self.system.view.plan
        return np.searchsorted(plan.first, plan.begin[:-1][self.families], side="right") - 1

    def _least_excess(self, costs: Costs, part: Part, stated: Sequence[Comparison]) -> float:
        """By how much the tolerances of a part must grow (or its ratios fall) for some decisions to keep them."""
        if len(part.comparisons) == 1:
            own = stated[part.comparisons[0]]
            exact = closest(costs, own.ratio)
            return _rounded_up(Fraction(own.allowed) - exact if own.ratio else exact - Fraction(own.allowed))
        low, high = 0.0, 1.0
        for _ in range(_STEPS):
            middle = 0.5 * (low + high)
            wider = [
                one._replace(allowed=max(one.allowed - middle, 1e-9) if one.ratio else min(one.allowed + middle, 1.0))
                for one in stated
            ]
            low, high = (low, middle) if len(best_counts(costs, part, wider).yeses) else (middle, high)
        return high

    def _infeasible(self, part: Part, stated: Sequence[Comparison], excess: float) -> InfeasibleError:
        view = self.system.view
        families = {int(self._solver_families()[position]) for position in part.comparisons}
        rows = [j for j, f in enumerate(view.family.tolist()) if f in families]
        ratio = all(stated[position].ratio for position in part.comparisons)
        allowed = self.rules.allowed()
        return InfeasibleError(
            [view.names[j] for j in rows], excess, [allowed[view.owner[j]] + excess for j in rows], ratio
        )

    def held(self, decided: np.ndarray, rates: np.ndarray) -> list[np.ndarray]:
        """The comparisons that moved somebody: of each family, groups at its upper end against those at the lower.

        (n,) what every sample counts towards  coefficient * rate(upper) - rate(lower).
        """
        plan, cell, held = self.system.view.plan, self.cell, []
        weight = self.system.weights if len(self.system.weights) else np.ones(len(cell))
        for f in self.families:
            family, begin = plan.families[f], plan.begin[f]
            group = family.member[cell]
            size = np.bincount(group[group >= 0], weight[group >= 0], len(family.groups))
            there = np.flatnonzero(size > 0)
            up, down = (
                np.unique(group[(group >= 0) & (decided != self.turns.yes) & (decided == yes)]).tolist()
                for yes in (True, False)
            )
            if not up and not down:
                continue
            of = rates[begin : begin + len(family.groups)]
            upper = down or [int(there[of[there].argmax()])]
            lower = [g for g in up if g not in upper] or [int(there[of[there].argmin()])]
            pairs = [(upper[0], g) for g in lower] + [(g, lower[0]) for g in upper[1:]]
            member = {g: weight * (group == g) / size[g] for g in there.tolist()}
            held += [family.coefficient * member[a] - member[b] for a, b in pairs if a != b]
        return held


def exact_rates(yes: np.ndarray, system: System) -> tuple[np.ndarray, np.ndarray]:
    """(K,) rates of decisions, and (F,) by how much each family of rows is missed, its sign exact."""
    rows = system.rows
    cell, size = as_numpy(system.cell).astype(np.int32), len(system.weight)
    if len(system.weights):
        both = exact_cell_sums(system.weights, (2 * cell + yes).astype(np.int32), np.empty(0), 2 * size)
        total, said = [both[2 * c] + both[2 * c + 1] for c in range(size)], [both[2 * c + 1] for c in range(size)]
    else:
        total = [Fraction(int(n)) for n in system.samples.tolist()]
        said = [Fraction(int(n)) for n in np.bincount(cell[yes], minlength=size).tolist()]
    whole, part = [Fraction(0)] * len(rows.offset), [Fraction(0)] * len(rows.offset)
    for c in range(size):
        for k in rows.statistic[rows.start[c] : rows.start[c + 1]].tolist():
            whole[k] += total[c]
            part[k] += said[c]
    q = [a / b if b else Fraction(0) for a, b in zip(part, whole, strict=True)]
    missed = np.full(len(rows.kind), -np.inf)
    for f, (begin, end) in enumerate(zip(rows.first[:-1].tolist(), rows.first[1:].tolist(), strict=True)):
        here = [q[k] for k in range(begin, end) if whole[k]]
        if len(here) > 1:
            beyond = Fraction(float(rows.ratio[f])) * max(here) - min(here) - Fraction(float(system.stated[1][f]))
            missed[f] = _rounded_up(beyond) if beyond > 0 else float(beyond)
    return np.array([float(value) for value in q]), missed


def _rounded_up(value: Fraction) -> float:
    """The least float that is not below a fraction."""
    number = float(value)
    return number if Fraction(number) >= value else math.nextafter(number, math.inf)
