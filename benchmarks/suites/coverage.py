"""Whether intervals, verdicts and margins hold as often as they say, for all groups together: the truth is known."""

import time
from argparse import Namespace
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

from fairlayer import MeanParity, RateParity, project
from fairlayer.intervals import Comparisons, Moments, all_pairs, studentized_range
from records import Target, figure, markdown_table, write_csv, write_settings

CONFIDENCE = 0.95
DRAWS = 500
MOST_FALSE = 37  # of 500 draws: 5 % and two and a half standard errors
GROUPS = (2, 5, 10, 20, 40)
SIZES = (50, 200, 1000)
POWER = 5.0  # standard errors between one group and all others
CHUNK = 250_000  # pairs at a time
THRESHOLD = 0.5
TITLE = f"""# Coverage of intervals, verdicts and margins

Populations are known: scores 1/4 + Beta(2, 5)/2 for means, and decisions with rates of 0.05 and of 0.5. Of each,
{DRAWS} samples are drawn, with groups of one size. At confidence {CONFIDENCE}, at most {MOST_FALSE} of {DRAWS} may be
wrong.

- *violated*: groups are equal, and some interval does not hold the true difference 0: an audit with tolerance 0 says
  "violated". *ratio*: the same for ratios.
- *found*: one group differs from the others by {POWER:g} standard errors of a difference, and an audit with tolerance 0
  says so. This is the power of the intervals.
- *kept*: groups differ, and samples are projected with `confidence={CONFIDENCE}`. Of those whose margin says that the
  population keeps the tolerance (*settled*), *exceeded* counts those for which it does not, once the shift, or the
  threshold, of each group is applied to its population.

"""


@dataclass(frozen=True)
class Kind:
    """What is compared, and how its samples are drawn."""

    name: str
    rate: float | None  # None for means

    def draw(self, shift: np.ndarray, n: int, draws: int, random: np.random.Generator) -> Moments:
        """Moments of groups whose means are moved by `shift`, (K,), drawn again and again."""
        size = np.full(draws * len(shift), float(n))
        if self.rate is not None:
            mean = (random.binomial(n, self.rate + shift, (draws, len(shift))) / n).reshape(-1)
            variance = mean * (1.0 - mean)
        else:
            scores = np.stack([scored(random, (draws, n)) for _ in shift], axis=1)
            mean, variance = (scores.mean(axis=2) + shift).reshape(-1), scores.var(axis=2).reshape(-1)
        return Moments(size, mean, variance, np.zeros(len(size)), np.ones(len(size)))

    @property
    def variance(self) -> float:
        """Of one sample."""
        return 0.25 * stats.beta(2, 5).var() if self.rate is None else self.rate * (1.0 - self.rate)


KINDS = (Kind("means", None), Kind("rates of 0.05", 0.05), Kind("rates of 0.5", 0.5))


