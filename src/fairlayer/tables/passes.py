"""The projection of outputs that do not fit into memory: the method of the layer, fed by passes over a table.

The solver sees samples only through sums over cells, and asks for them at given shifts. So anything that can group and
add takes the place of a pass over an array: DuckDB for a file, workers for a dataset, a database for its own tables.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from fairlayer.core import End, _native, solve
from fairlayer.core.discrepancies import Squared
from fairlayer.core.feasibility import cell_extremes, least_excess, statistic_scale
from fairlayer.core.solver import infeasible
from fairlayer.errors import FairlayerError
from fairlayer.problem.bounds import read_bounds
from fairlayer.problem.exact_sums import UNIT
from fairlayer.problem.rational import exact_shortfalls
from fairlayer.problem.system import System
from fairlayer.solution import Solution
from fairlayer.tables.entries import quote, select_list
from fairlayer.tables.table import Table, Totals

_BITS = 120  # of a sum of whole numbers in SQL, which has room for 126 wherever it travels


def moved(score: str, shift: str, lo: float, hi: float) -> str:
    """SQL of y = clip(score - shift, lo, hi), for every engine. Neither may be NULL, which some engines would clip."""
    sql = f"({score} - {shift})"
    if lo > -math.inf:
        sql = f"GREATEST({sql}, {literal(lo)})"
    return f"LEAST({sql}, {literal(hi)})" if hi < math.inf else sql


def free(score: str, shift: str, lo: float, hi: float) -> str:
    """SQL of 1 where no bound holds y, else 0: minus its slope in the shift."""
    return f"CASE WHEN {moved(score, shift, lo, hi)} = ({score} - {shift}) THEN 1 ELSE 0 END"


def literal(value: float) -> str:
    """A float64 that every engine reads as the same."""
    return f"({value:.17e})"


class Shifts(Solution):
    """A projection as what it does to each cell: y = clip(z - shift[cell], lo, hi), in float64. It has no value."""

    def __init__(self, shift: np.ndarray, lo: float, hi: float, *known: Any):
        """shift: (G,); known: what a `Solution` has besides its value."""
        super().__init__(None, *known)
        self.shift, self.lo, self.hi = shift, lo, hi


class PassSums(NamedTuple):
    """What one pass over a table finds of the outputs y = clip(z - shift[cell], lo, hi), (G,) each."""

    outputs: np.ndarray  # sums of y
    error: np.ndarray  # a bound on what these sums are off by
    free: np.ndarray  # samples that no bound holds
    absolute: np.ndarray  # a bound on the sums of |y|
    exact: tuple[list[int], float] | None = None  # the sums without any rounding, and what 1 is in their unit


class Passes(ABC):
    """Who takes the sums of a table of which every cell's count and range are known: n, low and high, (G,) each."""

    def __init__(self, n: np.ndarray, low: np.ndarray, high: np.ndarray):
        self.n, self.low, self.high = n, low, high

    @abstractmethod
    def sums(self, shift: np.ndarray, lo: float, hi: float) -> PassSums:
        """One pass, at the shifts of the cells, (G,)."""

    def magnitude(self, shift: np.ndarray, lo: float, hi: float) -> np.ndarray:
        """The largest |y| of each cell."""
        return np.abs([np.clip(end - shift, lo, hi) for end in (self.low, self.high)]).max(axis=0)


def project_passes(passes: Passes, system: System, bounds: Any = None) -> Shifts:
    """Project outputs onto a system whose `samples` and `weight` count the samples of each cell of the table.

    The rows hold in exact arithmetic for the outputs as float64 has them, or the status says that it
    cannot. Raises InfeasibleError where the rows contradict each other or the bounds.
    """
    box = read_bounds(bounds, 1, np.float64)
    lo, hi, rows, extremes = box.lowest, box.highest, system.rows, cell_extremes(system, box)
    reach = Squared().reach(float(passes.low.min()), float(passes.high.max()), lo, hi)
    own = _SolverPasses(passes, lo, hi, len(system.weight))
    found = solve(rows, own, system.samples, system.weight, *extremes, reach)
    if found.end != End.SOLVED:
        scale = statistic_scale(rows, found.absolute, system.weight, extremes)
        excess, conflict = least_excess(rows, *extremes, scale)
        if excess:
            raise infeasible(system.view, rows, excess, conflict)
        raise FairlayerError("The solver did not converge on this table; please report it with the table.")
    shift = np.array(found.shift)
    missed = _settled(own.sums_at(shift), system, np.array(found.missed))
    return Shifts(shift, lo, hi, system.view, np.array(found.statistics), np.array(found.nu), missed)


