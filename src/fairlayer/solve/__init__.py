"""The solve: one method on cell sums (`newton`), one driver, and several ways to take the sums.

`solve` chooses the way, and finds out why where no output is found.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box
from fairlayer.binding.exact_sums import exact_sums
from fairlayer.binding.process_group import Ranks
from fairlayer.binding.row_plan import PresentRows
from fairlayer.binding.rows import Rows
from fairlayer.binding.system import System
from fairlayer.errors import FairlayerError, InfeasibleError, InputError
from fairlayer.solve.certify import scales, shortfalls
from fairlayer.solve.discrepancy import Discrepancy, check_domain, compiled_kind, has_loops, inner_limits, odds_against
from fairlayer.solve.exact import exact_shortfalls, search_grid
from fairlayer.solve.extremes import cell_extremes
from fairlayer.solve.families import largest_excess
from fairlayer.solve.feasibility import least_excess, widened
from fairlayer.solve.interior import interior_multipliers
from fairlayer.solve.loops import MOST_SUM, NOT_FINITE, OUTSIDE, TOO_LARGE, solve_loops
from fairlayer.solve.newton import DONE, shifts, statistics
from fairlayer.solve.result import Result
from fairlayer.solve.smooth import ODDS
from fairlayer.solve.tensors import solve_tensors

_UNITS = {dtype: torch.finfo(dtype).eps / 2 for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)}
_NO_START = np.zeros(0)
_SMALLEST, _LARGEST = 1e-120, 1e120  # numbers beyond which squares of them are not to be had
_ROUNDING = 1e-9  # of the numbers that a row is made of: nothing that says that it cannot hold
_NEARLY = 1e-6  # relative: an excess beyond the least that is still worth having where no better is found
_MOST_WEIGHTS = 1e6  # times the least weight
_MOST_SPREAD = 8  # rows by way of which one row makes the outputs of another move
_MOST_EXACT = 100_000  # samples, up to which it is worth while to take every sum exactly


Extremes = tuple[np.ndarray, np.ndarray]


class Task(NamedTuple):
    """A projection to be solved."""

    z: Tensor  # (n,), contiguous, without a graph
    system: System
    box: Box
    discrepancy: Discrepancy
    compiled: bool  # by compiled loops; otherwise in tensor operations
    ranks: Ranks | None = None  # whose samples are projected together with these

    @property
    def inside(self) -> Box:
        """The box, less what no response can be."""
        return self.box.within(*inner_limits(self.discrepancy, self.z.dtype))


def is_compiled(z: Tensor, discrepancy: Discrepancy) -> bool:
    """Whether compiled loops can take this problem."""
    return z.is_cpu and z.dtype in (torch.float32, torch.float64) and has_loops(discrepancy)


def solve(task: Task, relax: bool = False) -> tuple[Result, float]:
    """Project; the result, and by how much the rows had to give way.

    Raises InfeasibleError where they contradict each other or the bounds, unless `relax` asks for the output that
    violates them least.
    """
    unit = _UNITS[task.z.dtype]
    result = _attempt(task, task.system.rows, unit)
    if result.outcome == DONE and result.holds:
        return result, 0.0
    _refuse(task, result)
    power = _power(task)
    if power:
        return _rescaled(task, power, relax)
    if result.outcome == DONE:
        result = _settled(task, result)
        if result.holds or result.nu.any():
            return result, 0.0
        # Nothing was moved, as it looked as if nothing had to be.
        result = _attempt(task, task.system.rows, unit, np.zeros(len(result.nu)))
        if result.outcome == DONE:
            return _settled(task, result), 0.0
    rows, extremes = task.system.rows, cell_extremes(task.system, task.inside)
    scale = statistic_scale(rows, result.absolute, task.system.weight, extremes)
    start = _interior(task, rows)
    if start is not None:
        again = _attempt(task, rows, unit, start)
        result = again if again.outcome == DONE else _as_found(task, result, start)
        of_family = np.maximum.reduceat(scale, rows.first[:-1])
        if again.outcome == DONE or (result.missed <= _ROUNDING * of_family).all():
            return _settled(task, result), 0.0
    excess, push = least_excess(rows, *extremes, scale)
    if not np.isfinite(excess):
        raise _unsolved(task)
    contradiction = excess > _ROUNDING * scale[push != 0].max(initial=0.0)
    if contradiction and not relax:
        raise infeasible(task.system.view, rows, excess, push)
    best, exceeded = None, excess * (1.0 + _NEARLY)
    for _, wide in widened(rows, excess, scale):
        result = _attempt(task, wide, 0.0, np.zeros(len(scale)))
        if result.outcome != DONE:
            start = _interior(task, wide)
            result = result if start is None else _attempt(task, wide, 0.0, start)
            if start is not None and result.outcome != DONE:
                near = _as_found(task, result, start)
                beyond = float(largest_excess(rows, near.statistics))
                if contradiction and beyond < exceeded:
                    best, exceeded = near, beyond
        if result.outcome == DONE:
            if contradiction:
                return result, max(float(largest_excess(rows, result.statistics)), excess)
            return _settled(task, result), 0.0
    if best is not None:
        return best, max(exceeded, excess)
    raise _unsolved(task)


def _unsolved(task: Task) -> FairlayerError:
    """What to say of a problem that no method ends on."""
    weight = task.system.weights[task.system.weights > 0]
    if len(weight) and weight.max() > _MOST_WEIGHTS * weight.min():
        return FairlayerError(
            f"The solver did not converge: weights from {weight.min():.0e} to {weight.max():.0e} are further apart "
            "than float64 can resolve under these constraints. Bring them closer together."
        )
    return FairlayerError("The solver did not converge on this problem; please report it with the inputs.")


def _interior(task: Task, rows: Rows) -> np.ndarray | None:
    """Multipliers by another method, where the search over cell sums does not end; None where it has none either."""
    if task.discrepancy.name != "squared":
        return None
    return interior_multipliers(as_numpy(task.z).astype(np.float64), task.system, rows, task.box)


def _power(task: Task) -> int:
    """The power of 2 that brings numbers too large or too small to be squared near 1; 0 for all others."""
    if task.z.dtype != torch.float64 or task.discrepancy.name != "squared":
        return 0
    sides = [*task.system.stated, task.system.rows.offset, task.box.lo, task.box.hi, task.z.numpy()]
    finite = (np.abs(side[np.isfinite(side)]).max(initial=0.0) for side in sides)
    largest = float(max(finite))
    return -math.frexp(largest)[1] if largest and not _SMALLEST < largest < _LARGEST else 0


def _rescaled(task: Task, power: int, relax: bool) -> tuple[Result, float]:
    """The same problem in other units, solved, and what was found in the old ones."""
    system, box = task.system, task.box
    rows = system.rows._replace(offset=np.ldexp(system.rows.offset, power))
    lower, upper = (np.ldexp(side, power) for side in system.stated)
    scaled = system._replace(
        rows=rows.between(np.ldexp(rows.lower, power), np.ldexp(rows.upper, power)),
        targets=None if system.targets is None else np.ldexp(system.targets, power),
        stated=(lower, upper),
    )
    sides = replace(box, lo=np.ldexp(box.lo, power), hi=np.ldexp(box.hi, power))
    sides = replace(sides, lowest=float(sides.lo.min()), highest=float(sides.hi.max()))
    z = torch.from_numpy(np.ldexp(task.z.numpy(), power))
    try:
        result, excess = solve(task._replace(z=z, system=scaled, box=sides), relax)
    except InfeasibleError as error:
        back = [math.ldexp(limit, -power) for limit in error.smallest]
        raise InfeasibleError(error.rows, math.ldexp(error.excess, -power), back) from None
    value = np.ldexp(result.value.numpy(), -power)
    parts = {name: np.ldexp(getattr(result, name), -power) for name in ("nu", "shift", "statistics", "absolute")}
    missed = result.missed if excess else exact_shortfalls(value, system, np.ldexp(result.missed, -power))
    result = result._replace(value=torch.from_numpy(value), missed=missed, **parts)
    return result, math.ldexp(excess, -power)


def infeasible(view: PresentRows, rows: Rows, excess: float, push: np.ndarray) -> InfeasibleError:
    """The rows that stand in each other's way, by name."""
    blamed = np.flatnonzero(view.multipliers(push))
    names = [view.names[j] for j in blamed]
    half = 0.5 * (rows.upper - rows.lower)[view.family[blamed]]  # infinite of ratios, which name no tolerance
    return InfeasibleError(names, excess, half + excess)


