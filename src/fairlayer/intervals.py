"""Intervals for means, rates, their differences and their ratios, from counts and moments alone.

Intervals of groups that are compared with each other hold *together*: with probability `confidence`, all of them hold
the truth. Where a single difference takes a quantile t, all pairs of K groups take q / sqrt(2), with q that of the
studentised range (Tukey; for unequal variances Games & Howell 1976). Several families of comparisons share what may go
wrong equally (Bonferroni).

- *Means*: Welch's interval. Each group gets one more sample at either end of the range [low, high], as Agresti & Caffo
  (2000) do for proportions: three equal outputs have no variance, but with the two that are added the interval is wide,
  and it narrows only as n grows. Ratios of means are taken through the log.
- *Rates*: score intervals of differences and of ratios (Miettinen & Nurminen 1985), corrected for skewness.
- *One rate by itself*: Wilson (1927).

Weights: a weight says how many of the population a sample stands for; n is replaced by (sum w)^2 / sum w^2 (Kish 1965).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy  # whose parts load when they are used

if TYPE_CHECKING:
    from fairlayer.problem.constraint_set import ConstraintSet
    from fairlayer.problem.row_plan import PresentRows

LEAST_TO_OBSERVE = 30  # samples in all, below which their range says little about the possible one
LETTERS = {"output": "y", "residual": "r", "decision": "d"}  # of the quantities whose means constraints compare
_NODES = 16  # degrees of freedom at which the studentised range is solved; between them it is a polynomial


class Range(NamedTuple):
    """From the least to the greatest."""

    low: float
    high: float

    @classmethod
    def of(cls, values: np.ndarray) -> Range:
        """That of these values."""
        return cls(float(values.min()), float(values.max()))

    @property
    def width(self) -> float:
        """The difference."""
        return self.high - self.low

    @property
    def magnitude(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    def holds(self, other: Range) -> bool:
        """Whether another range lies within this one."""
        return self.low <= other.low and other.high <= self.high


UNIT = Range(0.0, 1.0)


def stated_range(observed: Range, stated: Range | None) -> Range | None:
    """The range that outputs can have, as stated, or [0, 1] where all lie in it; None where neither is known."""
    return stated if stated is not None else UNIT if UNIT.holds(observed) else None


def observed_range(observed: Range, samples: int) -> Range | None:
    """What samples say about the range of outputs; None where there are too few of them."""
    return observed if samples >= LEAST_TO_OBSERVE and observed.width > 0 else None


def possible_residuals(observed: Range, samples: int, outputs: Range | None) -> Range | None:
    """The range of outputs less targets: that of differences of outputs, unless targets go beyond them."""
    if outputs is not None and observed.magnitude <= outputs.width:
        return Range(-outputs.width, outputs.width)
    return observed_range(observed, samples)


class Moments(NamedTuple):
    """What intervals need to know of K groups."""

    n: np.ndarray  # (K,) samples, effective ones where there are weights
    mean: np.ndarray  # (K,)
    variance: np.ndarray  # (K,) of the samples, over n
    low: np.ndarray  # (K,) range; nan where it is not known
    high: np.ndarray  # (K,)

    @classmethod
    def of_sums(cls, total: Callable[[str], np.ndarray], q: str, span: Range | None) -> Moments:
        """From sums by group: total("wwq") is that of w w q, with weights w and the quantity q.

        A quantity called d is 0 or 1, and so its own square.
        """
        w, ww, wq, wwq, wwqq = (total(what) for what in ("w", "ww", f"w{q}", f"ww{q}", f"ww{q}{q}".replace("dd", "d")))
        mean, n = wq / np.where(w > 0, w, 1.0), effective_count(w, ww)
        scatter = np.maximum(wwqq - 2.0 * mean * wwq + mean**2 * ww, 0.0)
        low, high = (np.full(len(w), end) for end in span or (math.nan, math.nan))
        return cls(n, mean, scatter / np.where(ww > 0, ww, 1.0), low, high)


class Comparisons(NamedTuple):
    """m comparisons between groups, by their positions among the moments."""

    plus: np.ndarray  # (m,)
    minus: np.ndarray  # (m,) -1 where a mean is compared with 0
    rate: np.ndarray | bool = False  # whether rates are compared, rather than means: of all, or (m,)
    relative: np.ndarray | bool = False  # whether the difference is a share of the larger of both: of all, or (m,)


def effective_count(weight: np.ndarray, squared: np.ndarray) -> np.ndarray:
    """Samples of weight 1 that say as much: (sum w)^2 / sum w^2."""
    return np.divide(weight**2, squared, out=np.zeros(np.shape(weight)), where=squared > 0)


def normal_quantile(confidence: float) -> float:
    """How many standard errors a two-sided interval reaches to either side."""
    return NormalDist().inv_cdf(0.5 + 0.5 * confidence)


def wilson(rate: np.ndarray, n: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """The ends of Wilson's interval of each rate, by itself; [0, 1] where there are no samples."""
    z, known = normal_quantile(confidence), n > 0
    p, n = np.where(known, rate, 0.5), np.where(known, n, 1.0)
    centre, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = ((centre + side * half) / (1 + z * z / n) for side in (-1, 1))
    return np.where(known, np.clip(low, 0.0, p), 0.0), np.where(known, np.clip(high, p, 1.0), 1.0)


