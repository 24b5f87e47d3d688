"""The batch solver, as a stream calls it: nothing else in this package does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from fairlayer.binding.bounds import Box
from fairlayer.binding.rows import Rows
from fairlayer.binding.system import bind
from fairlayer.classes import KINDS
from fairlayer.projection import project
from fairlayer.solution import Status
from fairlayer.solve import statistic_scale
from fairlayer.solve.class_driver import Found, aim, nearest_classes
from fairlayer.solve.class_rows import by_class, class_problem, missed_by, spread_multipliers
from fairlayer.solve.discrepancy import compiled_kind, find_discrepancy, inner_limits
from fairlayer.solve.feasibility import least_excess, widened
from fairlayer.solve.loops import solve_loops
from fairlayer.solve.newton import DONE
from fairlayer.solve.priced_step import soft_step
from fairlayer.solve.simplex_passes import write
from fairlayer.solve.smooth import shifted
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
    blocks: int = 1  # of rows that follow each other: pooled ones, and those of the batch alone
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


class OutputSolver:
    """One output per sample, or several that are independent of each other."""

    def __init__(self, discrepancy: str):
        self._discrepancy = find_discrepancy(discrepancy)
        self._kind = compiled_kind(self._discrepancy)

    def inside(self, box: Box, dtype: np.dtype[Any]) -> Box:
        """The part of a box that outputs can lie in."""
        return box.within(*inner_limits(self._discrepancy, torch.float32 if dtype == np.float32 else torch.float64))

    def respond(self, raw: np.ndarray, cell: np.ndarray, shift: np.ndarray, width: int) -> np.ndarray:
        """Outputs as the shifts of their cells move them, in float64."""
        return shifted(self._kind, raw, cell, shift)

    def nearest(self, problem: Problem) -> Nearest:
        """Project."""
        return self._solve(problem, np.zeros(len(problem.rows.offset)))

    def multipliers(self, problem: Problem) -> np.ndarray | None:
        """(K,) those of the statistics; None where none were found."""
        found = self._solve(problem, NONE)
        return None if found.value is None else found.nu

    def _solve(self, problem: Problem, start: np.ndarray) -> Nearest:
        """start: multipliers to begin with; none to leave alone what keeps its rows, or nearly."""
        z, cell, rows, box, dtype, _, _, weights = problem
        G = len(rows.start) - 1
        count = np.bincount(cell, minlength=G).astype(np.float64)
        weight = np.bincount(cell, weights, G) if len(weights) else count
        single, unit, out = dtype == np.float32, float(np.finfo(dtype).eps) / 2, np.empty(len(z))
        outcome, nu, _, _, missed, _, absolute, _ = solve_loops(
            self._kind, z, cell, weights, count, weight, *box.wide(), rows, start, unit, single, out
        )
        return Nearest(out.astype(dtype, copy=False) if outcome == DONE else None, nu, missed, absolute)

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
        self._kind = KINDS[discrepancy]
        self._positive = discrepancy == "entropy"

    def inside(self, box: Box, dtype: np.dtype[Any]) -> Box:
        """The part of a box that outputs can lie in."""
        return box.within(float(np.finfo(dtype).tiny) if self._positive else 0.0, np.inf)

    def respond(self, raw: np.ndarray, cell: np.ndarray, shift: np.ndarray, width: int) -> np.ndarray:
        """Probabilities as the shifts of their cells move them, in float64."""
        z = raw.astype(np.float64).reshape(-1, width)
        moved = np.empty(z.shape)
        write(self._kind, z, cell[::width] // np.int32(width), shift.reshape(-1, width), moved)
        return moved.reshape(-1)

    def nearest(self, problem: Problem) -> Nearest:
        """Project."""
        z, cell, rows, box, dtype, width, blocks, _ = problem
        points, own = z.reshape(-1, width), cell[::width] // np.int32(width)
        ahead = by_class(rows, width, blocks, np.ones(len(rows.start) - 1, dtype=bool))
        least = dtype.type(self.inside(box, dtype).lowest)

        def rounded(out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            value = np.maximum(out.astype(dtype), least)
            return value, value.astype(np.float64)

        def certify(exact: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            sums, missed = missed_by(exact, own, NONE, rows)
            return sums, missed[ahead.families]

        of_points = class_problem(self._kind, points, own, NONE, ahead)
        value, found, missed, _, _, solved = nearest_classes(
            of_points, float(np.finfo(dtype).eps) / 2, rounded, certify
        )
        nu = spread_multipliers(found.nu, float(len(points)), ahead, len(rows.offset))
        return Nearest(value.reshape(-1) if solved else None, nu, missed)

    def multipliers(self, problem: Problem) -> np.ndarray | None:
        """(K,) those of the statistics; None where none were found."""
        z, cell, rows, _, _, width, blocks, weights = problem
        points, own, G = z.reshape(-1, width), cell[::width] // np.int32(width), len(rows.start) - 1
        ahead = by_class(rows, width, blocks, np.bincount(cell, minlength=G) > 0)
        of_points = class_problem(self._kind, points, own, weights, ahead)
        found = Found.nothing(G // width, len(ahead.family), width)
        if len(ahead.family) and not aim(of_points, of_points.half, found):
            return None
        return spread_multipliers(found.nu, float(weights.sum()), ahead, len(rows.offset))


def make_solver(settings: Settings) -> OutputSolver | ClassSolver:
    """The solver for a stream's outputs."""
    return (ClassSolver if settings.simplex else OutputSolver)(settings.discrepancy)


def largest_miss(value: np.ndarray, cell: np.ndarray, rows: Rows) -> float:
    """By how much outputs may miss their rows, at most."""
    _, missed = missed_by(value.astype(np.float64).reshape(-1, 1), cell, NONE, rows)
    return float(missed.max(initial=-np.inf))


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
    facts: Any = solution.facts
    gap = float(np.abs(solution.gaps).max()) if len(solution.gaps) else float("nan")
    nu = dict(zip(facts.view.plan.labels, facts.nu.tolist(), strict=True))
    return OwnStep(solution.value, nu, solution.status, gap, solution.excess)


def soften_batch(settings: Settings, batch: Batch, levels: Any, box: Box, price: float) -> OwnStep:
    """The soft step of Algorithm 1: the largest gap has a price."""
    system = bind(settings.rules, batch.n, batch.groups, batch.known, batch.features, levels=levels)
    softened = soft_step(batch.raw, system, box, price)
    nu = dict(zip(system.view.plan.labels, softened.nu.tolist(), strict=True))
    return OwnStep(softened.value, nu, Status.OPTIMAL, softened.gap, softened.excess)