def statistic_scale(rows: Rows, absolute: np.ndarray, weight: np.ndarray, extremes: Extremes) -> np.ndarray:
    """(K,) the size of the numbers that each statistic is made of and compared with.

    absolute, weight: (G,) sums of |y| and of weights by cell; extremes: what the sums of cells can be. To satisfy one
    row the outputs of its cells may have to move by as much as it says, so what other rows make of these cells is of
    that size too, as far as the bounds let outputs go.
    """
    bounds = [np.where(np.isfinite(side), np.abs(side), 0.0) for side in (rows.lower, rows.upper)]
    own = np.repeat(np.maximum(*bounds), np.diff(rows.first))
    scale = np.maximum(scales(rows, absolute), own)
    cell, size = np.repeat(np.arange(len(weight)), np.diff(rows.start)), np.abs(rows.value)
    total = np.bincount(rows.statistic, weights=size * weight[cell], minlength=len(scale))
    apart = np.where(weight > 0, extremes[1] - extremes[0], 0.0) / np.where(weight > 0, weight, 1.0)
    for _ in range(_MOST_SPREAD):
        of_output = (scale / np.where(total > 0, total, 1.0))[rows.statistic]
        reach = np.zeros(len(weight))
        np.maximum.at(reach, cell, np.where(size > 0, of_output, 0.0))
        reach = np.minimum(reach, apart) * weight
        wider = np.bincount(rows.statistic, weights=size * reach[cell], minlength=len(scale))
        if (wider <= 2.0 * scale).all():
            break
        scale = np.maximum(scale, wider)
    return np.maximum(scale, max(1e-13 * float(scale.max(initial=0.0)), 1e-300))


