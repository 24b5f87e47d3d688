"""The intervals of an audit hold the truth as often as they say, in small groups too."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from scipy import stats

from fairlayer import MeanParity, ResidualMean, audit
from fairlayer.audit.intervals import wilson
from fairlayer.intervals import cautious_means, quantile_of, welch

LARGE = 300  # samples of the other group
DRAWS = 5000

Population = tuple[Callable[..., np.ndarray], float, tuple[float, float] | None]  # how to draw, mean, bounds if known
SCORE = (0.0, 1.0)
POPULATIONS: dict[str, Population] = {
    "decisions": (lambda rng, shape: (rng.random(shape) < 0.15) * 1.0, 0.15, SCORE),
    "rare decisions": (lambda rng, shape: (rng.random(shape) < 0.03) * 1.0, 0.03, SCORE),
    "scores": (lambda rng, shape: rng.beta(2, 5, shape), 2 / 7, SCORE),
    "scores near 0": (lambda rng, shape: rng.beta(0.3, 5, shape), 0.3 / 5.3, SCORE),
    "scores nearer 0": (lambda rng, shape: rng.beta(0.1, 5, shape), 0.1 / 5.1, SCORE),
    "mostly 0, seldom 1": (lambda rng, shape: rng.beta(0.05, 1, shape), 0.05 / 1.05, SCORE),
    "scores near 1": (lambda rng, shape: 1.0 - rng.beta(0.2, 8, shape), 1.0 - 0.2 / 8.2, SCORE),
    "one score": (lambda rng, shape: np.full(shape, 0.4), 0.4, SCORE),
    "waiting times": (lambda rng, shape: rng.exponential(size=shape), 1.0, None),
    "wages": (lambda rng, shape: np.exp(rng.normal(size=shape)), np.exp(0.5), None),
}


def least(draws: int) -> float:
    """Two standard errors below 0.95."""
    return 0.95 - 2 * np.sqrt(0.95 * 0.05 / draws)


def coverage(
    groups: list[np.ndarray],  # (draws, samples of the group) each
    weights: list[np.ndarray],
    gap: float,
    bounds: tuple[float, float] | None,
) -> float:
    """How often the interval of a difference of two means, or of one mean, holds the truth."""
    draws = len(groups[0])
    n = [w.sum(axis=1) ** 2 / (w**2).sum(axis=1) for w in weights]
    mean = [(w * y).sum(axis=1) / w.sum(axis=1) for y, w in zip(groups, weights, strict=True)]
    variance = [
        (w**2 * (y - m[:, None]) ** 2).sum(axis=1) / (w**2).sum(axis=1)
        for y, w, m in zip(groups, weights, mean, strict=True)
    ]
    both = np.concatenate(groups, axis=1)
    ends = (both.min(axis=1), both.max(axis=1)) if bounds is None else np.repeat([bounds], draws, axis=0).T
    low, high = (np.tile(end, len(groups)) for end in ends)
    size, means = np.concatenate(n), np.concatenate(mean)
    centre, spread = cautious_means(size, means, np.concatenate(variance), low, high)
    plus = np.arange(draws)
    minus = plus + draws if len(groups) > 1 else np.full(draws, -1)
    lower, upper = welch(size, centre, spread, means, plus, minus, 0.95)
    return float(((lower <= gap) & (gap <= upper)).mean())


@pytest.mark.parametrize("small", [1, 2, 3, 10])
@pytest.mark.parametrize("population", [name for name, (_, _, bounds) in POPULATIONS.items() if bounds])
def test_intervals_of_tiny_groups_cover(population: str, small: int) -> None:
    rng = np.random.default_rng(0)
    draw, mean, bounds = POPULATIONS[population]
    groups = [draw(rng, (DRAWS, small)), rng.beta(1, 3, (DRAWS, LARGE))]
    assert coverage(groups, [*map(np.ones_like, groups)], mean - 0.25, bounds) >= least(DRAWS)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("small", [30, 50, 100])
@pytest.mark.parametrize("population", list(POPULATIONS))
def test_intervals_of_groups_of_some_dozens_cover(population: str, small: int, weighted: bool) -> None:
    """Skewed outputs, with and without bounds, where resampling misses the truth up to a sixth of the time."""
    rng = np.random.default_rng(small)
    draw, mean, bounds = POPULATIONS[population]
    for others in (small, LARGE):
        groups = [draw(rng, (DRAWS, small)), draw(rng, (DRAWS, others))]
        weights = [rng.exponential(size=y.shape) if weighted else np.ones_like(y) for y in groups]
        assert coverage(groups, weights, 0.0, bounds) >= least(DRAWS)
        if bounds is not None:  # one group by itself, whose counts of decisions are few
            assert coverage(groups[:1], weights[:1], mean, bounds) >= 0.93


@pytest.mark.parametrize("n", [1, 2, 4, 8, 15, 40])
@pytest.mark.parametrize("m", [1, 10, 300])
def test_intervals_of_decisions_cover_almost(n: int, m: int) -> None:
    """Exactly, over all outcomes. Counts are discrete, so that no interval has 0.95 everywhere: 0.92 is the worst."""
    k, j = (axis.reshape(-1) for axis in np.meshgrid(np.arange(n + 1), np.arange(m + 1), indexing="ij"))
    size, means = np.repeat([float(n), float(m)], len(k)), np.concatenate([k / n, j / m])
    ends = np.zeros(2 * len(k)), np.ones(2 * len(k))
    centre, variance = cautious_means(size, means, means * (1 - means), *ends)
    first = np.arange(len(k))
    lower, upper = welch(size, centre, variance, means, first, first + len(k), 0.95)
    for p, q in product((0.01, 0.05, 0.1, 0.3, 0.5, 0.8), (0.02, 0.25, 0.5)):
        probability = stats.binom.pmf(k, n, p) * stats.binom.pmf(j, m, q)
        assert probability[(lower <= p - q) & (p - q <= upper)].sum() >= 0.92


@pytest.mark.parametrize("weighted", [False, True])
def test_intervals_of_an_audit_cover(weighted: bool) -> None:
    """As a user gets them: 300 groups of 40 people, each of them against the truth, and all against each other."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(300), 40)
    draw, mean, _ = POPULATIONS["scores near 0"]
    y = draw(rng, len(group))
    weights = rng.exponential(size=len(y)) if weighted else None
    truth = np.full(len(y), mean)
    constraints = [MeanParity(0.05), ResidualMean(0.05)]
    found = audit(y, group, constraints, truth, weights=weights, tradeoff=False).findings
    for kind in ("MeanParity", "ResidualMean"):
        intervals = [finding.interval for finding in found if finding.kind == kind]
        assert np.mean([low <= 0.0 <= high for low, high in intervals]) >= least(300)


def test_intervals_are_not_too_wide() -> None:
    """Of a large group, the width is that of the usual interval."""
    rng = np.random.default_rng(0)
    y, group = rng.beta(2, 5, 20_000), np.repeat([0, 1], 10_000)
    finding = audit(y, group, MeanParity(0.05), tradeoff=False).findings[0]
    usual = stats.norm.ppf(0.975) * np.sqrt(y[group == 0].var() / 10_000 + y[group == 1].var() / 10_000)
    assert (finding.interval[1] - finding.interval[0]) / 2 == pytest.approx(usual, rel=0.01)


@pytest.mark.parametrize(("k", "n"), [(0, 5), (3, 10), (40, 40), (17, 1000)])
def test_wilson(k: int, n: int) -> None:
    rate = wilson(k, n, n, n, quantile_of(0.9))
    expected = stats.binomtest(k, n).proportion_ci(0.9, method="wilson")
    assert (rate.lower, rate.upper) == pytest.approx((expected.low, expected.high))
    assert rate.value == k / n


def test_a_rate_of_nobody_is_unknown() -> None:
    assert wilson(0, 0, 0, 0, 2.0).value is None
