"""The soft step: outputs near the raw ones whose largest gap is priced rather than bounded.

    min_{y, e}  1/2 sum_i w_i (y_i - z_i)^2 + price e  subject to  lower - e <= rows(y) <= upper + e,  lo <= y <= hi,

e down to where the narrowest row is an equality. For rows that share one tolerance it is the largest |gap| up to a
constant: the primal step of the paper's Algorithm 1.

Its multipliers are those of the projection onto rows widened by e, and add up to the price: a cap on them. Their sum
falls as e grows, and does so piecewise linearly, so Newton's method on that one number finds e in a few solves, each
from the multipliers of the last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.core import End, _native
from fairlayer.core.discrepancies import Squared
from fairlayer.core.solver import Batch, attempt, from_bits
from fairlayer.problem.bounds import Box
from fairlayer.problem.exact_sums import UNIT
from fairlayer.problem.rows import EACH, Rows
from fairlayer.problem.system import System

_MOST_SOLVES = 120


def _total(rows: Rows, nu: np.ndarray) -> float:
    """The sum of the multipliers of the rows: of a family, what is carried from one statistic to another."""
    each = (rows.kind == EACH)[rows.statistic_family]
    return float(np.where(each, np.abs(nu), np.maximum(-nu, 0.0)).sum())


def held_rates(rows: Rows, nu: np.ndarray) -> np.ndarray:
    """(K,) how the places where statistics with multipliers are held move as the rows are widened."""
    family = rows.statistic_family
    share = np.where(rows.kind == EACH, 1.0, 0.5)[family]  # of statistics that are compared, both sides give way
    return np.where(nu > 0.0, share / rows.ratio[family], -share * (nu < 0.0))


def _decline(rows: Rows, nu: np.ndarray, slopes: np.ndarray) -> float:
    """How fast the sum of the multipliers falls as the rows are widened: 1'(A D A')^+ 1, A the active rows."""
    q = held_rates(rows, nu)
    return float(q @ _native.solve_active(rows, nu, slopes, q))


def _solve_priced(batch: Batch, price: float) -> tuple[Any, bool]:
    """The projection onto rows widened so far that the multipliers add up to the price; and whether it is pinned.

    pinned: the price is so high that the narrowest family became an equality, and a higher one changes nothing.
    """
    rows, none = batch.system.rows, np.zeros(len(batch.system.rows.offset))

    def widened(excess: float) -> Rows:
        return rows.between(rows.lower - excess, rows.upper + excess)

    # Outputs as they are, within their bounds: rows so wide that they all hold.
    found, pinned = attempt(batch, rows.between(rows.lower - np.inf, rows.upper + np.inf), exact=False), False
    q = np.asarray(found.statistics)
    if not len(rows.kind) or price <= 0.0 or found.end != End.SOLVED:
        return found, pinned
    tolerance = 64.0 * UNIT * max(np.abs(q).max(), np.abs(rows.offset).max())
    above = _native.largest_excess(rows, q)
    half = 0.5 * (rows.upper - rows.lower).min()
    # An equality proper would leave the multipliers of dependent rows undetermined.
    floor = (-half if np.isfinite(half) else 0.0) + 16.0 * tolerance
    if above <= floor:
        return found, pinned
    below, excess, nu, tried_floor = floor, above, none, False
    for _ in range(_MOST_SOLVES):
        if excess <= floor and not tried_floor:
            excess, tried_floor = floor, True
        elif not below < excess < above:
            excess = 0.5 * (below + above)
        # From the multipliers of the last solve, and where that fails from none.
        wide = widened(excess)
        found = attempt(batch, wide, nu, exact=False)
        if found.end != End.SOLVED:
            found = attempt(batch, wide, none, exact=False)
        step = np.inf
        if found.end == End.SOLVED:
            nu = np.array(found.nu)
            total, rate = _total(rows, nu), _decline(wide, nu, np.asarray(found.slopes))
            pinned = excess == floor and total <= price
            if pinned or abs(total - price) <= 1e-12 * price:
                return found, pinned
            below, above = (excess, above) if total > price else (below, excess)
            step = (total - price) / rate if rate > 0.0 else np.inf
        else:  # too narrow for the bounds: the rows can only be met from some excess on
            below, nu = excess, none
        if above - below <= 4.0 * tolerance:
            break
        excess += step
    # The sum of the multipliers jumps here, or rounding hides where it crosses the price.
    return attempt(batch, widened(above), none, exact=False), pinned


class Softened(NamedTuple):
    """The end of a soft step."""

    value: Any  # (n,) like z
    gap: float  # largest |row|; nan where there is no row, because groups are absent
    excess: float  # largest amount by which a row exceeds its tolerance, negative within; nan where there is no row
    nu: np.ndarray  # (K,) multipliers of the statistics; those of the rows add up to the price at most
    pinned: bool  # the price is so high that the narrowest row became an equality
    slopes: np.ndarray  # (G,) samples per cell that are at no bound
    shift: np.ndarray  # (G,)


def soft_step(
    z: Any,  # (n,) float32 or float64, array or tensor on the CPU
    system: System,  # constraints bound to the batch, see `system.bind`
    box: Box,  # bounds in z's dtype, see `bounds.read_bounds`
    price: float,  # of one unit of gap; lambda n / 2 in the paper's terms
) -> Softened:
    """Solve without a gradient. A price of 0 gives z within its bounds; a high one the projection onto equalities."""
    raw = torch.from_numpy(np.ascontiguousarray(as_numpy(z)))
    found, pinned = _solve_priced(Batch(raw, system, box, Squared()), float(price))
    q = np.asarray(found.statistics)
    gap = excess = float("nan")
    if len(system.view.plus):
        gap = float(np.abs(system.view.values(q)).max())
        excess = _native.largest_excess(system.rows, q)
    value = from_bits(found.value, raw.dtype) if isinstance(z, Tensor) else found.value
    nu, slopes, shift = np.array(found.nu), np.array(found.slopes), np.array(found.shift)
    return Softened(value, gap, excess, nu, pinned, slopes, shift)
