"""The batch solver, as a stream calls it: nothing else in this package does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from fairlayer.core import _native
from fairlayer.core.classes import respond
from fairlayer.core.discrepancies import find_discrepancy, inner_limits, native_number
from fairlayer.core.feasibility import least_excess, statistic_scale, widened
from fairlayer.core.soft_step import soft_step
from fairlayer.core.solver import SOLVED
from fairlayer.problem.bounds import Box
from fairlayer.problem.rows import Rows
from fairlayer.problem.system import bind
from fairlayer.projection import project
from fairlayer.solution import Status
from fairlayer.stream.batch import Batch
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


_DTYPES = {np.dtype(np.float32): 0, np.dtype(np.float64): 1}  # as the core numbers them


class OutputSolver:
    """One output per sample, or several that are independent of each other."""

    def __init__(self, discrepancy: str):
        self._discrepancy = find_discrepancy(discrepancy)

    def inside(self, box: Box, dtype: np.dtype[Any]) -> Box:
        """The part of a box that outputs can lie in."""
        return box.within(*inner_limits(self._discrepancy, torch.float32 if dtype == np.float32 else torch.float64))

    def respond(self, raw: np.ndarray, cell: np.ndarray, shift: np.ndarray, width: int) -> np.ndarray:
        """Outputs as the shifts of their cells move them, in float64."""
        if self._discrepancy.name == "squared":
            return raw.astype(np.float64) - shift[cell]
        infinite = torch.tensor(np.inf, dtype=torch.float64)
        z, s = torch.from_numpy(raw.astype(np.float64)), torch.from_numpy(shift[cell])
        moved = self._discrepancy.response(z, s, -infinite, infinite)
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
        z, cell, rows, box, dtype, _, weights = problem
        G = len(rows.start) - 1
        count = np.bincount(cell, minlength=G).astype(np.float64)
        weight = np.bincount(cell, weights, G) if len(weights) else count
        found = _native.project(
            _DTYPES[dtype], native_number(self._discrepancy), z.astype(dtype), cell, weights, count, weight, box.lo,
            box.hi, rows, start, True,
        )  # fmt: skip
        return _nearest(found)

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


class ClassSolver:
    """Probabilities of classes, on the simplex. Cells and rows are those of every class."""

    def __init__(self, discrepancy: str):
        self._entropy = discrepancy == "entropy"

    def inside(self, box: Box, dtype: np.dtype[Any]) -> Box:
        """The part of a box that outputs can lie in."""
        return box.within(float(np.finfo(dtype).tiny) if self._entropy else 0.0, np.inf)

    def respond(self, raw: np.ndarray, cell: np.ndarray, shift: np.ndarray, width: int) -> np.ndarray:
        """Probabilities as the shifts of their cells move them, in float64."""
        z = raw.astype(np.float64).reshape(-1, width)
        return respond(self._entropy, z, shift[cell].reshape(-1, width)).reshape(-1)

    def nearest(self, problem: Problem) -> Nearest:
        """Project."""
        return self._solve(problem, np.zeros(len(problem.rows.offset)))

    def multipliers(self, problem: Problem) -> np.ndarray | None:
        """(K,) those of the statistics; None where none were found."""
        found = self._solve(problem, None)
        return None if found.value is None else found.nu

    def _solve(self, problem: Problem, start: np.ndarray | None) -> Nearest:
        z, cell, rows, _, dtype, width, weights = problem
        points, own, G = z.reshape(-1, width).astype(dtype), cell[::width] // np.int32(width), len(rows.start) - 1
        count = np.bincount(own, minlength=G // width).astype(np.float64)
        weight = np.bincount(own, weights, G // width) if len(weights) else count
        found = _native.project_simplex(
            _DTYPES[dtype], self._entropy, points, own, weights, count, weight, rows, start, True
        )
        return _nearest(found)


def _nearest(found: Any) -> Nearest:
    """What the core found; nothing where rows contradict each other, or it made no progress."""
    value = found.value if found.end == SOLVED else None
    return Nearest(value, np.array(found.nu), np.array(found.missed), np.array(found.absolute))


def make_solver(settings: Settings) -> OutputSolver | ClassSolver:
    """The solver for a stream's outputs."""
    return (ClassSolver if settings.simplex else OutputSolver)(settings.discrepancy)


def largest_miss(value: np.ndarray, cell: np.ndarray, rows: Rows) -> float:
    """By how much outputs may miss their rows, at most."""
    sums, error = np.empty(len(rows.start) - 1), np.empty(len(rows.start) - 1)
    _native.exact_sums(value.astype(np.float64), cell, NONE, sums, error)
    return float(_native.shortfalls(rows, sums, error).max(initial=-np.inf))


class OwnStep(NamedTuple):
    """A batch by itself, as Algorithm 1 projects or softens it."""

    value: np.ndarray
    nu: dict[str, float]  # multipliers of its statistics, by name
    status: Status
    gap: float  # the largest in size; NaN where the batch has nothing to compare
    excess: float = 0.0  # of a projection, by which tolerances had to give way; of a soft step, gap less tolerance


def project_batch(settings: Settings, batch: Batch, levels: Any) -> OwnStep:
    """The hard step of Algorithm 1."""
    solution = project(
        batch.raw, batch.groups, settings.rules, bounds=settings.bounds, targets=batch.known, features=batch.features,
        levels=levels, infeasible="relax",
    )  # fmt: skip
    gap = float(np.abs(solution.gaps).max()) if len(solution.gaps) else float("nan")
    nu = dict(zip(solution.view.plan.labels, solution.nu.tolist(), strict=True))
    return OwnStep(solution.value, nu, solution.status, gap, solution.excess)


def soften_batch(settings: Settings, batch: Batch, levels: Any, box: Box, price: float) -> OwnStep:
    """The soft step of Algorithm 1: the largest gap has a price."""
    system = bind(settings.rules, batch.n, batch.groups, batch.known, batch.features, levels=levels)
    softened = soft_step(batch.raw, system, box, price)
    nu = dict(zip(system.view.plan.labels, softened.nu.tolist(), strict=True))
    return OwnStep(softened.value, nu, Status.OPTIMAL, softened.gap, softened.excess)
