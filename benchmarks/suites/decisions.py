"""The ledger of decisions: is its promise ever broken, what does it cost over the optimum in hindsight, how fast is it?

Every single decision is checked, from the emitted scores alone: in floating point where there is no doubt, and in
rational arithmetic where there is.
"""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from fractions import Fraction
from statistics import mean
from typing import Any

import numpy as np

from fairlayer import RateParity, Stream
from fairlayer.constraints.constraint import as_written
from fairlayer.decisions.branching import best_counts
from fairlayer.decisions.parts import Comparison, split
from measure import OtherWork, busy
from records import Target, figure, markdown_table, write_csv, write_settings
from streams.scenarios import Scenario

SAMPLES = 20_000
PROVOKED = 14_000  # decisions of each adversarial stream
STEPS = 1_000_000
THRESHOLD = 0.5
DOUBT = 1e-9  # nearer to its bound than this, a step is decided in rational arithmetic
PROMISES: tuple[dict[str, float], ...] = ({"tolerance": 0.02}, {"tolerance": 0.05}, {"ratio": 0.8})
LIMITS = {"mean": 1.1, "worst": 1.25, "overruled": 0.003, "microseconds": 150.0}
PAGE = """# Streams of decisions

Yes at a score of 0.5 or more. After every decision the pooled rates of any two groups differ by no more than the
tolerance (or keep the ratio) and half a decision per cell of each group: {steps:,} decisions were checked, {exact:,} of
them in rational arithmetic; {broken} broke the promise.

## Cost

Streams of 20,000 normal scores, one at a time; means of groups up to one standard deviation apart, shares from 20 % to
50 %. Ratios are of the squared change to that of the optimum in hindsight, over the whole stream and its second half.
The optimum is exact for one attribute; for several it is proved to the share given. A stream's two halves differ by
chance, and what the first half lacked the second must make up for.

{streams}
"""

Row = dict[str, Any]


def main(args: Namespace) -> list[Target]:
    """Decide streams that are as usual, then such as are meant to break the promise."""
    rows: list[Row] = []
    checks: list[Row] = []
    for attributes, promise, seed in cases(args):
        z, groups = Scenario(1, attributes, True, False, 4000 if args.quick else SAMPLES, seed).draw()
        rows.append(usual(z, groups, promise, seed, checks))
        write_csv(args.results / "decisions.csv", rows)
        row = rows[-1]
        print(
            f"   {attributes} attributes, {row['promise']}: second half {row['second_half_over_optimum']:.3f} x "
            f"optimum, {row['overruled']:.2%} overruled",
            flush=True,
        )
    decisions = 500 if args.quick else PROVOKED
    checks += [provoked(number, args.seed, decisions) for number in range(8 if args.quick else 40)]
    steps, exact, broken = (sum(check[name] for check in checks) for name in ("steps", "exact", "broken"))
    names = ("attributes", "promise", "overruled", "over_optimum", "second_half_over_optimum", "optimum_gap")
    listed = [[row["attributes"], row["promise"], *(figure(row[name]) for name in names[2:])] for row in rows]
    page = PAGE.format(steps=steps, exact=exact, broken=broken, streams=markdown_table(names, listed))
    (args.results / "decisions.md").write_text(page)
    other = OtherWork()
    median = microseconds(args)
    doubt = other.cores()
    write_settings(
        args.results / "decisions.json",
        args,
        promise={"steps": steps, "streams": len(checks), "decided_in_rational_arithmetic": exact, "broken": broken},
        update={"median_microseconds": median, "other_cores": doubt},
    )
    halves = [row["second_half_over_optimum"] for row in rows]
    return [
        Target("decisions: steps beyond what is promised", broken, 0),
        Target("decisions: steps looked at", steps, STEPS, at_least=True),
        Target("decisions: second half over the optimum, mean", mean(halves), LIMITS["mean"]),
        Target("decisions: second half over the optimum, worst", max(halves), LIMITS["worst"]),
        Target("decisions: share overruled, mean", mean(row["overruled"] for row in rows), LIMITS["overruled"]),
        Target("decisions: share overruled, worst", max(row["overruled"] for row in rows), LIMITS["overruled"]),
        Target(
            "decisions: update in memory, b = 1, two attributes, microseconds",
            median,
            LIMITS["microseconds"],
            busy=busy(doubt),
        ),
    ]


