"""Time and peak memory of `fairlayer project` on a Parquet file as it grows to a hundred million rows."""

import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path

import duckdb

from records import Target, figure, markdown_table, write_csv, write_settings
from suites.audit import SIZES, write

TOLERANCE = 0.001
ATTRIBUTES = ("sex", "race", "region")
MEMORY_LIMIT = 2000.0  # MB
TITLE = f"""# A projection of a file as it grows

`fairlayer project` moves the raw outputs of the file that audits are measured on, within [0, 1], so that the means of
three attributes (2, 5 and 10 labels) differ by at most {TOLERANCE}, and writes all six columns. Seconds are those of
the whole command: start, passes, writing, and reading again to check; `cpu_s` is the processor time it took, which
other work on the machine does not change much. Memory is the peak of the process, with PyTorch and everything else
that is loaded. `gap` is the largest difference of group means in the file written, summed by DuckDB in floating point.

"""


def main(args: Namespace) -> list[Target]:
    """Write files from small to large, and project each."""
    rows = []
    for n in sorted(args.sizes or ((100_000, 1_000_000) if args.quick else SIZES)):
        rows.append({"n": n, **measure(n, args.seed)})
        print(f"  {rows[-1]}", flush=True)
    write_csv(args.results / "project_file.csv", rows)
    columns = list(rows[0])
    table = markdown_table(columns, [[figure(row[name]) for name in columns] for row in rows])
    (args.results / "project_file.md").write_text(TITLE + table + "\n")
    write_settings(args.results / "project_file.json", args, tolerance=TOLERANCE, duckdb=duckdb.__version__)
    return [
        target
        for row in rows
        for target in (
            Target(f"peak memory of a projection of {row['n']:,} rows, MB", row["peak_mb"], MEMORY_LIMIT),
            Target(f"largest gap after a projection of {row['n']:,} rows", row["gap"], TOLERANCE * (1 + 1e-9)),
        )
    ]


def measure(n: int, seed: int) -> dict[str, float]:
    """Write a file, project it in another process, and remove both."""
    with tempfile.TemporaryDirectory(prefix="fairlayer-bench-") as folder:
        path, output = Path(folder) / "people.parquet", Path(folder) / "fair.parquet"
        write(path, n, seed)
        asked = [argument for name in ATTRIBUTES for argument in ("--protected", name)]
        command = [sys.executable, "-m", "fairlayer", "project", str(path), "--score", "z", *asked]
        command += ["--parity", str(TOLERANCE), "--bounds", "0", "1", "-o", str(output)]
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with exit code {process.returncode}")
        return {
            "file_mb": path.stat().st_size / 2**20,
            "seconds": seconds,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "peak_mb": usage.ru_maxrss / 1024,
            "gap": max(_gap(output, name) for name in ATTRIBUTES),
        }


def _gap(path: Path, name: str) -> float:
    means = duckdb.execute(f"SELECT avg(z) FROM read_parquet($path) GROUP BY {name}", {"path": str(path)}).fetchall()
    return max(means)[0] - min(means)[0]
