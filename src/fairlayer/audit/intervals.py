"""Intervals of an audit: of rates, and the range that outputs are taken to have. Those of means are in `intervals`."""

from __future__ import annotations

import math

from fairlayer.audit.result import Rate
from fairlayer.audit.tally import CellTally, Range
from fairlayer.intervals import LEAST_TO_OBSERVE


def wilson(successes: float, weight: float, n: float, count: int, z: float) -> Rate:
    """A share with the interval of Wilson (1927). n: effective number of samples."""
    if weight <= 0 or n <= 0:
        return Rate(None, 0.0, 1.0, count)
    p = min(max(successes / weight, 0.0), 1.0)
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return Rate(p, max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half)), count)


def possible_outputs(tally: CellTally, stated: Range | None) -> Range | None:
    """The range to add samples at the ends of: as stated, or else as observed where there is enough to observe."""
    return stated if stated is not None else _observed(tally.outputs, tally.samples)


def possible_residuals(tally: CellTally, stated: Range | None) -> Range | None:
    """The same for outputs less targets, which lie in the range of the outputs as a rule."""
    residuals = tally.residuals
    if residuals is None:
        return None
    if stated is not None and residuals.magnitude <= stated.width:
        return Range(-stated.width, stated.width)
    return _observed(residuals, tally.samples)


def _observed(observed: Range, samples: int) -> Range | None:
    return observed if samples >= LEAST_TO_OBSERVE and observed.width > 0 else None
