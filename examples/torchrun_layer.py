"""The layer on several processes: scores are fair over the whole batch, whichever process holds a sample.

Each process takes its share of every batch. With `process_group="default"` the shares are one batch to the layer, and
the run is that of a single process: try it with one, two or three.

    torchrun --nproc-per-node 2 examples/torchrun_layer.py
"""

import os

import torch
import torch.distributed as dist
from torch import nn

from fairlayer import FairLayer, FairModel, MeanParity
from plain_loop import TOLERANCE, make_data


def train(steps: int = 30, batch_size: int = 1000) -> tuple[nn.Module, FairModel, list[float]]:
    """Train; the network, the model around it, and the loss of every whole batch."""
    rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid()).double()
    model = FairModel(backbone, FairLayer([MeanParity(TOLERANCE)], bounds=(1e-4, 1 - 1e-4), process_group="default"))
    network = nn.parallel.DistributedDataParallel(model) if size > 1 else model
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        x, targets, groups = make_data(batch_size, seed=step)  # in earnest, a loader with a DistributedSampler
        own = slice(rank, None, size)
        y = network(x[own].double(), groups=groups[own])
        errors = nn.functional.binary_cross_entropy(y, targets[own].double(), reduction="sum")
        # Gradients are averaged over processes: times their number, they are those of the mean over the whole batch.
        loss = errors * size / batch_size
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = errors.detach().clone()
        if size > 1:
            dist.all_reduce(total)
        losses.append(total.item() / batch_size)
    return network, model, losses


def main() -> None:
    together = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if together:
        dist.init_process_group("gloo")
    _, model, losses = train()
    if not together or dist.get_rank() == 0:
        gaps = model.layer.solution.gaps.abs()
        assert gaps.max() <= TOLERANCE
        print(f"loss of the first and last batch: {losses[0]:.6f}, {losses[-1]:.6f}")
        print(f"largest gap over the last batch: {gaps.max():.6f}. {model.layer.solution.status.value}")
    if together:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
