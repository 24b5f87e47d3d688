"""A smooth stand-in for the derivative of moved decisions, for training.

The exact derivative of a score that was moved across the threshold is 0: the network learns nothing from it. The
stand-in takes rates for means of sigmoid((y - threshold) / temperature), and the comparisons that bind for held: a step
of the scores is projected onto those that leave the held differences of these rates as they are,

    dy = dz - A' (A A')^+ A dz,    A the gradients of the held rows.

Gradients follow every score, except along the direction in which the rates would drift apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.errors import InputError
from fairlayer.problem.system import System


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
