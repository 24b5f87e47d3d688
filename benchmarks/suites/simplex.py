"""Class probabilities: forward + backward of the layer on the simplex over that of the squared one with one output."""

from argparse import Namespace
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor

from fairlayer import FairLayer, MeanParity
from measure import OtherWork, busy, milliseconds
from problems import TOLERANCE, Case, make
from records import Target, figure, markdown_table, write_csv, write_settings

N, CLASSES, KINDS = 2000, (2, 4, 10, 30, 100), ("entropy", "squared")
LIMIT = {4: 6.0}  # of entropy over the squared layer
TITLE = """# Class probabilities

Forward + `sum().backward()` of weighted outputs, float32, 2 attributes, new groups in every call, tolerance a tenth of
1 / d; beside it the squared layer with one output and the box [0, 1] on the same groups. Ratios are medians over
neighbouring calls.

"""


def main(args: Namespace) -> list[Target]:
    """Time; write simplex.csv, .json and .md."""
    torch.set_num_threads(1)
    timed = [compare(n, d, args) for n in args.sizes or (N,) for d in (CLASSES[:2] if args.quick else CLASSES)]
    columns = list(timed[0])[:-1]
    lines = [[row["n"], row["classes"], *(figure(row[name]) for name in columns[2:])] for row in timed]
    (args.results / "simplex.md").write_text(TITLE + markdown_table(columns, lines) + "\n")
    write_csv(args.results / "simplex.csv", timed)
    write_settings(args.results / "simplex.json", args)
    return [
        Target(
            f"simplex, entropy, {row['classes']} classes over squared, forward + backward, n = {row['n']}",
            row["entropy / one output"],
            LIMIT[row["classes"]],
            busy=busy(row["other_cores"]),
        )
        for row in timed
        if row["n"] == N and row["classes"] in LIMIT
    ]


def compare(n: int, d: int, args: Namespace) -> dict[str, Any]:
    """Times on the same batches, in turn."""
    work = OtherWork()
    one = FairLayer([MeanParity(TOLERANCE)], (0.0, 1.0))
    layers = {kind: FairLayer([MeanParity(0.1 / d)], None, kind, simplex=True) for kind in KINDS}
    times: dict[str, list[float]] = {name: [] for name in ("one", *KINDS)}
    for repeat in range(-2, 3 if args.quick or d > 10 else 40):
        problem = make(Case(n, 2, True), args.seed + repeat + 2)
        groups, raw = torch.tensor(problem.groups), torch.tensor(problem.z)
        generator = torch.Generator().manual_seed(repeat + 2)
        logits = torch.randn(n, d, generator=generator) + groups.float() @ torch.randn(2, d, generator=generator)
        P, direction = torch.softmax(logits, dim=1), torch.randn(n, d, generator=generator)
        for name, layer in {"one": one, **layers}.items():
            z = (raw if name == "one" else P).clone().requires_grad_()
            spent, _ = milliseconds(step, layer, z, groups, torch.ones(()) if name == "one" else direction)
            if repeat >= 0:
                times[name].append(spent)
    row: dict[str, Any] = {"n": n, "classes": d, "one_output_ms": median(times["one"])}
    for kind in KINDS:
        row[f"{kind}_ms"] = median(times[kind])
    for kind in KINDS:
        row[f"{kind} / one output"] = median(a / b for a, b in zip(times[kind], times["one"], strict=True))
    return {**row, "other_cores": work.cores()}


def step(layer: Callable, z: Tensor, groups: Tensor, direction: Tensor) -> None:
    (layer(z, groups) * direction).sum().backward()
