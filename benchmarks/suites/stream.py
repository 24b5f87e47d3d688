"""Streams: the ledger, Algorithm 1 (ours and the authors'), and projection batch by batch, on the same streams."""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from statistics import mean
from typing import Any

import numpy as np

from peers.environments import UnavailableError
from records import Target, figure, markdown_table, write_csv, write_settings
from streams import plot
from streams.authors_process import AUTHORS, run_authors
from streams.gaps import average_gap, pooled_gap
from streams.limit import can, limit
from streams.methods import METHODS, Run, algorithm_1, ledger, optimum, warm_ledger
from streams.promise import Watch, provoke
from streams.scenarios import Scenario

BATCHES = (1, 4, 16, 64, 256)
ATTRIBUTES = (1, 2, 5)
SAMPLES = 20_000
SHORT = 6000
LONG = 100_000
PROVOKED = 10_000  # steps of each adversarial stream
DRAWN = (2, True)  # attributes and box of the figures over time
STEPS = 1_000_000

COLUMNS = (
    *(
        "method",
        "batch",
        "attributes",
        "box",
        "drifts",
        "length",
        "samples",
        "seed",
        "pooled_gap",
        "steps_above",
        "steps",
    ),
    *("average_gap", "mean_squared_change", "over_optimum", "second_half_over_optimum", "first_tenth_over_optimum"),
)
PAGE = """# Streams

Normal outputs, 6,000 to 100,000 per stream, means of groups up to one standard deviation apart, shares from 20 % to
50 %; the pooled tolerance is a twentieth of that distance. Drifting: half-way the gaps double and the level moves. With
a box 7 to 15 % of raw outputs lie outside. Warm start: 5000 earlier samples. Ratios are of the mean squared change to
that of the optimum in hindsight, over the whole stream, its second half and its first tenth. A stream's two halves
differ by chance, and what the first half lacked the second must make up for: ratios below 1 and above are to be
expected of single streams. "Knows distribution and length" is a policy close to the best that there can be without
foresight, for one attribute, one at a time, no box: what it costs over the optimum is the price of the promise, and
what its second halves vary is chance.

## Ratios to the optimum, stationary streams: mean (worst)

{ratios}

## Every stream

{streams}

## Gaps over time

![Pooled and average gaps over time](stream-gaps.png)

## Change by batch size, two attributes, box

![Change by batch size](stream-cost.png)
"""

Row = dict[str, Any]


def main(args: Namespace) -> list[Target]:
    """Decide every stream by every method, then try to break the promise."""
    rows: list[Row] = []
    drawn: list[dict[str, Any]] = []
    watches: list[Watch] = []
    for scenario in scenarios(args):
        z, groups = scenario.draw()
        best = optimum(scenario)
        began = time.perf_counter()
        for method in methods(scenario):
            run = method(scenario)
            rows.append(measure(run, z, groups, best))
            keep(drawn, run, groups)
            if run.watch:
                watches.append(run.watch)
        write_csv(args.results / "stream.csv", rows)
        ratio = next(row for row in reversed(rows) if row["method"] == "ledger")["over_optimum"]
        seconds = time.perf_counter() - began
        print(
            f"   {scenario.name:<44} {scenario.samples:>7,} samples  ledger {ratio:.3f} x optimum  ({seconds:.0f} s)",
            flush=True,
        )

    authors = authors_runs(args, rows, drawn)
    for watch in provoke(5 if args.quick else 30, 40 if args.quick else PROVOKED, args.seed):
        watches.append(watch)
        if len(watches) % 10 == 0:
            print(f"   promise: {sum(watch.steps for watch in watches):,} steps", flush=True)
    write_csv(args.results / "stream.csv", rows)
    write_page(args, rows)
    plot.gaps_over_time(args.results / "stream-gaps.png", drawn)
    plot.cost(args.results / "stream-cost.png", [row for row in rows if is_usual(row["length"])], DRAWN)
    write_settings(
        args.results / "stream.json",
        args,
        methods={"eta": 0.5, "b_tau": 64},
        authors=authors,
        promise={
            "steps": sum(watch.steps for watch in watches),
            "streams": len(watches),
            "samples": sum(watch.samples for watch in watches),
            "decided_in_rational_arithmetic": sum(watch.exact for watch in watches),
        },
    )
    return [*promise_targets(watches), *cost_targets(rows)]


