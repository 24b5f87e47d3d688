"""The solve of a batch in memory: attempt, explain, or say what was reached.

One attempt by the core ends as a rule in an output that certainly satisfies every row. Where it does not, the order is:

1. Outputs that cannot be added up are refused (`_refuse`).
2. Where no multipliers were found, a linear programme tells whether rows can hold (`_explain`). If they cannot, they
   are relaxed or the error names them, and nothing else is tried.
3. If they can, the multipliers are looked for again, with the box as rows (`_without_box`), and where the core took
   rounding for a contradiction, onto slightly wider rows (`_from_wider`). The output that misses its rows by least is
   kept.
4. Rational arithmetic tells whether the rows are missed at all, and an output on a coarser grid is looked for where
   they are (`_settle`). What still misses them is ROUNDED: tolerances finer than the dtype resolves.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.core import End, _native
from fairlayer.core.discrepancies import Discrepancy, Squared, check_domain, inner_limits, is_squared, native_number
from fairlayer.core.feasibility import cell_extremes, least_excess, statistic_scale, widened
from fairlayer.core.grid import search_grid
from fairlayer.core.optimality import optimality_gap
from fairlayer.core.own_discrepancy import OwnProjection
from fairlayer.errors import FairlayerError, InfeasibleError, InputError
from fairlayer.problem.bounds import Box
from fairlayer.problem.rational import exact_shortfalls, exact_statistics
from fairlayer.problem.row_plan import PresentRows
from fairlayer.problem.rows import Rows
from fairlayer.problem.system import System
from fairlayer.solution import Solution

DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}  # as the core numbers them
_FAR = 1e-6  # of a tolerance: rows missed by more are not missed by rounding
_OPEN_BOX = Box(np.array([-np.inf]), np.array([np.inf]))
_MOST_SAMPLES = 1000  # up to which the box is put into the rows, where nothing else helps


def as_bits(values: Tensor) -> np.ndarray:
    """Outputs on the host as an array for the core; halves as their bits, as NumPy has no bfloat16."""
    return values.numpy() if values.itemsize > 2 else values.view(torch.int16).numpy()


def from_bits(values: np.ndarray, dtype: torch.dtype) -> Tensor:
    """An array of the core as a tensor."""
    found = torch.from_numpy(values)
    return found if found.dtype == dtype else found.view(dtype)


class Cells(NamedTuple):
    """Samples by cell, where there is no whole `System`."""

    cell: np.ndarray  # (n,) int32 cell of each sample
    weights: np.ndarray  # (n,) weight of each sample, or empty where all are 1
    samples: np.ndarray  # (G,) samples of each cell
    weight: np.ndarray  # (G,) weight of each cell


class Batch(NamedTuple):
    """Outputs to be projected, and what they are projected onto."""

    z: Tensor  # (n,), on the host, contiguous, without a graph
    system: System
    box: Box
    discrepancy: Discrepancy


def attempt(batch: Batch, rows: Rows, start: np.ndarray | None = None, exact: bool = True) -> Any:
    """One attempt by the core. exact: rows must hold for the output as it is rounded."""
    z, system, box, discrepancy = batch
    if native_number(discrepancy) is None:
        return OwnProjection(z, system, box, discrepancy, rows, start, exact)
    return project_cells(z, discrepancy, system, box, rows, start, exact)


def project_cells(
    z: Tensor,
    discrepancy: Discrepancy,
    cells: System | Cells,
    box: Box,
    rows: Rows,
    start: np.ndarray | None = None,
    exact: bool = True,
) -> Any:
    """The core's projection under one of its own discrepancies. start: as of `fairlayer.core.solve`."""
    return _native.project(
        DTYPES[z.dtype], native_number(discrepancy), as_bits(z), cells.cell, cells.weights, cells.samples, cells.weight,
        box.lo, box.hi, rows, start, exact,
    )  # fmt: skip


