"""Intervals for the population's means, gaps and rates, from counts and moments.

A group of n samples gets one more sample at either end of the range [lo, hi], as Agresti & Caffo (2000) do for
differences of proportions; for these n + 2, the rest is Welch's interval by Student's distribution. It is what keeps a
tiny group honest: three equal outputs have no variance, but with the two that are added the interval is wide, and it
narrows only as n grows. It needs nothing but sums, so 10^8 samples cost as much as 10^4.

Weights: samples are independent, and a weight says how many of the population a sample stands for; n is replaced by
(sum w)^2 / sum w^2 (Kish 1965).
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import scipy  # whose parts load when they are used

LEAST_TO_OBSERVE = 30  # samples in all, below which their range says little about the possible one


def quantile_of(confidence: float) -> float:
    """The number of standard errors that a two-sided interval reaches to either side."""
    return NormalDist().inv_cdf(0.5 + 0.5 * confidence)


def effective_count(weight: np.ndarray, squared: np.ndarray) -> np.ndarray:
    """Samples of weight 1 that say as much: (sum w)^2 / sum w^2."""
    return np.divide(weight**2, squared, out=np.zeros_like(weight), where=squared > 0)


def cautious_means(
    n: np.ndarray,  # (K,) samples, effective ones where there are weights
    mean: np.ndarray,  # (K,)
    variance: np.ndarray,  # (K,) of the samples, over n
    low: np.ndarray,  # (K,) range
    high: np.ndarray,  # (K,)
) -> tuple[np.ndarray, np.ndarray]:
    """Mean with one sample added at either end of the range, and the variance of that mean."""
    n_more = n + 2.0
    centre = (n * mean + low + high) / n_more
    spread = n * (variance + (mean - centre) ** 2) + (low - centre) ** 2 + (high - centre) ** 2
    return centre, spread / n_more**2


def welch(
    n: np.ndarray,  # (K,) as for `cautious_means`
    centre: np.ndarray,  # (K,)
    variance: np.ndarray,  # (K,)
    mean: np.ndarray,  # (K,) as measured
    plus: np.ndarray,  # (m,)
    minus: np.ndarray,  # (m,) -1 for no second group
    confidence: float,
) -> np.ndarray:
    """(2, m): intervals of the differences of two means, or of one; what was measured is never outside."""

    def difference(values: np.ndarray) -> np.ndarray:
        return values[plus] - np.where(minus >= 0, values[minus], 0.0)

    half = _half_width(n, variance, plus, minus, confidence)
    measured, middle = difference(mean), difference(centre)
    return np.stack([np.minimum(middle - half, measured), np.maximum(middle + half, measured)])


def _half_width(
    n: np.ndarray, variance: np.ndarray, plus: np.ndarray, minus: np.ndarray, confidence: float
) -> np.ndarray:
    """By Student's distribution, with the degrees of freedom of Welch (1947)."""
    both, parts = (v[plus] + np.where(minus >= 0, v[minus], 0.0) for v in (variance, variance**2 / (n + 1.0)))
    freedom = both**2 / np.maximum(parts, 1e-300)
    return scipy.special.stdtrit(np.maximum(freedom, 1.0), 0.5 + 0.5 * confidence) * np.sqrt(both)


def log_ratio(
    n: np.ndarray,  # (K,) all as for `welch`; means that are not negative
    centre: np.ndarray,
    variance: np.ndarray,
    mean: np.ndarray,
    plus: np.ndarray,
    minus: np.ndarray,
    confidence: float,
) -> np.ndarray:
    """(2, m): intervals of relative gaps, the difference of two means over the larger, through the log of their ratio.

    The standard error of a log is that of the mean over the mean (Katz et al. 1978 for proportions); the rest is as for
    differences. What was measured is never outside.
    """
    least = np.finfo(np.float64).tiny
    safe = np.maximum(centre, least)
    half = _half_width(n, variance / safe**2, plus, minus, confidence)
    middle = np.log(safe[plus]) - np.log(safe[minus])
    most = np.maximum(mean[plus], mean[minus])
    measured = np.where(most > 0, (mean[plus] - mean[minus]) / np.where(most > 0, most, 1.0), 0.0)
    low, high = (np.where(x > 0, -np.expm1(-x), np.expm1(np.minimum(x, 0.0))) for x in (middle - half, middle + half))
    return np.stack([np.minimum(low, measured), np.maximum(high, measured)])
