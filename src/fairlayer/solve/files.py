"""The projection of outputs that do not fit into memory: the same method, fed chunk by chunk.

The solver sees samples only through sums over cells, and asks for them at given shifts. So a pass over a file takes the
place of a pass over an array; memory is that of one chunk, whatever the number of samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fairlayer.binding.bounds import Box, read_bounds
from fairlayer.binding.exact_sums import LIMBS, UNIT, accumulate, round_sums
from fairlayer.binding.system import System
from fairlayer.errors import FairlayerError
from fairlayer.solution import Facts
from fairlayer.solve import infeasible, statistic_scale
from fairlayer.solve.certify import shortfalls
from fairlayer.solve.discrepancy import Squared
from fairlayer.solve.driver import EXACT, FINISHED, MEASURE, MISSED, OUTCOME, SUMS, WRITE, begin, proceed
from fairlayer.solve.extremes import cell_extremes
from fairlayer.solve.feasibility import least_excess
from fairlayer.solve.loops import Samples, measure, take_sums, write
from fairlayer.solve.newton import ABSOLUTE, DONE, ERROR, SHIFT, SQUARE, TRIAL, D, S, statistics
from fairlayer.solve.smooth import SQUARED

Chunk = tuple[np.ndarray, np.ndarray]  # outputs, float64, and the cell of each, int32
Chunks = Callable[[], Iterable[Chunk]]  # every call starts another pass

_NONE = np.zeros(0)


class Shifts(NamedTuple):
    """A projection as what it does to each cell: y = clip(z - shift[cell], lo, hi), in float64."""

    shift: np.ndarray  # (G,)
    lo: float
    hi: float
    facts: Facts
    changed: int  # outputs that differ from what they were
    largest_change: float
    total_change: float  # absolute


def project_chunks(chunks: Chunks, system: System, bounds: Any = None) -> Shifts:
    """Project outputs onto a system whose `samples` and `weight` count the samples of each cell in all chunks.

    The rows hold in exact arithmetic for the outputs as float64 has them, or the status of the facts says that it
    cannot. Raises InfeasibleError where the rows contradict each other or the bounds.
    """
    passes = _Passes(chunks, system, read_bounds(bounds, 1, np.float64))
    rows, extremes = system.rows, cell_extremes(system, passes.box)
    box = passes.box
    reach = Squared().reach(*passes.extent(), box.lowest, box.highest)
    solve = begin(rows, system.samples, system.weight, *extremes, reach, _NONE, UNIT)
    of_cell, request = solve.search.cell, MEASURE
    while request != FINISHED:
        passes.answer(request, of_cell)
        request = proceed(solve)
    if solve.search.number[OUTCOME] != DONE:
        scale = statistic_scale(rows, of_cell[ABSOLUTE], system.weight, extremes)
        excess, push = least_excess(rows, *extremes, scale)
        if excess > 1e-9 * scale[push != 0].max(initial=0.0):
            raise infeasible(system.view, rows, excess, push)
        raise FairlayerError("The solver did not converge on this table; please report it with the table.")
    facts = Facts(system.view, statistics(rows, of_cell[S]), solve.search.statistic[TRIAL], solve.family[MISSED])
    return Shifts(of_cell[SHIFT].copy(), box.lowest, box.highest, facts, *passes.change)


def certify_chunks(chunks: Chunks, system: System) -> Facts:
    """Measure the rows of outputs in exact arithmetic: what is true of them as they are."""
    rows, G = system.rows, len(system.weight)
    sums, error, missed = np.zeros(G), np.zeros(G), np.zeros(len(rows.kind))
    limbs = np.zeros((G, LIMBS), dtype=np.int64)
    for y, cell in chunks():
        accumulate(y, cell, _NONE, limbs)
    round_sums(limbs, sums, error)
    shortfalls(rows, sums, error, missed)
    return Facts(system.view, statistics(rows, sums), np.zeros(len(rows.offset)), missed)


class _Passes:
    """Passes over the samples."""

    def __init__(self, chunks: Chunks, system: System, box: Box):
        self.chunks = chunks
        self.box = box
        self.G = len(system.weight)
        self.start = np.zeros(self.G + 1, dtype=np.int64)
        self.change = (0, 0.0, 0.0)  # outputs changed, largest change, sum of absolute changes

    def _samples(self) -> Iterator[Samples]:
        for z, cell in self.chunks():
            yield Samples(z, cell, _NONE, self.box.lo, self.box.hi, _NONE, self.start, False)

    def extent(self) -> tuple[float, float]:
        """The least and the greatest output."""
        low, high = math.inf, -math.inf
        for z, _ in self.chunks():
            low, high = min(low, float(z.min(initial=math.inf))), max(high, float(z.max(initial=-math.inf)))
        return (low, high) if low <= high else (0.0, 0.0)

    def answer(self, request: int, of_cell: np.ndarray) -> None:
        """Take the sums that are asked for."""
        if request in (WRITE, EXACT):
            self._write(of_cell)
            return
        places = (S, D) if request == SUMS else (S, D, ABSOLUTE, SQUARE)
        of_cell[list(places)] = 0.0
        some = np.empty((len(places), self.G))
        for samples in self._samples():
            if request == SUMS:
                take_sums(SQUARED, samples, of_cell[SHIFT], *some)
            else:
                measure(SQUARED, samples, *some)
            of_cell[list(places)] += some

    def _write(self, of_cell: np.ndarray) -> None:
        """What the outputs would be at the shifts, in float64: their exact sums, and how they differ."""
        limbs = np.zeros((self.G, LIMBS), dtype=np.int64)
        some, slopes, error = np.empty(self.G), np.empty(self.G), np.empty(self.G)
        of_cell[D] = 0.0
        changed, largest, amount = 0, 0.0, 0.0
        for samples in self._samples():
            out = np.empty(len(samples.z))
            write(SQUARED, samples, of_cell[SHIFT], out, some, slopes, error)
            accumulate(out, samples.cell, _NONE, limbs)
            of_cell[D] += slopes
            difference = np.abs(out - samples.z)
            changed += int(np.count_nonzero(difference))
            largest = max(largest, float(difference.max(initial=0.0)))
            amount += float(difference.sum())
        round_sums(limbs, of_cell[S], of_cell[ERROR])
        self.change = (changed, largest, amount)
