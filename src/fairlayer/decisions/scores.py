"""Scores and decisions: what it costs to turn a decision, and scores that say what was decided.

A decision is y >= threshold, in the dtype of y. A score that must say yes becomes the threshold itself, in that dtype,
and one that must say no the number just below it. So decisions taken from the returned scores are the promised ones.

A turned decision costs its squared distance plus 1e-6 times the squared range of the scores (1 where all are equal).
Without the second term turning a score that lies on the threshold would cost nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.errors import InputError
from fairlayer.problem.bounds import Box

TURN = 1e-6  # of the squared range of the scores: the cost of a turned decision, however near to the threshold


class Turns(NamedTuple):
    """Samples, their decisions, and what it takes to turn them."""

    yes: np.ndarray  # (n,) decisions of the scores as they are, within their bounds
    target: np.ndarray  # (n,) the nearest score that says the opposite
    change: np.ndarray  # (n,) what going there costs, above 0; infinite where bounds forbid it
    unit: float  # of these costs, in squared scores


def threshold_in(threshold: float, dtype: torch.dtype) -> tuple[float, float]:
    """The threshold as scores of a dtype have it, and the number just below."""
    if dtype == torch.bfloat16:
        at = torch.tensor(threshold, dtype=dtype)
        numbers = float(at), float(torch.nextafter(at, torch.tensor(-torch.inf, dtype=dtype)))
    else:
        kind: Any = {torch.float16: np.float16, torch.float32: np.float32, torch.float64: np.float64}[dtype]
        with np.errstate(over="ignore"):
            rounded = kind(threshold)
            numbers = float(rounded), float(np.nextafter(rounded, kind(-np.inf)))
    if not np.isfinite(numbers).all():
        raise InputError(f"threshold {threshold:g} is beyond the range of {dtype}: use float64.")
    return numbers


def read_turns(z: Tensor, box: Box, threshold: float) -> Turns:
    """What the scores say, and what the opposite would cost."""
    at, below = threshold_in(threshold, z.dtype)
    scores = z.detach().double().cpu().numpy()
    wrong = ~np.isfinite(scores)
    if wrong.any():
        position = int(wrong.argmax())
        raise InputError(f"z[{position}] is {scores[position]}: outputs must be finite.")
    lo, hi = box.lo.astype(np.float64), box.hi.astype(np.float64)
    inside = np.clip(scores, lo, hi)
    yes = inside >= at
    target = np.where(yes, below, at)
    # Halves, as the difference of two floats may be beyond their range.
    reach = float(0.5 * scores.max() - 0.5 * scores.min()) or 0.5
    unit = max(reach, float(np.abs(0.5 * target - 0.5 * scores).max()))
    far, near = (((0.5 * end - 0.5 * scores) / unit) ** 2 for end in (target, inside))
    change = np.maximum(far - near, 0.0) + TURN * (reach / unit) ** 2
    return Turns(yes, target, np.where((target >= lo) & (target <= hi), change, np.inf), 4.0 * unit * unit)


def write_scores(z: Tensor, box: Box, moved: np.ndarray, target: np.ndarray) -> Tensor:
    """The scores within their bounds, those that are moved at their targets, as a function of z and of the bounds.

    A score that is moved has no derivative with respect to z, nor has one that a bound holds; others have 1.
    """
    lo, hi = (torch.from_numpy(side.astype(np.float64)).to(z.device, z.dtype) for side in (box.lo, box.hi))
    value = z
    for side, tensor, beyond in ((lo, box.lo_tensor, z < lo), (hi, box.hi_tensor, z > hi)):
        if tensor is not None:
            bound = tensor.to(z.device, z.dtype)
            side = side + (bound - bound.detach())
        if tensor is not None or bool(beyond.any()):
            value = torch.where(beyond, side, value)
    there = torch.from_numpy(target).to(z.device, z.dtype)
    return torch.where(torch.from_numpy(moved).to(z.device), there, value)
