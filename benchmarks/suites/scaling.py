"""Time and peak memory of one fairlayer call as the batch grows to ten million."""

import ctypes
import gc
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from fairlayer import FairLayer, MeanParity
from measure import OtherWork, busy, memory_field, milliseconds, peak_mb
from problems import TOLERANCE, Case, make
from records import Target, figure, markdown_table, write_csv, write_settings

TITLE = """# One call as the batch grows

float32, 2 attributes, box [0, 1]. Memory is the growth of the process at its peak during the call, output
included, in multiples of the size of z. Beside it `clamp` forward and backward on the same z: beyond the caches, and
where every new tensor is new memory, each sample costs any operation more.

"""
SIZES = (100_000, 1_000_000, 10_000_000)
MEMORY_LIMIT = 6.0  # times the size of z
LINEAR = 1.5  # growth of the time per sample from the smallest size to the largest, over that of clamp


def main(args: Namespace) -> list[Target]:
    """Measure sizes from small to large."""
    layer = FairLayer([MeanParity(TOLERANCE)], bounds=(0.0, 1.0))
    sizes = sorted(args.sizes or (SIZES[:2] if args.quick else SIZES))
    rows = [measure(layer, n, args) for n in sizes]
    write_csv(args.results / "scaling.csv", rows)
    columns = [name for name in rows[0] if name not in ("other_cores", "repeats")]
    table = markdown_table(columns, [[figure(row[name]) for name in columns] for row in rows])
    (args.results / "scaling.md").write_text(TITLE + table + "\n")
    write_settings(args.results / "scaling.json", args)
    memory = [
        Target(f"peak memory over size of z, n = {row['n']:,}", row["forward_backward_memory"], MEMORY_LIMIT)
        for row in rows
    ]
    slower, floor = (rows[-1][name] / rows[0][name] for name in ("ns_per_sample", "clamp_ns_per_sample"))
    what = f"time per sample at n = {sizes[-1]:,} over that at {sizes[0]:,}: {slower:.2f}; over that of clamp"
    return [*memory, Target(what, slower / floor, LINEAR, busy=any(busy(row["other_cores"]) for row in rows))]


def measure(layer: FairLayer, n: int, args: Namespace) -> dict[str, float]:
    """Median times over fresh batches, and the peak memory of a forward and of a forward+backward."""
    repeats = 3 if args.quick else 7
    others = OtherWork()
    forward, backward, clamp, memory = [], [], [], []
    for number in range(1 + repeats):
        problem = make(Case(n, 2, True), args.seed + number)
        z, groups = torch.tensor(problem.z, requires_grad=True), torch.tensor(problem.groups)
        del problem
        forward.append(milliseconds(lambda z=z, groups=groups: layer(z, groups=groups))[0])
        backward.append(milliseconds(lambda z=z, groups=groups: layer(z, groups=groups).sum().backward())[0])
        z.grad = None
        clamp.append(milliseconds(lambda z=z: z.clamp(0.0, 1.0).sum().backward())[0])
        z.grad = None
        grown = (
            growth(lambda z=z, groups=groups: layer(z, groups=groups)),
            growth(lambda z=z, groups=groups: layer(z, groups=groups).sum().backward()),
        )
        memory.append([bytes_ / (4 * n) for bytes_ in grown])
    # The first round warms up: it compiles, and fills what is allocated once.
    return {
        "n": n,
        "forward_ms": median(forward[1:]),
        "forward_backward_ms": median(backward[1:]),
        "ns_per_sample": 1e6 * median(backward[1:]) / n,
        "clamp_ns_per_sample": 1e6 * median(clamp[1:]) / n,
        "forward_memory": max(pair[0] for pair in memory[1:]),
        "forward_backward_memory": max(pair[1] for pair in memory[1:]),
        "other_cores": others.cores(),
        "repeats": repeats,
    }


def growth(call: Callable) -> float:
    """Bytes by which the process grows at its peak during a call; its result is kept until then."""
    gc.collect()
    reset_peak()
    before = memory_field("VmRSS")
    result = call()
    after = peak_mb() * 2**20
    del result
    return after - before


def reset_peak() -> None:
    """Give freed memory back, then start the kernel's high-water mark anew; Linux only."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
