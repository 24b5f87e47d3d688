"""The intervals of an audit hold the truth as often as they say, in small groups too."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from scipy import stats

from fairlayer import EqualizedResiduals, MeanParity, ResidualMean, audit
from fairlayer.audit import Finding
from fairlayer.audit.intervals import cautious_means, quantile_of, welch, wilson

LARGE = 300  # samples of the other group

POPULATIONS = {  # how to draw, and the mean
    "decisions": (lambda rng, shape: (rng.random(shape) < 0.15) * 1.0, 0.15),
    "rare decisions": (lambda rng, shape: (rng.random(shape) < 0.03) * 1.0, 0.03),
    "scores": (lambda rng, shape: rng.beta(2, 5, shape), 2 / 7),
    "scores near 0": (lambda rng, shape: rng.beta(0.3, 5, shape), 0.3 / 5.3),
    "one score": (lambda rng, shape: np.full(shape, 0.4), 0.4),
}


def least(draws: int) -> float:
    """Two standard errors below 0.95."""
    return 0.95 - 2 * np.sqrt(0.95 * 0.05 / draws)


@pytest.mark.parametrize("small", [1, 2, 3, 10, 50])
@pytest.mark.parametrize("population", list(POPULATIONS))
def test_analytic_intervals_cover(population: str, small: int) -> None:
    rng = np.random.default_rng(0)
    draw, mean = POPULATIONS[population]
    groups = [draw(rng, (5000, small)), rng.beta(1, 3, (5000, LARGE))]
    n, means, variances = (
        np.concatenate(parts)
        for parts in (
            [np.full(5000, float(small)), np.full(5000, float(LARGE))],
            [y.mean(axis=1) for y in groups],
            [y.var(axis=1) for y in groups],
        )
    )
    centre, variance = cautious_means(n, means, variances, np.zeros(10_000), np.ones(10_000))
    plus = np.arange(5000)
    lower, upper = welch(n, centre, variance, means, plus, plus + 5000, 0.95)
    assert ((lower <= mean - 0.25) & (mean - 0.25 <= upper)).mean() >= least(5000)


@pytest.mark.parametrize("n", [1, 2, 4, 8, 15, 40])
@pytest.mark.parametrize("m", [1, 10, 300])
def test_analytic_intervals_of_decisions_cover_almost(n: int, m: int) -> None:
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


def audits(small: int, draws: int, weights: bool = False, bootstrap: int = 0) -> Iterator[tuple[Finding, float]]:
    """Findings from many draws of a small and a large group, with the true gap."""
    rng = np.random.default_rng(1)
    draw, mean = POPULATIONS["scores"]
    group = np.array(["small"] * small + ["large"] * LARGE)
    for number in range(draws):
        y = np.concatenate([draw(rng, small), rng.beta(1, 3, LARGE)])
        w = rng.exponential(size=len(y)) if weights else None
        result = audit(y, group, MeanParity(0.05), weights=w, bootstrap=bootstrap, tradeoff=False, seed=number)
        yield result.findings[0], 0.25 - mean  # labels are sorted: large - small


def test_analytic_intervals_are_not_too_wide() -> None:
    """Of a large group, the width is that of the usual interval."""
    rng = np.random.default_rng(0)
    y, group = rng.beta(2, 5, 20_000), np.repeat([0, 1], 10_000)
    finding = audit(y, group, MeanParity(0.05), tradeoff=False, bootstrap=2000).findings[0]
    usual = stats.norm.ppf(0.975) * np.sqrt(y[group == 0].var() / 10_000 + y[group == 1].var() / 10_000)
    assert (finding.interval[1] - finding.interval[0]) / 2 == pytest.approx(usual, rel=0.01)
    assert (finding.bootstrap[1] - finding.bootstrap[0]) / 2 == pytest.approx(usual, rel=0.1)


@pytest.mark.parametrize("weights", [False, True])
def test_intervals_of_audits_cover(weights: bool) -> None:
    """Of 60 samples a percentile interval is known to be a little short: two points are allowed for it."""
    found = list(audits(60, 200, weights, bootstrap=200))
    analytic = [finding.interval[0] <= gap <= finding.interval[1] for finding, gap in found]
    bootstrap = [finding.bootstrap[0] <= gap <= finding.bootstrap[1] for finding, gap in found]
    assert np.mean(analytic) >= least(200)
    assert np.mean(bootstrap) >= least(200) - 0.02


def test_bootstrap_agrees_with_resampling_the_samples() -> None:
    """Entries stand for their samples: the interval is that of drawing these, weights and residuals included."""
    rng = np.random.default_rng(4)
    n = 600
    group, t = rng.integers(0, 2, n), rng.normal(0, 1, n)
    y, w = 0.7 * t + rng.normal(0, 0.5, n) + 0.1 * group, rng.exponential(size=n)
    result = audit(
        y, group, [MeanParity(1), EqualizedResiduals(1), ResidualMean(1, name="bias")], t,
        weights=w, bootstrap=4000, tradeoff=False,
    )  # fmt: skip

    def gaps(index: np.ndarray) -> list[float]:
        means = [
            np.average(q[index][group[index] == g], weights=w[index][group[index] == g])
            for q in (y, y - t)
            for g in (0, 1)
        ]
        return [means[0] - means[1], means[2] - means[3], means[2], means[3]]

    draws = np.array([gaps(rng.integers(0, n, n)) for _ in range(4000)])
    order = ["mean parity, 0: 0 - 1", "equalized residuals, 0: 0 - 1", "bias, 0: 0", "bias, 0: 1"]
    found = {finding.row: finding.bootstrap for finding in result.findings}
    for row, column in zip(order, draws.T, strict=True):
        low, high = np.quantile(column, [0.025, 0.975])
        assert found[row] == pytest.approx((low, high), abs=0.06 * (high - low))


@pytest.mark.parametrize(("k", "n"), [(0, 5), (3, 10), (40, 40), (17, 1000)])
def test_wilson(k: int, n: int) -> None:
    rate = wilson(k, n, n, n, quantile_of(0.9))
    expected = stats.binomtest(k, n).proportion_ci(0.9, method="wilson")
    assert (rate.lower, rate.upper) == pytest.approx((expected.low, expected.high))
    assert rate.value == k / n


def test_a_rate_of_nobody_is_unknown() -> None:
    assert wilson(0, 0, 0, 0, 2.0).value is None
