"""Tolerances as fine as the dtype: an output on a coarser grid, on which sums are whole numbers.

All outputs are taken to the grid of the largest of them, and a small integer programme over the cells says by how many
steps of the grid each cell sum must move.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import scipy  # whose parts load when they are used
import torch
from torch import Tensor

from fairlayer.problem.bounds import Box
from fairlayer.problem.rational import exact_statistics
from fairlayer.problem.rows import DIFFERENCE, RATIO
from fairlayer.problem.system import System

_MOST_CELLS = 400
_FAR_OFF = 2**100  # steps: a side so far off binds nothing
_MOST_NODES = 200  # of the integer programme: no answer depends on a clock


def search_grid(value: Tensor, system: System, box: Box) -> Tensor | None:
    """Outputs near `value`, in its dtype and within bounds, that satisfy rows finer than its last digits; or None.

    For samples of equal weight.
    """
    rows, plan, n = system.rows, system.view.plan, len(value)
    exact = value.double().numpy()
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
    cell = system.cell
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

    entries = (np.ones(len(rows.value)), (rows.statistic, rows.entry_cell))
    member = scipy.sparse.csr_array(entries, shape=(len(rows.offset), G))
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
                least[k] = max(math.ceil((beside + Fraction(lower) / Fraction(step)) * size), -_FAR_OFF)
            if math.isfinite(upper):
                greatest[k] = min(math.floor((beside + Fraction(upper) / Fraction(step)) * size), _FAR_OFF)
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
        options={"node_limit": _MOST_NODES},
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
