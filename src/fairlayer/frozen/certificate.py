"""What a calibration sample says of the population: a bound on every gap, all of which hold together.

The samples behind it had no part in the fit, so the frozen outputs are independent draws given the fit, and the
intervals of `fairlayer.intervals` apply as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fairlayer.intervals import Comparisons, Moments, effective_count, simultaneous
from fairlayer.problem.row_plan import PresentRows


@dataclass(frozen=True)
class GapBound:
    """What is known of one row: its absolute value is at most `bound`."""

    row: str
    tolerance: float
    measured: float  # on the samples kept for the statement
    bound: float


@dataclass(frozen=True)
class Certificate:
    """With probability `confidence` over the calibration sample, every bound holds for the population.

    The population is what the calibration samples were drawn from, independently; `samples` of them were used for this
    statement and for nothing else. aimed_at: share of each tolerance that was fitted for.
    """

    confidence: float
    fitted_on: int
    samples: int
    rows: tuple[GapBound, ...]
    aimed_at: float = 1.0

    @property
    def gap(self) -> float:
        """The largest bound."""
        return max((row.bound for row in self.rows), default=0.0)

    @property
    def excess(self) -> float:
        """What must be added to the tolerances for the statement to hold."""
        return max((row.bound - row.tolerance for row in self.rows), default=0.0)

    @property
    def satisfied(self) -> bool:
        """Whether the tolerances themselves hold with this confidence."""
        return self.excess <= 0.0

    @property
    def widest(self) -> GapBound:
        """The row that exceeds its tolerance most, or comes nearest to it."""
        return max(self.rows, key=lambda row: row.bound - row.tolerance)

    def __str__(self) -> str:
        if not self.rows:
            return "Nothing is compared, so nothing is stated."
        gaps = "the gap is" if len(self.rows) == 1 else f"all {len(self.rows)} gaps are"
        size = "within tolerance" if self.satisfied else f"at most {self.excess:.4g} beyond tolerance"
        row = self.widest
        return (
            f"With {100 * self.confidence:g} % confidence, {gaps} {size} ({self.samples} samples, and {self.fitted_on} "
            f"others for the fit). Widest: {row.row}, measured {row.measured:.4g}, at most {row.bound:.4g}, tolerance "
            f"{row.tolerance:g}."
        )

    def too_small(self, fitted: str) -> str:
        """What to do where even a fit for equal groups cannot be certified. fitted: what was, such as "shifts"."""
        row, total = self.widest, self.fitted_on + self.samples
        remedy = "raise the tolerance, or lower the confidence"
        if row.tolerance > 0.0 and math.isfinite(row.bound):  # both gap and interval shrink with the root of the size
            remedy = (
                f"about {math.ceil(1.1 * (row.bound / row.tolerance) ** 2 * total)} samples are needed; or {remedy}"
            )
        return (
            f"The calibration sample of {total} is too small for the tolerances to hold with "
            f"{100 * self.confidence:g} % confidence, even with {fitted} fitted for equal groups: {row.row} may be up "
            f"to {row.bound:.4g}, tolerance {row.tolerance:g}. Remedy: {remedy}."
        )


def gap_bounds(
    view: PresentRows, tolerances: np.ndarray, moments: Moments, rates: bool, confidence: float, end: str = ""
) -> tuple[GapBound, ...]:
    """What the moments of groups say of every row. rates: of decisions, rather than means; end: of the names."""
    if not view.names:
        return ()
    plus, minus, paired = view.plus, view.minus, view.minus >= 0
    relative = np.zeros(len(plus), dtype=bool) if view.relative is None else view.relative
    compared = Comparisons(plus, minus, np.full(len(plus), rates), relative)
    with np.errstate(divide="ignore", invalid="ignore"):  # groups of nobody
        ends = simultaneous(moments, compared, view.family, confidence)
    span, reach = moments.high - moments.low, np.maximum(np.abs(moments.low), np.abs(moments.high))
    farthest = np.where(relative, 1.0, np.where(paired, span[plus], reach[plus]))
    known = (moments.n[plus] >= 2) & (moments.n[np.where(paired, minus, plus)] >= 2)
    bound = np.where(known, np.minimum(np.abs(ends).max(axis=0), farthest), farthest)
    numbers = (part.tolist() for part in (tolerances, np.abs(view.values(moments.mean)), bound))
    return tuple(GapBound(name + end, *row) for name, *row in zip(view.names, *numbers, strict=True))


def moments_of(values: np.ndarray, member: np.ndarray, low: np.ndarray, high: np.ndarray) -> Moments:
    """Of values (n, K), or (n, 1), averaged over K groups with memberships (n, K) as weights."""
    weight, squared = member.sum(axis=0), (member**2).sum(axis=0)
    mean = (member * values).sum(axis=0) / np.where(weight > 0, weight, 1.0)
    scatter = (member**2 * (values - mean) ** 2).sum(axis=0)
    return Moments(effective_count(weight, squared), mean, scatter / np.where(squared > 0, squared, 1.0), low, high)
