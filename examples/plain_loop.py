"""The layer in a bare PyTorch loop: it is a module like any other.

Applicants of two regions and three age bands get a score; the data favour one region by about 0.3. The model is trained
so that mean scores of all groups differ by at most 0.02, in every batch.

    python examples/plain_loop.py
"""

import torch
from torch import nn

from fairlayer import FairLayer, FairModel, MeanParity

TOLERANCE = 0.02


def make_data(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs (n, 6), targets (n,), and groups (n, 2): region and age band."""
    generator = torch.Generator().manual_seed(seed)
    groups = torch.stack(
        [torch.randint(0, 2, (n,), generator=generator), torch.randint(0, 3, (n,), generator=generator)], dim=1
    )
    x = torch.randn(n, 6, generator=generator)
    x[:, 0] += groups[:, 0]
    chance = torch.sigmoid(1.5 * x[:, 0] - x[:, 1] + 0.5 * x[:, 2] - 0.7)
    return x, torch.bernoulli(chance, generator=generator), groups


def train(epochs: int = 8, batch_size: int = 250, seed: int = 0) -> tuple[FairModel, list[float]]:
    """Train, and return the model with the mean loss of every epoch."""
    torch.manual_seed(seed)
    x, targets, groups = make_data(4000, seed)
    backbone = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
    model = FairModel(backbone, FairLayer([MeanParity(TOLERANCE)], bounds=(1e-4, 1 - 1e-4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(x)).split(batch_size):
            y = model(x[rows], groups=groups[rows])
            loss = nn.functional.binary_cross_entropy(y, targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += len(rows) * loss.item()
        losses.append(total / len(x))
    return model, losses


def main() -> None:
    model, losses = train()
    x, targets, groups = make_data(1000, seed=1)
    with torch.no_grad():
        raw, y = model.raw(x), model(x, groups=groups)
    for name, scores in (("before the layer", raw), ("after it", y)):
        means = [scores[groups[:, 0] == region].mean().item() for region in (0, 1)]
        accuracy = ((scores > 0.5) == (targets > 0.5)).float().mean().item()
        print(f"{name}: mean scores {means[0]:.3f} and {means[1]:.3f}, accuracy {accuracy:.3f}")
    print(f"loss of the first and last epoch: {losses[0]:.3f}, {losses[-1]:.3f}")
    print(model.layer.solution.status.value)


if __name__ == "__main__":
    main()
