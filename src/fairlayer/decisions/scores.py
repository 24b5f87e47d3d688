"""Scores and decisions: what it costs to turn a decision, scores that say what was decided, and their derivative.

A decision is y >= threshold, in the dtype of y. A score that must say yes becomes the threshold itself, in that dtype,
and one that must say no the number just below it. So decisions taken from the returned scores are the promised ones.

A turned decision costs its squared distance plus 1e-6 times the squared range of the scores (1 where all are equal).
Without the second term turning a score that lies on the threshold would cost nothing.

The exact derivative of a score that was moved across the threshold is 0: a network learns nothing from it. A smooth
stand-in, the *surrogate*, takes rates for means of sigmoid((y - threshold) / temperature), and the comparisons that
bind for held: a step of the scores is projected onto those that leave the held differences of these rates as they are,

    dy = dz - A' (A A')^+ A dz,    A the gradients of the held rows.

Gradients follow every score, except along the direction in which the rates would drift apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.errors import InputError
from fairlayer.problem.bounds import Box
from fairlayer.problem.system import System

TURN = 1e-6  # of the squared range of the scores: the cost of a turned decision, however near to the threshold


class Turns(NamedTuple):
    """Samples, their decisions, and what it takes to turn them."""

    yes: np.ndarray  # (n,) decisions of the scores as they are, within their bounds
    target: np.ndarray  # (n,) the nearest score that says the opposite
    change: np.ndarray  # (n,) what going there costs, above 0; infinite where bounds forbid it
    unit: float  # of these costs, in squared scores


def threshold_in(threshold: float, dtype: torch.dtype) -> tuple[float, float]:
    """The threshold as scores of a dtype have it, and the number just below."""
    at = torch.tensor(threshold, dtype=torch.float64).to(dtype)
    numbers = float(at), float(torch.nextafter(at, at.new_tensor(-torch.inf)))
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


def check_surrogate(surrogate: str | None, temperature: float) -> None:
    """Refuse what is no surrogate."""
    if surrogate not in (None, "sigmoid"):
        raise InputError(f"surrogate must be None or 'sigmoid'; got {surrogate!r}.")
    if not (isinstance(temperature, float | int) and 0.0 < temperature < np.inf):
        raise InputError(f"temperature must be a finite number above 0, such as 0.1; got {temperature!r}.")


def follow(
    z: Tensor, value: Tensor, rows: Sequence[np.ndarray], weights: np.ndarray, at: float, warmth: float
) -> Tensor:
    """`value`, with the stand-in for its derivative.

    rows: (n,) each, what every sample counts towards a difference of rates that is held. at: the threshold; warmth: the
    temperature.
    """
    step = z.double()
    if rows:
        soft = torch.sigmoid((z.detach().double() - at) / warmth)
        slope = soft * (1.0 - soft) / warmth
        weight = torch.from_numpy(weights).to(z.device) if len(weights) else torch.ones_like(slope)
        A = torch.from_numpy(np.stack(rows)).to(z.device) * slope
        pull = (A / weight).T @ torch.linalg.pinv((A / weight) @ A.T, rcond=1e-10, hermitian=True)
        step = step - pull @ (A @ step)
    step = step.to(z.dtype)
    return value.detach() + (step - step.detach())


def binding_rows(system: System, yes: np.ndarray, decided: np.ndarray, rates: np.ndarray) -> list[np.ndarray]:
    """The comparisons that moved somebody: of each family, groups at its upper end against those at the lower.

    yes, decided: (n,) decisions before and after; rates: (K,) after. Returns (n,) each, what every sample counts
    towards coefficient * rate(upper) - rate(lower).
    """
    plan, cell, held = system.view.plan, as_numpy(system.cell), []
    weight = system.weights if len(system.weights) else np.ones(len(cell))
    for family, begin in zip(plan.families, plan.begin.tolist(), strict=False):
        group = family.member[cell]
        size = np.bincount(group[group >= 0], weight[group >= 0], len(family.groups))
        there = np.flatnonzero(size > 0)
        up, down = (
            np.unique(group[(group >= 0) & (decided != yes) & (decided == to)]).tolist() for to in (True, False)
        )
        if len(there) < 2 or not (up or down):
            continue
        of = rates[begin : begin + len(family.groups)]
        upper = down or [int(there[of[there].argmax()])]
        lower = [g for g in up if g not in upper] or [int(there[of[there].argmin()])]
        pairs = [(upper[0], g) for g in lower] + [(g, lower[0]) for g in upper[1:]]
        share = {g: weight * (group == g) / size[g] for pair in pairs for g in pair}
        held += [family.coefficient * share[a] - share[b] for a, b in pairs if a != b]
    return held
