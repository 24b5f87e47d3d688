"""Intervals hold the truth as often as they say, all of a family together, in small groups too."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from fairlayer import MeanParity, RateParity, ResidualMean, audit
from fairlayer.intervals import (
    Comparisons,
    Moments,
    all_pairs,
    family_level,
    simultaneous,
    studentized_range,
    wilson,
)

DRAWS = 2000

Population = tuple[Callable[..., np.ndarray], float, tuple[float, float] | None]  # how to draw, mean, bounds if known
SCORE = (0.0, 1.0)
POPULATIONS: dict[str, Population] = {
    "decisions": (lambda rng, shape: (rng.random(shape) < 0.15) * 1.0, 0.15, SCORE),
    "rare decisions": (lambda rng, shape: (rng.random(shape) < 0.03) * 1.0, 0.03, SCORE),
    "scores": (lambda rng, shape: rng.beta(2, 5, shape), 2 / 7, SCORE),
    "scores near 0": (lambda rng, shape: rng.beta(0.1, 5, shape), 0.1 / 5.1, SCORE),
    "scores near 1": (lambda rng, shape: 1.0 - rng.beta(0.2, 8, shape), 1.0 - 0.2 / 8.2, SCORE),
    "one score": (lambda rng, shape: np.full(shape, 0.4), 0.4, SCORE),
    "waiting times": (lambda rng, shape: rng.exponential(size=shape), 1.0, None),
    "wages": (lambda rng, shape: np.exp(rng.normal(size=shape)), np.exp(0.5), None),
}


def least(draws: int) -> float:
    """Two and a half standard errors below 0.95."""
    return 0.95 - 2.5 * np.sqrt(0.95 * 0.05 / draws)


def moments(groups: list[np.ndarray], bounds: tuple[float, float] | None, weights: list[np.ndarray] | None = None):
    """Of K groups, each drawn again and again: (draws, samples). The moments of a draw stand one after the other."""
    weights = [np.ones_like(y) for y in groups] if weights is None else weights
    n, mean, variance = [], [], []
    for y, w in zip(groups, weights, strict=True):
        n.append(w.sum(axis=1) ** 2 / (w**2).sum(axis=1))
        mean.append((w * y).sum(axis=1) / w.sum(axis=1))
        variance.append((w**2 * (y - mean[-1][:, None]) ** 2).sum(axis=1) / (w**2).sum(axis=1))
    every = np.concatenate(groups, axis=1)
    ends = (every.min(axis=1), every.max(axis=1)) if bounds is None else np.tile(bounds, (len(every), 1)).T
    low, high = (np.tile(end, (len(groups), 1)) for end in ends)
    return Moments(*(np.stack(part, axis=1).reshape(-1) for part in (n, mean, variance, low, high)))


def coverage(found: Moments, truth: np.ndarray, **kind: bool) -> float:
    """How often the intervals between all pairs hold the truth together; of one mean, where there is one group."""
    groups = len(truth)
    draws = len(found.n) // groups
    pairs = np.array(list(combinations(range(groups), 2)) or [(0, -1)])
    start = groups * np.arange(draws)[:, None]
    plus, minus = start + pairs[:, 0], np.where(pairs[:, 1] >= 0, start + pairs[:, 1], -1)
    low, high = all_pairs(found, Comparisons(plus.reshape(-1), minus.reshape(-1), **kind), 0.95, max(groups, 2))
    gap = truth[pairs[:, 0]] - (truth[pairs[:, 1]] if groups > 1 else 0.0)
    if kind.get("relative"):
        gap = gap / np.maximum(truth[pairs[:, 0]], truth[pairs[:, 1]])
    held = (low.reshape(draws, -1) <= gap + 1e-12) & (gap - 1e-12 <= high.reshape(draws, -1))
    return float(held.all(axis=1).mean())


@pytest.mark.parametrize("small", [1, 2, 3, 10])
@pytest.mark.parametrize("population", [name for name, (_, _, bounds) in POPULATIONS.items() if bounds])
def test_a_tiny_group_beside_a_large_one(population: str, small: int) -> None:
    rng = np.random.default_rng(0)
    draw, mean, bounds = POPULATIONS[population]
    groups = [draw(rng, (DRAWS, small)), rng.beta(1, 3, (DRAWS, 300))]
    assert coverage(moments(groups, bounds), np.array([mean, 0.25])) >= least(DRAWS)


@pytest.mark.parametrize(("size", "weighted"), [(30, False), (30, True), (100, True)])
@pytest.mark.parametrize("population", list(POPULATIONS))
def test_groups_of_some_dozens(population: str, size: int, weighted: bool) -> None:
    """Skewed outputs, with and without bounds, where resampling misses the truth up to a sixth of the time."""
    rng = np.random.default_rng(size)
    draw, mean, bounds = POPULATIONS[population]
    for others in (size, 300):
        groups = [draw(rng, (DRAWS, size)), draw(rng, (DRAWS, others))]
        weights = [rng.exponential(size=y.shape) if weighted else np.ones_like(y) for y in groups]
        assert coverage(moments(groups, bounds, weights), np.array([mean, mean])) >= least(DRAWS)
    if bounds is not None:  # one group by itself, whose counts of decisions are few
        assert coverage(moments(groups[:1], bounds, weights[:1]), np.array([mean])) >= 0.92


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize(("groups", "draws"), [(5, 400), (20, 60)])
def test_all_pairs_hold_together(groups: int, draws: int, relative: bool) -> None:
    """Means, and rates of 5 % and of one half; equal, and spread over groups of unequal size. See also `coverage`."""
    rng = np.random.default_rng(groups)
    sizes = np.where(np.arange(groups) % 2, 50, 200)
    for rates in (np.full(groups, 0.05), np.full(groups, 0.5), np.linspace(0.1, 0.7, groups)):
        decisions = [(rng.random((draws, n)) < p) * 1.0 for p, n in zip(rates, sizes, strict=True)]
        assert coverage(moments(decisions, SCORE), rates, rate=True, relative=relative) >= least(draws)
    scores = [rng.beta(2, 5, (draws, n)) for n in sizes]
    assert coverage(moments(scores, SCORE), np.full(groups, 2 / 7), relative=relative) >= least(draws)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize(("n", "m"), [(1, 10), (4, 4), (8, 300), (15, 40), (40, 40)])
def test_two_rates_of_few(n: int, m: int, relative: bool) -> None:
    """Exactly, over all outcomes. Counts are discrete, so that no interval has 0.95 everywhere."""
    k, j = (axis.reshape(-1) for axis in np.meshgrid(np.arange(n + 1), np.arange(m + 1), indexing="ij"))
    mean = np.concatenate([k / n, j / m])
    size = np.repeat([float(n), float(m)], len(k))
    found = Moments(size, mean, mean * (1 - mean), np.zeros_like(mean), np.ones_like(mean))
    first = np.arange(len(k))
    rows = Comparisons(first, first + len(k), rate=True, relative=relative)
    low, high = all_pairs(found, rows, 0.95, groups=2)
    assert (np.abs([low, high]) <= 1.0).all()
    assert np.isfinite([low, high]).all()
    for p, q in product((0.05, 0.1, 0.3, 0.5, 0.8), (0.02, 0.25, 0.5)):
        gap = (p - q) / max(p, q) if relative else p - q
        probability = stats.binom.pmf(k, n, p) * stats.binom.pmf(j, m, q)
        assert probability[(low <= gap) & (gap <= high)].sum() >= 0.9


def test_score_intervals_are_near_a_published_example() -> None:
    """Newcombe 1998, Table II: Miettinen & Nurminen's interval of 56/70 - 48/80, not corrected for skewness."""
    n, mean = np.array([70.0, 80.0]), np.array([0.8, 0.6])
    found = Moments(n, mean, mean * (1 - mean), np.zeros(2), np.ones(2))
    ends = all_pairs(found, Comparisons(np.array([0]), np.array([1]), rate=True), 0.95, groups=2)
    assert ends[:, 0] == pytest.approx([0.0528, 0.3382], abs=0.002)


