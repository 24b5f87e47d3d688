"""The nearest fair class probabilities: aim a little inside the rows, write, certify, aim further inside where missed.

Used for a batch by classes.py, and for a stream, whose rows have an offset, by stream/policies.py and
stream/leader.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fairlayer.binding.exact_sums import UNIT
from fairlayer.solve.simplex import SOLVED, solve_simplex
from fairlayer.solve.simplex_passes import write

_MOST_REPAIRS = 12
_NEARLY = 1e-6  # beyond their bounds, from where repairs can bring rows back
_FINEST = 1e-6  # half a tolerance, times what follows: the stages on the way to a finer one
_CONTINUED = (1e5, 1e4, 1e3, 1e2, 1e1, 1.0)


class ClassProblem(NamedTuple):
    """Points on the simplex, and the means of groups of them that are compared, as the solver has them."""

    kind: int
    z: np.ndarray  # (n, d) float64
    cell: np.ndarray  # (n,) int32
    weight: np.ndarray  # (n,) adding up to 1, or empty where all are equal
    share: float  # of each sample, where all are equal
    rows: tuple[np.ndarray, np.ndarray, np.ndarray]  # by cell, of sums that add up to 1: see `solve_simplex`
    offset: np.ndarray  # (K, d)
    family: np.ndarray  # (K,) numbered from 0
    half: np.ndarray  # (K, d) how far each mean may be from the middle of its family and class


class Found(NamedTuple):
    """The multipliers, and what the derivative needs."""

    nu: np.ndarray  # (K, d)
    side: np.ndarray
    shift: np.ndarray  # (G, d)
    gram: np.ndarray

    @classmethod
    def nothing(cls, cells: int, statistics: int, classes: int) -> Found:
        """Where a search starts."""
        m = statistics * classes
        return cls(np.zeros((statistics, classes)), np.zeros(m, np.int64), np.zeros((cells, classes)), np.empty((m, m)))


class Nearest(NamedTuple):
    """What was found. missed: by how much the rows of each family and class may be, at most; (F, d)."""

    value: Any
    found: Found
    missed: np.ndarray
    sums: np.ndarray
    responses: np.ndarray  # (n, d) the value before it was rounded
    solved: bool


def aim(problem: ClassProblem, half: np.ndarray, found: Found) -> bool:
    """Search for the multipliers at which means are within `half` of their middles, from those given on."""
    (G, d), half = found.shift.shape, half.reshape(-1)
    S, D = np.empty((G, d)), np.empty((G, d, d))
    for wider in (1.0, *_CONTINUED):  # where the search does not end, from afar and in shorter stages
        if wider == _CONTINUED[0]:
            found.nu[:] = 0.0
        now = np.maximum(half, (wider - 1.0) * _FINEST) if wider > 1.0 else half
        outcome, beyond = solve_simplex(
            *problem[:7], problem.family, now, found.nu, found.side, found.shift, S, D, found.gram
        )
        if wider == 1.0 and (outcome == SOLVED or beyond <= _NEARLY):
            return True
    return False


def nearest_classes(
    problem: ClassProblem,
    unit: float,
    rounded: Callable[[np.ndarray], tuple[Any, np.ndarray]],
    certify: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
) -> Nearest:
    """Solve, write and certify.

    unit: relative rounding error of the output's dtype. rounded: outputs (n, d) in their dtype, and these as float64.
    certify: of the latter, sums by cell and class, and by how much the rows of each family and class may be missed.
    """
    (n, d), K = problem.z.shape, len(problem.family)
    found = Found.nothing(len(problem.rows[0]) - 1, K, d)
    out, noise = np.empty((n, d)), UNIT * (32.0 + np.sqrt(n))
    # Half a margin on either side of the middle. The same in every class: gaps of all classes add up to 0, so where as
    # many are to be widest in one direction as in the other, bounds that differed would contradict each other.
    margin = np.minimum(0.75 * (unit + 16.0 * UNIT) * problem.z.mean(axis=0).max() + noise, 0.125 * problem.half)
    first, best = margin, None
    for attempt in range(_MOST_REPAIRS):
        if K and not aim(problem, problem.half - margin, found):
            break
        write(problem.kind, problem.z, problem.cell, found.shift, out)
        value, exact = rounded(out)
        sums, missed = certify(exact)
        if best is None or missed.max(initial=-np.inf) < best.missed.max(initial=-np.inf):
            kept = found if (missed <= 0.0).all() else Found(*(part.copy() for part in found))
            best = Nearest(value, kept, missed, sums, out, True)
        if not K or (missed <= 0.0).all():
            break
        over = 0.5 * np.maximum(missed.max(axis=1), 0.0)[problem.family, None]
        # Rounding falls out otherwise at every aim, so a row that is missed again and again is aimed further inside.
        more = 1.1 * over + (over > 0.0) * (0.5 * noise + 0.5 * attempt * first)
        wider = np.minimum(margin + more, problem.half)
        if (wider <= margin).all():
            break
        margin, out = wider, np.empty((n, d))
    if best is None:
        return Nearest(None, found, np.full((1, d), np.inf), np.zeros(0), out, False)
    return best