class _SolverPasses:
    """Passes as the core asks for them. Nothing is rounded when an output is written: its sums are those of a pass."""

    def __init__(self, passes: Passes, lo: float, hi: float, cells: int):
        self._passes, self._lo, self._hi = passes, lo, hi
        self._at = np.zeros(cells)
        self._found = passes.sums(self._at, lo, hi)

    def sums_at(self, shift: np.ndarray) -> PassSums:
        """A pass, unless the last one was at these shifts."""
        if not np.array_equal(shift, self._at):
            self._at, self._found = shift, self._passes.sums(shift, self._lo, self._hi)
        return self._found

    def measure(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sums of outputs as they are, of slopes and of absolute values."""
        return self._found.outputs, self._found.free, self._found.absolute

    def sums(self, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of outputs and of slopes."""
        return self.sums_at(shift).outputs, self._found.free

    def write(self, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sums of outputs and of slopes, and a bound on their error."""
        return *self.sums(shift), self._found.error

    def exact(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums of outputs, and a bound on their error."""
        return self._found.outputs, self._found.error


def certify_passes(passes: Passes, system: System) -> Solution:
    """Measure the rows of outputs in exact arithmetic: what is true of them as they are."""
    rows = system.rows
    found = passes.sums(np.zeros(len(system.weight)), -math.inf, math.inf)
    missed = _settled(found, system, _native.shortfalls(rows, found.outputs, found.error))
    return Solution(None, system.view, _native.statistics(rows, found.outputs), np.zeros(len(rows.offset)), missed)


def _settled(found: PassSums, system: System, missed: np.ndarray) -> np.ndarray:
    """By how much each family of rows is missed. Where rounded sums leave that in doubt, exact ones tell."""
    if missed.max(initial=0.0) <= 0.0 or found.exact is None or system.view.plan.any_residual:
        return missed
    parts = []  # numbers of 53 bits each, as if they were the outputs of a cell
    for cell, total in enumerate(found.exact[0]):
        while total:
            parts.append((float(total) / found.exact[1], cell))
            total -= int(float(total))
    values, cells = np.array(parts).reshape(-1, 2).T
    of_parts = system._replace(cell=cells.astype(np.int32), samples=system.weight, weights=np.zeros(0))
    return exact_shortfalls(values, of_parts, missed)


class Change(NamedTuple):
    """By how much a projection moves the outputs of a table."""

    changed: int  # outputs that differ from what they were
    largest: float
    total: float  # absolute


class TablePasses(Passes):
    """Passes over a column of a table that has a column `code` as well: every code that occurs is a cell at first.

    DuckDB adds up whole numbers of 2^-k, k as large as a sum of 120 bits allows. Of up to a billion rows that is exact
    for outputs down to 2^-37 of the largest, and the same however the rows are divided.
    """

    def __init__(self, table: Table, column: str = "z"):
        self.table, self.z = table, quote(column)
        asked = {"n": "count(*)", "low": f"min({self.z})", "high": f"max({self.z})"}
        found = table.totals(Totals(asked, {"code": quote("code")}))
        order = np.argsort(found["code"])
        self.code, self.cell = found["code"][order].astype(np.int64), np.arange(len(order))
        super().__init__(*(found[name][order].astype(np.float64) for name in asked))

    def grouped(self, cell: np.ndarray, cells: int) -> TablePasses:
        """Passes over cells that may be made of several codes. cell: of each code that occurs."""
        found = copy(self)
        found.cell, found.n = cell, np.bincount(cell, self.n, cells)
        found.low, found.high = np.full((2, cells), [[math.inf], [-math.inf]])
        np.minimum.at(found.low, cell, self.low)
        np.maximum.at(found.high, cell, self.high)
        found.low[found.n == 0.0] = found.high[found.n == 0.0] = 0.0
        return found

    def sums(self, shift: np.ndarray, lo: float, hi: float) -> PassSums:
        """One query."""
        most = self.magnitude(shift, lo, hi)
        values = {"y": moved(self.z, "shift", lo, hi), "free": free(self.z, "shift", lo, hi)}
        asked = {"free": "sum(free)", "coarse": "count_if(round(y * $scale) / $scale <> y)"}
        whole, scale, (free_samples, coarse) = self._totals(values, shift, float(most.max(initial=0.0)), asked)
        total = np.array(whole, dtype=np.float64) / scale
        error = 2.0 * UNIT * np.abs(total) + coarse / scale
        return PassSums(total, error, free_samples, self.n * most, None if coarse.any() else (whole, scale))

    def change(self, shifts: Shifts) -> Change:
        """What moving the outputs does to them."""
        by = f"abs({moved(self.z, 'shift', shifts.lo, shifts.hi)} - {self.z})"
        # Outputs of a cell are moved the less the greater they are: the ends of its range are moved the farthest.
        ends = [np.clip(end - shifts.shift, shifts.lo, shifts.hi) - end for end in (self.low, self.high)]
        asked = {"changed": "count_if(y <> 0)", "largest": "max(y)"}
        total, scale, (changed, largest) = self._totals(
            {"y": by}, shifts.shift, float(np.abs(ends).max(initial=0.0)), asked
        )
        return Change(int(changed.sum()), float(largest.max(initial=0.0)), math.fsum(one / scale for one in total))

    def _totals(
        self, values: dict[str, str], shift: np.ndarray, most: float, also: dict[str, str]
    ) -> tuple[list[int], float, np.ndarray]:
        """Sums of y by cell in whole numbers, how many of these 1 has, and other totals, (len(also), G).

        values: SQL of every row, in which `shift` stands for that of its cell; most: of |y|.
        """
        scale = 2.0 ** min(_BITS - math.frexp(self.n.sum())[1] - math.frexp(most)[1], 1000)
        of_code = "(SELECT unnest($code) AS code, unnest($cell) AS cell, unnest($shift) AS shift) AS known"
        rows = f"(SELECT cell, {select_list(values)} FROM data JOIN {of_code} ON known.code = {quote('code')})"
        asked = Totals({"total": "sum(CAST(y * $scale AS HUGEINT))", **also}, {"cell": "cell"}, rows)
        lists = {"code": self.code.tolist(), "cell": self.cell.tolist(), "shift": shift[self.cell].tolist()}
        whole, others = [0] * len(shift), np.zeros((len(also), len(shift)))
        for cell, total, *more in self.table.totals(asked, {**lists, "scale": scale}, "fetchall"):
            whole[cell], others[:, cell] = total, more
        return whole, scale, others
