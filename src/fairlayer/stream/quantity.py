"""What a stream keeps the sums of: its outputs, or the decisions that follow from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fairlayer.binding.bounds import Box
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.errors import InputError


class Quantity(NamedTuple):
    """Outputs where there is no threshold; otherwise decisions, 1 for an output at or above it and 0 below."""

    threshold: float | None

    @classmethod
    def of(cls, rules: ConstraintSet) -> Quantity:
        """What these constraints are about, all of them; refuse what a stream cannot keep together."""
        about = {constraint.quantity == "decision" for constraint in rules.constraints}
        if about != {True}:
            if True in about:
                raise InputError(
                    "constraints of a stream are about decisions or about means, not both: a score that is moved "
                    "across the threshold moves the mean too. Make two streams, or keep one of the constraints."
                )
            return cls(None)
        waiting = next((constraint for constraint in rules.constraints if constraint.needs_targets), None)
        if waiting is not None:
            raise InputError(
                f"constraints: given={waiting.given!r} compares those with the same target, which a stream "  # type: ignore[attr-defined]
                "does not know when it decides, and a decision is final. Leave `given` out, or use EqualizedOdds, "
                "which a stream keeps on scores; with known targets use `project`."
            )
        thresholds = {float(constraint.threshold) for constraint in rules.constraints}  # type: ignore[attr-defined]
        if len(thresholds) > 1:
            raise InputError(f"constraints have several thresholds, {sorted(thresholds)}: a stream decides by one.")
        return cls(thresholds.pop())

    @property
    def measure(self) -> str:
        """What is compared of groups, in a word."""
        return "mean" if self.threshold is None else "rate"

    def measured(self, values: np.ndarray) -> np.ndarray:
        """(n,) what is summed of these outputs."""
        return values if self.threshold is None else (values >= np.float64(self.threshold)).astype(np.float64)

    def check_bounds(self, low: float, high: float) -> None:
        """Refuse bounds that leave no room for a yes or for a no."""
        if self.threshold is not None and not low < self.threshold <= high:
            raise InputError(
                f"threshold is {self.threshold:g}, and bounds are ({low:g}, {high:g}): a stream of decisions needs "
                "room on both sides of it."
            )


def decided_scores(raw: np.ndarray, yes: np.ndarray, threshold: float, box: Box) -> np.ndarray:
    """(n,) the scores nearest to the raw ones from which these decisions follow, within bounds.

    They follow whether a score is compared with the threshold as it is, or as its own dtype rounds it.
    """
    low, high = sides(threshold, raw.dtype)
    within = np.clip(raw, box.lo, box.hi)
    return np.where(yes, np.maximum(within, high), np.minimum(within, low)).astype(raw.dtype, copy=False)


def check_sides(threshold: float, dtype: np.dtype[Any], box: Box) -> None:
    """Refuse outputs of a dtype that leaves no room for a yes or for a no."""
    low, high = sides(threshold, dtype)
    if high > box.highest or low < box.lowest:
        raise InputError(
            f"z holds {dtype}, which has no number within bounds ({box.lowest:g}, {box.highest:g}) on both sides of "
            f"the threshold {threshold:g}: pass float64, or widen the bounds."
        )


def sides(threshold: float, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """The numbers next to a threshold, in a dtype: the largest that is a no, and the least that is a yes."""
    near = dtype.type(threshold)
    above = near if float(near) >= threshold else np.nextafter(near, dtype.type(np.inf))
    return np.nextafter(near, dtype.type(-np.inf)), above
