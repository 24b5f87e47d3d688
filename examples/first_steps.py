"""First steps in Python: project a batch, train through the layer, keep a stream fair."""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import nn

from fairlayer import FairLayer, MeanParity, Stream, project

TOLERANCE = 0.02


def applicants(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features, repaid or not, and two protected attributes that the features give away."""
    generator = torch.Generator().manual_seed(seed)
    groups = (torch.rand(n, 2, generator=generator) < torch.tensor([0.3, 0.5])).long()
    features = torch.randn(n, 8, generator=generator) + 0.6 * groups[:, :1] - 0.3 * groups[:, 1:]
    score = features @ torch.linspace(1.0, -0.5, 8) + 0.8 * groups[:, 0]
    repaid = (torch.rand(n, generator=generator) < torch.sigmoid(score)).float()
    return features, repaid, groups


def gap(outputs: torch.Tensor, groups: torch.Tensor) -> float:
    """The largest difference of group means, over both attributes."""
    exact = outputs.double()
    return max(abs(float(exact[a == 0].mean() - exact[a == 1].mean())) for a in groups.T)


def train(layer: FairLayer | None, seed: int = 0) -> tuple[nn.Module, float]:
    """A small network, trained with or without the layer at its end; and the seconds it took."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid(), nn.Flatten(0))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    x, y, groups = applicants(20_000, seed=1)
    start = time.perf_counter()
    for _ in range(6):
        for batch in torch.randperm(len(x)).split(500):
            outputs = network(x[batch])
            if layer is not None:
                outputs = layer(outputs, groups=groups[batch])
            loss = nn.functional.binary_cross_entropy(outputs.clamp(1e-6, 1 - 1e-6), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network, time.perf_counter() - start


def line(name: str, outputs: torch.Tensor, y: torch.Tensor, groups: torch.Tensor, seconds: float) -> None:
    """One row of the table."""
    loss = float(nn.functional.binary_cross_entropy(outputs.clamp(1e-6, 1 - 1e-6), y))
    accuracy = float(((outputs > 0.5) == (y > 0.5)).double().mean())
    found = gap(outputs, groups)
    verdict = "fair" if found <= TOLERANCE else "not fair"
    print(f"  {name:<34}{loss:>9.4f}{accuracy:>10.4f}{found:>10.5f}   {verdict:<9}{seconds:>7.1f} s")


def show_training() -> torch.Tensor:
    """Unconstrained, projected afterwards, and trained through the layer; returns the unconstrained outputs."""
    layer = FairLayer([MeanParity(TOLERANCE)], bounds=(0.0, 1.0))
    x, y, groups = applicants(8_000, seed=2)
    print(f"\n2. Training, tolerance {TOLERANCE} on the means of both attributes, 8,000 test samples:\n")
    print(f"  {'':<34}{'log loss':>9}{'accuracy':>10}{'gap':>10}   verdict  training")
    plain, seconds = train(None)
    with torch.no_grad():
        raw = plain(x)
        line("unconstrained", raw, y, groups, seconds)
        line("the same, projected afterwards", layer(raw, groups=groups), y, groups, seconds)
    fair, seconds = train(layer)
    with torch.no_grad():
        line("trained through the layer", layer(fair(x), groups=groups), y, groups, seconds)
    return raw


def show_batch() -> None:
    """One batch, projected."""
    z = torch.tensor([0.9, 0.8, 0.7, 0.2, 0.3, 0.4])
    solution = project(z, {"sex": ["f", "f", "f", "m", "m", "m"]}, [MeanParity(0.1)], bounds=(0.0, 1.0))
    print("1. The nearest outputs whose group means differ by at most 0.1:\n")
    print(f"  before  {[round(v, 4) for v in z.tolist()]}")
    print(f"  after   {[round(v, 4) for v in solution.value.tolist()]}")
    print(f"  {solution.rows[0]} = {float(solution.gaps[0]):.4f}, {solution.status.name}: {solution.status.value}")


def show_stream(raw: torch.Tensor) -> None:
    """The test set in batches of 4: the paper's Algorithm 1, and the ledger."""
    _, _, groups = applicants(8_000, seed=2)
    print("\n3. The same 8,000 decisions as a stream, 4 at a time:\n")
    print(f"  {'policy':<34}{'gap now':>9}{'largest ever':>14}   batches above the tolerance")
    for policy in ("primal-dual", "ledger"):
        stream = Stream([MeanParity(TOLERANCE)], bounds=(0, 1), policy=policy)
        above, largest = 0, 0.0
        for batch in torch.arange(len(raw)).split(4):
            solution = stream.update(raw[batch], groups[batch])
            worst = float(np.abs(solution.gaps.numpy()).max(initial=0.0))
            above, largest = above + (worst > TOLERANCE), max(largest, worst)
        now = max(abs(value) for value in stream.gaps().values())
        print(f"  {policy:<34}{now:>9.5f}{largest:>14.5f}   {above} of {len(raw) // 4}")
    print("\nThe ledger's certificate:\n")
    print(stream.certificate())


def main() -> None:
    torch.set_num_threads(2)
    print("(the first run compiles the solver, which takes some twenty seconds; later runs start at once)\n")
    show_batch()
    show_stream(show_training())


if __name__ == "__main__":
    main()