def solve(batch: Batch, relax: bool = False) -> Solution:
    """Project.

    Raises InfeasibleError where the rows contradict each other or the bounds, unless `relax` asks for the output that
    violates them least.
    """
    found = attempt(batch, batch.system.rows)
    solution = _solution(batch, found)
    if found.holds:
        _measure_optimality(batch, solution)
        return solution
    _refuse(batch, found.end)
    if found.end != End.SOLVED:
        explained = _explain(batch, solution, relax)
        if explained is not None:
            return explained
        for again in (_without_box(batch), _from_wider(batch, solution) if found.end == End.INFEASIBLE else None):
            if again is not None and max(again.missed, default=0.0) < max(solution.missed, default=0.0):
                solution = again
    solution = _settle(batch, solution)
    missed, widest = solution.missed.max(initial=0.0), batch.system.rows.upper.max(initial=0.0)
    if missed > _FAR * widest and native_number(batch.discrepancy) is None:
        raise FairlayerError(
            f"The solver did not converge with the {batch.discrepancy.name!r} discrepancy: run "
            "fairlayer.check_discrepancy(discrepancy, z), which says where its parts do not agree; where they do, "
            "bring z and the weights nearer to each other, or allow a larger tolerance."
        )
    if missed > _FAR * widest and not is_squared(batch.discrepancy):
        least, most = float(batch.z.min()), float(batch.z.max())
        raise FairlayerError(
            f"The solver did not converge: z, here from {least:.3g} to {most:.3g}, or the weights of the "
            f"{batch.discrepancy.name!r} discrepancy are too far apart. Bring them nearer to each other (logits within "
            "30 of 0, say), allow a larger tolerance, or use 'squared'."
        )
    return solution


def _solution(batch: Batch, found: Any) -> Solution:
    """What an attempt found, its output on the host and without a gradient."""
    value = from_bits(found.value, batch.z.dtype) if isinstance(found.value, np.ndarray) else found.value
    exact = partial(exact_statistics, value, batch.system)  # of these outputs, whatever becomes of the solution's value
    solution = Solution(value, batch.system.view, found.statistics, found.nu, found.missed, exact=exact)
    solution.found = found
    return solution


def _missed(batch: Batch, value: Tensor, otherwise: np.ndarray) -> np.ndarray:
    """(F,) by how much each family is missed, in rational arithmetic."""
    return exact_shortfalls(value.double().numpy(), batch.system, otherwise)


def _onto(batch: Batch, rows: Rows) -> Solution | None:
    """The projection onto rows close to these, whatever rounding makes of them; None where none is found."""
    found = attempt(batch, rows, np.zeros(len(rows.offset)), exact=False)
    return _solution(batch, found) if found.end == End.SOLVED else None


def _from_wider(batch: Batch, solution: Solution) -> Solution | None:
    """Another attempt, onto rows that are wider by what rounding may have taken from them."""
    rows = batch.system.rows
    scale = np.maximum(rows.sizes(np.asarray(solution.found.absolute)), 1e-300)
    for _, wide in widened(rows, 0.0, scale):
        again = _onto(batch, wide)
        if again is not None:
            unknown = np.full(len(again.missed), np.inf)  # it keeps wider rows than these
            again.missed = _missed(batch, again.value, unknown)
            return again
    return None


def _without_box(batch: Batch) -> Solution | None:
    """Another attempt, from multipliers that are found with the box as rows; None where that does not go.

    Then nothing is left to clip, and one small quadratic programme over all samples finds the optimum: for problems of
    few samples whose sizes or weights lie many decades apart, on which Newton's method makes no progress.
    """
    z, system, box, discrepancy = batch
    rows, cell, n = system.rows, system.cell, len(z)
    if not is_squared(discrepancy) or n > _MOST_SAMPLES or not np.isfinite(np.append(box.lo, box.hi)).any():
        return None
    ones = np.ones(n)
    weight = system.weights if len(system.weights) else ones
    samples = Cells(np.arange(n, dtype=np.int32), system.weights, ones, weight)
    boxed = rows.with_box(cell, weight, box.lo, box.hi)
    found = project_cells(z.double(), Squared(), samples, _OPEN_BOX, boxed, exact=False)
    return _solution(batch, attempt(batch, rows, np.array(found.nu[: len(rows.offset)])))


