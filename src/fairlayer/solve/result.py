"""What a solver returns, whichever path it took; and the driver as it is run from Python."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np

from fairlayer.binding.system import System
from fairlayer.solve.certify import is_tight
from fairlayer.solve.discrepancy import Discrepancy
from fairlayer.solve.driver import FINISHED, MEASURE, MISSED, OUTCOME, begin, proceed
from fairlayer.solve.newton import ABSOLUTE, PATIENCE, SHIFT, TRIAL, D, S, statistics


class Result(NamedTuple):
    """The end of a solve."""

    outcome: int  # DONE, INFEASIBLE or STALLED, of newton.py
    value: Any  # (n,) the output, in its own dtype
    nu: np.ndarray  # (K,) multipliers of the statistics
    shift: np.ndarray  # (G,) of the cells
    slopes: np.ndarray  # (G,) cell sums of the slopes
    missed: np.ndarray  # (F,) by how much each family may be missed: at most 0 where it certainly holds
    statistics: np.ndarray  # (K,)
    absolute: np.ndarray  # (G,) cell sums of |y| before any shift: the size of the numbers at hand
    tight: bool = True  # whether rows that bind are within a hair of their bounds
    beyond: float = 0.0  # by how much the squared change may exceed the least, where the output is not the nearest

    @property
    def holds(self) -> bool:
        """Whether every family certainly holds. What is no number is not known to."""
        return all(map((0.0).__ge__, self.missed.tolist()))


class SamplePasses(Protocol):
    """Who takes the sums that the driver asks for, and writes the output."""

    @property
    def value(self) -> Any:
        """The output written last."""

    def usual_slope(self) -> float:
        """The mean slope of a sample before any shift."""

    def answer(self, request: int, of_cell: np.ndarray) -> None:
        """Take the sums that are asked for, into `Search.cell`."""


def run_passes(
    passes: SamplePasses,
    system: System,
    discrepancy: Discrepancy,
    extent: tuple[float, float, float, float],  # the least and the greatest z, the lowest and the highest bound
    extremes: tuple[np.ndarray, np.ndarray],  # (G,) what each cell sum can be within the bounds
    start: np.ndarray,
    unit: float,
) -> Result:
    """Project, by passes; start and unit as in `loops.solve_loops`."""
    reach = discrepancy.reach(*extent) if hasattr(discrepancy, "reach") else math.inf
    weight = system.weight if discrepancy.piecewise_linear else system.weight * passes.usual_slope()
    solve = begin(system.rows, system.samples, weight, *extremes, reach, start, unit)
    if discrepancy.name != "squared":
        solve.search.number[PATIENCE] = np.inf  # there is no other way
    of_cell, request = solve.search.cell, MEASURE
    while request != FINISHED:
        passes.answer(request, of_cell)
        request = proceed(solve)
    nu, missed = solve.search.statistic[TRIAL], solve.family[MISSED]
    return Result(
        int(solve.search.number[OUTCOME]),
        passes.value,
        nu,
        of_cell[SHIFT],
        of_cell[D],
        missed,
        statistics(system.rows, of_cell[S]),
        of_cell[ABSOLUTE],
        is_tight(system.rows, nu, missed),
    )
