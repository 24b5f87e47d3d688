"""The core's solver, as a stream calls it: outputs cell by cell, and the pooled rows they are to keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from fairlayer.core import End, _native
from fairlayer.core.classes import project_points, respond
from fairlayer.core.discrepancies import OPEN, find_discrepancy, inner_limits
from fairlayer.core.feasibility import least_excess, statistic_scale, widened
from fairlayer.core.solver import Cells, project_cells
from fairlayer.problem.bounds import Box
from fairlayer.problem.rows import Rows
from fairlayer.solution import Status
from fairlayer.stream.settings import Settings

NONE = np.zeros(0)


class Problem(NamedTuple):
    """Outputs, and the rows they are to keep."""

    z: np.ndarray  # (n d,) float64, sample by sample
    cell: np.ndarray  # (n d,) int32
    rows: Rows
    box: Box
    dtype: np.dtype[Any]  # that outputs are rounded to
    width: int = 1  # d, outputs of each sample
    weights: np.ndarray = NONE  # (n,), or empty where all count alike


class Nearest(NamedTuple):
    """The outputs nearest to those of a problem that keep its rows."""

    value: np.ndarray | None  # (n d,) in the dtype asked for; None where none was found
    nu: np.ndarray  # (K,) multipliers of the statistics
    missed: np.ndarray  # (F,) by how much families of rows may be missed, at most
    absolute: np.ndarray = NONE  # (G,) sums of |y| by cell

    @property
    def certain(self) -> bool:
        """Whether every row certainly holds."""
        return self.value is not None and bool((self.missed <= 0.0).all())


class Solver:
    """For a stream's outputs: any number of independent ones per sample, or the probabilities of classes.

    Of probabilities, cells and rows are those of every class.
    """

    def __init__(self, settings: Settings):
        self.simplex = settings.simplex
        self._entropy = settings.discrepancy == "entropy"
        self._discrepancy = find_discrepancy(settings.discrepancy)

    def inside(self, box: Box, dtype: np.dtype[Any]) -> Box:
        """The part of a box that outputs can lie in."""
        if self.simplex:
            return box.within(float(np.finfo(dtype).tiny) if self._entropy else 0.0, np.inf)
        return box.within(*inner_limits(self._discrepancy, torch.float32 if dtype == np.float32 else torch.float64))

    def respond(self, raw: np.ndarray, cell: np.ndarray, shift: np.ndarray, width: int) -> np.ndarray:
        """Outputs as the shifts of their cells move them, in float64."""
        z, own = raw.astype(np.float64), shift[cell]
        if self.simplex:
            return respond(self._entropy, z.reshape(-1, width), own.reshape(-1, width)).reshape(-1)
        if self._discrepancy.name == "squared":
            return z - own
        moved = self._discrepancy.response(torch.from_numpy(z), torch.from_numpy(own), -OPEN, OPEN)
        return torch.clamp(moved, *inner_limits(self._discrepancy, torch.float64)).numpy()

    def nearest(self, problem: Problem) -> Nearest:
        """Project."""
        return self._solve(problem, np.zeros(len(problem.rows.offset)))

    def multipliers(self, problem: Problem) -> np.ndarray | None:
        """(K,) those of the statistics; None where none were found."""
        found = self._solve(problem, None)
        return None if found.value is None else found.nu

    def _solve(self, problem: Problem, start: np.ndarray | None) -> Nearest:
        """start: multipliers to begin with; None to leave alone what keeps its rows, or nearly."""
        z, cell, rows, box, dtype, width, weights = problem
        classes = width if self.simplex else 1
        own, G = cell[::classes] // np.int32(classes), (len(rows.start) - 1) // classes
        count = np.bincount(own, minlength=G).astype(np.float64)
        weight = np.bincount(own, weights, G) if len(weights) else count
        cells, outputs = Cells(own, weights, count, weight), torch.from_numpy(z.astype(dtype))
        if self.simplex:
            found = project_points(outputs.reshape(-1, width), self._entropy, cells, rows, start)
        else:
            found = project_cells(outputs, self._discrepancy, cells, box, rows, start)
        # Nothing is found where rows contradict each other, or no progress was made.
        value = found.value if found.end == End.SOLVED else None
        return Nearest(value, np.array(found.nu), np.array(found.missed), np.array(found.absolute))

    def relaxed(
        self, problem: Problem, absolute: np.ndarray, gives: np.ndarray
    ) -> Iterator[tuple[Status, float, Nearest]]:
        """Where rows contradict each other: by how much those that may give way must, and what is nearest then.

        absolute: as of `Nearest`; gives: (F,) the families that may give way.
        """
        box = self.inside(problem.box, problem.dtype)
        count = np.bincount(problem.cell, minlength=len(problem.rows.start) - 1).astype(np.float64)
        least, most = (count * float(side[0]) for side in (box.lo, box.hi))
        scale = statistic_scale(problem.rows, absolute, count, (least, most))
        excess, _ = least_excess(problem.rows, least, most, scale, gives)
        status = Status.RELAXED if excess else Status.ROUNDED  # where rounding alone is in the way
        for wider, wide in widened(problem.rows, excess, scale, gives):
            yield status, wider, self.nearest(problem._replace(rows=wide))


def largest_miss(value: np.ndarray, cell: np.ndarray, rows: Rows) -> float:
    """By how much outputs may miss their rows, at most."""
    sums, error = np.empty(len(rows.start) - 1), np.empty(len(rows.start) - 1)
    _native.exact_sums(value.astype(np.float64), cell, NONE, sums, error)
    return float(_native.shortfalls(rows, sums, error).max(initial=-np.inf))
