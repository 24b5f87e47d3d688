"""Confidence intervals for group means from a finite sample, and the statement made of them.

For independent samples of one distribution in [0, 1], n of them with mean m and sample variance V, each of these holds
with probability at least 1 - delta:

    |E - m| <= sqrt(2 V ln(4 / delta) / n) + 7 ln(4 / delta) / (3 (n - 1))    (Maurer & Pontil 2009, theorem 4, for
                                                                              both sides at delta / 2 each)
    |E - m| <= sqrt(ln(2 / delta) / (2 n))                                    (Hoeffding 1963)

The first is the narrower one for large groups with little spread, the second for small groups. Which of them is used
is decided without a look at the sample it is applied to, so that nothing has to be paid for the choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv

from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.row_plan import PresentRows


@dataclass(frozen=True)
class Mean:
    """What is known of one group's mean: it lies between lower and upper."""

    group: str
    samples: int
    mean: float
    lower: float
    upper: float


@dataclass(frozen=True)
class GapBound:
    """What is known of one row: its absolute value is at most `bound`."""

    row: str
    tolerance: float
    measured: float  # on the samples kept for the statement
    bound: float


@dataclass(frozen=True)
class Certificate:
    """With probability at least `confidence` over the calibration sample, every bound holds for the population.

    The population is what the calibration samples were drawn from, independently; `samples` of them were used for this
    statement and for nothing else. aimed_at: share of each tolerance that the shifts were fitted for.
    """

    confidence: float
    fitted_on: int
    samples: int
    rows: tuple[GapBound, ...]
    means: tuple[Mean, ...]
    aimed_at: float = 1.0

    @property
    def gap(self) -> float:
        """The largest bound."""
        return max((row.bound for row in self.rows), default=0.0)

    @property
    def excess(self) -> float:
        """What must be added to the tolerances for the statement to hold: the delta of `gap <= eps + delta`."""
        return max((row.bound - row.tolerance for row in self.rows), default=0.0)

    @property
    def satisfied(self) -> bool:
        """Whether the tolerances themselves hold with this confidence."""
        return self.excess <= 0.0

    def __str__(self) -> str:
        worst = max(self.rows, key=lambda row: row.bound - row.tolerance, default=None)
        if worst is None:
            return "Nothing is compared, so nothing is stated."
        size = "within its tolerance" if self.satisfied else f"at most its tolerance plus {self.excess:.4g}"
        return (
            f"With confidence {self.confidence:g}, every one of {len(self.rows)} gaps is {size} ({self.samples} "
            f"samples, {self.fitted_on} others to fit). Widest: {worst.row}, measured {worst.measured:.4g}, at most "
            f"{worst.bound:.4g}, tolerance {worst.tolerance:g}."
        )


def half_width(n: float, variance: float, delta: float, bernstein: bool) -> float:
    """Of the two-sided interval for a mean in [0, 1]; infinite where n is too small to say anything."""
    if n < 2:
        return math.inf
    if bernstein:
        log = math.log(4.0 / delta)
        return math.sqrt(2.0 * variance * log / n) + 7.0 * log / (3.0 * (n - 1.0))
    return math.sqrt(math.log(2.0 / delta) / (2.0 * n))


def prefers_bernstein(n: float, variance: float, delta: float) -> bool:
    """Which interval is likely the narrower one, given a variance from other samples."""
    return half_width(n, variance, delta, True) < half_width(n, variance, delta, False)


def interval(values: np.ndarray, lo: float, hi: float, delta: float, bernstein: bool) -> tuple[float, float]:
    """Interval for the mean of values in [lo, hi], wrong with probability at most delta."""
    if len(values) < 2 or hi <= lo:
        return lo, hi
    scaled = (values - lo) / (hi - lo)
    return interval_of(len(values), float(values.mean()), float(scaled.var(ddof=1)), lo, hi, delta, bernstein)


def interval_of(
    n: float, mean: float, variance: float, lo: float, hi: float, delta: float, bernstein: bool
) -> tuple[float, float]:
    """The same of n values of which mean and variance are known, the variance as if [lo, hi] were [0, 1]."""
    if n < 2 or hi <= lo:
        return lo, hi
    width = half_width(n, variance, delta, bernstein) * (hi - lo)
    return max(lo, mean - width), min(hi, mean + width)


def binomial_interval(successes: int, n: int, delta: float) -> tuple[float, float]:
    """Interval for a rate from n independent yeses and noes, wrong with probability at most delta (Clopper and Pearson
    1934): exact, as it inverts the binomial distribution itself."""
    lower = float(betaincinv(successes, n - successes + 1, delta / 2)) if successes > 0 else 0.0
    upper = float(betaincinv(successes + 1, n - successes, 1.0 - delta / 2)) if successes < n else 1.0
    return lower, upper


