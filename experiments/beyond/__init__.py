"""Beyond fairness: the three applications of the paper's appendix, trained end to end.

The networks, data and limits are those of `examples/`. Each network is trained twice: through the layer (F-Layer) and
without it (Projection); both are judged on unseen inputs with the layer in place. Every output that the layer gave, in
training and after it, is checked in exact arithmetic.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from experiments.beyond.summary import claims, summarise
from experiments.exact import largest_excess, within
from experiments.runner import Experiment, Result, Unit
from fairlayer import Affine, FairLayer

EXAMPLES = Path(__file__).parents[2] / "examples"
UNINVESTED = 1e-6  # floats cannot add up to 1 exactly: this part of the budget may be left over, and none overspent


@dataclass(frozen=True)
class Settings:
    """Length of training; the seed of the weights, on the same data."""

    seeds: tuple[int, ...] = (0, 1, 2)
    steps: int = 300
    batch: int = 64
    learning_rate: float = 0.01
    judged_every: int = 20

    @property
    def seed(self) -> int:
        """That of the figures."""
        return self.seeds[0]


PROFILES = {"paper": Settings(), "quick": Settings(seeds=(0,), steps=20, judged_every=10)}


@dataclass(frozen=True)
class Problem:
    """A network whose outputs have limits. Inputs are tensors of the same length, one row per case."""

    network: nn.Module
    limited: Callable[..., Tensor]  # outputs of inputs, through the layer
    raw: Callable[..., Tensor]  # and without it
    loss: Callable[..., Tensor]  # of outputs and inputs
    train: tuple[Tensor, ...]
    test: tuple[Tensor, ...]
    A: Any
    limits: Callable[..., tuple[Any, Any]]  # of inputs: lower and upper bounds of A y
    bounds: tuple[float | None, float | None]
    shown: Callable[[Tensor], Any]  # what a figure shows of the outputs
    more: dict[str, Any] = field(default_factory=dict)  # and beside them


def example(name: str) -> ModuleType:
    """A script of `examples/` as a module."""
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


def portfolio() -> Problem:
    """Invest everything, in no asset and no sector more than allowed."""
    of = example("portfolio")
    investor = of.Investor()
    A = np.vstack([np.ones(of.ASSETS), of.SECTORS.numpy()])
    lower = np.array([1.0 - UNINVESTED, *[-np.inf] * len(of.SECTORS)])
    upper = np.array([1.0, *[of.LARGEST_SECTOR] * len(of.SECTORS)])
    bounds = (0.0, of.LARGEST_POSITION)
    investor.limit = FairLayer(Affine(A, lower, upper, name="budget and sectors"), bounds)
    signals, returns = of.market()
    return Problem(
        network=investor,
        limited=lambda signals, returns: investor(signals),
        raw=lambda signals, returns: investor.propose(signals),
        loss=lambda y, signals, returns: -of.utility(y, returns),
        train=(signals[:400], returns[:400]),
        test=(signals[400:], returns[400:]),
        A=A,
        limits=lambda signals, returns: (lower, upper),
        bounds=bounds,
        shown=lambda y: y.double() @ of.SECTORS.T,
        more={"limit": of.LARGEST_SECTOR},
    )


def resource_allocation() -> Problem:
    """Serve the needs of tasks without overbooking a machine; capacities differ from hour to hour."""
    of = example("resource_allocation")
    scheduler = of.Scheduler()
    known, need, capacity = of.workload()
    return Problem(
        network=scheduler,
        limited=lambda known, need, capacity: scheduler(known, capacity),
        raw=lambda known, need, capacity: scheduler.predict(known),
        loss=lambda y, known, need, capacity: of.unmet(y, need),
        train=(known[:400], need[:400], capacity[:400]),
        test=(known[400:], need[400:], capacity[400:]),
        A=of.SHARES,
        limits=lambda known, need, capacity: (-np.inf, capacity),
        bounds=(0.0, None),
        shown=lambda y: y.double() @ of.SHARES.double().T,
        more={"capacity": capacity[400:]},
    )


def robot_control() -> Problem:
    """Reach a goal and stop there, within limits on acceleration, its change, and speed."""
    of = example("robot_control")
    driver = of.Driver()
    limits = of.limits()
    goals = torch.linspace(-1.5, 1.5, 31)[:, None]
    random = torch.Generator().manual_seed(0)
    return Problem(
        network=driver,
        limited=driver,
        raw=driver.plan,
        loss=lambda u, goal: nn.functional.mse_loss(of.positions(u)[:, -1:], goal),
        train=(3.0 * torch.rand(1000, 1, generator=random) - 1.5,),
        test=(goals,),
        A=limits.A,
        limits=lambda goal: (limits.lower, limits.upper),
        bounds=(-of.LIMIT, of.LIMIT),
        shown=lambda u: u[::5],
        more={"goals": goals[::5, 0], "step": of.STEP, "limit": of.LIMIT, "top_speed": of.TOP_SPEED},
    )


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "portfolio": portfolio,
    "resource_allocation": resource_allocation,
    "robot_control": robot_control,
}


def units(settings: Settings) -> list[Unit]:
    """One per application and seed."""
    return [Unit(f"{name}/{seed}", {"application": name, "seed": seed}) for name in PROBLEMS for seed in settings.seeds]


def run(unit: Unit, settings: Settings) -> Result:
    """Train one network both ways from the same weights, on the same batches."""
    name, seed = unit.arguments["application"], unit.arguments["seed"]
    torch.manual_seed(seed)
    problem = PROBLEMS[name]()
    start = copy.deepcopy(problem.network.state_dict())
    result: Result = {"application": name, "seed": seed, "more": problem.more}
    for method in ("F-Layer", "Projection"):
        problem.network.load_state_dict(start)
        result[method] = _train(problem, problem.limited if method == "F-Layer" else problem.raw, seed, settings)
    return result


def _train(problem: Problem, outputs_of: Callable[..., Tensor], seed: int, settings: Settings) -> Result:
    random = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(problem.network.parameters(), lr=settings.learning_rate)
    check = Check(problem)
    curve = []
    for step in range(settings.steps + 1):
        if step % settings.judged_every == 0:
            with torch.no_grad():
                judged = problem.limited(*problem.test)
            check(judged, problem.test)
            curve.append([step, float(problem.loss(judged, *problem.test))])
        rows = torch.randint(0, len(problem.train[0]), (settings.batch,), generator=random)
        inputs = tuple(part[rows] for part in problem.train)
        outputs = outputs_of(*inputs)
        if outputs_of is problem.limited:
            check(outputs.detach(), inputs)
        optimiser.zero_grad()
        problem.loss(outputs, *inputs).backward()
        optimiser.step()
    return {
        "curve": curve,
        "loss": curve[-1][1],
        "checked": check.number,
        "broken": check.broken,
        "largest_excess": float(check.worst),
        "shown": problem.shown(judged),
    }


class Check:
    """Counts outputs that break a limit, in exact arithmetic."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.number = self.broken = 0
        self.worst = Fraction(-1)

    def __call__(self, outputs: Tensor, inputs: tuple[Tensor, ...]) -> None:
        """Check every case of a batch."""
        y = outputs.double().numpy()
        excesses = largest_excess(self.problem.A, y, *self.problem.limits(*inputs))
        self.number += len(y)
        self.broken += sum(
            excess > 0 or not within(case, self.problem.bounds) for excess, case in zip(excesses, y, strict=True)
        )
        self.worst = max(self.worst, *excesses)


EXPERIMENT = Experiment("beyond", PROFILES, units, run, summarise, claims)
