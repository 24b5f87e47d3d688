"""The soft step: outputs near the raw ones whose largest gap is priced rather than bounded.

    min_{y, e}  1/2 sum_i w_i (y_i - z_i)^2 + price e  subject to  lower - e <= rows(y) <= upper + e,  lo <= y <= hi,

e down to where the narrowest row is an equality. For rows that share one tolerance it is the largest |gap| up to a
constant: the primal step of the paper's Algorithm 1.

Its multipliers are those of the projection onto rows widened by e, and add up to the price: a cap on them. Their sum
falls as e grows, and does so piecewise linearly, so Newton's method on that one number finds e in a few solves, each
of which starts from the multipliers of the last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box
from fairlayer.binding.exact_sums import UNIT
from fairlayer.binding.rows import EACH, KIND, LOWER, UPPER, Rows, dense
from fairlayer.binding.system import System
from fairlayer.compiled import compiled
from fairlayer.solve.active_set import forward
from fairlayer.solve.driver import DONE, FINISHED, MEASURE, OUTCOME, SUMS, next_request
from fairlayer.solve.families import MINUS, PLUS, M, P, active_rows, largest_excess, pair_gram, worst_row
from fairlayer.solve.loops import BLOCK, gather, measure, start_solve, take_sums, write
from fairlayer.solve.newton import ABSOLUTE, PATIENCE, SHIFT, TRIAL, D, S, factor_rows, gram, statistics
from fairlayer.solve.smooth import SQUARED
from fairlayer.solve.tensors import has_float64

_MOST_SOLVES = 120


@compiled(inline=True)
def _least_excess_possible(rows):
    """The excess at which the narrowest family has become an equality; 0 where every row is open to one side."""
    half = np.inf
    for f in range(rows.family.shape[1]):
        half = min(half, 0.5 * (rows.family[UPPER, f] - rows.family[LOWER, f]))
    return -half if np.isfinite(half) else 0.0


@compiled(inline=True)
def _total(rows, nu):
    """The sum of the multipliers of the rows: of a family, what is carried from one statistic to another."""
    total = 0.0
    for f in range(rows.family.shape[1]):
        for k in range(rows.first[f], rows.first[f + 1]):
            total += abs(nu[k]) if rows.family[KIND, f] == EACH else max(-nu[k], 0.0)
    return total


@compiled(inner=True)
def _decline(rows, nu, slopes):
    """How fast the sum of the multipliers falls as the rows are widened: 1'(A D A')^+ 1, A the active rows."""
    pairs = active_rows(rows, nu)
    active = pairs.shape[1]
    L, used = np.zeros((active, active)), np.zeros(active, dtype=np.int64)
    x = np.ones(factor_rows(gram(rows, slopes), pairs, active, L, used))
    forward(L, x.size, x)
    return np.sum(x**2)


@compiled(inner=True)
def _first_guess(rows, q, slopes, excess, price):
    """The excess if the worst row alone gives way, which it does at the rate of its own Gram entry."""
    H, pairs, guess = gram(rows, slopes), np.zeros((6, 1)), excess
    for f in range(rows.family.shape[1]):
        if worst_row(rows, q, f, pairs, 0) == excess:
            guess = excess - price * pair_gram(H, pairs, 0, 0)
    return guess


@compiled(inline=True)
def _widened(rows, excess):
    family = rows.family.copy()
    for f in range(family.shape[1]):
        family[LOWER, f] -= excess
        family[UPPER, f] += excess
    return Rows(rows.start, rows.statistic, rows.value, rows.offset, rows.present, rows.first, family, rows.part)


@compiled
def _project(samples, rows, count, weight, start):
    """The projection onto rows, but for its writing: (whether it was found, multipliers, shifts, slopes)."""
    solve = start_solve(SQUARED, samples, rows, count, weight, start, UNIT)
    solve.search.number[PATIENCE] = np.inf  # there is no other way
    of_cell, request = solve.search.cell, MEASURE
    while request in (SUMS, MEASURE):
        if request == SUMS:
            take_sums(SQUARED, samples, of_cell[SHIFT], of_cell[S], of_cell[D])
        else:
            measure(SQUARED, samples, of_cell[S], of_cell[D], of_cell[ABSOLUTE])
        request = next_request(solve)
    found = request != FINISHED and solve.search.number[OUTCOME] == DONE
    return found, solve.search.statistic[TRIAL], of_cell[SHIFT], of_cell[D]


@compiled
def _solve_priced(z, cell, weight, count, cell_weight, lo, hi, rows, price, out):
    """Write the output; return (pinned, multipliers of statistics, shifts, slopes, statistics of what was written).

    pinned: whether the price is so high that the narrowest family became an equality, and a higher one changes nothing.
    Arguments as in `loops.solve_loops`.
    """
    G, K = count.size, rows.offset.size
    sums, slopes, shift, nu = np.zeros(G), np.zeros(G), np.zeros(G), np.zeros(K)
    samples = gather(z, cell, weight, lo, hi, count, False)
    take_sums(SQUARED, samples, shift, sums, slopes)
    q = statistics(rows, sums)
    scale = 0.0
    for k in range(K):
        scale = max(scale, abs(q[k]), abs(rows.offset[k]))
    tolerance = 64.0 * UNIT * scale
    above = largest_excess(rows, q) if rows.family.shape[1] else 0.0
    bottom = _least_excess_possible(rows) if rows.family.shape[1] else 0.0
    floor = bottom + 16.0 * tolerance  # an equality proper would leave the multipliers of dependent rows undetermined
    pinned = False
    if price > 0.0 and above > floor:
        below, found, tried_floor = floor, False, False
        excess = _first_guess(rows, q, slopes, above, price)
        for _ in range(_MOST_SOLVES):
            if excess <= floor and not tried_floor:
                excess, tried_floor = floor, True
            elif not (below < excess < above):
                excess = 0.5 * (below + above)
            step = np.inf
            # From the multipliers of the last solve, and where that fails from none.
            wide = _widened(rows, excess)
            solved, nu, shift, slopes = _project(samples, wide, count, cell_weight, nu)
            if not solved:
                solved, nu, shift, slopes = _project(samples, wide, count, cell_weight, np.zeros(K))
            if solved:
                total, rate = _total(rows, nu), _decline(wide, nu, slopes)
                pinned = excess == floor and total <= price
                found = pinned or abs(total - price) <= 1e-12 * price
                if total > price:
                    below = excess
                else:
                    above = excess
                if rate > 0.0:
                    step = (total - price) / rate
            else:  # too narrow for the bounds: the rows can only be met from some excess on
                below, nu = excess, np.zeros(K)
            if found or above - below <= 4.0 * tolerance:
                break
            excess += step
        if not found:  # the sum of the multipliers jumps here, or rounding hides where it crosses the price
            _, nu, shift, slopes = _project(samples, _widened(rows, above), count, cell_weight, np.zeros(K))
    error = np.empty(G)
    write(SQUARED, samples, shift, out, sums, slopes, error, np.empty(BLOCK))
    return pinned, nu, shift, slopes, statistics(rows, sums)


class Softened(NamedTuple):
    """The end of a soft step."""

    value: Any  # (n,) like z
    gap: float  # largest |row|; nan where there is no row, because groups are absent
    excess: float  # largest amount by which a row exceeds its tolerance, negative within; nan where there is no row
    nu: np.ndarray  # (K,) multipliers of the statistics; those of the rows add up to the price at most
    pinned: bool  # the price is so high that the narrowest row became an equality
    slopes: np.ndarray  # (G,) samples per cell that rest on no bound
    shift: np.ndarray  # (G,)


def soft_step(
    z: Any,  # (n,) float32 or float64, array or tensor on the CPU
    system: System,  # constraints bound to the batch, see `system.bind`
    box: Box,  # bounds in z's dtype, see `bounds.read_bounds`
    price: float,  # of one unit of gap; lambda n / 2 in the paper's terms
) -> Softened:
    """Solve without a gradient. A price of 0 gives z within its bounds; a high one the projection onto equalities."""
    raw = np.ascontiguousarray(as_numpy(z))
    out = np.empty_like(raw)
    rows = system.rows
    pinned, nu, shift, slopes, q = _solve_priced(
        raw, system.cell, system.weights, system.samples, system.weight, box.lo, box.hi, rows, float(price), out
    )
    gap = excess = float("nan")
    if len(system.view.plus):
        gap = float(np.abs(system.view.values(q)).max())
        excess = largest_excess(rows, q)
    value = torch.from_numpy(out) if isinstance(z, Tensor) else out
    return Softened(value, gap, excess, nu, pinned, slopes, shift)


def soften(z: Tensor, system: System, box: Box, price: float) -> tuple[Tensor, Softened]:
    """The soft step as a differentiable function of z, of any float dtype on any device.

    The active rows A share the excess e, and their multipliers keep their sum: with sigma their signs and D the slopes,

        dy = D (dz - A' dmu),   A dy = sigma de,   sigma' dmu = 0    (de = 0 instead of the last where pinned).

    The step is piecewise linear in z, so its derivative is written as a linear map of constants, and autograd does the
    rest, to any order.
    """
    plain = z.detach().cpu()
    plain = plain if plain.dtype in (torch.float32, torch.float64) else plain.float()
    softened = soft_step(plain, system, box, price)
    value = softened.value.to(device=z.device, dtype=z.dtype)
    if not (torch.is_grad_enabled() and z.requires_grad):
        return value, softened

    device = z.device if has_float64(z.device) else torch.device("cpu")
    index = torch.as_tensor(system.cell).long()
    shifted = (plain.double() - torch.from_numpy(softened.shift)[index]).to(plain.dtype)
    free = (shifted == softened.value).to(device=device, dtype=torch.float64)
    dz = z.to(device).double() * free
    A, inverse = _active_rows(system, softened)
    if A.size:
        index = index.to(device)
        weights = torch.from_numpy(system.weights).to(device) if len(system.weights) else None
        sums = dz.new_zeros(A.shape[1]).index_add(0, index, dz if weights is None else dz * weights)
        pull = torch.from_numpy(A.T @ inverse @ A).to(device)
        dz = dz - free * (pull @ sums)[index]
    move = dz.to(device=z.device, dtype=z.dtype)
    return value + (move - move.detach()), softened


def _active_rows(system: System, softened: Softened) -> tuple[np.ndarray, np.ndarray]:
    """Active rows over cells, (a, G), and the inverse by which dmu = inverse A D dz."""
    rows = system.rows
    pairs = active_rows(rows, softened.nu)
    statistic = dense(rows).T
    plus, minus = (pairs[side].astype(np.int64) for side in (PLUS, MINUS))
    A = pairs[P][:, None] * statistic[plus] - pairs[M][:, None] * statistic[minus]
    inverse = np.linalg.pinv((A * softened.slopes) @ A.T, rcond=1e-12, hermitian=True)
    if not softened.pinned:
        towards = inverse.sum(axis=1)
        scale = towards.sum()
        if scale > 0.0:
            inverse = inverse - np.outer(towards, towards) / scale
    return A, inverse
