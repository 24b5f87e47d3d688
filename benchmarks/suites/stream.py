"""Streams: the ledger, Algorithm 1 (ours and the authors'), and projection batch by batch, on the same streams."""

import time
from argparse import Namespace
from collections.abc import Iterator
from statistics import mean
from typing import Any

import numpy as np

from peers.environments import UnavailableError
from records import Target, figure, markdown_table, write_csv, write_settings
from streams import plot
from streams.authors_process import AUTHORS, run_authors
from streams.gaps import average_gap, pooled_gap
from streams.methods import METHODS, Run, ledger, optimum
from streams.promise import Watch, provoke
from streams.scenarios import Scenario

BATCHES = (1, 4, 16, 64, 256)
ATTRIBUTES = (1, 2, 5)
SAMPLES = 20_000
SHORT = 6000
DRAWN = (2, True)  # attributes and box of the figures over time
STEPS = 1_000_000

COLUMNS = (
    *("method", "batch", "attributes", "box", "drifts", "samples", "seed", "pooled_gap", "steps_above", "steps"),
    *("average_gap", "mean_squared_change", "over_optimum", "second_half_over_optimum", "first_tenth_over_optimum"),
)
PAGE = """# Streams

Normal outputs, {samples:,} per stream, means of groups up to one standard deviation apart, shares from 20 % to
50 %; the pooled tolerance is a twentieth of that distance. Drifting: half-way the gaps double and the level moves. With
a box 7 to 15 % of raw outputs lie outside. Warm start: 5000 earlier samples. Ratios are of the mean squared change to
that of the optimum in hindsight, over the whole stream, its second half and its first tenth. A stream's two halves
differ by chance, and what the first half lacked the second must make up for: ratios below 1 and above are to be
expected of single streams.

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
        for method in METHODS if scenario.samples > SHORT else (ledger,):
            run = method(scenario)
            rows.append(measure(run, z, groups, best))
            keep(drawn, run, groups)
            if run.watch:
                watches.append(run.watch)
        write_csv(args.results / "stream.csv", rows)
        ratio = next(row for row in reversed(rows) if row["method"] == "ledger")["over_optimum"]
        seconds = time.perf_counter() - began
        print(f"   {scenario.name:<44} ledger {ratio:.3f} x optimum  ({seconds:.0f} s)", flush=True)

    authors = authors_runs(args, rows, drawn)
    missing = STEPS - sum(watch.steps for watch in watches)
    adversaries = 5 if args.quick else 30
    for watch in provoke(adversaries, 40 if args.quick else max(missing // adversaries + 1, 100), args.seed):
        watches.append(watch)
        if len(watches) % 10 == 0:
            print(f"   promise: {sum(watch.steps for watch in watches):,} steps", flush=True)
    write_csv(args.results / "stream.csv", rows)
    write_page(args, rows)
    plot.gaps_over_time(args.results / "stream-gaps.png", drawn)
    plot.cost(args.results / "stream-cost.png", rows, DRAWN, 0 if args.quick else SHORT)
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
    return [*promise_targets(watches), *cost_targets(rows, args)]


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
    if (scenario.attributes, scenario.box) == DRAWN and scenario.samples > SHORT:
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
        if (scenario.attributes, scenario.box) == DRAWN and scenario.batch in (4, 16) and scenario.samples > SHORT:
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
    ratio_rows = []
    for method in dict.fromkeys(row["method"] for row in stationary):
        for batch in sorted({row["batch"] for row in stationary}):
            here = [
                row for row in stationary if (row["method"], row["batch"]) == (method, batch) and is_long(row, args)
            ]
            if here:
                ratio_rows.append([method, batch, *(spread(here, name) for name in COLUMNS[-3:])])
    header = ["method", "b", "whole stream", "second half", "first tenth"]
    names = ("method", "batch", "attributes", "box", "drifts", "pooled_gap", "average_gap", "over_optimum")
    listed = [
        [*(row[name] for name in names[:5]), *(figure(row[name]) for name in names[5:]), above(row)] for row in rows
    ]
    page = PAGE.format(
        samples=max(row["samples"] for row in rows),
        ratios=markdown_table(header, ratio_rows),
        streams=markdown_table([*names, "steps above tolerance"], listed),
    )
    (args.results / "stream.md").write_text(page)


def is_long(row: Row, args: Namespace) -> bool:
    return args.quick or row["samples"] > SHORT


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


def cost_targets(rows: list[Row], args: Namespace) -> list[Target]:
    """Mean and worst over stationary streams."""
    stationary = [row for row in rows if not row["drifts"]]
    long = [row for row in stationary if is_long(row, args)]
    targets = []
    for box in (True, False):
        shape = "box" if box else "no box"
        ours = [row for row in long if row["method"] == "ledger" and row["box"] == box]
        values = [row["second_half_over_optimum"] for row in ours]
        what = f"ledger: second half over the optimum, {SAMPLES:,} samples, {shape}"
        targets += [Target(f"{what}, mean", mean(values), 1.05), Target(f"{what}, worst", max(values), 1.05)]
        short = [row["second_half_over_optimum"] for row in stationary if not is_long(row, args) and row["box"] == box]
        if short:
            what = f"ledger: second half over the optimum, {SHORT:,} samples one at a time, {shape}"
            targets += [Target(f"{what}, mean", mean(short), 1.12), Target(f"{what}, worst", max(short), 1.12)]
    warm = [row["over_optimum"] for row in long if row["method"] == "ledger, warm start"]
    targets.append(Target("ledger: whole stream over the optimum, warm start, mean", mean(warm), 1.05))
    targets.append(Target("ledger: whole stream over the optimum, warm start, worst", max(warm), 1.05))
    cost = {(row["method"], *which(row)): row["mean_squared_change"] for row in rows}
    # One at a time there is no gap within a batch: Algorithm 1 changes nothing, and equalises nothing.
    pairs = [
        row["mean_squared_change"] / cost["Algorithm 1", *which(row)]
        for row in long
        if row["method"] == "ledger" and row["batch"] > 1
    ]
    targets.append(Target("ledger: total change over that of Algorithm 1, b > 1, worst", max(pairs), 1.0))
    return targets
