"""What a stream keeps the sums of: its outputs, or the decisions that follow from them.

Where there is a threshold it is decisions, 1 for an output at or above it and 0 below.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fairlayer.binding.bounds import Box
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.errors import InputError


def read_threshold(rules: ConstraintSet, low: float, high: float) -> float | None:
    """The threshold of these constraints, None where they are about outputs; refuse what a stream cannot keep together.

    low, high: bounds, which must leave room for a yes and for a no.
    """
    about = {constraint.quantity == "decision" for constraint in rules.constraints}
    if about == {False}:
        return None
    if False in about:
        raise InputError(
            "constraints of a stream are about decisions or about means, not both: a score that is moved across the "
            "threshold moves the mean too. Make two streams, or keep one of the constraints."
        )
    waiting = next((constraint for constraint in rules.constraints if constraint.needs_targets), None)
    if waiting is not None:
        raise InputError(
            f"constraints: given={waiting.given!r} compares those with the same target, which a stream does not know "  # type: ignore[attr-defined]
            "when it decides, and a decision is final. Leave `given` out, or use EqualizedOdds, which a stream keeps "
            "on scores; with known targets use `project`."
        )
    threshold, *others = sorted({float(constraint.threshold) for constraint in rules.constraints})  # type: ignore[attr-defined]
    if others:
        raise InputError(f"constraints have several thresholds, {[threshold, *others]}: a stream decides by one.")
    if not low < threshold <= high:
        raise InputError(
            f"threshold is {threshold:g}, and bounds are ({low:g}, {high:g}): a stream of decisions needs room on both "
            "sides of it."
        )
    return threshold


def measured(values: np.ndarray, threshold: float | None) -> np.ndarray:
    """(n,) what is summed of these outputs."""
    return values if threshold is None else (values >= np.float64(threshold)).astype(np.float64)


def sides(threshold: float, dtype: np.dtype[Any], box: Box) -> tuple[Any, Any]:
    """The numbers next to a threshold, in a dtype: the largest that is a no, and the least that is a yes.

    A dtype that leaves no room for one of them within the bounds is refused.
    """
    near = dtype.type(threshold)
    low = np.nextafter(near, dtype.type(-np.inf))
    high = near if float(near) >= threshold else np.nextafter(near, dtype.type(np.inf))
    if high > box.highest or low < box.lowest:
        raise InputError(
            f"z holds {dtype}, which has no number within bounds ({box.lowest:g}, {box.highest:g}) on both sides of "
            f"the threshold {threshold:g}: pass float64, or widen the bounds."
        )
    return low, high
