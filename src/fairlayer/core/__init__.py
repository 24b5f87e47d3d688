"""The core: one method on cell sums, in C++, for anything that can take the sums.

A group constraint sees a batch only through the sums of its cells. So the method is one loop (`native/newton.hpp`), one
small quadratic programme (`native/small_qp.hpp`) and one way to aim, write and certify (`native/solve.hpp`), over
*passes*: an object that returns cell sums of outputs and slopes at given shifts. Batches in memory are passes in C++
(`native/samples.hpp`); files, clusters, databases and discrepancies of a user's own are passes in Python, by `solve`.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any, Protocol

import numpy as np

from fairlayer.core import _native


class End(IntEnum):
    """How a solve ends, or why it does not begin; as the core numbers it."""

    SOLVED = 0
    INFEASIBLE = 1  # the rows contradict each other
    STALLED = 2  # no progress was made
    NOT_FINITE = 3
    OUTSIDE = 4  # z, of the numbers that the discrepancy takes
    TOO_LARGE = 5  # for sums in float64


class Passes(Protocol):
    """Who takes the sums of G cells. Every array has shape (G,) and holds float64."""

    def measure(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sums of the outputs as they are, within their bounds; of their slopes; and of their absolute values."""

    def sums(self, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of the outputs at the shifts of the cells, and of their slopes."""

    def write(self, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Write the output; sums of what was written, of slopes, and a bound on the error of the first."""

    def exact(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums of what was written again, as exactly as can be, and a bound on their error."""


def solve(
    rows: Any,  # a `Rows`
    passes: Passes,
    count: np.ndarray,  # (G,) samples of each cell
    weight: np.ndarray,  # (G,) their weight, times the usual slope of a sample
    least: np.ndarray,  # (G,) the least that the sum of each cell can be
    most: np.ndarray,  # (G,) and the most
    reach: float = math.inf,  # how far a shift may go at once
    rounding: float = 2.0**-53,  # relative rounding error of the output; 0 where rows may be missed by it
    start: np.ndarray | None = None,  # (K,) multipliers to begin with
) -> Any:
    """Find the multipliers and shifts at which the rows hold.

    The result has `end`, an `End`; `nu`, `shift`, `slopes`, `statistics`, `absolute`; and `missed`: by how much each
    family of rows may be missed, 0 or less where it certainly holds.
    """
    return _native.solve(rows, passes, count, weight, least, most, reach, rounding, start)