def test_intervals_of_rare_decisions_are_possible_ones() -> None:
    rng = np.random.default_rng(0)
    group = np.repeat(["a", "b", "c"], 1000)
    decided = np.concatenate([rng.permutation(np.arange(1000) < k) for k in (5, 6, 0)]).astype(float)
    result = audit(decided, group, [RateParity(ratio=0.8), RateParity(0.01)], tradeoff=False)
    for finding in result.findings:
        assert -1.0 <= finding.interval[0] <= finding.gap <= finding.interval[1] <= 1.0
    for ratio in (one.selection.ratio_interval for one in result.groups if one.label != "b"):
        assert 0.0 <= ratio[0] < 1.0 < ratio[1] < np.inf


@pytest.mark.parametrize(
    ("groups", "confidence", "expected"),
    [
        (2, 0.95, [6.08487, 3.538162, 2.888209, 2.771808]),
        (3, 0.9, [5.732649, 3.629241, 3.017234, 2.90238]),
        (10, 0.95, [13.988491, 6.71621, 4.824141, 4.474124]),
        (40, 0.95, [19.284361, 8.92625, 6.079797, 5.497935]),
        (40, 0.999, [138.250263, 19.788919, 8.282898, 6.815814]),
    ],
)
def test_the_studentised_range(groups: int, confidence: float, expected: list[float]) -> None:
    """As `scipy.stats.studentized_range.ppf` has it, in a second or so."""
    found = studentized_range(confidence, groups, np.array([2.0, 5.5, 30.0, np.inf]))
    assert found == pytest.approx(expected, rel=1e-5)


