"""A network that hands out machine time: it learns what tasks need, and can never promise more than there is.

    min ||r - z||^2    s.t.    A r <= capacity,  r >= 0

Row j of A says which tasks share machine j; the capacities change from hour to hour, so that every hour is a problem
of its own with its own bounds.
"""

import torch
from torch import nn

from fairlayer import Affine, project

SHARES = torch.tensor([[1.0, 0.0, 1.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0, 1.0]])
MACHINES, TASKS = SHARES.shape
FEATURES, HOURS = 6, 500


def workload(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What is known of each hour, what its tasks turn out to need, and what the machines have to give."""
    random = torch.Generator().manual_seed(seed)
    known = torch.randn(HOURS, FEATURES, generator=random)
    need = (known @ torch.randn(FEATURES, TASKS, generator=random)).abs() + 0.5
    capacity = 3.0 + 4.0 * torch.rand(HOURS, MACHINES, generator=random)
    return known, need, capacity


class Scheduler(nn.Module):
    """What is known of an hour, and its capacities -> resources per task."""

    def __init__(self) -> None:
        super().__init__()
        self.predict = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, TASKS))

    def forward(self, known: torch.Tensor, capacity: torch.Tensor) -> torch.Tensor:
        """One assignment per hour, shape (hours, TASKS)."""
        shares = SHARES.expand(len(known), -1, -1)
        return project(self.predict(known), None, Affine(shares, upper=capacity), bounds=(0.0, None)).value


def unmet(assigned: torch.Tensor, need: torch.Tensor) -> torch.Tensor:
    """Mean need that was not served; what is assigned beyond need is wasted."""
    return (need - assigned).clamp(min=0.0).mean()


def overload(assigned: torch.Tensor, capacity: torch.Tensor) -> float:
    """By how much the fullest machine is overbooked, summed in float64."""
    used = assigned.detach().double() @ SHARES.double().T
    return max((used - capacity.double()).max().item(), -assigned.min().item(), 0.0)


def main() -> None:
    torch.manual_seed(0)
    known, need, capacity = workload()
    train, test = slice(0, 400), slice(400, HOURS)
    scheduler = Scheduler()
    before = unmet(scheduler(known[test], capacity[test]), need[test])
    optimiser = torch.optim.Adam(scheduler.parameters(), lr=0.02)
    worst = 0.0
    for _ in range(80):
        hours = torch.randint(train.start, train.stop, (64,))
        assigned = scheduler(known[hours], capacity[hours])
        worst = max(worst, overload(assigned, capacity[hours]))
        optimiser.zero_grad()
        unmet(assigned, need[hours]).backward()
        optimiser.step()
    assigned = scheduler(known[test], capacity[test])
    worst = max(worst, overload(assigned, capacity[test]))
    after = unmet(assigned, need[test])
    print(f"need not met on unseen hours: {before:.3f} before training, {after:.3f} after")
    print(f"largest overload of a machine, ever: {worst:g}")
    assert worst == 0
    assert after < 0.7 * before


if __name__ == "__main__":
    main()
