"""Projection and audit of a dataset by Ray workers, one of which is killed, beside the same of a file."""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from fairlayer.tables.dataset import opened
from fairlayer.tables.passes import TablePasses
from measure import OtherWork, milliseconds
from ray_process import ATTRIBUTES, STORE, TOLERANCE, WORKERS, audit_digest, constraints, roles
from records import Target, figure, markdown_table, write_csv, write_settings
from suites.audit import write

PROCESS = Path(__file__).parents[1] / "ray_process.py"
SIZES = (1_000_000, 10_000_000, 100_000_000)
PARTS = 16
BLOCK = 2_500_000  # rows
MEMORY_LIMIT = 8000.0  # MB
TITLE = f"""# A dataset by Ray workers

The rows that audits of files are measured on, in about {PARTS} Parquet files, are projected by {WORKERS} workers with
`fairlayer.ray.project` (mean parity of three attributes within {TOLERANCE}), written, and audited with
`fairlayer.ray.audit`. In each run one worker is killed while it works on a pass. The same rows as one file, in another
order, go through `fairlayer project` and `fairlayer.audit` on this machine. `equal` says whether both give the same
scores and the same audit, to the bit. Memory is the peak of all processes together, with an object store of
{STORE // 10**6:,} MB; seconds are those of the call after the cluster has started (Ray) and of the whole command
(local), `ray_cpu_s` the processor time of all processes of Ray. There are {os.cpu_count()} cores, of which other work
took `other_cores` meanwhile.

"""
BLOCKS_TITLE = """

## One block

A pass over one block on one processor, the least of seven: nanoseconds for a row, and the size of the message that its
sums are.

"""


def main(args: Namespace) -> list[Target]:
    """From small to large."""
    measured = blocks(args.seed)
    rows: list[dict[str, Any]] = []
    for n in sorted(args.sizes or ((100_000,) if args.quick else SIZES)):
        rows += measure(n, args.seed)
        for row in rows[-2:]:
            print(f"  {row}", flush=True)
        report(args, rows, measured)
    return [
        target
        for row in rows
        for target in (
            Target(f"Ray {row['what']} of {row['n']:,} rows equal to the local one", row["equal"], 1.0, at_least=True),
            Target(f"workers killed in a Ray {row['what']} of {row['n']:,} rows", row["killed"], 1.0, at_least=True),
            Target(f"peak memory of a Ray {row['what']} of {row['n']:,} rows, MB", row["peak_mb"], MEMORY_LIMIT),
        )
    ]


def report(args: Namespace, new: list[dict[str, Any]], measured: list[dict[str, Any]]) -> None:
    """Write what is known so far, and what earlier runs found of other sizes."""
    path = args.results / "ray.csv"
    kept: list[dict[str, Any]] = []
    if path.exists():
        sizes = {row["n"] for row in new}
        with path.open(newline="") as file:
            kept = [row for row in csv.DictReader(file) if int(row["n"]) not in sizes]
    known = dict.fromkeys(new[0], "")
    rows = sorted([*({**known, **row} for row in kept), *new], key=lambda row: int(row["n"]))
    write_csv(path, rows)
    write_csv(args.results / "ray_blocks.csv", measured)
    text = TITLE + _table(rows) + BLOCKS_TITLE + _table(measured) + "\n"
    (args.results / "ray.md").write_text(text)
    settings = {"tolerance": TOLERANCE, "workers": WORKERS, "ray": version("ray"), "duckdb": duckdb.__version__}
    write_settings(args.results / "ray.json", args, **settings)


def _table(rows: list[dict[str, Any]]) -> str:
    columns = list(rows[0])
    plain = ("what", "")
    shown = [
        [row[name] if name in plain or row[name] in plain else figure(float(row[name])) for name in columns]
        for row in rows
    ]
    return markdown_table(columns, shown)


