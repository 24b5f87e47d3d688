"""The last word on rows that rounding leaves in doubt: rational arithmetic, and a search among the dtype's numbers.

Where a tolerance is as fine as the output's dtype, the nearest output has to be found among the numbers that there are.
All outputs are taken to the grid of the largest of them, on which sums are whole numbers, and a small integer programme
over the cells says by how many steps of the grid each cell sum must move.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from fairlayer.arrays import as_numpy
from fairlayer.binding.exact_sums import exact_cell_sums
from fairlayer.binding.rows import DIFFERENCE, EACH
from fairlayer.binding.system import System

MOST_ENTRIES = 50_000  # of M, up to which rows are worked out in rational arithmetic
_MOST_CELLS = 400
_SECONDS = 1.0


def exact_shortfalls(value: np.ndarray, system: System, missed: np.ndarray) -> np.ndarray:
    """(F,) by how much each family is missed, its sign exact; `missed`, which may be too much, if there is too much."""
    rows, plan = system.rows, system.view.plan
    if len(rows.value) > MOST_ENTRIES:
        return missed
    cell, size = as_numpy(system.cell).astype(np.int32), len(system.weight)
    sums = exact_cell_sums(value, cell, system.weights, size)
    weight = [Fraction(one) for one in system.samples.tolist()]
    if len(system.weights):
        weight = exact_cell_sums(system.weights, cell, np.empty(0), size)
    zero = [Fraction(0)] * size
    targets = zero if system.targets is None else exact_cell_sums(system.targets, cell, system.weights, size)
    total, share = [Fraction(0)] * len(rows.offset), [Fraction(0)] * len(rows.offset)
    for c in range(size):
        for e in range(rows.start[c], rows.start[c + 1]):
            k, part = rows.statistic[e], Fraction(float(plan.share[e]))
            if plan.is_matrix[k]:
                total[k] += part * sums[c] / weight[c]
                share[k] = Fraction(1)
            else:
                total[k] += part * (sums[c] - targets[c] if plan.residual[k] else sums[c])
                share[k] += part * weight[c]
    q = [a / b if b else Fraction(0) for a, b in zip(total, share, strict=True)]
    lower, upper = system.stated
    beyond = [-np.inf] * len(rows.kind)
    for f, (begin, end) in enumerate(zip(rows.first[:-1].tolist(), rows.first[1:].tolist(), strict=True)):
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


def search_grid(value: np.ndarray, system: System, lo: np.ndarray, hi: np.ndarray) -> np.ndarray | None:
    """Outputs near `value`, in its dtype and within bounds, whose group means are equal to the last digit; or None.

    For samples of equal weight whose outputs, not residuals, are compared.
    """
    rows, plan = system.rows, system.view.plan
    if len(system.weights) or plan.any_residual or plan.matrices or len(system.weight) > _MOST_CELLS:
        return None
    if (rows.kind != DIFFERENCE).any() or (plan.share != 1.0).any() or not np.abs(value).max(initial=0.0):
        return None
    cell = as_numpy(system.cell)
    step = float(np.spacing(np.abs(value).max()))
    low, high = (np.broadcast_to(side.astype(np.float64) / step, len(value)) for side in (lo, hi))
    low, high = np.ceil(np.maximum(low, -(2.0**52))), np.floor(np.minimum(high, 2.0**52))
    whole = np.clip(np.round(value.astype(np.float64) / step), low, high)
    middle = np.round(whole.mean())
    sums = np.bincount(cell, weights=whole - middle, minlength=len(system.weight))
    room_down = np.bincount(cell, weights=whole - low, minlength=len(sums))
    room_up = np.bincount(cell, weights=high - whole, minlength=len(sums))
    move = _moves(system, sums, room_down, room_up)
    if move is None:
        return None
    for c in np.flatnonzero(move):
        _spread(whole, np.flatnonzero(cell == c), int(move[c]), low, high)
    return (whole * step).astype(value.dtype)


def _moves(system: System, sums: np.ndarray, down: np.ndarray, up: np.ndarray) -> np.ndarray | None:
    """By how many steps each cell sum must move for all groups to have the same mean: as few as can be."""
    rows, G = system.rows, len(sums)
    at = np.repeat(np.arange(G), np.diff(rows.start))
    member = csr_array((np.ones(len(at)), (rows.statistic, at)), shape=(len(rows.offset), G))[rows.present.nonzero()[0]]
    needed = -(member @ sums)
    both = csr_array(np.hstack([member.toarray(), -member.toarray()]))  # up and down
    limit = np.concatenate([np.minimum(up, 2.0**30), np.minimum(down, 2.0**30)])
    answer = milp(
        np.ones(2 * G),
        constraints=LinearConstraint(both, needed, needed),
        bounds=Bounds(0.0, limit),
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
