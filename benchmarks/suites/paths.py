"""The two paths of the solver on the same problems: compiled, and in tensor operations."""

from argparse import Namespace
from statistics import median

import torch

from fairlayer import FairLayer, MeanParity
from measure import milliseconds
from problems import TOLERANCE, Case, make
from records import Target, figure, markdown_table, write_csv, write_settings

SIZES = (16, 256, 2000, 20_000, 200_000)
TITLE = """# Compiled path and tensor operations

Forward + `sum().backward()`, float32, 2 attributes, box [0, 1], new groups in every call; medians, milliseconds.

"""


def main(args: Namespace) -> list[Target]:
    """Time both in turn."""
    layers = {path: FairLayer([MeanParity(TOLERANCE)], bounds=(0.0, 1.0), path=path) for path in ("compiled", "tensor")}
    rows = []
    for n in args.sizes or SIZES:
        repeats, warm = (10, 3) if args.quick else (100 if n <= 20_000 else 30, 10)
        taken: dict[str, list[float]] = {path: [] for path in layers}
        for number in range(warm + repeats):
            problem = make(Case(n, 2, True), args.seed + number)
            groups = torch.tensor(problem.groups)
            for path, layer in layers.items():
                z = torch.tensor(problem.z, requires_grad=True)
                taken[path].append(milliseconds(lambda: layer(z, groups=groups).sum().backward())[0])  # noqa: B023
        times = {path: median(values[warm:]) for path, values in taken.items()}
        rows.append({"n": n, **times, "ratio": times["tensor"] / times["compiled"]})
    write_csv(args.results / "paths.csv", rows)
    cells = [(row["n"], *(figure(row[name]) for name in ("compiled", "tensor", "ratio"))) for row in rows]
    (args.results / "paths.md").write_text(TITLE + markdown_table(("n", "compiled", "tensor", "ratio"), cells) + "\n")
    write_settings(args.results / "paths.json", args)
    return []
