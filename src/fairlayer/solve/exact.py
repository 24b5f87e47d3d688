"""The last word on rows that rounding leaves in doubt: rational arithmetic, and a search among the dtype's numbers.

Where a tolerance is as fine as the output's dtype, the nearest output has to be found among the numbers that there are.
All outputs are taken to the grid of the largest of them, on which sums are whole numbers, and a small integer programme
over the cells says by how many steps of the grid each cell sum must move.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import scipy  # whose parts load when they are used
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box
from fairlayer.binding.exact_sums import cell_limbs, whole_numbers
from fairlayer.binding.rows import DIFFERENCE, EACH, RATIO
from fairlayer.binding.system import System

MOST_ENTRIES = 50_000  # of M, up to which rows are worked out in rational arithmetic
_MOST_CELLS = 400
_NO_WEIGHTS = np.zeros(0)
_SECONDS = 0.5


def exact_statistics(value: Any, system: System) -> list[Fraction] | None:
    """(K,) the statistics of outputs, of any kind; None where there is too much to work out."""
    system = system.flat()
    rows, plan = system.rows, system.view.plan
    if len(rows.value) > MOST_ENTRIES:
        return None
    cell, size = as_numpy(system.cell).astype(np.int32), len(system.weight)

    def sums(values: Any, weights: np.ndarray) -> list[int]:
        return whole_numbers(cell_limbs(values, cell, weights, size))

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


def search_grid(value: Tensor, system: System, box: Box) -> Tensor | None:
    """Outputs near `value`, in its dtype and within bounds, that satisfy rows finer than its last digits; or None.

    For samples of equal weight.
    """
    rows, plan, n = system.rows, system.view.plan, len(value)
    exact = as_numpy(value).astype(np.float64)
    largest = np.abs(exact).max(initial=0.0)
    if len(system.weights) or plan.matrices or len(system.weight) > _MOST_CELLS or not largest:
        return None
    if (rows.kind == RATIO).any() or (plan.share != 1.0).any():
        return None
    # The grid of the largest output; coarser where sums of its steps would not be whole numbers in float64.
    info = torch.finfo(value.dtype)
    bits = min(-math.log2(info.eps), 50.0 - math.ceil(math.log2(n)))
    step = max(2.0 ** (math.frexp(largest)[1] - 1 - bits), info.tiny * info.eps)  # no number is finer than that
    most = 2.0 ** (bits + 1)
    low, high = (np.broadcast_to(side.astype(np.float64) / step, n) for side in (box.lo, box.hi))
    low, high = np.ceil(np.maximum(low, -most)), np.floor(np.minimum(high, most))
    if (low > high).any():
        return None
    whole = np.clip(np.round(exact / step), low, high)
    cell = as_numpy(system.cell)
    move = _moves(system, cell, whole, low, high, step)
    if move is None or np.abs(move).max(initial=0.0) > 16.0 * n:
        return None
    for c in np.flatnonzero(move):
        _spread(whole, np.flatnonzero(cell == c), int(move[c]), low, high)
    return torch.from_numpy(whole * step).to(dtype=value.dtype, device=value.device)


def _moves(
    system: System, cell: np.ndarray, whole: np.ndarray, low: np.ndarray, high: np.ndarray, step: float
) -> np.ndarray | None:
    """By how many steps each cell sum must move for all rows to hold: as few as can be."""
    rows, G = system.rows, len(system.weight)

    def sums(values: np.ndarray) -> np.ndarray:
        return np.bincount(cell, weights=values, minlength=G)

    at = np.repeat(np.arange(G), np.diff(rows.start))
    member = scipy.sparse.csr_array((np.ones(len(at)), (rows.statistic, at)), shape=(len(rows.offset), G))
    count = member @ system.samples
    # What sums may be, as whole numbers of steps: within half a tolerance of a middle that all have in common.
    found = exact_statistics(whole * step, system)
    if found is None:
        return None
    least, greatest = np.zeros(len(count)), np.zeros(len(count))
    for f, (begin, end) in enumerate(pairwise(rows.first.tolist())):
        lower, upper = (side[f].item() for side in system.stated)
        middle = 0
        if rows.kind[f] == DIFFERENCE:
            lower, upper, together = -0.5 * upper, 0.5 * upper, count[begin:end] @ rows.present[begin:end]
            sums_of = (q * int(c) for q, c in zip(found[begin:end], count[begin:end].tolist(), strict=True))
            middle = round(sum(sums_of, Fraction(0)) / Fraction(step) / int(together)) if together else 0
        for k in range(begin, end):
            beside, size = middle - found[k] / Fraction(step), int(count[k])
            least[k], greatest[k] = -np.inf, np.inf
            if math.isfinite(lower):
                least[k] = math.ceil((beside + Fraction(lower) / Fraction(step)) * size)
            if math.isfinite(upper):
                greatest[k] = math.floor((beside + Fraction(upper) / Fraction(step)) * size)
    some = rows.present & (count > 0)
    if (least > greatest)[some].any():
        return None
    both = member.toarray()[some]
    both = scipy.sparse.csr_array(np.hstack([both, -both]))  # up and down
    limit = np.minimum(np.concatenate([sums(high - whole), sums(whole - low)]), 2.0**30)
    answer = scipy.optimize.milp(
        np.ones(2 * G),
        constraints=scipy.optimize.LinearConstraint(both, least[some], greatest[some]),
        bounds=scipy.optimize.Bounds(0.0, limit),
        integrality=np.ones(2 * G),
        options={"time_limit": _SECONDS},
    )
    return None if answer.x is None else np.round(answer.x[:G] - answer.x[G:])


def _spread(whole: np.ndarray, here: np.ndarray, steps: int, low: np.ndarray, high: np.ndarray) -> None:
    """Share out steps among samples, as evenly as their bounds allow."""
    while steps:
        room = (high - whole)[here] if steps > 0 else (whole - low)[here]
        free = here[room > 0]
        each = max(abs(steps) // len(free), 1)
        sign = 1 if steps > 0 else -1
        for i in free[: abs(steps)]:
            part = min(each, abs(steps), high[i] - whole[i] if sign > 0 else whole[i] - low[i])
            whole[i] += sign * part
            steps -= sign * int(part)
            if not steps:
                break
