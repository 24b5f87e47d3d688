"""The solve: one method on cell sums (`newton`), one driver, and several ways to take the sums.

`solve` chooses the way, and finds out why where no output is found.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box
from fairlayer.binding.exact_sums import exact_sums
from fairlayer.binding.process_group import Ranks
from fairlayer.binding.row_plan import PresentRows
from fairlayer.binding.rows import EACH, Rows
from fairlayer.binding.system import System
from fairlayer.errors import FairlayerError, InfeasibleError, InputError
from fairlayer.solve.careful import MOST_NUMBERS, Careful, solve_carefully
from fairlayer.solve.certify import NEARLY, is_tight, scales
from fairlayer.solve.discrepancy import Discrepancy, check_domain, compiled_kind, inner_limits, odds_against
from fairlayer.solve.duality import distances
from fairlayer.solve.exact import exact_shortfalls, search_grid
from fairlayer.solve.families import largest_excess
from fairlayer.solve.feasibility import cell_extremes, least_excess, widened
from fairlayer.solve.loops import MOST_SUM, NOT_FINITE, OUTSIDE, TOO_LARGE, solve_loops
from fairlayer.solve.newton import DONE, statistics
from fairlayer.solve.result import Result
from fairlayer.solve.smooth import ODDS
from fairlayer.solve.tensors import solve_tensors

_UNITS = {dtype: torch.finfo(dtype).eps / 2 for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)}
_NO_START = np.zeros(0)
_MOST_WEIGHTS = 1e12  # times the least weight, up to which all are served
_MOST_SPREAD = 8  # rows by way of which one row makes the outputs of another move


class InLoops(NamedTuple):
    """Outputs and bounds as compiled loops take them, forwards and backwards."""

    kind: int  # the discrepancy, of smooth.py
    single: bool  # outputs are rounded to float32, whatever the dtype of z
    z: np.ndarray
    lo: np.ndarray
    hi: np.ndarray


class Task(NamedTuple):
    """A projection to be solved."""

    z: Tensor  # (n,), contiguous, without a graph
    system: System
    box: Box
    discrepancy: Discrepancy
    loops: InLoops | None  # for compiled loops; otherwise it is solved in tensor operations
    ranks: Ranks | None = None  # whose samples are projected together with these

    @classmethod
    def of(
        cls, z: Tensor, system: System, box: Box, discrepancy: Discrepancy, compiled: bool, ranks: Ranks | None = None
    ) -> Task:
        """A task for compiled loops, or for tensor operations."""
        kind = compiled_kind(discrepancy) if compiled else None
        if kind is None:
            loops = None
        elif kind == ODDS:  # in float64, so that near 0 and 1 nothing is lost
            loops = InLoops(kind, z.dtype == torch.float32, odds_against(z).numpy(), *box.wide())
        else:
            loops = InLoops(kind, False, z.numpy(), box.lo, box.hi)
        return cls(z, system, box, discrepancy, loops, ranks)

    @property
    def inside(self) -> Box:
        """The box, less what no response can be."""
        return self.box.within(*inner_limits(self.discrepancy, self.z.dtype))


def fits_loops(z: Tensor) -> bool:
    """Whether compiled loops can take these outputs, if they know the discrepancy."""
    return z.is_cpu and z.dtype in (torch.float32, torch.float64)


def solve(task: Task, relax: bool = False) -> tuple[Result, float]:
    """Project; the result, and by how much the rows had to give way.

    Raises InfeasibleError where they contradict each other or the bounds, unless `relax` asks for the output that
    violates them least.
    """
    unit = _UNITS[task.z.dtype]
    result = _attempt(task, task.system.rows, unit)
    if result.outcome == DONE and result.holds:
        return _near(task, result), 0.0
    task = task._replace(system=task.system.flat())
    _refuse(task, result)
    if result.outcome == DONE:
        # Missed by so little that only rational arithmetic can tell?
        result = _checked(task, result)
        if not result.holds and not result.nu.any():
            # Nothing was moved, as it looked as if nothing had to be.
            again = _attempt(task, task.system.rows, unit, np.zeros(len(result.nu)))
            result = _checked(task, again) if again.outcome == DONE else result
        return _settled(task, result), 0.0
    rows, extremes = task.system.rows, cell_extremes(task.system, task.inside)
    scale = statistic_scale(rows, result.absolute, task.system.weight, extremes)
    excess, push = least_excess(rows, *extremes, scale)
    if excess:
        if not relax:
            raise infeasible(task.system.view, rows, excess, push)
        return _relaxed(task, result, excess, scale)
    careful = _careful(task)
    if careful is not None:
        result = _taken(task, result, careful)
    else:  # wider by what rounding may have taken from them, if that is the reason
        wide = _relaxed(task, result, excess, scale)[0]
        result = _attempt(task, task.system.rows, unit, wide.nu)  # from where they hold, it is not far
        if result.outcome != DONE or not result.holds:
            # It kept wider rows than these.
            result = _checked(task, wide._replace(missed=np.full(len(wide.missed), np.inf)))
    return result if result.holds else _on_grid(task, result), 0.0


def _near(task: Task, result: Result) -> Result:
    """The result, or one that is nearer, where aiming inside the rows costs more than rounding the outputs does.

    A family is aimed inside by what rounding moves the coarsest of its means. Where that is the mean of a light group,
    heavy ones are moved with it; and where outputs are large and moved by little, it is much of the way.
    """
    coarse = task.z.dtype is not torch.float64  # rounding is then most of what rows are aimed inside by
    if (not task.system.weights.size and (result.tight or coarse)) or task.discrepancy.name != "squared":
        return result
    y, z = (as_numpy(side).astype(np.float64) for side in (result.value, task.z))
    if is_near(task, result.nu, result.missed, _norm(task, y - z), _norm(task, y)):
        return result
    task = task._replace(system=task.system.flat())
    careful = _careful(task)
    if careful is None:
        return result._replace(beyond=_beyond(task, result.nu, result.value))
    found = _taken(task, result, careful)
    kept = _taken(task, result, careful._replace(value=result.value, missed=result.missed))
    return found if found.holds and found.beyond < kept.beyond else kept


def is_near(task: Task, nu: np.ndarray, missed: np.ndarray, distance: float, size: float) -> bool:
    """Whether an output is the nearest but for its rounding, as far as the slack of its rows tells.

    distance, size: of the output from z and from 0, by weight.
    """
    rows = task.system.rows
    price = np.add.reduceat(np.abs(nu), rows.first[:-1]) * np.where(rows.kind == EACH, 2.0, 2.0 / (1.0 + rows.ratio))
    cost = float(price @ np.where(price > 0.0, -missed, 0.0))  # of the squared change
    return _is_least(task, distance, math.sqrt(max(distance * distance - cost, 0.0)), size)


def _is_least(task: Task, distance: float, least: float, size: float) -> bool:
    """Whether a distance is the least but for what rounding outputs of this size moves."""
    return distance <= least * (1.0 + NEARLY) + _UNITS[task.z.dtype] * size


def _norm(task: Task, of_sample: np.ndarray) -> float:
    largest = float(np.abs(of_sample).max(initial=0.0)) or 1.0  # whose square may be beyond the range of floats
    squares = (of_sample / largest) ** 2
    return largest * math.sqrt(task.system.weights @ squares if len(task.system.weights) else squares.sum())


def _beyond(task: Task, nu: np.ndarray, value: Tensor) -> float:
    """By how much the squared change of an output may exceed the least; 0 where the rounding of outputs is the reason.

    nu: (K,) the multipliers that prove it.
    """
    if task.discrepancy.name != "squared":
        return 0.0
    y, z = (as_numpy(side).astype(np.float64) for side in (value, task.z))
    distance, least = distances(z, y, task.system, task.box, nu)
    if _is_least(task, distance, least, _norm(task, y)):
        return 0.0
    _, least = distances(z, y, task.system, task.box.wider(task.z.dtype), nu)  # it is about the bounds as stated
    return (distance - least) * (distance + least) * (1.0 + 1e-9)


def _checked(task: Task, result: Result) -> Result:
    """The same, its shortfalls by rational arithmetic."""
    if not np.isfinite(result.statistics).all():
        raise InputError(
            f"z would have to be moved beyond the range of {task.z.dtype}: scale z, targets and bounds down, or use "
            "float64."
        )
    missed = exact_shortfalls(as_numpy(result.value).astype(np.float64), task.system, result.missed)
    return result._replace(missed=missed, tight=is_tight(task.system.rows, result.nu, missed))


def _settled(task: Task, result: Result) -> Result:
    """An output that misses rows, replaced by one that does not, or by that which misses them least of those tried."""
    if result.holds:
        return _near(task, result)
    lower, upper = task.system.stated
    room = upper - np.where(task.system.rows.kind == EACH, lower, 0.0)
    if (room[result.missed > 0.0] > 0.0).all():  # where there is none, only a grid can help
        careful = _careful(task)
        if careful is not None and careful.missed.max() < result.missed.max():
            result = _taken(task, result, careful)
    return result if result.holds else _on_grid(task, result)


def _careful(task: Task) -> Careful | None:
    """The same in twice the precision; None where that does not end, or is not to be had."""
    if task.discrepancy.name != "squared" or len(task.z) * len(task.system.rows.offset) > MOST_NUMBERS:
        return None
    return solve_carefully(task.z, task.system, task.box)


def _taken(task: Task, result: Result, careful: Careful) -> Result:
    """The result with what was found in twice the precision."""
    system, optimum = task.system, careful.optimum
    cell = as_numpy(system.cell).astype(np.int64)
    weight = system.weights if len(system.weights) else np.ones(len(cell))
    slopes = np.bincount(cell, weights=weight * optimum.inside, minlength=len(system.weight))
    result = result._replace(outcome=DONE, nu=optimum.nu, shift=optimum.shift, slopes=slopes)
    return _with_value(task, result, careful.value, careful.missed)


def _with_value(task: Task, result: Result, value: Tensor, missed: np.ndarray) -> Result:
    """The result with another output. missed: by how much it misses its rows."""
    sums, error = np.empty(len(task.system.weight)), np.empty(len(task.system.weight))
    cell = as_numpy(task.system.cell).astype(np.int32)
    exact_sums(as_numpy(value).astype(np.float64), cell, task.system.weights, sums, error)
    reached = statistics(task.system.rows, sums)
    return result._replace(value=value, missed=missed, statistics=reached, beyond=_beyond(task, result.nu, value))


def _on_grid(task: Task, result: Result) -> Result:
    """An output whose means are equal to the last digit, where that is asked for and can be found."""
    found = search_grid(result.value, task.system, task.inside)
    if found is not None:
        missed = exact_shortfalls(as_numpy(found).astype(np.float64), task.system, result.missed)
        if max(missed) < max(result.missed):
            return _with_value(task, result, found, missed)
    return result


def _relaxed(task: Task, result: Result, excess: float, scale: np.ndarray) -> tuple[Result, float]:
    """The output that violates rows least, and by how much it does."""
    rows = task.system.rows
    for _, wide in widened(rows, excess, scale):
        again = _attempt(task, wide, 0.0, np.zeros(len(scale)))
        if again.outcome != DONE:
            wider = task._replace(system=task.system._replace(rows=wide, stated=(wide.lower, wide.upper)))
            careful = _careful(wider)
            again = again if careful is None else _taken(wider, result, careful)
        if again.outcome == DONE:
            return again, max(float(largest_excess(rows, again.statistics)), excess)
    raise _unsolved(task)


def _unsolved(task: Task) -> FairlayerError:
    """What to say of a problem that no method ends on."""
    weight = task.system.weights[task.system.weights > 0]
    if len(weight) and weight.max() > _MOST_WEIGHTS * weight.min():
        return FairlayerError(
            f"The solver did not converge: weights from {weight.min():.0e} to {weight.max():.0e} are further apart "
            "than can be resolved under these constraints. Bring them within twelve decades of each other."
        )
    if task.discrepancy.name != "squared":
        least, most = float(task.z.min()), float(task.z.max())
        return FairlayerError(
            f"The solver did not converge: z, here from {least:.3g} to {most:.3g}, or the weights of the "
            f"{task.discrepancy.name!r} discrepancy are too far apart. Bring them nearer to each other (logits within "
            "30 of 0, say), allow a larger tolerance, or use 'squared'."
        )
    return FairlayerError("The solver did not converge on this problem; please report it with the inputs.")


def infeasible(view: PresentRows, rows: Rows, excess: float, push: np.ndarray) -> InfeasibleError:
    """The rows that stand in each other's way, by name."""
    blamed = np.flatnonzero(view.multipliers(push))
    names = [view.names[j] for j in blamed]
    half = 0.5 * (rows.upper - rows.lower)[view.family[blamed]]  # infinite of ratios, which name no tolerance
    return InfeasibleError(names, excess, half + excess)


def statistic_scale(
    rows: Rows, absolute: np.ndarray, weight: np.ndarray, extremes: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
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
    if task.loops is None:
        return solve_tensors(z, system._replace(rows=rows), box, unit, task.discrepancy, start)
    kind, single, given, lo, hi = task.loops
    out = np.empty(given.shape, given.dtype)
    ends = solve_loops(
        kind, given, system.cell, system.weights, system.samples, system.weight, lo, hi, rows, start, unit, single, out
    )
    outcome, nu, shift, slopes, missed, reached, absolute, tight = ends
    value = torch.from_numpy(out)
    value = value if kind != ODDS else value.to(z.dtype)
    return Result(outcome, value, nu, shift, slopes, missed, reached, absolute, tight)


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


__all__ = ["Task", "fits_loops", "infeasible", "is_near", "solve", "statistic_scale"]
