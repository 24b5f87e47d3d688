"""Scores and decisions: what it takes to turn a decision around, and scores that say what was decided.

A score at the threshold or above says yes. Whoever must say yes gets the threshold itself, in the dtype of the scores;
whoever must say no the number just below it. So decisions taken from the returned scores are the promised ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.binding.bounds import Box
from fairlayer.decisions.cost import Costs
from fairlayer.errors import InputError


class Turns(NamedTuple):
    """Samples, their decisions, and what it takes to turn them around."""

    yes: np.ndarray  # (n,) decisions of the scores as they are, within their bounds
    target: np.ndarray  # (n,) the nearest score that says the opposite
    change: np.ndarray  # (n,) what going there adds to the squared change; infinite where bounds forbid it


def threshold_in(threshold: float, dtype: torch.dtype) -> tuple[float, float]:
    """The threshold as scores of a dtype have it, and the number just below."""
    if dtype == torch.bfloat16:
        at = torch.tensor(threshold, dtype=dtype)
        low = float(torch.nextafter(at, torch.tensor(-torch.inf, dtype=dtype)))
        numbers = float(at), low
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
    change = np.maximum((target - scores) ** 2 - (inside - scores) ** 2, 0.0)
    return Turns(yes, target, np.where((target >= lo) & (target <= hi), change, np.inf))


def decide(yes: np.ndarray, costs: Costs, yeses: np.ndarray) -> np.ndarray:
    """(n,) the decisions, given the number of yeses of each unit; those of samples in no unit stay as they are."""
    decided = yes.copy()
    rank = np.arange(len(costs.order)) - np.repeat(np.cumsum(costs.size) - costs.size, costs.size)
    decided[costs.order] = rank < np.repeat(yeses, costs.size)
    return decided


def count_ties(scores: np.ndarray, costs: Costs, yeses: np.ndarray) -> int:
    """People whose decision differs from that of somebody in their unit with the same score."""
    end = np.cumsum(costs.size)
    ties = 0
    for begin, stop, count in zip((end - costs.size).tolist(), end.tolist(), yeses.tolist(), strict=True):
        if 0 < count < stop - begin:
            own = scores[costs.order[begin:stop]]
            if own[count - 1] == own[count]:
                ties += int((own == own[count]).sum())
    return ties


def write_scores(z: Tensor, box: Box, moved: np.ndarray, target: np.ndarray) -> Tensor:
    """The scores, within their bounds, those that are moved at their targets: as a function of z and of the bounds.

    A score that is moved has no derivative with respect to z, as one that a bound holds has none; others have 1.
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
