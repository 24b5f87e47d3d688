"""One process of the suite `ranks`, which starts it as RANK of WORLD_SIZE with its cases; the first prints times."""

import datetime
import json
import os
import sys
import time
from statistics import median

import numpy as np
import torch
import torch.distributed as dist

from fairlayer import FairLayer, MeanParity
from fairlayer.problem.process_group import Ranks, find_ranks
from measure import OtherWork
from problems import TOLERANCE


def list_exchanges() -> list[int]:
    """From now on, the list holds the size in words of every exchange between ranks."""
    sizes: list[int] = []
    real = Ranks.gather

    def listing(self, words):
        sizes.append(words.size)
        return real(self, words)

    Ranks.gather = listing
    return sizes


def make(n: int, attributes: int, labels: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(0, labels, (n, attributes), generator=generator)
    raw = torch.randn(n, generator=generator) + 0.7 * groups.sum(dim=1) / (labels - 1)
    return torch.sigmoid(raw), groups, torch.randn(n, generator=generator)


def step(layer: FairLayer, batch: tuple, sizes: list[int]) -> tuple[float, float, list[int], list[int]]:
    """Milliseconds of a step, those of the processor's, and the sizes of its exchanges forward and backward."""
    raw, groups, upstream = batch
    z = raw.clone().requires_grad_()
    dist.barrier()
    sizes.clear()
    start, work = time.perf_counter(), time.process_time()
    y = layer(z, groups=groups)
    forward = len(sizes)
    y.backward(upstream)
    wall, worked = 1e3 * (time.perf_counter() - start), 1e3 * (time.process_time() - work)
    return wall, worked, sizes[:forward], sizes[forward:]


def exchanges(ranks: Ranks, sizes: list[int]) -> float:
    """Milliseconds of as many exchanges of these sizes, and nothing else."""
    words = [np.zeros(size, dtype=np.int64) for size in sizes]
    dist.barrier()
    start = time.perf_counter()
    for one in words:
        ranks.gather(one)
    return 1e3 * (time.perf_counter() - start)


def main() -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=sys.argv[1], rank=rank, world_size=size, timeout=datetime.timedelta(seconds=120)
    )
    ranks, sizes = find_ranks("default"), list_exchanges()
    for case in json.loads(sys.argv[2]):
        batches = [make(case["n"], case["attributes"], case["labels"], 1000 * b + rank) for b in range(case["steps"])]
        others = OtherWork()
        alone, together = (
            FairLayer([MeanParity(TOLERANCE)], bounds=(0.0, 1.0), process_group=group) for group in (None, "default")
        )
        for layer in (alone, together):
            for batch in batches[:5]:  # compile, and agree on labels
                step(layer, batch, sizes)
        found = []
        for batch in batches:  # in turn, as other work on the machine comes and goes
            time_alone, worked_alone, _, _ = step(alone, batch, sizes)
            time_together, worked, forward, backward = step(together, batch, sizes)
            bare = exchanges(ranks, [*forward, *backward])
            found.append((time_alone, time_together, worked - worked_alone, bare, len(forward), len(backward)))
        names = ("alone", "together", "work", "bare", "forward", "backward")
        times = dict(zip(names, zip(*found, strict=True), strict=True))
        if rank == 0:
            row = {
                "ranks": size,
                "n": case["n"],
                "cells": case["labels"] ** case["attributes"],
                **{name: median(times[name]) for name in ("alone", "together", "work", "bare", "forward")},
                **{f"fastest_{name}": min(times[name]) for name in ("alone", "together", "bare")},
                "most_forward": max(times["forward"]),
                "backward": max(times["backward"]),
                "other_cores": others.cores(),
            }
            print(json.dumps(row), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
