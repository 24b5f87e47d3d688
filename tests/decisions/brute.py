"""Rate parity by trying every pattern of decisions, or by an integer programme: shares nothing with the library.

A pattern costs, for every decision that it turns, the squared distance to the nearest score that says the opposite plus
1e-6 times the squared range of the scores (times the weight). Rates are compared in rational arithmetic; tolerances and
ratios mean the decimals that they are written as.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import scipy.optimize
import torch

from fairlayer import InfeasibleError, RateParity, Status, project

Rule = tuple[float | None, float | None]  # tolerance or ratio
TOLERANCES, RATIOS = (0.0, 0.05, 0.1, 0.2, 0.25, 0.3, 0.5), (0.5, 0.75, 0.8, 0.9, 1.0)
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
DOUBT = 1e-9


def decimal(number: float) -> Fraction:
    """The number as it is written."""
    return Fraction(str(number))


def rates(yes: np.ndarray, groups: np.ndarray, weights: np.ndarray | None = None) -> list[Fraction]:
    """The rate of yes in every group, exactly; samples of no weight do not count."""
    own = [Fraction(1)] * len(yes) if weights is None else [Fraction(float(w)) for w in weights]
    found = []
    for label in sorted({g for g, w in zip(groups.tolist(), own, strict=True) if w}):
        here = [i for i in range(len(yes)) if groups[i] == label]
        found.append(sum((own[i] for i in here if yes[i]), Fraction(0)) / sum(own[i] for i in here))
    return found


def excess(each: list[Fraction], rule: Rule) -> Fraction:
    """By how much rates exceed a tolerance, or fall short of a ratio; not above 0 where they keep it."""
    tolerance, ratio = rule
    if len(each) < 2:
        return Fraction(-1)
    if ratio is None:
        return max(each) - min(each) - decimal(tolerance)
    return decimal(ratio) - (min(each) / max(each) if max(each) else 1)


def keeps(each: list[Fraction], tolerance: float | None, ratio: float | None) -> bool:
    """Whether rates differ by no more than a tolerance, or have at least a ratio."""
    return excess(each, (tolerance, ratio)) <= 0


@dataclass
class Batch:
    """Scores, groups and rules, and every pattern of decisions."""

    z: torch.Tensor
    columns: dict[str, np.ndarray]
    rules: list[Rule]  # of each column
    threshold: float = 0.5
    weights: np.ndarray | None = None
    bounds: tuple[Any, Any] | None = None
    targets: np.ndarray | None = None
    given: Any = None  # the class of the target within which rates are compared: None, 1 or "each"
    options: dict[str, Any] = field(default_factory=dict)

    def solve(self, rules: list[Rule] | None = None, **options: Any) -> Any:
        """What the library makes of it."""
        asked = [
            RateParity(rule[0], ratio=rule[1], over=name, threshold=self.threshold, given=self.given)
            for name, rule in zip(self.columns, rules or self.rules, strict=True)
        ]
        data = {"targets": self.targets, "weights": self.weights, **self.options, **options}
        return project(self.z, self.columns, asked, self.bounds, **data)

    @cached_property
    def compared(self) -> list[tuple[np.ndarray, np.ndarray, Rule]]:
        """Groups, who of them counts, and the rule, of every comparison."""
        listed = []
        for column, rule in zip(self.columns.values(), self.rules, strict=True):
            for label in {None: [None], 1: [1], "each": [0, 1]}[self.given]:
                among = np.ones(len(column), dtype=bool) if label is None else self.targets == label
                listed.append((column, among, rule))
        return listed

    @cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Raw decisions within the bounds; the cost of no and of yes; and the scores within the bounds."""
        scores = self.z.double().numpy()
        at = torch.tensor(self.threshold, dtype=self.z.dtype)
        low = float(torch.nextafter(at, torch.tensor(-torch.inf, dtype=self.z.dtype)))
        lo, hi = (-np.inf, np.inf) if self.bounds is None else self.bounds
        inside = np.clip(scores, lo, hi)
        yes = inside >= float(at)
        target = np.where(yes, low, float(at))
        span = float(scores.max() - scores.min()) or 1.0
        turn = (target - scores) ** 2 - (inside - scores) ** 2 + 1e-6 * span**2
        turn = np.where((target >= lo) & (target <= hi), turn, np.inf)
        turn = turn * (1.0 if self.weights is None else np.where(self.weights > 0, self.weights, np.inf))
        return yes, np.where(yes, turn, 0.0), np.where(yes, 0.0, turn), inside

    def excess(self, yes: np.ndarray) -> Fraction:
        """By how much the worst rule is exceeded."""
        found = [Fraction(-1)]
        for column, among, rule in self.compared:
            own = None if self.weights is None else self.weights[among]
            found.append(excess(rates(yes[among], column[among], own), rule))
        return max(found)

    @cached_property
    def patterns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All patterns that bounds allow, from the cheapest on; their costs; and their excess in floating point."""
        n = len(self.z)
        every = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 > 0
        _, no, yes, _ = self.ends
        cost = np.where(every, yes, no).sum(axis=1)
        order = np.argsort(cost, kind="stable")[: int(np.isfinite(cost).sum())]
        every, cost = every[order], cost[order]
        weight = np.ones(n) if self.weights is None else self.weights.astype(float)
        over = np.full(len(every), -1.0)
        for column, among, (tolerance, ratio) in self.compared:
            labels = [label for label in np.unique(column) if weight[among & (column == label)].sum() > 0]
            if len(labels) < 2:
                continue
            share = np.stack([weight * (among & (column == label)) for label in labels], axis=1)
            rate = (every @ share) / share.sum(axis=0)
            most, least = rate.max(axis=1), rate.min(axis=1)
            own = most - least - tolerance if ratio is None else ratio - least / np.where(most > 0, most, 1.0)
            over = np.maximum(over, np.where((most > 0) | (ratio is None), own, -1.0))
        return every, cost, over

    def least_cost(self, wider: Fraction = Fraction(0)) -> float:
        """The cheapest pattern that keeps every rule, or exceeds it by no more; infinite where there is none."""
        every, cost, over = self.patterns
        room = float(wider)
        for at in np.flatnonzero(over <= room + DOUBT):
            if over[at] < room - DOUBT or self.excess(every[at]) <= wider:
                return float(cost[at])
        return np.inf

    def least_excess(self) -> Fraction:
        """The least excess of any pattern."""
        every, _, over = self.patterns
        return min(self.excess(every[at]) for at in np.flatnonzero(over <= over.min() + DOUBT))

    def judge(self) -> str:
        """What is wrong with the library's answer; empty if nothing is."""
        yes, no_cost, yes_cost, inside = self.ends
        best = self.least_cost() if len(self.z) <= 14 else self.cheapest_of_programme()
        try:
            solution = self.solve()
        except InfeasibleError as error:
            if np.isfinite(best):
                return f"said to be infeasible ({error}), and costs {best}"
            return self._judge_relaxed(error) if len(self.z) <= 14 else ""
        value = solution.value.double().numpy()
        decided = (solution.value >= self.threshold).numpy()
        if not np.array_equal(value[decided == yes], inside[decided == yes]):
            return "scores are changed without being turned"
        spent = float(np.where(decided, yes_cost, no_cost).sum())
        if self.excess(decided) > 0:
            return f"breaks a rule: {solution.status.name}"
        if solution.status not in (Status.OPTIMAL, Status.VACUOUS, Status.BOUNDED):
            return f"a false status, {solution.status.name}"
        if (solution.status is Status.BOUNDED) != (solution.optimality_gap > 0):
            return f"{solution.status.name} with a gap of {solution.optimality_gap}"
        if best == 0.0 and (decided != yes).any():
            return "needless turns"
        slack = 2e-9 * spent + 1e-15
        if spent < best - slack and len(self.z) <= 14:
            return f"costs {spent}, less than the least, {best}"
        return f"costs {spent}, the least is {best}" if spent - best > solution.optimality_gap + slack else ""

    def _judge_relaxed(self, error: InfeasibleError) -> str:
        """What is wrong where no pattern keeps the rules: with the excess, and with the tolerances that are named."""
        least = self.least_excess()
        relaxed = self.solve(infeasible="relax")
        decided = (relaxed.value >= self.threshold).numpy()
        if relaxed.status is not Status.RELAXED or abs(relaxed.excess - float(least)) > 2e-6:
            return f"{relaxed.status.name} with an excess of {relaxed.excess}, the least is {float(least)}"
        if self.excess(decided) > decimal(relaxed.excess):
            return "exceeds the excess that is stated"
        _, no_cost, yes_cost, _ = self.ends
        spent = float(np.where(decided, yes_cost, no_cost).sum())
        if spent > self.least_cost(self.excess(decided)) + relaxed.optimality_gap + 2e-9 * spent + 1e-15:
            return "is relaxed at more than the least cost"
        named = decimal(error.excess)
        wide: list[Rule] = [
            (None, float(decimal(ratio) - named)) if ratio is not None else (float(decimal(t) + named), None)
            for t, ratio in self.rules
        ]
        if any(ratio is not None and ratio <= 0.0 for _, ratio in wide):
            return ""  # where only a ratio of 0 can be kept, no ratio can
        try:
            return "" if self.solve(wide).satisfied else "the named tolerances are not kept"
        except InfeasibleError:
            return f"the named tolerances, {wide}, are infeasible too"

    def cheapest_of_programme(self) -> float:
        """The cost of a pattern that an integer programme finds, verified; infinite where it finds none."""
        yes, no_cost, yes_cost, _ = self.ends
        change = np.where(yes, no_cost, yes_cost)
        turned = np.where(yes, -1.0, 1.0)
        matrix, limits = [], []
        for column, among, (tolerance, ratio) in self.compared:
            labels = np.unique(column[among]).tolist()
            for a, b in ((a, b) for a in labels for b in labels if a != b):
                first, second = (among & (column == label) for label in (a, b))
                factor = decimal(1.0 if ratio is None else ratio)
                one, other = int(first.sum()) * factor.denominator, int(second.sum()) * factor.numerator
                row = other * first.astype(float) - one * second.astype(float)
                room = decimal(tolerance or 0.0) * int(first.sum()) * int(second.sum()) * factor.denominator
                matrix.append(row * turned)
                limits.append(float(room.numerator // room.denominator) - row[yes].sum())
        possible = np.isfinite(change)
        answer = scipy.optimize.milp(
            np.where(possible, change, 0.0),
            constraints=scipy.optimize.LinearConstraint(np.array(matrix), -np.inf, np.array(limits)),
            bounds=scipy.optimize.Bounds(0.0, possible.astype(float)),
            integrality=np.ones(len(change)),
            options={"mip_rel_gap": 0.0, "time_limit": 20.0},
        )
        if answer.x is None:
            return np.inf
        decided = yes ^ (answer.x > 0.5)
        return float(np.where(decided, yes_cost, no_cost).sum()) if self.excess(decided) <= 0 else np.inf


def draw(rng: np.random.Generator, n: int) -> Batch:
    """A random batch: one to three attributes, ties by rounding, weights, bounds, targets, four dtypes."""
    threshold = float(rng.choice([0.5, 0.3, 0.7, 0.0]))
    scores = rng.normal(threshold + 0.05, 0.3, n)
    scores = np.round(scores, int(rng.choice([1, 2, 9])))
    z = torch.from_numpy(scores).to(DTYPES[int(rng.integers(0, 4))])
    columns = {
        name: np.concatenate([np.arange(min(2, n)), rng.integers(0, 2 + (name == "a"), max(n - 2, 0))])
        for name in "abc"[: int(rng.integers(1, 4))]
    }
    rules: list[Rule] = [
        (float(rng.choice(TOLERANCES)), None) if rng.random() < 0.6 else (None, float(rng.choice(RATIOS)))
        for _ in columns
    ]
    kind = rng.integers(0, 6) if n <= 14 else 0
    weights = None
    if kind == 1:
        weights = rng.integers(1, 4, n).astype(float)
    elif kind == 2:
        weights = rng.uniform(0.5, 3.0, n)
    elif kind == 3:
        weights = rng.integers(0, 3, n).astype(float) + (np.arange(n) < 2)
    given = (1, "each")[int(rng.integers(0, 2))] if rng.random() < 0.2 else None
    targets = None if given is None else rng.integers(0, 2, n)
    bounds: tuple[Any, Any] | None = None
    if rng.random() < 0.4:  # some decisions cannot be turned
        ends = z.double().numpy()
        lo = np.where(rng.random(n) < 0.3, ends, -5.0)
        hi = np.where(rng.random(n) < 0.3, np.maximum(ends, lo), 5.0)
        bounds = lo, hi
    elif rng.random() < 0.3:
        bounds = tuple(float(torch.tensor(threshold + side, dtype=z.dtype)) for side in (-0.25, 0.25))  # as z has them
    return Batch(z, columns, rules, threshold, weights, bounds, targets, given)
