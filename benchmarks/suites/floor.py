"""fairlayer over the cheapest layer there is: forward+backward against `clamp` on the same tensor."""

from argparse import Namespace
from statistics import median

import torch
from torch import Tensor

from fairlayer import FairLayer, MeanParity
from measure import milliseconds
from problems import TOLERANCE, Case, make
from records import Target, figure, markdown_table, write_csv, write_settings

SIZES = (16, 256, 2000, 20_000, 200_000)
LIMITS = {16: 4.0, 256: 4.0, 2000: 4.0, 200_000: 6.0}


def main(args: Namespace) -> list[Target]:
    """Time the two in turn, so that the ratio does not feel what else the machine does."""
    layer = FairLayer([MeanParity(TOLERANCE)], bounds=(0.0, 1.0))
    rows = [compare(layer, n, args) for n in args.sizes or SIZES]
    write_csv(args.results / "floor.csv", rows)
    cells = [(row["n"], *(figure(row[name]) for name in ("clamp_ms", "fairlayer_ms", "ratio"))) for row in rows]
    table = markdown_table(("n", "clamp, ms", "fairlayer, ms", "ratio"), cells)
    title = "# fairlayer over clamp\n\nForward + `sum().backward()`, float32, 2 attributes, box [0, 1], new groups in "
    (args.results / "floor.md").write_text(title + f"every call; medians.\n\n{table}\n")
    write_settings(args.results / "floor.json", args)
    return [
        Target(f"fairlayer over clamp, forward + backward, n = {row['n']}", row["ratio"], LIMITS[row["n"]])
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
    times: list[tuple[float, float]] = []
    for number in range(warm + repeats):
        problem = make(case, args.seed + number)
        groups = torch.tensor(problem.groups)
        pair = [torch.tensor(problem.z, requires_grad=True) for _ in range(2)]
        # Each goes first every other time: the second finds the caches warmer.
        order = (clamp, fair) if number % 2 else (fair, clamp)
        taken = {call: milliseconds(call, z, groups)[0] for call, z in zip(order, pair, strict=True)}
        times.append((taken[clamp], taken[fair]))
    kept = times[warm:]
    return {
        "n": n,
        "clamp_ms": median(low for low, _ in kept),
        "fairlayer_ms": median(high for _, high in kept),
        "ratio": median(high / low for low, high in kept),
        "repeats": len(kept),
    }