def mean_intervals(moments: Moments, confidence: float) -> np.ndarray:
    """(2, K): the interval of each mean by itself."""
    every = np.arange(len(moments.n))
    return all_pairs(moments, Comparisons(every, np.full(len(every), -1)), confidence, groups=2)


def row_intervals(
    view: PresentRows,
    rules: ConstraintSet,
    total: Callable[[str], np.ndarray],
    possible: Mapping[str, Range | None],
    confidence: float,
) -> tuple[np.ndarray, np.ndarray, float]:
    """(2, m) intervals of all rows of constraints together; (K,) the means they compare; the level of each family.

    total: sums over each of the K groups, by what they are of, as in `Moments.of_sums`. possible: the range of each
    quantity.
    """
    plan = view.plan
    widths = [len(family.groups) for family in plan.families]
    quantity = np.repeat([rules.constraints[family.owner].quantity for family in plan.families], widths)
    compared = Moments(*np.full((5, len(quantity)), math.nan))
    for kind in np.unique(quantity).tolist():
        moments, at = Moments.of_sums(total, LETTERS[kind], possible[kind]), quantity == kind
        for own, every in zip(moments, compared, strict=True):
            every[at] = own[at]
    relative = np.zeros(len(view.plus), dtype=bool) if view.relative is None else view.relative
    rows = Comparisons(view.plus, view.minus, quantity[view.plus] == "decision", relative)
    family = np.searchsorted(plan.begin, view.plus, side="right") - 1  # of a constraint, attribute and condition
    return simultaneous(compared, rows, family, confidence), compared.mean, family_level(family, confidence)


def simultaneous(moments: Moments, rows: Comparisons, family: np.ndarray, confidence: float) -> np.ndarray:
    """(2, m): intervals that all hold the truth at once with this confidence; nan where the range is not known.

    family: (m,) of each comparison. Those of a family are between all pairs of some groups, or of each group with 0.
    """
    ends = np.empty((2, len(family)))
    level = family_level(family, confidence)
    for f in np.unique(family).tolist():
        at = np.flatnonzero(family == f)
        own = Comparisons(rows.plus[at], rows.minus[at], bool(rows.rate[at[0]]), bool(rows.relative[at[0]]))  # type: ignore[index]
        if (own.minus < 0).all():  # groups are independent: each holds with the K-th root (Sidak)
            ends[:, at] = all_pairs(moments, own, level ** (1.0 / len(at)), groups=2)
        else:
            ends[:, at] = all_pairs(moments, own, level, groups=len(np.union1d(own.plus, own.minus)))
    return ends


def family_level(family: np.ndarray, confidence: float) -> float:
    """The confidence of each family of comparisons, so that all of them hold together with the one that is given."""
    return 1.0 - (1.0 - confidence) / max(1, len(np.unique(family)))


def all_pairs(moments: Moments, rows: Comparisons, level: float, groups: int) -> np.ndarray:
    """(2, m): intervals of which those between all pairs of so many groups hold together with confidence `level`.

    What was measured is never outside.
    """
    ends, measured = (_rates if rows.rate else _means)(moments, rows, level, groups), _compared(moments.mean, rows)
    return np.stack([np.minimum(ends[0], measured), np.maximum(ends[1], measured)])


