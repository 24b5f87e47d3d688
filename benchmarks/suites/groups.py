"""Many groups: forward + backward with many values of one attribute, or many binary attributes."""

from argparse import Namespace
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairlayer import MeanParity, project
from measure import OtherWork, busy, milliseconds
from problems import TOLERANCE
from records import Target, figure, markdown_table, write_csv, write_settings

# n, attributes, values of each; milliseconds at most
CASES = {(20_000, 1, 200): 2.0, (20_000, 16, 2): 20.0, (200_000, 1, 1000): None, (20_000, 8, 2): None}
COLUMNS = ("n", "attributes", "values", "ms", "least_ms", "forward_ms", "clamp_ms")
TITLE = f"""# Many groups

`project` and `sum().backward()` of weighted outputs, float32, MeanParity({TOLERANCE}), box [0, 1], new groups in every
call, as an integer table; medians. Combinations of many attributes are nearly all different: of 16 binary ones there
are 65,536.

"""


def main(args: Namespace) -> list[Target]:
    """Time; write groups.csv, .json and .md."""
    timed = [
        measure(n, attributes, values, args)
        for n, attributes, values in CASES
        if (not args.sizes or n in args.sizes) and (not args.quick or n <= 20_000)
    ]
    lines = [[row[name] if name in COLUMNS[:3] else figure(row[name]) for name in COLUMNS] for row in timed]
    (args.results / "groups.md").write_text(TITLE + markdown_table(COLUMNS, lines) + "\n")
    write_csv(args.results / "groups.csv", timed)
    write_settings(args.results / "groups.json", args)
    targets = []
    for row in timed:
        limit = CASES[row["n"], row["attributes"], row["values"]]
        if limit is not None:
            what = f"{row['attributes']} attributes of {row['values']} values, forward + backward, ms, n = {row['n']}"
            targets.append(Target(what, row["ms"], limit, busy=busy(row["other_cores"])))
    return targets


def measure(n: int, attributes: int, values: int, args: Namespace) -> dict[str, Any]:
    """Times of one case, over batches that differ."""
    work, both, forward, plain = OtherWork(), [], [], []
    for repeat in range(-2, 5 if args.quick else 40):
        rng = np.random.default_rng([args.seed, repeat + 2])
        groups = rng.integers(0, values, (n, attributes))
        effect = (groups / (values - 1) - 0.5).sum(axis=1) / np.sqrt(attributes)
        z = torch.from_numpy((0.5 + 0.25 * rng.standard_normal(n) + 0.2 * effect).astype(np.float32)).requires_grad_()
        table, direction = torch.from_numpy(groups), torch.from_numpy(rng.standard_normal(n).astype(np.float32))
        first, value = milliseconds(lambda: project(z, table, MeanParity(TOLERANCE), bounds=(0.0, 1.0)).value)  # noqa: B023
        second, _ = milliseconds(back, value, direction)
        clamp, _ = milliseconds(lambda: back(z.clamp(0.0, 1.0), direction))  # noqa: B023
        if repeat >= 0:
            both.append(first + second)
            forward.append(first)
            plain.append(clamp)
    row: dict[str, Any] = {"n": n, "attributes": attributes, "values": values, "ms": median(both)}
    row |= {"least_ms": min(both), "forward_ms": median(forward), "clamp_ms": median(plain)}
    return {**row, "other_cores": work.cores()}


def back(value: Tensor, direction: Tensor) -> None:
    (value * direction).sum().backward()