def cases(args: Namespace) -> Iterator[tuple[int, dict[str, float], int]]:
    """Attributes, promise and seed of each stream."""
    seed = args.seed
    for attributes in (1, 2) if args.quick else (1, 2, 3, 4):
        for _ in range(1 if args.quick else 2):
            seed += 1
            for promise in PROMISES:
                yield attributes, promise, seed


def usual(z: np.ndarray, groups: np.ndarray, promise: dict[str, float], seed: int, checks: list[Row]) -> Row:
    """One stream, one at a time, against the optimum in hindsight."""
    stream = Stream([RateParity(**promise, threshold=THRESHOLD)])
    emitted = np.concatenate([stream.update(z[i : i + 1], groups[i : i + 1]).value for i in range(len(z))])
    checks.append(check(emitted, groups, promise))
    change, (best, gap) = (emitted - z) ** 2, optimum(z, groups, promise)
    half = slice(len(z) // 2, None)
    return {
        "attributes": groups.shape[1],
        "promise": ", ".join(f"{name} {value:g}" for name, value in promise.items()),
        "samples": len(z),
        "seed": seed,
        "overruled": stream.certificate().overruled / len(z),
        "mean_squared_change": float(change.mean()),
        "over_optimum": float(change.sum() / best.sum()),
        "second_half_over_optimum": float(change[half].sum() / best[half].sum()),
        "optimum_gap": gap,
    }


def optimum(z: np.ndarray, groups: np.ndarray, promise: dict[str, float]) -> tuple[np.ndarray, float]:
    """(n,) squared changes of the best decisions for one who knows the whole stream, and a bound on what they miss."""
    patterns, cell = np.unique(groups, axis=0, return_inverse=True)
    limit, ratio = as_written(promise.get("tolerance", promise.get("ratio"))), "ratio" in promise
    comparisons = [Comparison(column.copy(), limit, ratio) for column in patterns.T]
    distance, yes = (z - THRESHOLD) ** 2, z >= THRESHOLD
    (part,) = split(comparisons, distance + 1e-6 * np.ptp(z) ** 2, yes, cell.reshape(-1))
    best = best_counts(part)
    decided = yes.copy()
    part.decide(decided, best.yeses)
    return np.where(decided != yes, distance, 0.0), 1.0 - best.least / best.cost


def check(emitted: np.ndarray, groups: np.ndarray, promise: dict[str, float]) -> Row:
    """Count the steps that break the promise, from the scores and the groups alone."""
    yes = (emitted.astype(np.float64) >= THRESHOLD).astype(np.int64)
    _, cell = np.unique(groups, axis=0, return_inverse=True)
    first = np.zeros(len(yes), dtype=np.int64)  # marks the first of each cell
    first[np.unique(cell.reshape(-1), return_index=True)[1]] = 1
    limit = as_written(promise.get("tolerance", promise.get("ratio")))
    broken, exact = np.zeros(len(yes), dtype=bool), 0
    for column in groups.T:
        labels = np.unique(column)
        mine = [column == label for label in labels]
        running = [[np.cumsum(np.where(m, each, 0)) for each in (1, yes, first)] for m in mine]  # N, P and L so far
        for a in range(len(labels)):
            for b in range(len(labels)):
                if a == b:
                    continue
                (n_a, p_a, l_a), (n_b, p_b, l_b) = running[a], running[b]
                step = np.flatnonzero((mine[a] | mine[b]) & (n_a > 0) & (n_b > 0))
                numbers = [each[step] for each in (n_a, p_a, l_a, n_b, p_b, l_b)]
                excess = beyond(*(each.astype(np.float64) for each in numbers), float(limit), "ratio" in promise)
                broken[step[excess > DOUBT]] = True
                for j in np.flatnonzero(np.abs(excess) <= DOUBT).tolist():
                    exact += 1
                    counts = [Fraction(int(each[j])) for each in numbers]
                    broken[step[j]] |= beyond(*counts, limit, "ratio" in promise) > 0
    return {"steps": len(yes), "exact": exact, "broken": int(broken.sum())}


def beyond(n_a: Any, p_a: Any, l_a: Any, n_b: Any, p_b: Any, l_b: Any, limit: Any, ratio: bool) -> Any:
    """By how much two groups of n decisions, p yeses and l cells exceed what is promised; negative if they do not."""
    upper, lower = (2 * p_a - l_a) / (2 * n_a), (2 * p_b + l_b) / (2 * n_b)
    return limit * upper - lower if ratio else upper - lower - limit


# Adversaries: scores and groups of the next batch, given the stream so far.


def _one_sided(rng: np.random.Generator, step: int, n: int, k: int, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Long stretches of one group alone, then the other, far apart."""
    groups = rng.integers(0, 3, (n, k))
    groups[:, 0] = (step // 200) % 2
    return 0.5 + rng.normal(np.where(groups[:, 0] == 1, 1.0, -1.0), 0.5, n), groups


def _newcomers(rng: np.random.Generator, step: int, n: int, k: int, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """A group never seen before, every so often."""
    groups = rng.integers(0, 2 + min(step // 100, 6), (n, k))
    return 0.5 + rng.normal(groups[:, 0] - 2.0, 1.0), groups


def _against(rng: np.random.Generator, step: int, n: int, k: int, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Whatever widens the gap of the moment, too far from the threshold for any leader."""
    gap = next(iter(stream.gaps().values()), 0.0)
    groups = rng.integers(0, 2, (n, k))
    return np.where((groups[:, 0] == 0) == (gap >= 0), 1e9, -1e9) * rng.uniform(1.0, 5.0, n), groups


def _camps(rng: np.random.Generator, step: int, n: int, k: int, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Cells that always say yes and cells that always say no, turned round half-way."""
    groups = rng.integers(0, 2, (n, k))
    return 0.5 + np.where((groups.sum(axis=1) + step // 400) % 2, 1.0, -1.0) * rng.uniform(0.1, 9.0, n), groups


ADVERSARIES: tuple[Callable, ...] = (_one_sided, _newcomers, _against, _camps)


def provoked(number: int, seed: int, decisions: int) -> Row:
    """One adversarial stream: batches of 1 to 64, 1 to 4 attributes, both precisions, differences and ratios."""
    rng = np.random.default_rng([seed, number])
    adversary, attributes = ADVERSARIES[number % len(ADVERSARIES)], 1 + (number // len(ADVERSARIES)) % 4
    kept = float(10 ** rng.uniform(-4.0, -0.3))
    promise = {"ratio": 1.0 - kept} if number % 3 == 2 else {"tolerance": kept if number % 5 else 0.0}
    dtype = np.float32 if number % 4 == 3 else np.float64
    stream = Stream([RateParity(**promise, threshold=THRESHOLD)])
    emitted, seen, made, step = [], [], 0, 0
    while made < decisions:
        n = int(2 ** rng.uniform(0.0, 6.01)) if step % 3 else 1
        z, groups = adversary(rng, step, n, attributes, stream)
        emitted.append(stream.update(z.astype(dtype), groups).value.astype(np.float64))
        seen.append(groups)
        made, step = made + n, step + 1
    return check(np.concatenate(emitted), np.concatenate(seen), promise)


def microseconds(args: Namespace) -> float:
    """Median time of one decision in memory."""
    z, groups = Scenario(1, 2, True, False, 2000, args.seed).draw()
    stream, times = Stream([RateParity(0.02, threshold=THRESHOLD)]), []
    for i in range(len(z)):
        began = time.perf_counter()
        stream.update(z[i : i + 1], groups[i : i + 1])
        times.append(time.perf_counter() - began)
    return 1e6 * float(np.median(times[500:]))