def test_families_share_what_may_go_wrong() -> None:
    found = Moments(np.full(5, 400.0), np.linspace(0.3, 0.5, 5), np.full(5, 0.04), np.zeros(5), np.ones(5))
    plus, minus = np.array([0, 2, 2, 3, 0, 1]), np.array([1, 3, 4, 4, -1, -1])
    family, no = np.array([0, 1, 1, 1, 2, 2]), np.zeros(6, dtype=bool)
    level = family_level(family, 0.94)
    assert level == pytest.approx(0.98)
    ends = simultaneous(found, Comparisons(plus, minus, no, no), family, 0.94)
    assert ends[:, :1] == pytest.approx(all_pairs(found, Comparisons(plus[:1], minus[:1]), level, 2))
    assert ends[:, 1:4] == pytest.approx(all_pairs(found, Comparisons(plus[1:4], minus[1:4]), level, 3))
    assert ends[:, 4:] == pytest.approx(all_pairs(found, Comparisons(plus[4:], minus[4:]), level**0.5, 2))


def test_an_audit_of_equal_groups_seldom_finds_a_violation() -> None:
    rng, wrong = np.random.default_rng(20), 0
    group = np.repeat(np.arange(20), 60)
    for _ in range(30):
        rules = [MeanParity(0.0), RateParity(0.0, threshold=0.4), ResidualMean(0.0)]
        found = audit(rng.beta(2, 5, len(group)), group, rules, np.full(len(group), 2 / 7), tradeoff=False)
        wrong += found.verdict == "violated"
    assert wrong <= 4


def test_intervals_are_not_too_wide() -> None:
    """Of two large groups, the width is that of the usual interval."""
    rng = np.random.default_rng(0)
    y, group = rng.beta(2, 5, 20_000), np.repeat([0, 1], 10_000)
    finding = audit(y, group, MeanParity(0.05), tradeoff=False).findings[0]
    usual = stats.norm.ppf(0.975) * np.sqrt(y[group == 0].var() / 10_000 + y[group == 1].var() / 10_000)
    assert (finding.interval[1] - finding.interval[0]) / 2 == pytest.approx(usual, rel=0.01)


@pytest.mark.parametrize(("k", "n"), [(0, 5), (3, 10), (40, 40), (17, 1000)])
def test_wilson(k: int, n: int) -> None:
    expected = stats.binomtest(k, n).proportion_ci(0.9, method="wilson")
    low, high = wilson(np.array([k / n, np.nan]), np.array([float(n), 0.0]), 0.9)
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high))
    assert (low[1], high[1]) == (0.0, 1.0)
