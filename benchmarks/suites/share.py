"""The share of the layer in a training step of the paper's network."""

import time
from argparse import Namespace
from itertools import pairwise
from statistics import median

import torch
from torch.nn.functional import mse_loss

from fairlayer import FairLayer, MeanParity
from measure import OtherWork, busy
from network import FEATURES, paper_network
from problems import TOLERANCE, Case, make
from records import Target, figure, markdown_table, write_csv, write_settings

BATCH = 2000
LIMIT = 0.01
TITLE = """# The layer in a training step

The paper's network of 15 hidden layers, Adam, float32; medians in ms. The share is of forward and backward
alone, the smaller base: the optimiser is left out.

"""
STAGES = ("network forward", "layer forward", "layer backward", "network backward", "optimiser")


def main(args: Namespace) -> list[Target]:
    """Time the stages of whole steps, so that the layer runs with the caches a network leaves it."""
    rows = [step_times(n, args) for n in args.sizes or (BATCH,)]
    write_csv(args.results / "share.csv", rows)
    lines = [[row["n"], *(figure(row[stage]) for stage in STAGES), f"{100 * row['share']:.2f} %"] for row in rows]
    (args.results / "share.md").write_text(TITLE + markdown_table(("batch", *STAGES, "share"), lines) + "\n")
    write_settings(args.results / "share.json", args)
    what = "share of the layer in forward + backward of the paper's network, batch"
    return [
        Target(f"{what} {row['n']}", row["share"], LIMIT, busy=busy(row["other_cores"]))
        for row in rows
        if row["n"] == BATCH
    ]


def step_times(n: int, args: Namespace) -> dict[str, float]:
    """Median time of each stage; the loss is counted with the layer's backward."""
    torch.manual_seed(args.seed)
    network = paper_network()
    layer = FairLayer([MeanParity(TOLERANCE)], bounds=(0.0, 1.0))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4)
    case = Case(n, 2, True)
    steps, warm = (3, 1) if args.quick else (40, 5)
    taken = []
    others = OtherWork()
    for number in range(warm + steps):
        problem = make(case, args.seed + number)
        groups, target = torch.tensor(problem.groups), torch.tensor(problem.z).clamp(0.0, 1.0)
        x = torch.randn(n, FEATURES)
        optimiser.zero_grad()
        clock = [time.perf_counter()]
        raw = network(x)[:, 0]
        clock.append(time.perf_counter())
        z = raw.detach().requires_grad_()  # cut here, to see where the layer's backward ends
        y = layer(z, groups=groups)
        clock.append(time.perf_counter())
        mse_loss(y, target).backward()
        clock.append(time.perf_counter())
        raw.backward(z.grad)
        clock.append(time.perf_counter())
        optimiser.step()
        clock.append(time.perf_counter())
        taken.append([1e3 * (end - start) for start, end in pairwise(clock)])
    kept = taken[warm:]
    row = {"n": n} | {stage: median(step[i] for step in kept) for i, stage in enumerate(STAGES)}
    share = median((step[1] + step[2]) / sum(step[:4]) for step in kept)
    return row | {"share": share, "other_cores": others.cores()}