def ratio_interval(
    values: np.ndarray, memberships: np.ndarray, lo: float, hi: float, delta: float, bernstein: bool
) -> tuple[float, float]:
    """Interval for E[p y] / E[p], the mean over a soft group: numerator and denominator at delta / 2 each."""
    low_part, high_part = interval(memberships * (values - lo), 0.0, hi - lo, delta / 2, bernstein)
    low_share, high_share = interval(memberships, 0.0, 1.0, delta / 2, bernstein)
    lower = low_part / high_share if high_share > 0 else 0.0
    upper = high_part / low_share if low_share > 0 else math.inf
    return lo + lower, min(hi, lo + upper)


def largest_gap(first: Mean, second: Mean | None) -> float:
    """The most that the difference of two means can be in absolute value, or the one mean where there is no second."""
    if second is None:
        return max(abs(first.lower), abs(first.upper))
    return max(first.upper - second.lower, second.upper - first.lower)


def relative_gap(first: float, second: float) -> float:
    """The difference of two means that are not negative, as a share of the larger; 0 where both are 0."""
    most = max(first, second)
    return 1.0 - min(first, second) / most if most > 0.0 else 0.0


def largest_relative_gap(first: Mean, second: Mean) -> float:
    """The most that the relative gap of two means can be."""
    return max(
        1.0 - max(low.lower, 0.0) / high.upper if high.upper > 0.0 else 0.0
        for low, high in ((first, second), (second, first))
    )


class Compared(NamedTuple):
    """The rows of constraints: which groups, by their numbers, each compares."""

    names: tuple[str, ...]  # (m,)
    plus: np.ndarray  # (m,)
    minus: np.ndarray  # (m,) -1 for no second group
    relative: np.ndarray  # (m,) whether the gap is relative to the larger mean
    tolerances: list[float]  # (m,)

    @classmethod
    def of(cls, view: PresentRows, rules: ConstraintSet, places: np.ndarray | None = None) -> Compared:
        """The rows of a view. places: the number of each of its plan's statistics, where they have others here."""
        number = np.append(np.arange(len(view.plan.residual)) if places is None else places, -1)
        relative = np.zeros(len(view.names), dtype=bool) if view.relative is None else view.relative
        allowed = rules.allowed()
        tolerances = [allowed[owner] for owner in view.owner]
        return cls(view.names, number[view.plus], number[view.minus], relative, tolerances)

    @property
    def groups(self) -> np.ndarray:
        """The groups that are compared, each once."""
        return np.unique(np.concatenate([self.plus, self.minus[self.minus >= 0]]))

    def bounds(self, means: Mapping[int, Mean], end: str = "") -> tuple[GapBound, ...]:
        """What the means of groups say of every row. end: of the names of rows."""
        rows = []
        for name, a, b, relative, tolerance in zip(*self, strict=True):
            first, second = means[a], means[b] if b >= 0 else None
            if relative and second is not None:
                measured, most = relative_gap(first.mean, second.mean), largest_relative_gap(first, second)
            else:
                measured, most = abs(first.mean - (second.mean if second else 0.0)), largest_gap(first, second)
            rows.append(GapBound(name + end, tolerance, measured, most))
        return tuple(rows)


def too_few(certificate: Certificate, what: str, growth: float) -> str:
    """What to do where what is fitted for equal means, or rates, cannot be certified: the sample must grow."""
    worst = max(certificate.rows, key=lambda row: row.bound - row.tolerance)
    total = certificate.fitted_on + certificate.samples
    remedy = "raise the tolerance, or lower the confidence"
    if math.isfinite(growth):
        remedy = f"about {math.ceil(growth * total)} samples like these {total} are needed; or {remedy}"
    return (
        f"The sample is too small for the tolerances to hold with confidence {certificate.confidence:g}, even with "
        f"{what}: {worst.row} may be up to {worst.bound:.4g}, tolerance {worst.tolerance:g}. Remedy: {remedy}."
    )


def growth_needed(
    pairs: Sequence[tuple[float, float, float, float, float]],  # n and variance of both groups, tolerance / range
    delta: float,
) -> float:
    """By what factor the sample must grow for every pair to fit into its tolerance; inf where never.

    Counted are both half-widths and, as measured means differ by chance even where the fit made them equal, twice the
    standard error of their difference (of the samples to certify with, and of as many to fit).
    """

    def fits(factor: float) -> bool:
        for n_a, var_a, n_b, var_b, tolerance in pairs:
            groups = [(factor * n, var) for n, var in ((n_a, var_a), (n_b, var_b)) if n != math.inf]
            widths = sum(min(half_width(n, var, delta, kind) for kind in (True, False)) for n, var in groups)
            if widths + 2.0 * math.sqrt(sum(2.0 * var / max(n, 1.0) for n, var in groups)) > tolerance:
                return False
        return True

    low, high = 1.0, 2.0
    while not fits(high):
        low, high = high, 2.0 * high
        if high > 1e9:
            return math.inf
    for _ in range(30):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