def scenarios(args: Namespace) -> Iterator[Scenario]:
    """What to decide: the whole grid, then short streams one at a time."""
    if args.quick:
        for box in (False, True):
            yield Scenario(16, 2, box, False, 8000, args.seed)
        yield Scenario(16, 2, True, True, 8000, args.seed)
        return
    seed = args.seed
    for drifts in (False, True):
        for attributes in ATTRIBUTES:
            for box in (False, True):
                for batch in args.sizes or BATCHES:
                    seed += 1
                    yield Scenario(batch, attributes, box, drifts, SAMPLES, seed)
    for attributes in ATTRIBUTES:
        for box in (False, True):
            for _ in range(3):
                seed += 1
                yield Scenario(1, attributes, box, False, SHORT, seed)
    for attributes in ATTRIBUTES:
        for box in (False, True):
            for batch in args.sizes or BATCHES:
                seed += 1
                yield Scenario(batch, attributes, box, False, LONG, seed)


def methods(scenario: Scenario) -> list[Callable[[Scenario], Run]]:
    """Who decides a stream."""
    some = {SHORT: (ledger,), LONG: (algorithm_1, ledger, warm_ledger)}.get(scenario.samples, METHODS)
    return [*some, limit] if can(scenario) else [*some]


def is_usual(length: int) -> bool:
    """Whether a stream is one that all methods decide."""
    return length not in (SHORT, LONG)


