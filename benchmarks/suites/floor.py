"""fairlayer over the cheapest layer there is: forward+backward against `clamp` on the same tensor."""

from argparse import Namespace
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from fairlayer import FairLayer, MeanParity
from measure import OtherWork, busy, milliseconds
from problems import TOLERANCE, Case, make
from records import Target, figure, markdown_table, write_csv, write_settings

SIZES = (16, 256, 2000, 20_000, 200_000)
TITLE = """# fairlayer over clamp

Forward + `sum().backward()`, float32, 2 attributes, box [0, 1], new groups in every call; medians.

"""
COLUMNS = ("n", "clamp_ms", "fairlayer_ms", "ratio", "clamp_alone_ms")
LIMITS = {16: 4.0, 256: 4.0, 2000: 4.0, 200_000: 6.0}


def main(args: Namespace) -> list[Target]:
    """Time the two in turn, so that the ratio does not feel what else the machine does."""
    layer = FairLayer([MeanParity(TOLERANCE)], bounds=(0.0, 1.0))
    rows = [compare(layer, n, args) for n in args.sizes or SIZES]
    write_csv(args.results / "floor.csv", rows)
    cells = [(row["n"], *(figure(row[name]) for name in COLUMNS[1:])) for row in rows]
    table = markdown_table(COLUMNS, cells)
    (args.results / "floor.md").write_text(TITLE + table + "\n")
    write_settings(args.results / "floor.json", args)
    what = "fairlayer over clamp, forward + backward, n ="
    return [
        Target(f"{what} {row['n']}", row["ratio"], LIMITS[row["n"]], busy=busy(row["other_cores"]))
        for row in rows
        if row["n"] in LIMITS
    ]


def compare(layer: FairLayer, n: int, args: Namespace) -> dict[str, float]:
    """Median times and median of the ratios of neighbouring calls."""

    def clamp(z: Tensor, groups: Tensor) -> None:
        z.clamp(0.0, 1.0).sum().backward()

    def fair(z: Tensor, groups: Tensor) -> None:
        layer(z, groups=groups).sum().backward()

    case = Case(n, 2, True)
    repeats, warm = (20, 3) if args.quick else (400 if n <= 20_000 else 150, 20)

    def times(*calls: Callable) -> dict[Callable, list[float]]:
        taken: dict[Callable, list[float]] = {call: [] for call in calls}
        for number in range(warm + repeats):
            problem = make(case, args.seed + number)
            groups = torch.tensor(problem.groups)
            # Each goes first every other time: the second finds the caches warmer.
            for call in calls if number % 2 else reversed(calls):
                z = torch.tensor(problem.z, requires_grad=True)
                taken[call].append(milliseconds(call, z, groups)[0])
        return {call: values[warm:] for call, values in taken.items()}

    others = OtherWork()
    pair = times(clamp, fair)
    return {
        "n": n,
        "clamp_ms": median(pair[clamp]),
        "fairlayer_ms": median(pair[fair]),
        "ratio": median(high / low for low, high in zip(pair[clamp], pair[fair], strict=True)),
        # Beside the layer, clamp must not be slower than by itself, or the ratio would flatter the layer.
        "clamp_alone_ms": median(times(clamp)[clamp]),
        "other_cores": others.cores(),
        "repeats": repeats,
    }
