"""How much nearer an output could be, by weak duality. Whatever the multipliers nu of the statistics q,

    sum_i w_i (y_i - z_i)^2  >=  min over x within bounds of  sum_i w_i (x_i - z_i)^2 + 2 nu'q(x),
                                 less the most that rows allow 2 nu'q to be,

for every output y that satisfies rows and bounds. Rows are aimed inside their bounds by what rounding is likely to move
them, which costs next to nothing as a rule; where it may have cost more, this says how much at most.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch

from fairlayer.core._native import NEARLY
from fairlayer.problem.bounds import Box
from fairlayer.problem.exact_sums import UNIT
from fairlayer.problem.row_plan import carried
from fairlayer.problem.rows import EACH
from fairlayer.problem.system import System


def optimality_gap(z: np.ndarray, y: np.ndarray, system: System, box: Box, nu: np.ndarray, dtype: torch.dtype) -> float:
    """By how much the squared change of y may exceed the least; 0 where the rounding of outputs is the reason.

    z, y: (n,) float64; nu: (K,) multipliers of the statistics; dtype: of the output.
    """
    distance, least, size = _distances(z, y, system, box, nu)
    if distance <= least * (1.0 + NEARLY) + torch.finfo(dtype).eps / 2 * size:
        return 0.0
    # It is about the bounds as they were stated, not as they were rounded to the dtype.
    _, least, _ = _distances(z, y, system, box.wider(dtype), nu)
    return (distance - least) * (distance + least) * (1.0 + 1e-9)


def _distances(z: np.ndarray, y: np.ndarray, system: System, box: Box, nu: np.ndarray) -> tuple[float, float, float]:
    """Of y from z by weight, one below which no output satisfies rows and bounds, and of y from 0."""
    rows, (lower, upper) = system.rows, system.stated
    weight = system.weights if len(system.weights) else np.ones(len(z))
    unit = (
        max(np.abs(z).max(initial=0.0), np.abs(y).max(initial=0.0)) or 1.0
    )  # squares may be beyond the range of floats
    heaviest = weight.max(initial=0.0) or 1.0
    w, z, y = weight / heaviest, z / unit, y / unit
    lo, hi = (np.broadcast_to(side.astype(np.float64) / unit, len(z)) for side in (box.lo, box.hi))
    price, allowed = np.zeros(len(nu)), [0.0]
    for f, (begin, end) in enumerate(pairwise(rows.first.tolist())):
        scaled = nu / (heaviest * unit)
        if rows.kind[f] == EACH:
            own = float(scaled[begin])
            price[begin] = own
            allowed += [own * float(upper[f] if own > 0.0 else lower[f]) / unit] if own else []
            continue
        ratio = float(rows.ratio[f])
        for a, b, amount in carried(scaled, range(begin, end), ratio):
            price[a] += ratio * amount
            price[b] -= amount
            allowed.append(amount * float(upper[f]) / unit)
    entry = rows.entry_cell
    parts = heaviest * rows.value * price[rows.statistic]
    shift, effort = (np.bincount(entry, weights=each, minlength=len(rows.start) - 1) for each in (parts, np.abs(parts)))
    shift, effort = shift[system.cell], effort[system.cell]
    nearest = np.clip(z - shift, lo, hi)
    terms = np.concatenate([
        w * (nearest - z) ** 2, 2.0 * w * shift * nearest, -2.0 * price * rows.offset / unit, -2.0 * np.array(allowed)
    ])  # fmt: skip
    rounding = 32.0 * UNIT * (np.abs(terms).sum() + (w * effort * (np.abs(nearest) + np.abs(z))).sum())
    least = math.fsum(terms.tolist()) - rounding if np.isfinite(terms).all() and math.isfinite(rounding) else 0.0
    back = unit * math.sqrt(heaviest)
    reached = math.fsum((w * (y - z) ** 2).tolist())
    return math.sqrt(reached) * back, math.sqrt(max(least, 0.0)) * back, math.sqrt(float(w @ y**2)) * back
