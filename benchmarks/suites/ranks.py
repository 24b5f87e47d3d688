"""The layer over several processes on this machine: what a step costs beside that of a process by itself."""

import json
import os
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

from measure import busy
from records import Target, figure, markdown_table, write_csv, write_settings

PROCESS = Path(__file__).parents[1] / "rank_process.py"
BATCH, LIMIT, MOST_FORWARD = 2000, 2.0, 4
TITLE = """# The layer over several processes

Forward and backward of `FairLayer([MeanParity(0.01)], bounds=(0, 1))`, float32, gloo over loopback; medians in ms.
Every process holds n samples, and all of them are one batch. Alone: each process projects its own n samples by itself.
Exchanges: as many of the same size and nothing else, which is the share of gloo and the network in the overhead.
Fastest: the overhead of the fastest step over the fastest alone. Work: the overhead in processor time, all threads of a
process counted. Other work on the machine disturbs these two least.

"""
HEADINGS = (
    "processes",
    "n each",
    "cells",
    "alone",
    "together",
    "overhead",
    "exchanges",
    "fastest",
    "work",
    "forward",
    "most",
    "back",
)


def main(args: Namespace) -> list[Target]:
    """Every number of processes, against n and against the number of cells."""
    steps = 5 if args.quick else 200
    sizes = args.sizes or ((200, BATCH) if args.quick else (200, BATCH, 20_000, 200_000))
    cases = [{"n": n, "attributes": 2, "labels": 2, "steps": max(steps // max(n // 20_000, 1), 5)} for n in sizes]
    cases += [] if args.quick else [{"n": BATCH, "attributes": 2, "labels": k, "steps": steps} for k in (8, 32)]
    rows = [row for processes in ((2,) if args.quick else (1, 2, 4)) for row in run(processes, cases)]
    write_csv(args.results / "ranks.csv", rows)
    lines = [
        [
            row["ranks"],
            row["n"],
            row["cells"],
            *(figure(row[name]) for name in ("alone", "together")),
            figure(row["together"] - row["alone"]),
            figure(row["bare"]),
            figure(row["fastest_together"] - row["fastest_alone"]),
            figure(row["work"]),
            f"{row['forward']:g}",
            row["most_forward"],
            row["backward"],
        ]
        for row in rows
    ]
    (args.results / "ranks.md").write_text(TITLE + markdown_table(HEADINGS, lines) + "\n")
    write_settings(args.results / "ranks.json", args)
    targets = []
    for row in rows:
        if (row["ranks"], row["n"], row["cells"]) == (2, BATCH, 4):
            doubtful = busy(row["other_cores"] - 1.0) if row["other_cores"] is not None else False  # the other process
            what = f"batch {BATCH} on each of 2 processes"
            overhead = row["together"] - row["alone"]
            targets.append(Target(f"overhead of a step in ms, {what}", overhead, LIMIT, busy=doubtful))
            fastest = row["fastest_together"] - row["fastest_alone"]
            targets.append(Target(f"overhead of the fastest step in ms, {what}", fastest, LIMIT))
            targets.append(Target(f"overhead of a step in ms of processor time, {what}", row["work"], LIMIT))
            targets.append(Target(f"collectives forward (median), {what}", row["forward"], MOST_FORWARD))
            targets.append(Target(f"collectives backward, {what}", row["backward"], 1))
    return targets


def run(processes: int, cases: list[dict]) -> list[dict]:
    """What the first of so many processes measures."""
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank in range(processes):
            environment = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(processes),
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join([str(PROCESS.parent), os.environ.get("PYTHONPATH", "")]),
            }
            command = [sys.executable, str(PROCESS), f"file://{folder}/meeting", json.dumps(cases)]
            started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        outputs = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError(f"a process of {processes} failed")
    return [json.loads(line) for line in outputs[0].splitlines()]
