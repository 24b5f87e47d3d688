"""The driver as it is run from Python: whoever holds the samples answers its requests, pass by pass."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from fairlayer.binding.system import System
from fairlayer.solve.certify import is_tight
from fairlayer.solve.discrepancy import Discrepancy
from fairlayer.solve.driver import FINISHED, MEASURE, MISSED, OUTCOME, begin, proceed
from fairlayer.solve.newton import ABSOLUTE, PATIENCE, SHIFT, TRIAL, D, S, statistics
from fairlayer.solve.result import Result


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
