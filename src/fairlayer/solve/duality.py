"""How much nearer an output could be, by weak duality. Whatever the multipliers nu of the statistics q,

    sum_i w_i (y_i - z_i)^2  >=  min over x within bounds of  sum_i w_i (x_i - z_i)^2 + 2 nu'q(x),
                                 less the most that rows allow 2 nu'q to be,

for every output y that satisfies rows and bounds. It is worked out in twice the precision, from the multipliers that
are reported.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box
from fairlayer.binding.row_plan import carried
from fairlayer.binding.rows import EACH
from fairlayer.binding.system import System
from fairlayer.solve.interior import entry_cells, exact_means, power_to_one
from fairlayer.solve.twofold import Twofold


def distances(z: np.ndarray, y: np.ndarray, system: System, box: Box, nu: np.ndarray) -> tuple[float, float]:
    """The distance of y from z by weight, and one below which no output satisfies rows and bounds.

    z, y: (n,) float64; nu: (K,) multipliers of the statistics.
    """
    weight = system.weights if len(system.weights) else np.ones(len(z))
    some = weight > 0.0
    unit = power_to_one(max(np.abs(z).max(initial=0.0), np.abs(y).max(initial=0.0)))
    heaviest = power_to_one(weight.max(initial=0.0))
    w, z = Twofold(weight[some] * heaviest), z[some] * unit
    lo, hi = (np.broadcast_to(side.astype(np.float64) * unit, len(y))[some] for side in (box.lo, box.hi))
    means, (price, allowed) = exact_means(system), _prices(system, nu * heaviest * unit, unit)
    shift = means.value * (1.0 / heaviest) * price[system.rows.statistic]
    shift = shift.sums(entry_cells(system), len(system.weight))[as_numpy(system.cell).astype(np.int64)[some]]
    nearest = Twofold(z) - shift
    nearest = nearest.where(nearest.high > lo, lo)
    nearest = nearest.where(nearest.high < hi, hi)
    moved = nearest - z
    least = _total(w * moved * moved, w * shift * nearest * 2.0, price * means.offset * (-2.0 * unit), allowed)
    moved = Twofold(y[some] * unit) - z
    reached = _total(w * moved * moved)
    back = 1.0 / (unit * math.sqrt(heaviest))
    return math.sqrt(reached) * back, math.sqrt(max(least, 0.0)) * back if math.isfinite(least) else 0.0


def _prices(system: System, nu: np.ndarray, unit: float) -> tuple[Twofold, Twofold]:
    """(K,) what is asked for each statistic, such that those of a family balance; and less twice what rows allow."""
    rows, (lower, upper) = system.rows, system.stated
    rises: list[tuple[int, float, float]] = []  # statistic, factor, multiplier
    limits: list[tuple[float, float]] = []  # multiplier, and the most that its row can be
    for f, (begin, end) in enumerate(pairwise(rows.first.tolist())):
        if rows.kind[f] == EACH:
            own = float(nu[begin])
            rises.append((begin, 1.0, own))
            limits += [(own, float(upper[f] if own > 0.0 else lower[f]))] if own else []
            continue
        for a, b, own in carried(nu, range(begin, end), float(rows.ratio[f])):
            rises += [(a, float(rows.ratio[f]), own), (b, -1.0, own)]
            limits.append((own, float(upper[f])))
    place, factor, amount = np.array(rises).reshape(-1, 3).T.copy()
    price = (Twofold(factor) * amount).sums(place.astype(np.int64), len(nu))
    amount, limit = np.array(limits).reshape(-1, 2).T.copy()
    return price, Twofold(amount) * limit * (-2.0 * unit)


def _total(*parts: Twofold) -> float:
    """The sum of all numbers."""
    every = Twofold(np.concatenate([part.high for part in parts]), np.concatenate([part.low for part in parts]))
    total = every.sums(np.zeros(len(every), dtype=np.int64), 1)
    return float(total.high[0] + total.low[0])