def scored(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Scores that stay within [0, 1] when they are moved a little."""
    return 0.25 + 0.5 * random.beta(2, 5, shape)


def main(args: Namespace) -> list[Target]:
    """Measure every kind, number and size of groups."""
    draws = 20 if args.quick else DRAWS
    rows = []
    for number, (kind, groups, n) in enumerate((k, g, n) for k in KINDS for g in GROUPS for n in SIZES):
        began, random = time.perf_counter(), np.random.default_rng((args.seed, number))
        row: dict[str, Any] = {"compared": kind.name, "groups": groups, "size": n, "draws": draws}
        row |= intervals(kind, groups, n, draws, random)
        row |= margins(kind, groups, n, draws, random)
        rows.append(row)
        print(f"  {row}, {time.perf_counter() - began:.0f} s", flush=True)
    write_csv(args.results / "coverage.csv", rows)
    lines = [[figure(cell) if isinstance(cell, float) else cell for cell in row.values()] for row in rows]
    (args.results / "coverage.md").write_text(TITLE + markdown_table(list(rows[0]), lines) + "\n")
    write_settings(args.results / "coverage.json", args, confidence=CONFIDENCE, draws=draws)
    limit = MOST_FALSE / DRAWS
    return [
        Target(f"coverage, {what}: the largest share of {draws} draws", max(row[column] for row in rows) / draws, limit)
        for column, what in (
            ("violated", 'equal groups are "violated"'),
            ("ratio", 'equal groups are "violated" by their ratio'),
            ("exceeded", "the population exceeds a tolerance that a margin says it keeps"),
        )
    ]


def intervals(kind: Kind, groups: int, n: int, draws: int, random: np.random.Generator) -> dict[str, int]:
    """How many draws have an interval without 0: of equal groups, and where one group is apart."""
    apart = np.zeros(groups)
    apart[-1] = POWER * np.sqrt(2.0 * kind.variance / n)
    settings = {"violated": (0.0 * apart, False), "ratio": (0.0 * apart, True), "found": (apart, False)}
    return {
        name: excluding_zero(kind.draw(shift, n, draws, random), groups, kind.rate is not None, relative)
        for name, (shift, relative) in settings.items()
    }


def excluding_zero(moments: Moments, groups: int, rate: bool, relative: bool) -> int:
    """In how many draws some interval between two groups does not hold 0."""
    pairs, draws = np.array(list(combinations(range(groups), 2))).T, len(moments.n) // groups
    found, step = 0, max(1, CHUNK // pairs.shape[1])
    for first in range(0, draws, step):
        start = groups * np.arange(first, min(draws, first + step))[:, None]
        plus, minus = ((start + part).reshape(-1) for part in pairs)
        low, high = all_pairs(moments, Comparisons(plus, minus, rate, relative), CONFIDENCE, groups)
        found += int(((low > 0.0) | (high < 0.0)).reshape(len(start), -1).any(axis=1).sum())
    return found


def margins(kind: Kind, groups: int, n: int, draws: int, random: np.random.Generator) -> dict[str, int]:
    """How many margins are settled, and how many of these are false for the population."""
    far = float(studentized_range(CONFIDENCE, groups, np.array([np.inf]))[0]) * np.sqrt(kind.variance / n)
    tolerance, label = min(2.0 * far, 0.9), {"group": np.repeat(np.arange(groups), n)}
    spread = 1.5 * tolerance
    settled = exceeded = 0
    for _ in range(draws):
        if kind.rate is None:
            shift = np.linspace(-0.5, 0.5, groups) * min(spread, 0.4)
            z = (scored(random, (groups, n)) + shift[:, None]).reshape(-1)
            solution = project(z, label, [MeanParity(tolerance)], confidence=CONFIDENCE)
            moved = (z - solution.value).reshape(groups, n).mean(axis=1)
            truth = shift - moved
        else:
            least = max(kind.rate - spread / 2, 0.02) if kind.rate > 0.25 else kind.rate
            rates = np.linspace(least, min(least + spread, 0.95), groups)
            centre = THRESHOLD + 0.15 * stats.norm.ppf(rates)  # of normal scores that reach the threshold so often
            z = random.normal(centre[:, None], 0.15, (groups, n)).reshape(-1)
            solution = project(z, label, [RateParity(tolerance, threshold=THRESHOLD)], confidence=CONFIDENCE)
            yes = (solution.value >= THRESHOLD).reshape(groups, n)
            z = z.reshape(groups, n)
            below, above = np.where(yes, -np.inf, z).max(axis=1), np.where(yes, z, np.inf).min(axis=1)
            cut = np.where(np.isinf(below), above, np.where(np.isinf(above), below, 0.5 * (below + above)))
            truth = stats.norm.sf(cut, centre, 0.15)
        assert solution.margin is not None
        settled += solution.margin.settled
        exceeded += solution.margin.settled and bool(np.ptp(truth) > tolerance)
    return {"settled": settled, "exceeded": exceeded}