def blocks(seed: int) -> list[dict[str, float]]:
    """What one pass over one block costs: time of a row, on one processor, and size of the message."""
    random = np.random.default_rng(seed)
    z = random.random(BLOCK)
    found = []
    for cells in (8, 128, 4096):
        code, shift = random.integers(0, cells, BLOCK).astype(np.int32), random.normal(0.0, 0.05, cells)
        with opened(pa.table({"z": z, "code": code})) as table:
            passes = TablePasses(table)
            times = [milliseconds(passes.sums, shift, 0.0, 1.0)[0] for _ in range(7)]
        message = 32 * cells / 1024  # cell, total and free of each: 8, 16 and 8 bytes
        found.append({"cells": cells, "rows": BLOCK, "row_ns": 1e6 * min(times) / BLOCK, "message_kb": message})
        print(f"  {found[-1]}", flush=True)
    return found


def measure(n: int, seed: int) -> list[dict[str, Any]]:
    """Both tasks, by both engines."""
    with tempfile.TemporaryDirectory(prefix="fairlayer-bench-") as folder:
        parts, whole = Path(folder) / "parts", Path(folder) / "whole.parquet"
        by_ray, local = Path(folder) / "ray", Path(folder) / "local.parquet"
        write(whole, n, seed)
        split(whole, parts)
        found = {"project": by_workers("project", parts, by_ray)}
        asked = [argument for name in ATTRIBUTES for argument in ("--protected", name)]
        command = [sys.executable, "-m", "fairlayer", "project", str(whole), "--score", "z", *asked, "--keep-raw"]
        command += ["raw", "--parity", str(TOLERANCE), "--bounds", "0", "1", "-o", str(local)]
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        locally = {"project": time.perf_counter() - began}
        equal = {"project": digest(f"{by_ray}/*.parquet", "z", "fair") == digest(str(local), "raw", "z")}
        found["audit"] = by_workers("audit", by_ray)
        renamed = Path(folder) / "renamed.parquet"
        run(f"COPY (SELECT * EXCLUDE (z, raw), z AS fair, raw AS z FROM '{local}') TO '{renamed}' (FORMAT parquet)")
        from fairlayer import audit

        began = time.perf_counter()
        result = audit(renamed, ATTRIBUTES, constraints(), **roles())
        locally["audit"] = time.perf_counter() - began
        equal["audit"] = audit_digest(result) == found["audit"].pop("digest")
    return [
        {
            "n": n,
            "what": what,
            "ray_s": one["seconds"],
            "ray_cpu_s": one["cpu_s"],
            "local_s": locally[what],
            "peak_mb": one["peak_mb"],
            "killed": len(one["killed"]),
            "equal": int(equal[what]),
            "workers": WORKERS,
            "other_cores": one["other_cores"],
        }
        for what, one in found.items()
    ]


def by_workers(*arguments: Any) -> dict[str, Any]:
    """A task in a process of its own."""
    others = OtherWork()
    done = subprocess.run(
        [sys.executable, str(PROCESS), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    record = json.loads(done.stdout.splitlines()[-1])
    print(f"  {record}", flush=True)
    return {**record, "other_cores": others.cores()}


def split(whole: Path, parts: Path) -> None:
    """The rows of a file in several, in another order."""
    size = max(whole.stat().st_size // PARTS, 1)
    run(f"COPY (SELECT * FROM '{whole}') TO '{parts}' (FORMAT parquet, FILE_SIZE_BYTES {size})")


def digest(path: str, raw: str, fair: str) -> tuple[int, int]:
    """Number of rows, and a sum of hashes of them that does not depend on their order."""
    asked = f"count(*), sum(hash(sex, race, region, y, {raw}, {fair})::HUGEINT)"
    return run(f"SELECT {asked} FROM read_parquet('{path}')")


def run(sql: str) -> Any:
    """One query; its first row."""
    with duckdb.connect(config={"memory_limit": "1GB"}) as connection:
        connection.execute("SET preserve_insertion_order = false")
        return connection.execute(sql).fetchone()
