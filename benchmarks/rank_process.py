"""One process of the suite `ranks`, which starts it as RANK of WORLD_SIZE with its cases; the first prints times."""

import datetime
import json
import os
import sys
import time
from statistics import median

import torch
import torch.distributed as dist

from fairlayer import FairLayer, MeanParity
from measure import OtherWork
from problems import TOLERANCE


def count_collectives() -> list[int]:
    """From now on, the only entry of the list counts all-reduces."""
    count, real = [0], dist.all_reduce

    def counting(*args, **options):
        count[0] += 1
        return real(*args, **options)

    dist.all_reduce = counting
    return count


def make(n: int, attributes: int, labels: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(0, labels, (n, attributes), generator=generator)
    raw = torch.randn(n, generator=generator) + 0.7 * groups.sum(dim=1) / (labels - 1)
    return torch.sigmoid(raw), groups, torch.randn(n, generator=generator)


def steps(
    layer: FairLayer, batches: list, count: list[int], together: bool
) -> tuple[list[float], list[int], list[int]]:
    """Milliseconds of every step, and its collectives forward and backward."""
    times, forward, backward = [], [], []
    for z, groups, upstream in batches:
        z = z.clone().requires_grad_()
        if together:
            dist.barrier()
        count[0] = 0
        start = time.perf_counter()
        y = layer(z, groups=groups)
        forward.append(count[0])
        y.backward(upstream)
        times.append(1e3 * (time.perf_counter() - start))
        backward.append(count[0] - forward[-1])
    return times, forward, backward


def main() -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=sys.argv[1], rank=rank, world_size=size, timeout=datetime.timedelta(seconds=120)
    )
    count = count_collectives()
    for case in json.loads(sys.argv[2]):
        batches = [make(case["n"], case["attributes"], case["labels"], 1000 * b + rank) for b in range(case["steps"])]
        others = OtherWork()
        found = {}
        for name, group in (("alone", None), ("together", "default")):
            layer = FairLayer([MeanParity(TOLERANCE)], bounds=(0.0, 1.0), process_group=group)
            steps(layer, batches[:5], count, group is not None)  # compile, and agree on labels
            found[name] = steps(layer, batches, count, group is not None)
        times, forward, backward = found["together"]
        if rank == 0:
            row = {
                "ranks": size,
                "n": case["n"],
                "cells": case["labels"] ** case["attributes"],
                "alone": median(found["alone"][0]),
                "together": median(times),
                "fastest": min(times),
                "forward": median(forward),
                "most_forward": max(forward),
                "backward": max(backward),
                "other_cores": others.cores(),
            }
            print(json.dumps(row), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
