"""Why no output exists, and how far the rows must give way. Called only when the solver finds a contradiction.

Whether rows can hold depends on the cell sums alone, each of which can take any value between its extremes. So the
smallest uniform widening of all rows is a linear programme in G unknowns, whatever the number of samples.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.optimize import linprog

from fairlayer.binding.rows import Rows


def least_excess(rows: Rows, least: np.ndarray, most: np.ndarray) -> tuple[float, np.ndarray]:
    """The smallest amount by which all rows must be widened to be feasible, and which rows stand in the way."""
    G, m = len(least), len(rows.plus)
    matrix = rows.M.T[rows.plus] - np.where(rows.minus[:, None] >= 0, rows.M.T[rows.minus], 0.0)  # (m, G)
    shift = rows.offset[rows.plus] - np.where(rows.minus >= 0, rows.offset[rows.minus], 0.0)
    above, below = np.isfinite(rows.upper), np.isfinite(rows.lower)
    ones = np.ones((m, 1))
    inequality = np.vstack([np.hstack([matrix, -ones])[above], np.hstack([-matrix, -ones])[below]])
    limit = np.concatenate([(rows.upper + shift)[above], (-rows.lower - shift)[below]])
    cost = np.zeros(G + 1)
    cost[-1] = 1.0
    answer = linprog(
        cost,
        A_ub=inequality,
        b_ub=limit,
        bounds=[*zip(least, most, strict=True), (0.0, None)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if answer.x is None:
        return np.inf, np.zeros(m, dtype=bool)
    price = np.abs(answer.ineqlin.marginals)
    blamed = np.zeros(m, dtype=bool)
    blamed[np.flatnonzero(above)[price[: above.sum()] > 1e-9]] = True
    blamed[np.flatnonzero(below)[price[above.sum() :] > 1e-9]] = True
    return max(float(answer.x[-1]), 0.0), blamed


def widened(rows: Rows, excess: float, magnitude: float) -> Iterator[tuple[float, Rows]]:
    """Rows wider by what makes them feasible and a hair more, so that the solver has room; ever more until it does."""
    for room in (1e-12, 1e-10, 1e-8, 1e-6, 1e-4):
        wider = excess + room * max(excess, magnitude)
        yield wider, rows._replace(lower=rows.lower - wider, upper=rows.upper + wider)
