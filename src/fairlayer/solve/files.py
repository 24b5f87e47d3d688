"""The projection of outputs that do not fit into memory: the same method, fed by passes over a table.

The solver sees samples only through sums over cells, and asks for them at given shifts. So a pass over a table takes
the place of a pass over an array, wherever the table is: chunks of a file, blocks that many workers hold, or a database
that adds up by itself.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np

from fairlayer.binding.block_sums import ABSOLUTE, OUTPUT, BlockSums
from fairlayer.binding.bounds import read_bounds
from fairlayer.binding.exact_sums import UNIT, fractions
from fairlayer.binding.system import System
from fairlayer.errors import FairlayerError
from fairlayer.solution import Facts
from fairlayer.solve import infeasible, statistic_scale
from fairlayer.solve.certify import shortfalls
from fairlayer.solve.discrepancy import Squared
from fairlayer.solve.driver import FINISHED, MEASURE, MISSED, OUTCOME, begin, proceed
from fairlayer.solve.feasibility import cell_extremes, least_excess
from fairlayer.solve.newton import ABSOLUTE as CELL_ABSOLUTE
from fairlayer.solve.newton import DONE, ERROR, SHIFT, TRIAL, D, S, statistics

Chunk = tuple[np.ndarray, np.ndarray]  # outputs, float64, and the cell of each, int32
Chunks = Callable[[], Iterable[Chunk]]  # every call starts another pass

_NONE = np.zeros(0)


class Change(NamedTuple):
    """By how much a projection moves the outputs of a table."""

    changed: int  # outputs that differ from what they were
    largest: float
    total: float  # absolute


class PassSums(NamedTuple):
    """What one pass over a table finds of the outputs y = clip(z - shift[cell], lo, hi), (G,) each."""

    outputs: np.ndarray  # sums of y
    error: np.ndarray  # a bound on what these sums are off by
    free: np.ndarray  # samples that no bound holds
    absolute: np.ndarray | None  # sums of |y|, or bounds on them, where asked for
    change: Change


class Passes(Protocol):
    """Who takes the sums of a table."""

    def extent(self) -> tuple[float, float]:
        """The least and the greatest output."""

    def sums(self, shift: np.ndarray, lo: float, hi: float, absolute: bool) -> PassSums:
        """Sums at the shifts, (G,)."""


class Shifts(NamedTuple):
    """A projection as what it does to each cell: y = clip(z - shift[cell], lo, hi), in float64."""

    shift: np.ndarray  # (G,)
    lo: float
    hi: float
    facts: Facts
    change: Change


def project_passes(passes: Passes, system: System, bounds: Any = None) -> Shifts:
    """Project outputs onto a system whose `samples` and `weight` count the samples of each cell of the table.

    The rows hold in exact arithmetic for the outputs as float64 has them, or the status of the facts says that it
    cannot. Raises InfeasibleError where the rows contradict each other or the bounds.
    """
    box = read_bounds(bounds, 1, np.float64)
    rows, extremes = system.rows, cell_extremes(system, box)
    reach = Squared().reach(*passes.extent(), box.lowest, box.highest)
    solve = begin(rows, system.samples, system.weight, *extremes, reach, _NONE, UNIT)
    of_cell, request = solve.search.cell, MEASURE
    at = of_cell[SHIFT].copy()
    found = passes.sums(at, box.lowest, box.highest, True)
    while request != FINISHED:
        # What is written is what sums were taken of, as nothing is rounded in between: often they are known already.
        if not np.array_equal(of_cell[SHIFT], at):
            at = of_cell[SHIFT].copy()
            found = passes.sums(at, box.lowest, box.highest, False)
        of_cell[S], of_cell[ERROR], of_cell[D] = found.outputs, found.error, found.free
        if found.absolute is not None:
            of_cell[CELL_ABSOLUTE] = found.absolute
        request = proceed(solve)
    if solve.search.number[OUTCOME] != DONE:
        scale = statistic_scale(rows, of_cell[CELL_ABSOLUTE], system.weight, extremes)
        excess, push = least_excess(rows, *extremes, scale)
        if excess:
            raise infeasible(system.view, rows, excess, push)
        raise FairlayerError("The solver did not converge on this table; please report it with the table.")
    facts = Facts(system.view, statistics(rows, of_cell[S]), solve.search.statistic[TRIAL], solve.family[MISSED])
    return Shifts(of_cell[SHIFT].copy(), box.lowest, box.highest, facts, found.change)


def certify_chunks(chunks: Chunks, system: System) -> Facts:
    """Measure the rows of outputs in exact arithmetic: what is true of them as they are."""
    rows, G = system.rows, len(system.weight)
    found = ChunkPasses(chunks, G).sums(np.zeros(G), -math.inf, math.inf, False)
    missed = np.zeros(len(rows.kind))
    shortfalls(rows, found.outputs, found.error, missed)
    return Facts(system.view, statistics(rows, found.outputs), np.zeros(len(rows.offset)), missed)


def as_pass(sums: BlockSums) -> PassSums:
    """Exact sums of all blocks as floats."""
    outputs, error = sums.sums(OUTPUT)
    absolute = sums.sums(ABSOLUTE)[0] if len(sums.limbs) > ABSOLUTE else None
    change = Change(sums.changed, sums.largest, float(fractions(sums.moved)[0]))
    return PassSums(outputs, error, sums.free.astype(np.float64), absolute, change)


class BlockPasses(ABC):
    """Passes whose sums are exact.

    measured: what is known before the first pass, at shifts of 0 and within the bounds, with absolute values.
    """

    def __init__(self, cells: int, measured: BlockSums | None = None):
        self.cells = cells
        self.measured = measured

    @abstractmethod
    def total(self, shift: np.ndarray, lo: float, hi: float, absolute: bool) -> BlockSums:
        """The sums of all blocks."""

    def extent(self) -> tuple[float, float]:
        """The least and the greatest output."""
        known = self.measured or self.total(np.zeros(self.cells), -math.inf, math.inf, False)
        return (known.low, known.high) if known.low <= known.high else (0.0, 0.0)

    def sums(self, shift: np.ndarray, lo: float, hi: float, absolute: bool) -> PassSums:
        """Sums at the shifts."""
        if absolute and self.measured is not None and not shift.any():
            return as_pass(self.measured)
        return as_pass(self.total(shift, lo, hi, absolute))


class ChunkPasses(BlockPasses):
    """Passes over chunks that come one after another."""

    def __init__(self, chunks: Chunks, cells: int, measured: BlockSums | None = None):
        super().__init__(cells, measured)
        self.chunks = chunks

    def total(self, shift: np.ndarray, lo: float, hi: float, absolute: bool) -> BlockSums:
        """The sums of all chunks."""
        total = BlockSums(self.cells, absolute)
        for z, cell in self.chunks():
            total.add(z, cell, shift, lo, hi)
        return total