def _both(values: np.ndarray, rows: Comparisons) -> tuple[np.ndarray, np.ndarray]:
    """The two values of each comparison."""
    return values[rows.plus], np.where(rows.minus >= 0, values[rows.minus], 0.0)


def _compared(values: np.ndarray, rows: Comparisons) -> np.ndarray:
    """The difference of two values, or their difference as a share of the larger."""
    first, second = _both(values, rows)
    most = np.maximum(first, second)
    return (first - second) / np.where(rows.relative & (most > 0), most, 1.0)


def _means(moments: Moments, rows: Comparisons, level: float, groups: int) -> np.ndarray:
    """One sample is added at either end of the range; the degrees of freedom are those of Welch (1947).

    Ratios go through logs, whose standard error is that of the mean over the mean (Katz et al. 1978 for proportions).
    """
    n, mean, variance, low, high = moments
    centre = (n * mean + low + high) / (n + 2.0)
    spread = n * (variance + (mean - centre) ** 2) + (low - centre) ** 2 + (high - centre) ** 2
    error = spread / (n + 2.0) ** 2
    if rows.relative:
        safe = np.maximum(centre, np.finfo(np.float64).tiny)
        centre, error = np.log(safe), error / safe**2
    (first, second), together = _both(centre, rows), sum(_both(error, rows))
    freedom = together**2 / np.maximum(sum(_both(error**2 / (n + 1.0), rows)), 1e-300)
    half = studentized_range(level, groups, freedom) / math.sqrt(2.0) * np.sqrt(together)
    ends = np.stack([first - second - half, first - second + half])
    return -np.sign(ends) * np.expm1(-np.abs(ends)) if rows.relative else ends


def _rates(moments: Moments, rows: Comparisons, level: float, groups: int) -> np.ndarray:
    """All (relative) differences that the score test does not reject."""
    if (rows.minus < 0).any():
        return np.stack(wilson(moments.mean[rows.plus], moments.n[rows.plus], level))
    # Decisions that vary with their weights say less than the weights alone suggest.
    binomial = moments.mean * (1.0 - moments.mean)
    n = moments.n * np.minimum(
        1.0, np.divide(binomial, moments.variance, np.ones_like(binomial), where=moments.variance > 0)
    )
    first, second = ((moments.mean[k], n[k]) for k in (rows.plus, rows.minus))
    score = _ratio_score if rows.relative else _difference_score
    z = float(studentized_range(level, groups, np.array([math.inf]))[0]) / math.sqrt(2.0)
    at, one = _compared(moments.mean, rows), np.ones(len(rows.plus))
    edge = np.array([[z], [-z]])  # the lower end has the highest score that is not rejected
    return _bisect(lambda gap: score(*first, *second, gap) > edge, np.stack([-one, at]), np.stack([at, one]), 26)


def _bisect(below: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray, halvings: int) -> np.ndarray:
    """Where a condition that is true of lesser values ceases to be."""
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        true = below(middle)
        low, high = np.where(true, middle, low), np.where(true, high, middle)
    return 0.5 * (low + high)


