"""The methods: each decides a whole stream, batch by batch."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fairlayer import MeanParity, Stream, project
from streams.promise import Watch
from streams.scenarios import Scenario

ETA, B_TAU = 0.5, 64  # the defaults of Algorithm 1, ours and the authors'


@dataclass
class Run:
    """What a method emitted on a stream."""

    method: str
    scenario: Scenario
    emitted: np.ndarray  # (n,)
    watch: Watch | None = field(default=None, repr=False)


def algorithm_1(scenario: Scenario) -> Run:
    stream = Stream(
        [MeanParity(scenario.tolerance)], bounds=scenario.bounds, policy="primal-dual", b_tau=B_TAU, eta=ETA
    )
    return Run("Algorithm 1", scenario, _decide(scenario, lambda z, groups: stream.update(z, groups).value))


def per_batch(scenario: Scenario) -> Run:
    constraints = [MeanParity(scenario.tolerance)]

    def decide(z: np.ndarray, groups: np.ndarray) -> np.ndarray:
        return project(z, groups, constraints, bounds=scenario.bounds).value

    return Run("per-batch projection", scenario, _decide(scenario, decide))


def ledger(scenario: Scenario) -> Run:
    return _ledger("ledger", scenario, None)


def warm_ledger(scenario: Scenario) -> Run:
    return _ledger("ledger, warm start", scenario, scenario.past())


def _ledger(name: str, scenario: Scenario, past: tuple[np.ndarray, np.ndarray] | None) -> Run:
    stream = Stream([MeanParity(scenario.tolerance)], bounds=scenario.bounds, warm_start=past)
    watch = Watch(stream)

    def decide(z: np.ndarray, groups: np.ndarray) -> np.ndarray:
        solution = stream.update(z, groups)
        watch.look(solution)
        return solution.value

    emitted = _decide(scenario, decide)
    watch.compare(emitted, scenario.draw()[1])
    return Run(name, scenario, emitted, watch)


def _decide(scenario: Scenario, decide: Callable) -> np.ndarray:
    z, groups = scenario.draw()
    return np.concatenate([decide(z[at], groups[at]) for at in scenario.batches()])


def optimum(scenario: Scenario) -> np.ndarray:
    """The best outputs of all, for one who knows the whole stream beforehand."""
    z, groups = scenario.draw()
    return project(z, groups, [MeanParity(scenario.tolerance)], bounds=scenario.bounds).value


METHODS: tuple[Callable[[Scenario], Run], ...] = (per_batch, algorithm_1, ledger, warm_ledger)
