"""How near an answer is to the optimum, by weak duality: no solver to trust, and any multipliers will do.

Whatever the multipliers mu of the rows, sum_i w_i (y_i - z_i)^2 / 2 of every output y that satisfies rows and bounds is
at least

    min over y within its bounds of  sum_i w_i (y_i - z_i)^2 / 2 + mu'(A y)
    less  sum_j max(mu_j lower_j, mu_j upper_j),

which is worked out here sample by sample with 120 digits. Given the multipliers of a solution it bounds from below how
far any output must move, and a solution that moves no further is optimal.
"""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from typing import Any

import numpy as np
import torch

from formulas import Problem, plain

_DIGITS = Context(prec=120, Emax=MAX_EMAX, Emin=MIN_EMIN)


def least_distance(problem: Problem, multipliers: Any) -> float:
    """A lower bound on sqrt(sum_i w_i (y_i - z_i)^2) over all outputs that satisfy rows and bounds."""
    with localcontext(_DIGITS):
        return float(max(2 * _dual(problem, plain(multipliers)), Decimal(0)).sqrt())


def distance(problem: Problem, y: np.ndarray) -> float:
    """The distance from the problem's outputs, by weight."""
    with localcontext(_DIGITS):
        z, w = _decimals(problem.z), _decimals(problem.sample_weights())
        return float(sum((b * (a - c) ** 2 for a, b, c in zip(_decimals(y), w, z, strict=True)), Decimal(0)).sqrt())


def rounding_norm(problem: Problem, y: np.ndarray, dtype: torch.dtype) -> float:
    """Half an ulp of every output, as a distance: what rounding them to their dtype may move."""
    half = 0.5 * torch.finfo(dtype).eps * np.maximum(np.abs(y), torch.finfo(dtype).tiny)
    return float(np.sqrt((problem.sample_weights() * half**2).sum()))


def _decimals(values: Any) -> list[Decimal]:
    return [Decimal(value) for value in np.asarray(values, dtype=np.float64).tolist()]


def _dual(problem: Problem, mu: np.ndarray) -> Decimal:
    n = len(problem.z)
    z, w = _decimals(problem.z), _decimals(problem.sample_weights())
    lo, hi = (_decimals(side) for side in problem.box())
    price: dict[int, Decimal] = {}  # of each statistic
    found: dict[int, Any] = {}
    total = Decimal(0)
    for row, m in zip(problem.rows, mu.tolist(), strict=True):
        if m == 0.0:
            continue
        total -= Decimal(m) * Decimal(row.upper if m > 0 else row.lower)
        for statistic, sign in ((row.plus, 1), (row.minus, -1)):
            if statistic is not None:
                found[id(statistic)] = statistic
                price[id(statistic)] = price.get(id(statistic), Decimal(0)) + sign * Decimal(m)
    shift = [Decimal(0)] * n
    for key, statistic in found.items():
        factors = [_decimals(factor[statistic.support]) for factor in statistic.factors]
        product = factors[0]
        for factor in factors[1:]:
            product = [a * b for a, b in zip(product, factor, strict=True)]
        each = price[key] / sum(product) if statistic.normalised else price[key]
        for i, amount in zip(statistic.support.tolist(), product, strict=True):
            shift[i] += each * amount
            if statistic.targets is not None:
                total -= each * amount * Decimal(float(statistic.targets[i]))
    for i in range(n):
        if w[i] == 0:
            continue
        y = min(max(z[i] - shift[i] / w[i], lo[i]), hi[i])
        total += w[i] * (y - z[i]) ** 2 / 2 + shift[i] * y
    return total