def _difference_score(p: np.ndarray, n: np.ndarray, q: np.ndarray, m: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """How many standard errors p - q lies above `gap`, which the likeliest rates that differ by it have."""
    # The likeliest second rate is a root of a x^3 + b x^2 + c x + d.
    a, b = n + m, (n + 2 * m) * gap - (n + m) - (n * p + m * q)
    c, d = (m * gap - (n + m) - 2 * m * q) * gap + n * p + m * q, m * q * gap * (1.0 - gap)
    v = b**3 / (3 * a) ** 3 - b * c / (6 * a**2) + d / (2 * a)
    u = np.copysign(np.sqrt(np.maximum((b / (3 * a)) ** 2 - c / (3 * a), 0.0)), v)
    cosine = np.clip(np.divide(v, u**3, np.zeros_like(v), where=u**3 != 0), -1.0, 1.0)
    second = np.clip(2 * u * np.cos((np.pi + np.arccos(cosine)) / 3) - b / (3 * a), 0.0, 1.0)
    first = np.clip(second + gap, 0.0, 1.0)
    return _standardized(p - q - gap, first, n, second, m)


def _ratio_score(p: np.ndarray, n: np.ndarray, q: np.ndarray, m: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """How many standard errors p - r q lies above 0, with the ratio r <= 1 that `gap` means, or the other way round."""
    turned = gap > 0
    less, more = (np.where(turned, b, a) for a, b in ((p, q), (q, p)))
    n, m = (np.where(turned, b, a) for a, b in ((n, m), (m, n)))
    r = 1.0 - np.abs(gap)
    # The likeliest rate of the group with more is the lesser root of a x^2 - b x + c.
    a, b, c = (n + m) * r, n * r + n * less + m + m * more * r, n * less + m * more
    likely = np.clip(2 * c / (b + np.sqrt(np.maximum(b * b - 4 * a * c, 0.0))), 0.0, 1.0)
    score = _standardized(less - r * more, r * likely, n, likely, m, r)
    return np.where(turned, -score, score)


def _standardized(
    difference: np.ndarray, p: np.ndarray, n: np.ndarray, q: np.ndarray, m: np.ndarray, ratio: np.ndarray | float = 1.0
) -> np.ndarray:
    """The difference in standard errors, were p and q the rates, as a quantile of the normal distribution.

    The variance has the factor of Miettinen & Nurminen for n + m samples. The skewness is that of Gart & Nam (1990):
    without it, far quantiles of small groups beside large ones are wrong.
    """
    variance = np.maximum(p * (1 - p) / n + ratio**2 * q * (1 - q) / m, 1e-30)
    third = p * (1 - p) * (1 - 2 * p) / n**2 - ratio**3 * q * (1 - q) * (1 - 2 * q) / m**2
    score = difference / np.sqrt(variance * (n + m) / np.maximum(n + m - 1.0, 1.0))
    skew = third / (6.0 * variance**1.5)
    inside = 1.0 + 4.0 * skew * (score + skew)  # Cornish & Fisher's series, solved for the normal quantile
    return np.where(inside < 0.0, np.copysign(np.inf, score), 2 * (score + skew) / (1 + np.sqrt(np.maximum(inside, 0))))


# The studentised range.


def studentized_range(confidence: float, groups: int, freedom: np.ndarray) -> np.ndarray:
    """The quantile of the range of `groups` normal means over their standard error. freedom: 2 at least."""
    freedom = np.maximum(freedom, 2.0)
    if groups == 2:
        return math.sqrt(2.0) * scipy.special.stdtrit(freedom, 0.5 + 0.5 * confidence)
    return np.exp(np.polynomial.chebyshev.chebval(4.0 / freedom - 1.0, _range_series(confidence, groups)))


@lru_cache(maxsize=512)
def _range_series(confidence: float, groups: int) -> np.ndarray:
    """The log of the quantile as a Chebyshev series in 1 / freedom over [0, 1/2], in which it is almost linear."""
    nodes = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
    freedom = 4.0 / (nodes + 1.0)
    # Distribution of the range of standard normals, by the trapezoidal rule, which converges exponentially here.
    z, w = np.linspace(-8.5, 8.5, 171), np.linspace(0.0, 14.0, 2801)
    density = np.exp(-0.5 * z * z) * (z[1] - z[0]) / math.sqrt(2.0 * math.pi)
    between = scipy.special.ndtr(z) - scipy.special.ndtr(z - w[:, None])
    tail = np.log(np.maximum(1.0 - groups * (between ** (groups - 1)) @ density, 1e-18))
    # The standard error is estimated: s = exp(x) has the density of a chi over the root of its degrees of freedom.
    reach = 40.0 / freedom
    x = np.linspace(-np.sqrt(reach) - 0.5 * reach, np.sqrt(reach), 301, axis=1)
    log_density = freedom[:, None] * (x - 0.5 * np.expm1(2.0 * x))
    share = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)

    def too_small(log_q: np.ndarray) -> np.ndarray:
        beyond = np.exp(np.interp(np.exp(log_q[:, None] + x), w, tail))
        return (share * beyond).sum(axis=1) > 1.0 - confidence

    solved = _bisect(too_small, np.full(_NODES, -3.0), np.full(_NODES, 14.0), 40)
    return np.polynomial.chebyshev.chebfit(nodes, solved, _NODES - 1)
