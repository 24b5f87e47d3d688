"""A network that invests: every allocation it gives is fully invested, long only, capped, and diversified by sector.

    min ||x - z||^2    s.t.    sum(x) = 1,  0 <= x <= 0.3,  S x <= 0.5

z is what the network proposes for a day's signals, x what the layer allows. Training through the layer, the network
learns to invest well within the limits, rather than to be cut back by them.
"""

import torch
from torch import nn

from fairlayer import Affine, FairLayer

ASSETS, SIGNALS, DAYS = 8, 5, 600
SECTORS = torch.tensor([[1, 1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 1, 1]]).double()
LARGEST_POSITION, LARGEST_SECTOR = 0.3, 0.5
RISK_AVERSION = 2.0


def market(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Signals known in the morning, and the returns they partly explain."""
    random = torch.Generator().manual_seed(seed)
    signals = torch.randn(DAYS, SIGNALS, generator=random)
    effect = 0.3 * torch.randn(SIGNALS, ASSETS, generator=random)
    return signals, signals @ effect + 0.5 * torch.randn(DAYS, ASSETS, generator=random)


class Investor(nn.Module):
    """Signals -> an allocation that satisfies every limit."""

    def __init__(self) -> None:
        super().__init__()
        self.propose = nn.Sequential(nn.Linear(SIGNALS, 32), nn.ReLU(), nn.Linear(32, ASSETS))
        rows = torch.cat([torch.ones(1, ASSETS), SECTORS])
        lower, upper = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([1.0, *[LARGEST_SECTOR] * 3])
        self.limit = FairLayer(Affine(rows, lower, upper, name="budget and sectors"), bounds=(0.0, LARGEST_POSITION))

    def forward(self, signals: torch.Tensor) -> torch.Tensor:
        """One allocation per day, shape (days, ASSETS)."""
        return self.limit(self.propose(signals))


def utility(allocation: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
    """Mean return less a price on its variance."""
    earned = (allocation * returns).sum(dim=1)
    return earned.mean() - RISK_AVERSION * earned.var()


def worst_breach(allocation: torch.Tensor) -> float:
    """By how much the limits are missed, at most."""
    exact = allocation.detach().double()
    sectors = (exact @ SECTORS.T - LARGEST_SECTOR).max()
    budget = (exact.sum(dim=1) - 1).abs().max()
    return max(0.0, sectors.item(), budget.item(), -exact.min().item(), exact.max().item() - LARGEST_POSITION)


def main() -> None:
    torch.manual_seed(0)
    signals, returns = market()
    train, test = slice(0, 400), slice(400, DAYS)
    investor = Investor()
    equal = utility(torch.full((200, ASSETS), 1 / ASSETS), returns[test])
    untrained = utility(investor(signals[test]), returns[test])
    optimiser = torch.optim.Adam(investor.parameters(), lr=0.01)
    worst = 0.0
    for _ in range(60):
        days = torch.randint(train.start, train.stop, (64,))
        allocation = investor(signals[days])
        worst = max(worst, worst_breach(allocation))
        optimiser.zero_grad()
        (-utility(allocation, returns[days])).backward()
        optimiser.step()
    allocation = investor(signals[test])
    worst = max(worst, worst_breach(allocation))
    trained = utility(allocation, returns[test])
    print(f"utility on unseen days: equal weights {equal:.3f}, untrained {untrained:.3f}, trained {trained:.3f}")
    print(f"largest breach of a limit, in training and on unseen days: {worst:.1e}")
    assert worst < 1e-6  # float32 cannot add up to 1 more exactly than this; inequalities hold to the last bit
    assert trained > max(equal, untrained)


if __name__ == "__main__":
    main()
