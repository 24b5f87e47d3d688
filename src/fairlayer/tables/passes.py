"""The projection of outputs that do not fit into memory: the method of the layer, fed by passes over a table.

The solver sees samples only through sums over cells, and asks for them at given shifts. So anything that can group and
add takes the place of a pass over an array: DuckDB for a file, workers for a dataset, a database for its own tables.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from fairlayer.core import _native, solve
from fairlayer.core.discrepancies import Squared
from fairlayer.core.feasibility import cell_extremes, least_excess, statistic_scale
from fairlayer.core.solver import SOLVED, infeasible
from fairlayer.errors import FairlayerError
from fairlayer.problem.bounds import read_bounds
from fairlayer.problem.exact_sums import UNIT
from fairlayer.problem.rational import exact_shortfalls
from fairlayer.problem.system import System
from fairlayer.solution import Solution, Status
from fairlayer.tables import moved_sql
from fairlayer.tables.entries import quote, select_list
from fairlayer.tables.table import Table, Totals

_NONE = np.zeros(0)
_BITS = 120  # of a sum of whole numbers in SQL, which has room for 126 wherever it travels


class PassSums(NamedTuple):
    """What one pass over a table finds of the outputs y = clip(z - shift[cell], lo, hi), (G,) each."""

    outputs: np.ndarray  # sums of y
    error: np.ndarray  # a bound on what these sums are off by
    free: np.ndarray  # samples that no bound holds
    absolute: np.ndarray  # a bound on the sums of |y|


class Passes(Protocol):
    """Who takes the sums of a table."""

    def extent(self) -> tuple[float, float]:
        """The least and the greatest output."""

    def sums(self, shift: np.ndarray, lo: float, hi: float) -> PassSums:
        """Sums at the shifts, (G,)."""


@dataclass(frozen=True, eq=False)
class Shifts:
    """A projection as what it does to each cell: y = clip(z - shift[cell], lo, hi), in float64."""

    shift: np.ndarray  # (G,)
    lo: float
    hi: float
    solution: Solution  # without a value

    @property
    def status(self) -> Status:
        """How far the promise holds."""
        return self.solution.status

    @property
    def satisfied(self) -> bool:
        """Whether every row that can be stated holds exactly."""
        return self.status in (Status.OPTIMAL, Status.VACUOUS, Status.BOUNDED)

    @property
    def rows(self) -> tuple[str, ...]:
        """Name of each row of the constraints."""
        return self.solution.rows

    @property
    def gaps(self) -> np.ndarray:
        """Value of each row: a difference of group means, for instance."""
        return self.solution.gaps

    @property
    def vacuous(self) -> tuple[str, ...]:
        """What could not be compared, because a group is absent."""
        return self.solution.vacuous


def project_passes(passes: Passes, system: System, bounds: Any = None) -> Shifts:
    """Project outputs onto a system whose `samples` and `weight` count the samples of each cell of the table.

    The rows hold in exact arithmetic for the outputs as float64 has them, or the status says that it
    cannot. Raises InfeasibleError where the rows contradict each other or the bounds.
    """
    box = read_bounds(bounds, 1, np.float64)
    rows, extremes = system.rows, cell_extremes(system, box)
    reach = Squared().reach(*passes.extent(), box.lowest, box.highest)
    own = _SolverPasses(passes, box.lowest, box.highest, len(system.weight))
    found = solve(rows, own, system.samples, system.weight, *extremes, reach)
    if found.end != SOLVED:
        scale = statistic_scale(rows, found.absolute, system.weight, extremes)
        excess, push = least_excess(rows, *extremes, scale)
        if excess:
            raise infeasible(system.view, rows, excess, push)
        raise FairlayerError("The solver did not converge on this table; please report it with the table.")
    shift = np.array(found.shift)
    missed = _settled(passes, system, (shift, box.lowest, box.highest), np.array(found.missed))
    solution = Solution(None, system.view, np.array(found.statistics), np.array(found.nu), missed)
    return Shifts(shift, box.lowest, box.highest, solution)


class _SolverPasses:
    """Passes as the core asks for them. Nothing is rounded when an output is written: its sums are those of a pass."""

    def __init__(self, passes: Passes, lo: float, hi: float, cells: int):
        self._passes, self._lo, self._hi = passes, lo, hi
        self._at = np.zeros(cells)
        self._found = passes.sums(self._at, lo, hi)

    def measure(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sums of outputs as they are, of slopes and of absolute values."""
        return self._found.outputs, self._found.free, self._found.absolute

    def sums(self, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of outputs and of slopes."""
        if not np.array_equal(shift, self._at):
            self._at, self._found = shift, self._passes.sums(shift, self._lo, self._hi)
        return self._found.outputs, self._found.free

    def write(self, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sums of outputs and of slopes, and a bound on their error."""
        return *self.sums(shift), self._found.error

    def exact(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums of outputs, and a bound on their error."""
        return self._found.outputs, self._found.error


def certify_passes(passes: Passes, system: System) -> Solution:
    """Measure the rows of outputs in exact arithmetic: what is true of them as they are."""
    rows, at = system.rows, (np.zeros(len(system.weight)), -math.inf, math.inf)
    found = passes.sums(*at)
    missed = _settled(passes, system, at, _native.shortfalls(rows, found.outputs, found.error))
    return Solution(None, system.view, _native.statistics(rows, found.outputs), np.zeros(len(rows.offset)), missed)


def _settled(passes: Passes, system: System, at: tuple[np.ndarray, float, float], missed: np.ndarray) -> np.ndarray:
    """By how much each family of rows is missed. Where rounded sums leave that in doubt, exact ones tell."""
    if missed.max(initial=0.0) <= 0.0 or system.view.plan.any_residual or not isinstance(passes, TablePasses):
        return missed
    exact = passes.exact_parts(*at)
    if exact is None:
        return missed
    values, cell = exact
    return exact_shortfalls(values, system._replace(cell=cell, samples=passes.n, weights=_NONE), missed)


class RangePasses(ABC):
    """Passes over a table of which every cell's count and range are known: n, low and high, (G,) each."""

    def __init__(self, n: np.ndarray, low: np.ndarray, high: np.ndarray):
        self.n, self.low, self.high = n, low, high

    @abstractmethod
    def sums(self, shift: np.ndarray, lo: float, hi: float) -> PassSums:
        """One pass."""

    def extent(self) -> tuple[float, float]:
        """The least and the greatest output."""
        return float(self.low.min()), float(self.high.max())

    def magnitude(self, shift: np.ndarray, lo: float, hi: float) -> np.ndarray:
        """The largest |y| of each cell."""
        return np.abs([np.clip(end - shift, lo, hi) for end in (self.low, self.high)]).max(axis=0)


class Change(NamedTuple):
    """By how much a projection moves the outputs of a table."""

    changed: int  # outputs that differ from what they were
    largest: float
    total: float  # absolute


class TablePasses(RangePasses):
    """Passes over a column of a table that has a column `code` as well: every code that occurs is a cell at first.

    DuckDB adds up whole numbers of 2^-k, k as large as a sum of 120 bits allows. Of up to a billion rows that is exact
    for outputs down to 2^-37 of the largest, and the same however the rows are divided.
    """

    def __init__(self, table: Table, column: str = "z"):
        self.table, self.column = table, column
        asked = {"n": "count(*)", "low": f"min({quote(column)})", "high": f"max({quote(column)})"}
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
        z, most = quote(self.column), self.magnitude(shift, lo, hi)
        values = {"y": moved_sql.moved(z, "shift", lo, hi), "free": moved_sql.free(z, "shift", lo, hi)}
        total, error, free = self.exact(values, shift, float(most.max(initial=0.0)), {"free": "sum(free)"})
        return PassSums(total, error, free, self.n * most)

    def exact(
        self, values: dict[str, str], shift: np.ndarray, most: float, also: dict[str, str] | None = None
    ) -> tuple[np.ndarray, ...]:
        """Sums of y by cell, bounds on what they are off by, and other totals. most: of |y|."""
        scale = self._scale(most)
        asked = {"total": "sum(CAST(y * $scale AS HUGEINT))", **(also or {})}
        found = self._totals(asked, values, shift, scale=scale)
        total, *others = (np.zeros(len(shift)) for _ in asked)
        for into, name in zip((total, *others), asked, strict=True):
            into[found["cell"]] = found[name]
        total /= scale
        return total, 2.0 * UNIT * np.abs(total) + self.n / scale, *others

    def exact_parts(self, shift: np.ndarray, lo: float, hi: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Numbers and the cell of each, whose sums by cell are those of the outputs without any rounding.

        None where the unit of the whole numbers is too coarse for some output.
        """
        scale = self._scale(float(self.magnitude(shift, lo, hi).max(initial=0.0)))
        asked = {"total": "sum(CAST(y * $scale AS HUGEINT))", "coarse": "count_if(y * $scale <> round(y * $scale))"}
        y = moved_sql.moved(quote(self.column), "shift", lo, hi)
        parts = []
        for cell, total, coarse in self._totals(asked, {"y": y}, shift, "fetchall", scale=scale):
            if coarse:
                return None
            for _ in range(3):  # of 53 bits each
                parts.append((float(total) / scale, cell))
                total -= int(float(total))
        values, cells = zip(*parts, strict=True)
        return np.array(values), np.array(cells, dtype=np.int32)

    def change(self, shifts: Shifts) -> Change:
        """What moving the outputs does to them."""
        z = quote(self.column)
        by = f"abs({moved_sql.moved(z, 'shift', shifts.lo, shifts.hi)} - {z})"
        also = {"changed": "count_if(y <> 0)", "largest": "max(y)"}
        # Outputs of a cell are moved the less the greater they are: the ends of its range are moved the farthest.
        ends = [np.clip(end - shifts.shift, shifts.lo, shifts.hi) - end for end in (self.low, self.high)]
        total, _, changed, largest = self.exact({"y": by}, shifts.shift, float(np.abs(ends).max(initial=0.0)), also)
        return Change(int(changed.sum()), float(largest.max(initial=0.0)), math.fsum(total))

    def _scale(self, most: float) -> float:
        """How many units 1 has, if outputs are at most so large."""
        return 2.0 ** min(_BITS - math.frexp(self.n.sum())[1] - math.frexp(most)[1], 1000)

    def _totals(
        self,
        totals: dict[str, str],
        values: dict[str, str],
        shift: np.ndarray,
        fetch: str = "fetchnumpy",
        **parameters: Any,
    ) -> Any:
        """Totals by cell of values of every row, in which `shift` stands for that of its cell."""
        of_code = "(SELECT unnest($code) AS code, unnest($cell) AS cell, unnest($shift) AS shift) AS known"
        rows = f"(SELECT cell, {select_list(values)} FROM data JOIN {of_code} ON known.code = {quote('code')})"
        lists = {"code": self.code.tolist(), "cell": self.cell.tolist(), "shift": shift[self.cell].tolist()}
        return self.table.totals(Totals(totals, {"cell": "cell"}, rows), {**lists, **parameters}, fetch)