def measure(run: Run, z: np.ndarray, groups: np.ndarray, best: np.ndarray) -> Row:
    """One row of the table."""
    n = len(run.emitted)  # the authors' may have run out of time
    scenario = run.scenario
    change, least = (run.emitted - z[:n]) ** 2, (best - z)[:n] ** 2
    gap = pooled_gap(run.emitted, groups[:n], scenario.batch)
    average = average_gap(run.emitted, groups[:n], scenario.batch)
    above = run.watch.above if run.watch else int((gap > scenario.tolerance * (1.0 + 1e-9)).sum())

    def ratio(part: slice) -> float:
        return float(change[part].mean() / least[part].mean())

    return dict.fromkeys(COLUMNS) | {
        "method": run.method,
        **{name: value for name, value in scenario.settings().items() if name in COLUMNS},
        "length": scenario.samples,
        "samples": n,
        "pooled_gap": float(gap[-1]),
        "steps_above": above,
        "steps": len(gap),
        "average_gap": float(average[-1]) if np.isfinite(average[-1]) else None,
        "mean_squared_change": float(change.mean()),
        "over_optimum": ratio(slice(None)),
        "second_half_over_optimum": ratio(slice(n // 2, None)),
        "first_tenth_over_optimum": ratio(slice(0, n // 10)),
    }


def keep(drawn: list[dict[str, Any]], run: Run, groups: np.ndarray) -> None:
    """Gaps over time, of the streams that the figure shows."""
    scenario = run.scenario
    if (scenario.attributes, scenario.box) == DRAWN and is_usual(scenario.samples):
        n = len(run.emitted)
        over_time = {
            "pooled": pooled_gap(run.emitted, groups[:n], scenario.batch),
            "average": average_gap(run.emitted, groups[:n], scenario.batch),
        }
        drawn.append({"method": run.method, "scenario": scenario, **over_time})


def authors_runs(args: Namespace, rows: list[Row], drawn: list[dict[str, Any]]) -> dict[str, Any]:
    """The authors' package on some of the same streams; what it could not do, it says."""
    known: dict[str, Any] = {}
    for scenario in scenarios(args):
        if (scenario.attributes, scenario.box) == DRAWN and scenario.batch in (4, 16) and is_usual(scenario.samples):
            try:
                known[scenario.name], emitted = run_authors(scenario, 3.0 if args.quick else 40.0)
            except UnavailableError as error:
                known[scenario.name] = {"unavailable": str(error)}
                continue
            z, groups = scenario.draw()
            run = Run(AUTHORS, scenario, emitted)
            rows.append(measure(run, z, groups, optimum(scenario)))
            keep(drawn, run, groups)
            print(f"   {scenario.name:<44} {AUTHORS}, {len(emitted):,} samples", flush=True)
    return known


def write_page(args: Namespace, rows: list[Row]) -> None:
    """Tables for reading."""
    stationary = [row for row in rows if not row["drifts"]]
    kinds: dict[tuple, list[Row]] = {}
    for row in sorted(stationary, key=lambda row: row["length"]):
        kinds.setdefault((row["length"], row["method"], row["batch"]), []).append(row)
    ratio_rows = [
        [f"{length:,}", method, batch, *(spread(here, name) for name in COLUMNS[-3:])]
        for (length, method, batch), here in kinds.items()
    ]
    header = ["samples", "method", "b", "whole stream", "second half", "first tenth"]
    names = ("method", "samples", "batch", "attributes", "box", "drifts", "pooled_gap", "average_gap", "over_optimum")
    listed = [
        [*(row[name] for name in names[:6]), *(figure(row[name]) for name in names[6:]), above(row)] for row in rows
    ]
    page = PAGE.format(
        ratios=markdown_table(header, ratio_rows),
        streams=markdown_table([*names, "steps above tolerance"], listed),
    )
    (args.results / "stream.md").write_text(page)


def which(row: Row) -> tuple:
    """The stream a row is of."""
    return tuple(row[name] for name in ("batch", "attributes", "box", "drifts", "seed"))


def spread(rows: list[Row], name: str) -> str:
    values = [row[name] for row in rows]
    return f"{mean(values):.3f} ({max(values):.3f})"


def above(row: Row) -> str:
    return f"{row['steps_above']:,} of {row['steps']:,}"


def promise_targets(watches: list[Watch]) -> list[Target]:
    return [
        Target("ledger: steps with a pooled gap above the tolerance", sum(watch.above for watch in watches), 0),
        Target("ledger: steps looked at", sum(watch.steps for watch in watches), STEPS, at_least=True),
        Target("ledger: streams looked at", len(watches), 50, at_least=True),
    ]


def cost_targets(rows: list[Row]) -> list[Target]:
    """Mean and worst over stationary streams, by their length."""
    targets = []
    change = {(row["method"], *which(row)): row["mean_squared_change"] for row in rows}
    for length in sorted({row["length"] for row in rows}):
        here = [row for row in rows if row["length"] == length and not row["drifts"]]
        streams = f"{length:,} samples one at a time" if length == SHORT else f"{length:,} samples"
        for shape, box in (("box", True), ("no box", False)):
            halves = [
                row["second_half_over_optimum"] for row in here if row["method"] == "ledger" and row["box"] == box
            ]
            what = f"ledger: second half over the optimum, {streams}, {shape}"
            targets += mean_and_worst(what, halves, 1.12 if length == SHORT else 1.05)
        whole = [row["over_optimum"] for row in here if row["method"] == "ledger, warm start"]
        targets += mean_and_worst(f"ledger: whole stream over the optimum, warm start, {streams}", whole, 1.05)
        # One at a time there is no gap within a batch: Algorithm 1 changes nothing, and equalises nothing.
        pairs = [
            row["mean_squared_change"] / change["Algorithm 1", *which(row)]
            for row in here
            if row["method"] == "ledger" and row["batch"] > 1
        ]
        targets += mean_and_worst(f"ledger: total change over that of Algorithm 1, b > 1, {streams}", pairs, 1.0)
    return targets


def mean_and_worst(what: str, values: list[float], bound: float) -> list[Target]:
    if not values:
        return []
    return [Target(f"{what}, mean", mean(values), bound), Target(f"{what}, worst", max(values), bound)]