def _settle(batch: Batch, solution: Solution) -> Solution:
    """Have rational arithmetic say whether rows are missed; where they are, look for an output on a coarser grid."""
    system = batch.system
    _check_range(batch, solution)
    solution.missed = _missed(batch, solution.value, solution.missed)
    if not solution.holds and not solution.nu.any():
        # Nothing was moved, as it looked as if nothing had to be.
        again = attempt(batch, system.rows, np.zeros(len(solution.nu)))
        if again.end == End.SOLVED:
            solution = _solution(batch, again)
            solution.missed = _missed(batch, solution.value, solution.missed)
    if not solution.holds:
        inside = batch.box.within(*inner_limits(batch.discrepancy, batch.z.dtype))
        value = search_grid(solution.value, system, inside)
        missed = solution.missed if value is None else _missed(batch, value, solution.missed)
        if value is not None and max(missed) < max(solution.missed):
            sums, error = np.empty(len(system.weight)), np.empty(len(system.weight))
            _native.exact_sums(value.double().numpy(), system.cell, system.weights, sums, error)
            solution.value, solution.missed, solution.exact = value, missed, partial(exact_statistics, value, system)
            solution.statistics = _native.statistics(system.rows, sums)
    if solution.holds:
        _measure_optimality(batch, solution, rounded=True)
    return solution


def _check_range(batch: Batch, solution: Solution) -> None:
    """Refuse a problem whose answer the dtype cannot hold."""
    if not np.isfinite(solution.statistics).all():
        raise InputError(
            f"z would have to be moved beyond the range of {batch.z.dtype}: scale z, targets and bounds down, or use "
            "float64."
        )


def _measure_optimality(batch: Batch, solution: Solution, rounded: bool = False) -> None:
    """Say by how much the output may be further than the nearest, where aiming inside the rows may have cost something.

    A family is aimed inside by what rounding moves the coarsest of its means. Where that is the mean of a light group,
    heavy ones are moved with it; and where outputs are large and moved by little, it is much of the way. rounded: the
    output may stand on a coarser grid.
    """
    z, system, box, discrepancy = batch
    if not is_squared(discrepancy):
        return
    if not rounded and solution.found.tight:
        return
    y = solution.value.double().numpy()
    solution.optimality_gap = optimality_gap(z.double().numpy(), y, system, box, solution.nu, z.dtype)


def _explain(batch: Batch, solution: Solution, relax: bool) -> Solution | None:
    """Raise where rows contradict each other or the bounds, or relax them; None where they can hold."""
    system, rows = batch.system, batch.system.rows
    extremes = cell_extremes(system, batch.box.within(*inner_limits(batch.discrepancy, batch.z.dtype)))
    scale = statistic_scale(rows, np.asarray(solution.found.absolute), system.weight, extremes)
    excess, conflict = least_excess(rows, *extremes, scale)
    if not excess:
        return None
    if not relax:
        raise infeasible(system.view, rows, excess, conflict)
    for _, wide in widened(rows, excess, scale):
        again = _onto(batch, wide)
        if again is not None:
            _check_range(batch, again)
            again.excess = max(float(_native.largest_excess(rows, again.statistics)), excess)
            return again
    raise FairlayerError("The solver did not converge on this problem; please report it with the inputs.")


def infeasible(view: PresentRows, rows: Rows, excess: float, conflict: np.ndarray) -> InfeasibleError:
    """The rows that stand in each other's way, by name."""
    blamed = np.flatnonzero(view.multipliers(conflict))
    names = [view.names[j] for j in blamed]
    half = 0.5 * (rows.upper - rows.lower)[view.family[blamed]]  # infinite of ratios, which name no tolerance
    return InfeasibleError(names, excess, half + excess)


def _refuse(batch: Batch, end: int) -> None:
    """Say what is wrong with outputs that cannot be added up."""
    z = batch.z
    if end == End.NOT_FINITE:
        position = int((~torch.isfinite(z)).nonzero()[0])
        raise InputError(f"z[{position}] is {float(z[position])}: outputs must be finite.")
    if end == End.OUTSIDE:
        check_domain(z.double().numpy(), batch.discrepancy)
    if end == End.TOO_LARGE:
        raise InputError(
            f"z is too large: with outputs up to {float(z.abs().max()):.3g} and weights that add up to "
            f"{batch.system.weight.sum():.3g}, their sums may exceed {_native.MOST_SUM:g}, near "
            "the end of float64's range. Scale z, and with it targets, tolerances and bounds, down."
        )
