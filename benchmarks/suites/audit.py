"""Time and peak memory of an audit of a Parquet file as it grows to a hundred million rows."""

import json
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path

import duckdb

from records import Target, figure, markdown_table, write_csv, write_settings

PROCESS = Path(__file__).parents[1] / "audit_process.py"
SIZES = (1_000_000, 10_000_000, 100_000_000)
MEMORY_LIMIT = 2000.0  # MB
TITLE = """# An audit of a file as it grows

A Parquet file of three group columns (2, 5 and 10 labels, one of them text), a prediction, a target and a raw output.
Each audit runs in a process of its own: mean parity of every attribute and of two together, equalized odds, equalized
residuals; intervals, error rates, calibration, changes, trade-off. Memory is the peak of the process, with
PyTorch and everything else that is loaded: `loaded_mb` before the file is opened. Seconds are those of the call, on two
cores, of which other work took `other_cores` meanwhile.

"""


def main(args: Namespace) -> list[Target]:
    """Write files from small to large, and audit each."""
    sizes = sorted(args.sizes or ((100_000, 1_000_000) if args.quick else SIZES))
    rows = []
    for n in sizes:
        rows.append({"n": n, **measure(n, args.seed)})
        print(f"  {rows[-1]}", flush=True)
    write_csv(args.results / "audit.csv", rows)
    columns = list(rows[0])
    table = markdown_table(columns, [[figure(row[name]) for name in columns] for row in rows])
    (args.results / "audit.md").write_text(TITLE + table + "\n")
    write_settings(args.results / "audit.json", args, duckdb=duckdb.__version__)
    return [Target(f"peak memory of an audit of {row['n']:,} rows, MB", row["peak_mb"], MEMORY_LIMIT) for row in rows]


def measure(n: int, seed: int) -> dict[str, float]:
    """Write a file, audit it in another process, and remove it."""
    with tempfile.TemporaryDirectory(prefix="fairlayer-bench-") as folder:
        path = Path(folder) / "people.parquet"
        began = time.perf_counter()
        write(path, n, seed)
        wrote = time.perf_counter() - began
        size = path.stat().st_size / 2**20
        done = subprocess.run([sys.executable, str(PROCESS), str(path)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return {"file_mb": size, "write_s": wrote, **json.loads(done.stdout.splitlines()[-1])}


def write(path: Path, n: int, seed: int) -> None:
    """A table made of hashes of its row numbers, so that it is the same everywhere."""
    connection = duckdb.connect(config={"memory_limit": "1GB", "temp_directory": str(path.parent)})
    connection.execute("SET preserve_insertion_order = false")

    def uniform(number: int) -> str:
        return f"(hash(i, {int(seed) + number}) % 1048583 / 1048583.0)::DOUBLE"

    connection.execute(
        f"""
        COPY (
            SELECT sex, race, region, z, least(greatest(z - 0.05 * (sex - 0.5), 0), 1) AS p, (v < z)::TINYINT AS y
            FROM (
                SELECT sex, race, region, 0.05 + 0.1 * sex + 0.03 * (race = 'blue')::INT + 0.7 * u * u AS z, v
                FROM (
                    SELECT (hash(i, {int(seed)}) % 2)::TINYINT AS sex,
                        ['blue', 'green', 'red', 'white', 'yellow'][1 + (hash(i, {int(seed) + 1}) % 5)::INT] AS race,
                        (hash(i, {int(seed) + 2}) % 10)::TINYINT AS region,
                        {uniform(3)} AS u, {uniform(4)} AS v
                    FROM range({int(n)}) rows(i)
                )
            )
        ) TO '{path}' (FORMAT parquet)
        """
    )
    connection.close()
