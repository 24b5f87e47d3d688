"""A network that drives: its commands never exceed what the motors can do, nor change faster than they may.

    min ||u - z||^2    s.t.    |u_t - u_(t-1)| <= JERK,  C u <= d,  |u| <= LIMIT

z is a plan of accelerations over a horizon, u the plan that is carried out. Velocities are sums of accelerations, so
that limits on velocity, and on the position at which to stop, are rows of a matrix too.
"""

import torch
from torch import nn

from fairlayer import Affine, FairLayer

HORIZON, STEP = 12, 0.25
LIMIT, JERK, TOP_SPEED = 2.0, 0.8, 1.5


def limits() -> Affine:
    """Rows of C u: changes of acceleration, from rest on; and velocities, the last of them zero."""
    change = torch.eye(HORIZON) - torch.diag(torch.ones(HORIZON - 1), -1)
    velocity = STEP * torch.tril(torch.ones(HORIZON, HORIZON))
    bound = torch.cat([torch.full((HORIZON,), JERK), torch.full((HORIZON - 1,), TOP_SPEED), torch.full((1,), 1e-3)])
    return Affine(torch.cat([change, velocity]), -bound, bound, name="motion")


def positions(u: torch.Tensor) -> torch.Tensor:
    """Where the robot is after each step, from rest at the origin."""
    velocity = STEP * u.cumsum(dim=1)
    return STEP * velocity.cumsum(dim=1)


class Driver(nn.Module):
    """Where to be -> accelerations that get there, stop there, and break no limit."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, HORIZON))
        self.limit = FairLayer(limits(), bounds=(-LIMIT, LIMIT))

    def forward(self, goal: torch.Tensor) -> torch.Tensor:
        """Goals of shape (batch, 1) -> plans of shape (batch, HORIZON)."""
        return self.limit(self.plan(goal))


def worst_breach(u: torch.Tensor) -> float:
    """By how much a limit is missed, in float64."""
    rows = limits()
    exact = u.detach().double()
    excess = (exact @ torch.tensor(rows.A).T).abs() - torch.tensor(rows.upper)
    return max(0.0, excess.max().item(), exact.abs().max().item() - LIMIT)


def main() -> None:
    torch.manual_seed(0)
    driver = Driver()
    goals = torch.linspace(-1.5, 1.5, 31)[:, None]
    before = (positions(driver(goals))[:, -1:] - goals).abs().mean()
    optimiser = torch.optim.Adam(driver.parameters(), lr=0.01)
    worst = 0.0
    for _ in range(120):
        goal = 3.0 * torch.rand(32, 1) - 1.5
        u = driver(goal)
        worst = max(worst, worst_breach(u))
        optimiser.zero_grad()
        nn.functional.mse_loss(positions(u)[:, -1:], goal).backward()
        optimiser.step()
    u = driver(goals)
    worst = max(worst, worst_breach(u))
    after = (positions(u)[:, -1:] - goals).abs().mean()
    print(f"distance to the goal at the end of a plan: {before:.3f} before training, {after:.3f} after")
    print(f"largest breach of a limit, ever: {worst:g}; status of the last plans: {driver.limit.solution.status.name}")
    assert worst == 0
    assert after < 0.1


if __name__ == "__main__":
    main()
