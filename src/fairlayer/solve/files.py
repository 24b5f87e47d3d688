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
from fairlayer.binding.cells import UNIT, exact_sums
from fairlayer.binding.system import System
from fairlayer.errors import FairlayerError, InfeasibleError
from fairlayer.solution import Facts
from fairlayer.solve import cell_extremes
from fairlayer.solve.certify import aimed, all_hold, first_margins, shortfalls, widen_margins
from fairlayer.solve.feasibility import least_excess
from fairlayer.solve.fused import MOST_REPAIRS, Samples, emit, newton_tolerance, reach_and_magnitude, take_sums
from fairlayer.solve.newton import DONE, EVALUATE, advance, new_search, restart, statistics

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
    rows, weight = system.rows, system.weight
    search = new_search(len(rows.plus), rows.M.shape[1], len(weight))
    least, greatest = passes.extent()
    largest = max(abs(least), abs(greatest))
    reach, magnitude = reach_and_magnitude(-largest, largest, passes.box.lowest, passes.box.highest)
    tolerance = newton_tolerance(rows, weight, max(magnitude, 0.1 * largest), int(weight.sum()))
    written = passes.emit(search.shift)
    missed = shortfalls(rows, written.sums, written.error)
    if not all_hold(missed):
        margins = first_margins(rows, weight, magnitude, UNIT, tolerance)
        extremes = cell_extremes(system, passes.box)
        for _ in range(MOST_REPAIRS):
            aim = aimed(rows, margins)
            outcome = EVALUATE
            while outcome == EVALUATE:
                S, D = passes.sums(search.shift)
                outcome = advance(aim, search, S, D, weight, *extremes, reach, tolerance)
            if outcome != DONE:
                raise _failure(system, passes.box, largest)
            written = passes.emit(search.shift)
            missed = shortfalls(rows, written.sums, written.error)
            if all_hold(missed) or not widen_margins(rows, margins, missed):
                break
            restart(search)
    view = system.view
    facts = Facts(view.names, view.vacuous, rows, statistics(rows, written.sums), search.trial, missed)
    return Shifts(search.shift.copy(), passes.box.lowest, passes.box.highest, facts, *written.change)


def certify_chunks(chunks: Chunks, system: System) -> Facts:
    """Measure the rows of outputs in exact arithmetic: what is true of them as they are."""
    rows = system.rows
    total = _ExactSums(len(system.weight))
    for y, cell in chunks():
        total.add(y, cell)
    sums, error = total.result()
    missed = shortfalls(rows, sums, error)
    view = system.view
    return Facts(view.names, view.vacuous, rows, statistics(rows, sums), np.zeros(len(rows.plus)), missed)


def _failure(system: System, box: Box, largest: float) -> FairlayerError:
    """Why the solver gave up."""
    rows = system.rows
    excess, blamed = least_excess(rows, *cell_extremes(system, box))
    if excess > 1e-9 * max(largest, 1e-300):
        names = [name for name, guilty in zip(system.view.names, blamed, strict=True) if guilty]
        return InfeasibleError(names, excess, 0.5 * (rows.upper - rows.lower)[blamed] + excess)
    return FairlayerError("The solver did not converge on this table; please report it with the table.")


class _Written(NamedTuple):
    """What a pass that writes outputs finds of them."""

    sums: np.ndarray  # (G,) exact but for `error`
    error: np.ndarray  # (G,)
    change: tuple[int, float, float]


class _ExactSums:
    """Cell sums over all chunks, with a bound on their error: each chunk, and all of them, in twice the precision."""

    def __init__(self, G: int):
        self.chunks = 0
        self.sums, self.rest = np.zeros((2, G))  # the sum so far is that of both
        self.rounded = np.zeros(G)  # of absolute values that went to the rest
        self.error = np.zeros(G)

    def add(self, values: np.ndarray, cell: np.ndarray) -> None:
        some, error = np.empty(len(self.error)), np.empty(len(self.error))
        exact_sums(values, cell, _NONE, some, error)
        total = self.sums + some
        kept = total - self.sums
        lost = (self.sums - (total - kept)) + (some - kept)  # exact, by Knuth
        self.sums = total
        self.rest += lost
        self.rounded += np.abs(lost)
        self.error += error
        self.chunks += 1

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        sums = self.sums + self.rest
        doubt = self.error + self.chunks * UNIT * self.rounded
        return sums, doubt * (1.0 + (self.chunks + 2) * UNIT) + UNIT * np.abs(sums)


class _Passes:
    """Passes over the samples."""

    def __init__(self, chunks: Chunks, system: System, box: Box):
        self.chunks = chunks
        self.box = box
        self.G = len(system.weight)
        self.start = np.zeros(self.G + 1, dtype=np.int64)

    def _samples(self) -> Iterator[Samples]:
        for z, cell in self.chunks():
            yield Samples(z, cell, _NONE, self.box.lo, self.box.hi, np.empty(0), self.start)

    def extent(self) -> tuple[float, float]:
        """The least and the greatest output."""
        low, high = math.inf, -math.inf
        for z, _ in self.chunks():
            low, high = min(low, float(z.min(initial=math.inf))), max(high, float(z.max(initial=-math.inf)))
        return (low, high) if low <= high else (0.0, 0.0)

    def sums(self, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cell sums of outputs and slopes at the given shifts."""
        S, D = np.zeros(self.G), np.zeros(self.G)
        some, slopes = np.empty(self.G), np.empty(self.G)
        for samples in self._samples():
            take_sums(samples, shift, some, slopes)
            S += some
            D += slopes
        return S, D

    def emit(self, shift: np.ndarray) -> _Written:
        """What the outputs would be at the given shifts, in float64: their exact sums, and how they differ."""
        total = _ExactSums(self.G)
        some, slopes = np.empty(self.G), np.empty(self.G)
        changed, largest, amount = 0, 0.0, 0.0
        for samples in self._samples():
            out = np.empty(len(samples.z))
            emit(samples, shift, out, some, slopes)
            total.add(out, samples.cell)
            difference = np.abs(out - samples.z)
            changed += int(np.count_nonzero(difference))
            largest = max(largest, float(difference.max(initial=0.0)))
            amount += float(difference.sum())
        return _Written(*total.result(), (changed, largest, amount))