def _attempt(task: Task, rows: Rows, unit: float, start: np.ndarray = _NO_START) -> Result:
    """One solve. unit: relative rounding error of the output, or 0 where rows may be missed by its rounding."""
    system, box, z = task.system, task.box, task.z
    if not task.compiled:
        return solve_tensors(z, system._replace(rows=rows), box, unit, task.discrepancy, start)
    kind, single, given, sides = compiled_kind(task.discrepancy), False, z.numpy(), (box.lo, box.hi)
    if kind == ODDS:  # in float64, so that near 0 and 1 nothing is lost; outputs are rounded to their own dtype
        given, single, sides = odds_against(z).numpy(), z.dtype == torch.float32, box.wide()
    out = np.empty(given.shape, given.dtype)
    outcome, *rest = solve_loops(
        kind,
        given,
        system.cell,
        system.weights,
        system.samples,
        system.weight,
        *sides,
        rows,
        start,
        unit,
        single,
        out,
    )
    value = torch.from_numpy(out)
    return Result(outcome, value if kind != ODDS else value.to(z.dtype), *rest)


def _settled(task: Task, result: Result) -> Result:
    """A result whose rows are known to hold, or known to be missed: by rational arithmetic, and a search."""
    if not np.isfinite(result.statistics).all():
        raise InputError(
            f"z would have to be moved beyond the range of {task.z.dtype}: scale z, targets and bounds down, or use "
            "float64."
        )
    missed = exact_shortfalls(as_numpy(result.value).astype(np.float64), task.system, result.missed)
    if (missed <= 0.0).all():
        return result._replace(missed=missed)
    exactly = _exactly(task, missed)
    if exactly is not None:
        return exactly
    found = search_grid(result.value, task.system, task.inside)
    if found is not None:
        exact = as_numpy(found).astype(np.float64)
        better = exact_shortfalls(exact, task.system, missed)
        if max(better) < max(missed):
            sums, error = np.empty(len(task.system.weight)), np.empty(len(task.system.weight))
            exact_sums(exact, as_numpy(task.system.cell).astype(np.int32), task.system.weights, sums, error)
            return result._replace(value=found, missed=better, statistics=statistics(task.system.rows, sums))
    return result._replace(missed=missed)


def _as_found(task: Task, result: Result, nu: np.ndarray) -> Result:
    """The output at multipliers found elsewhere, which the search cannot make any better."""
    system, box = task.system, task.box
    cell = as_numpy(system.cell).astype(np.int32)
    shift = np.empty(len(system.weight))
    shifts(system.rows, nu, shift)
    raw = (as_numpy(task.z).astype(np.float64) - shift[cell]).astype(as_numpy(task.z).dtype)
    value = np.clip(raw, box.lo, box.hi)
    weight = system.weights if len(system.weights) else np.ones(len(value))
    sums, error = np.empty(len(shift)), np.empty(len(shift))
    exact_sums(value.astype(np.float64), cell, system.weights, sums, error)
    missed = np.empty(len(system.rows.kind))
    shortfalls(system.rows, sums, error, missed)
    return result._replace(
        outcome=DONE,
        value=torch.from_numpy(value).to(dtype=task.z.dtype, device=task.z.device),
        nu=nu,
        shift=shift,
        slopes=np.bincount(cell, weights=weight * (raw == value), minlength=len(shift)),
        missed=missed,
        statistics=statistics(system.rows, sums),
    )


def _exactly(task: Task, missed: np.ndarray) -> Result | None:
    """The same solve with sums that are not rounded, where outputs all but cancel: if it keeps the rows."""
    rows, system = task.system.rows, task.system
    if len(task.z) > _MOST_EXACT or not missed.max() > 0.0 or not (system.stated[1] > 0.0).all():
        return None
    unit, start = _UNITS[task.z.dtype], np.zeros(len(rows.offset))
    result = solve_tensors(task.z, system, task.box, unit, task.discrepancy, start, exactly=True)
    if result.outcome != DONE or not np.isfinite(result.statistics).all():
        return None
    missed = exact_shortfalls(as_numpy(result.value).astype(np.float64), system, result.missed)
    return result._replace(missed=missed) if (missed <= 0.0).all() else None


def _refuse(task: Task, result: Result) -> None:
    """Say what is wrong with outputs that cannot be added up."""
    if result.outcome == NOT_FINITE:
        position = int((~torch.isfinite(task.z)).nonzero()[0])
        raise InputError(f"z[{position}] is {float(task.z[position])}: outputs must be finite.")
    if result.outcome == OUTSIDE:
        check_domain(task.z.double().cpu().numpy(), task.discrepancy)
    if result.outcome == TOO_LARGE:
        largest = float(task.z.abs().max())
        raise InputError(
            f"z is too large: with outputs up to {largest:.3g} and weights that add up to "
            f"{task.system.weight.sum():.3g}, their sums may exceed {MOST_SUM:g}, near the end of float64's range. "
            "Scale z, and with it targets, tolerances and bounds, down."
        )


__all__ = ["Task", "cell_extremes", "infeasible", "is_compiled", "solve", "statistic_scale"]
