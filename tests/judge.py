"""Whether a status is true, by rational arithmetic and weak duality: nothing of the library is trusted."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from duality import distance, least_distance, rounding_norm
from fairlayer import Status
from formulas import Problem, Row, exact_violations, plain
from oracle import project_reference

RELATIVE = 1e-6  # how much further than the optimum an answer may be, besides the rounding of its outputs; eps if more
FINE = 1000.0  # tolerances below so many roundings of the largest number may be missed, and are then said to be


def assert_true_status(solution: Any, problem: Problem, *, optimum: float | None = None) -> None:
    """The status says what rational arithmetic says, and no output that satisfies the rows is nearer.

    OPTIMAL, VACUOUS, BOUNDED: every row and bound holds exactly. The first two are as near as can be, up to the
    rounding of the outputs; BOUNDED is as near as it says. ROUNDED: some row is missed, and its tolerance is finer
    than the dtype resolves. optimum: the least distance, where it is known; otherwise the solution's multipliers prove
    how near outputs can be, or, of ratios, which have fewer multipliers than rows, the oracle does.
    """
    y, dtype = plain(solution.value).astype(np.float64).reshape(-1), _dtype(solution.value)
    lo, hi = problem.box()
    assert np.isfinite(y).all()
    assert (y >= lo).all()
    assert (y <= hi).all()
    worst = max(exact_violations(problem.rows, y), default=0)
    said = f"{solution.status.name}, and the worst row is missed by {float(worst):.3g}"
    assert solution.status in (Status.OPTIMAL, Status.VACUOUS, Status.BOUNDED, Status.ROUNDED), said
    assert (worst <= 0) == solution.satisfied, said
    assert (solution.status is Status.VACUOUS) <= bool(solution.vacuous), said
    if solution.status is Status.ROUNDED:
        assert is_fine(problem, y, dtype), f"{said}, a tolerance that {dtype} resolves"
        return
    least = optimum if optimum is not None else _least(problem, solution)
    if solution.status is Status.BOUNDED:
        assert solution.optimality_gap > 0
        least = (least**2 + solution.optimality_gap) ** 0.5
    reached = distance(problem, y) - rounding_norm(problem, y, dtype)
    allowed = (1 + max(RELATIVE, torch.finfo(dtype).eps)) * least
    assert reached <= allowed, f"{solution.status.name}, {reached / max(least, 1e-300) - 1:.2g} too far"


def is_fine(problem: Problem, y: np.ndarray, dtype: torch.dtype) -> bool:
    """Whether some tolerance is finer than a thousand roundings of the numbers whose means are compared.

    An output is a small difference of large numbers where z is far from its bounds, and weights that lie decades apart
    make it more so: float64, in which all is computed, resolves no more than that.
    """
    largest = max(np.abs(values).max(initial=0.0) for values in (y, *_targets(problem)))
    weights = np.ones(1) if problem.weights is None else plain(problem.weights)[plain(problem.weights) > 0]
    spread = weights.max() / weights.min()
    computed = np.finfo(np.float64).eps * max(np.abs(problem.z).max(initial=0.0), largest) * spread

    def room(row: Row) -> float:
        if np.isfinite(row.lower) and np.isfinite(row.upper):
            return (row.upper - row.lower) / 2
        return np.inf if row.minus is None else (1.0 - row.factor) * largest  # a side of a matrix; a ratio

    return min(map(room, problem.rows)) < FINE * max(torch.finfo(dtype).eps * largest, computed)


def _targets(problem: Problem) -> list[np.ndarray]:
    return [row.plus.targets for row in problem.rows if row.plus.targets is not None][:1]


def _dtype(value: Any) -> torch.dtype:
    return value.dtype if isinstance(value, torch.Tensor) else torch.from_numpy(value[:0]).dtype


def _least(problem: Problem, solution: Any) -> float:
    if len(plain(solution.multipliers)) == len(problem.rows):
        return least_distance(problem, solution.multipliers)
    return distance(problem, project_reference(problem))
