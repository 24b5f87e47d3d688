"""Any convex discrepancy and any convex set, by a general conic solver: the paper's layer at full generality.

cvxpylayers solves and differentiates; it comes with the extra `conic`. What is won is freedom, in the discrepancy
(samples need not be separate) and in the set. What is lost is speed (a problem is built anew for every batch) and
exactness: rows hold to the solver's tolerance only, and the status says so.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box
from fairlayer.binding.exact_sums import exact_sums
from fairlayer.binding.rows import EACH, Rows, dense
from fairlayer.binding.system import System
from fairlayer.errors import FairlayerError, InputError
from fairlayer.extras import needs
from fairlayer.solve import infeasible, statistic_scale
from fairlayer.solve.certify import shortfalls
from fairlayer.solve.feasibility import cell_extremes, least_excess
from fairlayer.solve.newton import statistics

_FINE = {"solve_method": "Clarabel", "tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}
_LOST = 1e-3  # of the size of a statistic: whatever misses its rows by more was not solved


class Conic:
    """A discrepancy, and if need be more constraints, as cvxpy writes them.

    objective: makes the expression to be minimised of the variable y, (n,), and the parameter z, (n,), such as
    `lambda y, z: cvxpy.norm1(y - z)`; it must be convex, and follow cvxpy's rules for parameters (DPP).
    also: makes a list of further constraints of y and z, such as `lambda y, z: [cvxpy.diff(y) >= 0]`.
    options: of the solver, as cvxpylayers passes them on; solve_method is its name, Clarabel unless told.
    """

    name: ClassVar[str] = "conic"

    def __init__(
        self,
        objective: Callable[[Any, Any], Any],
        also: Callable[[Any, Any], list[Any]] | None = None,
        **options: Any,
    ):
        if not callable(objective) or not (also is None or callable(also)):
            raise InputError("objective and also must be functions of y and z that return what cvxpy makes of them.")
        self.objective = objective
        self.also = also
        self.options = {**_FINE, **options} if "solve_method" not in options else options

    def project(self, z: Tensor, system: System, box: Box) -> tuple[Tensor, np.ndarray, np.ndarray]:
        """(the output as a function of z, (K,) its statistics, (F,) by how much it misses its families)."""
        with needs("A discrepancy of any form", "cvxpylayers"):
            import cvxpy
            from cvxpylayers.torch import CvxpyLayer
        if system.lower is not None or system.upper is not None or system.offset is not None or box.wants_gradient:
            raise InputError("Conic has gradients of z alone: detach tolerances, targets and bounds.")
        n, rows = len(z), system.rows
        y, given = cvxpy.Variable(n), cvxpy.Parameter(n)
        sums = dense(rows)[as_numpy(system.cell)].T  # (K, n)
        if len(system.weights):
            sums = sums * system.weights
        stated = [*_stated(cvxpy, rows, sums @ y - rows.offset), *_bounds(y, box)]
        stated += self.also(y, given) if self.also else []
        problem = cvxpy.Problem(cvxpy.Minimize(self.objective(y, given)), stated)
        if not problem.is_dpp():
            raise InputError(
                "objective and also do not make a problem that cvxpy knows to be convex, with z a parameter: see "
                "https://www.cvxpy.org/tutorial/dcp for what it knows."
            )
        try:
            (value,) = CvxpyLayer(problem, [given], [y])(z.cpu().double(), solver_args=self.options)
        except Exception as error:
            raise _explained(system, box, z, str(error)) from error
        value = value.to(dtype=z.dtype, device=z.device)
        q, missed = _measured(value.detach(), system)
        if not missed.max(initial=-np.inf) <= _LOST * _scale(system, box, z).max(initial=0.0):
            raise _explained(system, box, z, f"it ended with rows missed by {missed.max():.3g}")
        return value, q, missed


def _stated(cvxpy: Any, rows: Rows, q: Any) -> list[Any]:
    """Families as constraints on their statistics; of those that are compared, through a number between them."""
    stated = []
    for f, (begin, end) in enumerate(pairwise(rows.first.tolist())):
        here = np.flatnonzero(rows.present[begin:end]) + begin
        lower, upper = rows.lower[f], rows.upper[f]
        if rows.kind[f] == EACH and len(here):
            stated += [q[here] <= upper] if np.isfinite(upper) else []
            stated += [q[here] >= lower] if np.isfinite(lower) else []
        elif len(here) > 1:
            least = cvxpy.Variable()
            stated += [rows.ratio[f] * q[here] <= least + upper, q[here] >= least]
    return stated


def _bounds(y: Any, box: Box) -> list[Any]:
    lo, hi = (np.broadcast_to(side, y.shape) for side in box.wide())
    low, high = np.isfinite(lo), np.isfinite(hi)
    return [y[side] >= lo[side] for side in [low] if low.any()] + [y[side] <= hi[side] for side in [high] if high.any()]


def _measured(value: Tensor, system: System) -> tuple[np.ndarray, np.ndarray]:
    G, rows = len(system.weight), system.rows
    sums, error, missed = np.empty(G), np.empty(G), np.empty(len(rows.kind))
    exact_sums(value.double().cpu().numpy(), as_numpy(system.cell).astype(np.int32), system.weights, sums, error)
    shortfalls(rows, sums, error, missed)
    return statistics(rows, sums), missed


def _scale(system: System, box: Box, z: Tensor) -> np.ndarray:
    size = np.abs(as_numpy(z.detach().double()))
    absolute = np.bincount(as_numpy(system.cell), size, minlength=len(system.weight))
    return statistic_scale(system.rows, absolute, system.weight, cell_extremes(system, box))


def _explained(system: System, box: Box, z: Tensor, what: str) -> FairlayerError:
    """Why a solver failed: rows that contradict each other or the bounds, or itself."""
    scale = _scale(system, box, z)
    excess, push = least_excess(system.rows, *cell_extremes(system, box), scale)
    if excess:
        return infeasible(system.view, system.rows, excess, push)
    return FairlayerError(f"The conic solver failed on this problem: {what}")
