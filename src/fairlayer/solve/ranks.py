"""The solve over the ranks of a process group: each takes sums of its own samples, and every pass is one sum over all.

Sums are whole numbers (`windows`), the same for any number of ranks and any split of the batch. So every rank runs the
same driver on the same numbers, and nothing else needs to be sent. Where that does not end well (a contradiction, a
tolerance finer than the dtype) the batch is gathered, and the first rank finds out why, as a process by itself would.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.binding.exact_sums import PRODUCT_LIMBS, UNIT, accumulate, carry, round_sums
from fairlayer.binding.process_group import Ranks
from fairlayer.errors import FairlayerError, InputError, RankError
from fairlayer.solve import Task, fits_loops, is_near, solve
from fairlayer.solve.discrepancy import has_loops
from fairlayer.solve.driver import EXACT, MEASURE, SUMS, WRITE
from fairlayer.solve.gathering import gather
from fairlayer.solve.loops import MOST_SUM
from fairlayer.solve.newton import ABSOLUTE as CELL_ABSOLUTE
from fairlayer.solve.newton import COUNT, DONE, ERROR, SHIFT, D, S
from fairlayer.solve.opening import Whole, make_share
from fairlayer.solve.passes import run_passes
from fairlayer.solve.result import Result
from fairlayer.solve.shares import ABSOLUTE, OUTPUT_SLOPES, OUTPUTS, SLOPES, WRITTEN, Share, largest_output, sizes_of
from fairlayer.solve.windows import bottom_below, sum_errors, window_sums

_SMALLEST, _LARGEST = 1e-120, 1e120  # beyond, the batch is solved in other units
_GRADIENT_BOTTOM = -250  # of the windows of a gradient, good for numbers from 2^-150 to 2^80
_LEAST_GRADIENT, _MOST_GRADIENT = 2.0**-150, 2.0**80
_NO_START = np.zeros(0)


class RankPasses:
    """Passes over the samples of all ranks."""

    def __init__(self, ranks: Ranks, whole: Whole, task: Task):
        self.ranks, self.whole, self.held, self.task = ranks, whole, whole.held, task
        self.G, self.weights = len(whole.least), whole.held.part.weights
        self.both = task.z.dtype != torch.float64  # outputs are rounded when they are written
        self.at = np.zeros(self.G)  # the shifts at which sums were taken last
        self.taken, self.bottoms = self._as_floats(whole.sums, whole.bottoms), whole.bottoms
        self.written: Tensor | None = None  # by the samples held

    @property
    def value(self) -> Tensor | None:
        """The outputs of this rank."""
        if self.written is None or self.held.rows is None:
            return self.written
        return self.written[self.whole.mine].clone()

    def usual_slope(self) -> float:
        """The mean slope of a sample before any shift, by weight."""
        return float(self.taken[SLOPES].sum()) / float(self.task.system.weight.sum()) or 1.0

    def answer(self, request: int, of_cell: np.ndarray) -> None:
        """Take the sums that are asked for, unless they are known."""
        if request == EXACT:
            if self.weights is not None:  # without weights they are exact as they are
                self._exact(of_cell)
            return
        if request != MEASURE and not (of_cell[SHIFT] == self.at).all():
            self._take(of_cell[SHIFT])
        outputs, slopes = (OUTPUTS, OUTPUT_SLOPES) if request == SUMS else (WRITTEN, SLOPES)
        of_cell[S], of_cell[D] = self.taken[outputs], self.taken[slopes]
        if request == MEASURE:
            of_cell[CELL_ABSOLUTE] = self.taken[ABSOLUTE]
        if request == WRITE:
            self.written = self.held.share.write(of_cell[SHIFT])
            of_cell[ERROR] = sum_errors(of_cell[S], of_cell[COUNT], self.bottoms[0])
            if self.weights is not None:  # the product with the weight is rounded
                of_cell[ERROR] += 1.01 * UNIT * self.taken[ABSOLUTE]

    def _take(self, shift: np.ndarray) -> None:
        whole, discrepancy, furthest = self.whole, self.task.discrepancy, float(np.abs(shift).max(initial=0.0))
        largest = largest_output(discrepancy, whole.largest, whole.extent[1], whole.limits[1], furthest)
        sizes = sizes_of(discrepancy, 2.0 * largest, whole.heaviest)
        self.bottoms = bottom_below(sizes[0]), bottom_below(sizes[1])
        windows = self.held.share.sums(shift, sizes, self.bottoms, self.both, self.weights is not None)
        self.taken = self._as_floats(self.held.total(self.ranks, windows), self.bottoms)
        self.at = shift.copy()

    def _as_floats(self, windows: np.ndarray, bottoms: tuple[int, int]) -> np.ndarray:
        """(5, G) sums; those before rounding are the same where nothing is rounded."""
        sums = np.empty((5, self.G))
        outputs, slopes = bottoms
        window_sums(windows, np.array([outputs, slopes, outputs, outputs, slopes]), sums)
        if len(windows) == OUTPUTS:
            sums[OUTPUTS], sums[OUTPUT_SLOPES] = sums[WRITTEN], sums[SLOPES]
        return sums

    def _exact(self, of_cell: np.ndarray) -> None:
        limbs = np.zeros((self.G, PRODUCT_LIMBS), dtype=np.int64)
        values = as_numpy(self.written).astype(np.float64)
        accumulate(values, as_numpy(self.held.cell).astype(np.int32, copy=False), self.weights, limbs)
        carry(limbs)
        round_sums(self.held.total(self.ranks, limbs), of_cell[S], of_cell[ERROR])

    def norms(self) -> tuple[float, float]:
        """The distances of the output from z and from 0, by weight; the same for any split."""
        y, z = (as_numpy(side).astype(np.float64) for side in (self.written, self.held.part.z))
        unit = self.whole.largest or 1.0  # squares of large outputs may be beyond the range of floats
        limbs, only = np.zeros((2, PRODUCT_LIMBS), dtype=np.int64), np.zeros(len(y), dtype=np.int32)
        weights = np.ones(len(y)) if self.weights is None else self.weights
        for k, values in enumerate((y - z, y)):
            accumulate((values / unit) ** 2, only, weights, limbs[k : k + 1])
        carry(limbs)
        sums, error = np.empty(2), np.empty(2)
        round_sums(self.held.total(self.ranks, limbs), sums, error)
        distance, size = (unit * np.sqrt(sums)).tolist()
        return distance, size


def solve_ranks(task: Task, whole: Whole, relax: bool = False) -> tuple[Result, float]:
    """Project this rank's share of a batch; the result, and by how much the rows had to give way.

    Raises on all ranks, or on none.
    """
    system, ranks = task.system, task.ranks
    assert ranks is not None
    if not whole.largest * max(float(system.weight.sum()), 1.0) <= MOST_SUM:
        raise InputError(
            f"z is too large: with outputs up to {whole.largest:.3g}, sums may exceed {MOST_SUM:g}, near the end of "
            "float64's range. Scale z, and with it targets, tolerances and bounds, down."
        )
    size = whole.largest * whole.heaviest
    if size != 0.0 and not _SMALLEST < size < _LARGEST:
        return _solve_gathered(task, whole, relax)
    passes = RankPasses(ranks, whole, task)
    extent, unit = (*whole.extent, *whole.limits), torch.finfo(task.z.dtype).eps / 2
    result = run_passes(passes, system, task.discrepancy, extent, (whole.least, whole.most), _NO_START, unit)
    if result.outcome != DONE or not result.holds:
        return _solve_gathered(task, whole, relax)
    asks = passes.weights is not None or (task.z.dtype == torch.float64 and not result.tight)
    if asks and task.discrepancy.name == "squared" and not is_near(task, result.nu, result.missed, *passes.norms()):
        return _solve_gathered(task, whole, relax)
    return result, 0.0


def _solve_gathered(task: Task, whole: Whole, relax: bool) -> tuple[Result, float]:
    """The same on the first rank alone, with all samples, in an order that does not depend on who holds them."""
    ranks = task.ranks
    assert ranks is not None
    batch = gather(ranks, whole)
    found: Any = None
    if ranks.rank == 0:
        z = batch.z.cpu()
        compiled = fits_loops(z) and has_loops(task.discrepancy)
        alone = Task.of(z, batch.system, batch.box, task.discrepancy, compiled)
        try:
            found = solve(alone, relax)
        except Exception as error:
            found = error
    found = ranks.from_first(found)
    if isinstance(found, FairlayerError):
        raise found
    if isinstance(found, Exception):
        raise RankError(f"Rank 0 failed to solve the gathered batch: {type(found).__name__}: {found}") from found
    result, excess = found
    return result._replace(value=batch.own(result.value).to(task.z.device)), excess


def gradient_sums(task: Task, shift: np.ndarray, z: Tensor, gradient: Tensor) -> np.ndarray:
    """(G,) sums over all ranks of slope times gradient. One exchange, unless gradients are extremely large or small."""
    ranks, system = task.ranks, task.system
    assert ranks is not None
    share = make_share(z.contiguous(), system.cell, system.weights, task.box, task.discrepancy, task.loops is not None)
    bottom = _GRADIENT_BOTTOM
    while True:
        found, largest = _gradient_windows(ranks, share, gradient, shift, bottom)
        if not math.isfinite(largest):  # as an overflow of the loss makes them: none of it is a number, on any rank
            return np.full(len(shift), np.nan)
        if bottom != _GRADIENT_BOTTOM or largest == 0.0 or _LEAST_GRADIENT <= largest <= _MOST_GRADIENT:
            break
        bottom = bottom_below(largest)
    sums = np.empty((1, len(shift)))
    window_sums(found[None], np.array([bottom]), sums)
    return sums[0]


def _gradient_windows(
    ranks: Ranks, share: Share, gradient: Tensor, shift: np.ndarray, bottom: int
) -> tuple[np.ndarray, float]:
    """Windows of the cells over all ranks, and the largest value of all."""
    windows, largest = share.slope_sums(gradient, shift, bottom)
    words = np.zeros(ranks.size + windows.size, dtype=np.int64)
    words[ranks.rank : ranks.rank + 1].view(np.float64)[0] = largest
    words[ranks.size :] = windows.reshape(-1)
    found = ranks.total(words)
    return found[ranks.size :].reshape(windows.shape), float(found[: ranks.size].view(np.float64).max())
