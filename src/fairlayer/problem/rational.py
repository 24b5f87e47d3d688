"""The last word on rows that rounding leaves in doubt: rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.problem.exact_sums import whole_cell_sums
from fairlayer.problem.rows import EACH
from fairlayer.problem.system import System

MOST_ENTRIES = 50_000  # of M, up to which rows are worked out in rational arithmetic
_NO_WEIGHTS = np.zeros(0)


def exact_statistics(value: Any, system: System) -> list[Fraction] | None:
    """(K,) the statistics of outputs, of any kind; None where there is too much to work out."""
    rows, plan = system.rows, system.view.plan
    if len(rows.value) > MOST_ENTRIES:
        return None
    cell, size = system.cell, len(system.weight)

    def sums(values: Any, weights: np.ndarray) -> list[int]:
        return whole_cell_sums(values, cell, weights, size)

    # In units of 2^-1074, once more where there are weights: of quotients, 2^-1074 is left either way.
    outputs = sums(as_numpy(value), system.weights)
    weight = sums(system.weights, _NO_WEIGHTS) if len(system.weights) else system.samples.astype(int).tolist()
    residuals = outputs
    if system.targets is not None:
        of_targets = sums(system.targets, system.weights)
        residuals = [a - b for a, b in zip(outputs, of_targets, strict=True)]
    total: list[Any] = [0] * len(rows.offset)
    share: list[Any] = [0] * len(rows.offset)
    parts = [1 if part == 1.0 else Fraction(part) for part in plan.share.tolist()]
    for c, (begin, end) in enumerate(pairwise(rows.start.tolist())):
        for k, part in zip(rows.statistic[begin:end].tolist(), parts[begin:end], strict=True):
            if plan.is_matrix[k]:
                total[k] += part * Fraction(outputs[c], weight[c])
                share[k] = 1
            else:
                total[k] += part * (residuals[c] if plan.residual[k] else outputs[c])
                share[k] += part * weight[c]
    return [Fraction(a, b) / 2**1074 if b else Fraction(0) for a, b in zip(total, share, strict=True)]


def exact_shortfalls(value: np.ndarray, system: System, missed: np.ndarray) -> np.ndarray:
    """(F,) by how much each family is missed, its sign exact; `missed`, which may be too much, if there is too much."""
    rows, (lower, upper) = system.rows, system.stated
    q = exact_statistics(value, system)
    if q is None:
        return missed
    beyond = [-np.inf] * len(rows.kind)
    for f, (begin, end) in enumerate(pairwise(rows.first.tolist())):
        here = [q[k] for k in range(begin, end) if rows.present[k]]
        if rows.kind[f] == EACH and here:
            sides = [here[0] - Fraction(upper[f])] if np.isfinite(upper[f]) else []
            sides += [Fraction(lower[f]) - here[0]] if np.isfinite(lower[f]) else []
            beyond[f] = _signed(max(sides)) if sides else -np.inf
        elif len(here) > 1:
            beyond[f] = _signed(Fraction(rows.ratio[f]) * max(here) - min(here) - Fraction(upper[f]))
    return np.array(beyond)


def _signed(value: Fraction) -> float:
    """As a float that is positive only where the fraction is."""
    number = float(value)
    return np.nextafter(0.0, 1.0) if number == 0.0 and value > 0 else number
