"""The same solve in tensor operations: any device, any float dtype, any discrepancy.

Only sums over cells leave the device; multipliers are found on the host by the same Newton method as on the fused path.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fairlayer.binding.bounds import Box
from fairlayer.binding.cells import UNIT, exact_sums
from fairlayer.binding.system import System
from fairlayer.solve.certify import aimed, all_hold, first_margins, shortfalls, widen_margins
from fairlayer.solve.dense import dense_multipliers
from fairlayer.solve.discrepancy import Discrepancy, Squared
from fairlayer.solve.fused import MOST_REPAIRS, Samples, gather, newton_tolerance
from fairlayer.solve.newton import DONE, EVALUATE, advance, new_search, place_at, restart, statistics
from fairlayer.solve.result import Result


def solve_tensor(
    z: Tensor,
    system: System,
    box: Box,
    extremes: tuple[np.ndarray, np.ndarray],
    reach: float,
    unit: float,
    discrepancy: Discrepancy,
) -> Result:
    """Project z, of shape (n,); reach and unit as in `fused.solve_fused`."""
    rows, weight = system.rows, system.weight
    index = torch.as_tensor(system.cell, device=z.device).long()
    weights = torch.from_numpy(system.weights).to(z.device) if len(system.weights) else None
    lo, hi = box.tensors(z.device)
    exact = z.double()

    def cell_sums(values: Tensor) -> np.ndarray:
        weighted = values if weights is None else values * weights
        return (
            torch.zeros(len(weight), dtype=torch.float64, device=z.device).index_add_(0, index, weighted).cpu().numpy()
        )

    def emit(shift: np.ndarray) -> tuple[Tensor, np.ndarray, np.ndarray, float]:
        """The output in its own dtype, the rows it may miss, slopes, and its magnitude."""
        s = torch.from_numpy(shift).to(z.device)[index]
        value = torch.clamp(discrepancy.response(exact, s, lo, hi).to(z.dtype), lo.to(z.dtype), hi.to(z.dtype))
        magnitude = float(value.abs().max())
        S = cell_sums(value.double())
        missed = shortfalls(rows, S, (system.samples + 4.0) * UNIT * magnitude * weight)
        if not all_hold(missed):
            S, error = np.zeros(len(weight)), np.zeros(len(weight))
            exact_sums(value.double().cpu().numpy(), index.int().cpu().numpy(), system.weights, S, error)
            missed = shortfalls(rows, S, error)
        return value, S, missed, magnitude

    def plain() -> Samples:
        """The samples as the compiled path has them."""
        sides = (side.astype(np.float64) for side in (box.lo, box.hi))
        return gather(exact.cpu().numpy(), index.int().cpu().numpy(), system.weights, *sides, system.samples)

    search = new_search(len(rows.plus), rows.M.shape[1], len(weight))
    value, S, missed, magnitude = emit(search.shift)
    tolerance = newton_tolerance(rows, weight, max(magnitude, 0.1 * float(exact.abs().max())), len(z))
    outcome = DONE
    if not all_hold(missed):
        margins = first_margins(rows, weight, magnitude, unit, tolerance)
        for _ in range(MOST_REPAIRS):
            aim = aimed(rows, margins)
            outcome = EVALUATE
            while outcome == EVALUATE:
                s = torch.from_numpy(search.shift).to(z.device)[index]
                sums = cell_sums(discrepancy.response(exact, s, lo, hi))
                slopes = cell_sums(discrepancy.slope(exact, s, lo, hi))
                outcome = advance(aim, search, sums, slopes, weight, *extremes, reach, tolerance)
            if outcome != DONE:
                mu = np.zeros(len(rows.plus))
                if not isinstance(discrepancy, Squared) or not dense_multipliers(plain(), weight, aim, tolerance, mu):
                    break
                outcome = DONE
                place_at(aim, search, mu)
            value, S, missed, magnitude = emit(search.shift)
            if unit == 0.0 or all_hold(missed) or not widen_margins(rows, margins, missed):
                break
            restart(search)
    s = torch.from_numpy(search.shift).to(z.device)[index]
    slopes = cell_sums(discrepancy.slope(exact, s, lo, hi))
    active = search.active[: search.tally[0]].copy()
    return Result(outcome, value, search.trial, active, search.shift, slopes, missed, statistics(rows, S))
