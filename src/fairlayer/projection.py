"""`project`: the nearest batch of outputs that satisfies the constraints, and its derivative.

    min_y  sum_i w_i d(y_i, z_i)    subject to    lower <= rows(y) <= upper,  lo <= y <= hi.

Three layers, as for any operator: the autograd function (the only custom backward of the library), the function
`project`, and the module `FairLayer` in layer.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fairlayer.bounds import Box, read_bounds
from fairlayer.constraints import Affine, Constraint, as_numpy
from fairlayer.discrepancy import Discrepancy, find_discrepancy
from fairlayer.errors import AbsentGroupError, FairlayerError, InfeasibleError, InputError
from fairlayer.groups import Label, Name
from fairlayer.rows import Rows
from fairlayer.solution import Solution, Status
from fairlayer.solve import cell_extremes, is_fused, solve
from fairlayer.solve.feasibility import least_excess
from fairlayer.solve.fused import pull_back
from fairlayer.solve.newton import DONE
from fairlayer.solve.result import Result
from fairlayer.system import System, bind

Absent = Literal["vacuous", "raise"]
Infeasible = Literal["raise", "relax"]
Path = Literal["auto", "fused", "tensor"]

_NUMPY_DTYPE = {torch.float64: np.float64, torch.float32: np.float32, torch.float16: np.float16}


@torch.compiler.disable
def project(
    z: Any,  # (n,), (n, 1), or (B, n) with Affine; tensor or numpy array
    groups: Any = None,
    constraints: Sequence[Constraint] | Constraint = (),
    bounds: Any = None,
    targets: Any = None,  # (n,)
    features: Any = None,
    weights: Any = None,  # (n,)
    discrepancy: str | Discrepancy = "squared",
    *,
    levels: Mapping[Name, Sequence[Label]] | None = None,
    absent: Absent = "vacuous",
    infeasible: Infeasible = "raise",
    path: Path = "auto",
) -> Solution:
    """Project outputs onto constraints.

    z: raw outputs. groups: protected attributes, as columns by name, a frame, or an (n,) or (n, k) array.
    bounds: (lo, hi), each None, a number, or one number per output. targets, features: where a constraint needs them.
    weights: a sample of weight 2 counts as two equal samples. levels: all labels an attribute can have.
    absent: what to do about groups without a sample: "vacuous" (the status names them) or "raise".
    infeasible: "raise", or "relax" for the output that violates the rows least.
    path: "fused" (compiled, CPU), "tensor" (any device), or "auto".

    The value has z's type, dtype, device and shape; gradients flow to z, targets, tolerances and bounds.
    """
    constraints = [constraints] if isinstance(constraints, Constraint) else list(constraints)
    if not isinstance(z, Tensor):
        array = np.asarray(z)
        if array.dtype not in (np.float16, np.float32, np.float64):
            raise InputError(f"z must hold floats; got an array of {array.dtype}.")
        z, as_array = torch.from_numpy(np.ascontiguousarray(array)), True
    else:
        as_array = False
    _check(z, constraints, targets, absent, infeasible, path)
    if z.ndim == 2 and constraints and all(isinstance(c, Affine) for c in constraints):
        solution = _project_each(z, constraints, bounds, weights, discrepancy, infeasible, path)
    else:
        flat = z.reshape(-1)
        solution = _project_one(
            flat, groups, constraints, bounds, targets, features, weights, discrepancy, levels, absent, infeasible, path
        )
        if z.ndim == 2:
            solution = replace(solution, value=solution.value.reshape(z.shape))
    if as_array:
        value, gaps, multipliers = (as_numpy(x) for x in (solution.value, solution.gaps, solution.multipliers))
        return replace(solution, value=value, gaps=gaps, multipliers=multipliers)
    return solution


def _check(z: Tensor, constraints: Sequence[Constraint], targets: Any, absent: str, infeasible: str, path: str) -> None:
    """Refuse what cannot be projected, before any work."""
    if not z.is_floating_point():
        raise InputError(f"z must hold floats; got a tensor of {z.dtype}.")
    for constraint in constraints:
        if not isinstance(constraint, Constraint):
            raise InputError(f"constraints must hold constraints such as MeanParity(0.05); got {constraint!r}.")
    affine = bool(constraints) and all(isinstance(constraint, Affine) for constraint in constraints)
    if z.ndim > 2 or z.ndim == 0 or (z.ndim == 2 and z.shape[1] != 1 and not affine):
        raise InputError(f"z has shape {tuple(z.shape)}: pass one output per sample, shape (n,) or (n, 1).")
    for name, value, known in (
        ("absent", absent, ("vacuous", "raise")),
        ("infeasible", infeasible, ("raise", "relax")),
        ("path", path, ("auto", "fused", "tensor")),
    ):
        if value not in known:
            raise InputError(f"{name} must be one of {known}; got {value!r}.")
    for constraint in constraints:
        if constraint.needs_targets and targets is None:
            raise InputError(f"targets is missing: {type(constraint).__name__} compares outputs with them.")


def _project_one(
    z: Tensor,
    groups: Any,
    constraints: Sequence[Constraint],
    bounds: Any,
    targets: Any,
    features: Any,
    weights: Any,
    discrepancy: str | Discrepancy,
    levels: Mapping[Name, Sequence[Label]] | None,
    absent: Absent,
    infeasible: Infeasible,
    path: Path,
) -> Solution:
    """Project one batch, z of shape (n,)."""
    n = len(z)
    measure = find_discrepancy(discrepancy)
    box = read_bounds(bounds, n, _NUMPY_DTYPE.get(z.dtype, np.float32))
    if n and not torch.isfinite(z.detach()).all():
        position = int((~torch.isfinite(z.detach())).nonzero()[0])
        raise InputError(f"z[{position}] is {float(z[position])}: outputs must be finite.")
    system = bind(
        constraints,
        n,
        groups=groups,
        targets=_read_targets(targets, n),
        features=features,
        weights=_read_weights(weights, n),
        levels=levels,
    )
    if system.plan.vacuous and absent == "raise":
        raise AbsentGroupError(
            f"Groups are absent from this batch: {'; '.join(system.plan.vacuous[:5])}. Use larger or stratified "
            'batches, or absent="vacuous" to project what can be compared.'
        )
    if n == 0:
        empty = torch.zeros(0, dtype=torch.float64)
        return Solution(z.clone(), empty, empty, (), np.zeros(0), np.zeros(0), Status.VACUOUS, system.plan.vacuous)

    fused = is_fused(z, measure) and path != "tensor"
    if path == "fused" and not fused:
        raise InputError(f"path='fused' takes float32 or float64 on the CPU; z is {z.dtype} on {z.device}.")
    task = _Task(system, box, measure, fused, infeasible)
    wanting = (z, system.lower, system.upper, system.offset, box.lo_tensor, box.hi_tensor)
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in wanting):
        value = _Projection.apply(*wanting, task)
    else:
        value = task.run(z.detach())
    return task.solution(value)


def _read_targets(targets: Any, n: int) -> Any:
    if targets is None:
        return None
    flat = targets.reshape(-1) if isinstance(targets, Tensor) else np.asarray(targets).reshape(-1)
    if len(flat) != n:
        raise InputError(f"targets has {len(flat)} entries for {n} outputs: pass one per output.")
    values = as_numpy(flat)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError(f"targets[{int(np.flatnonzero(~np.isfinite(values))[0])}] is not finite.")
    return flat


def _read_weights(weights: Any, n: int) -> np.ndarray | None:
    if weights is None:
        return None
    values = as_numpy(weights).reshape(-1).astype(np.float64)
    if len(values) != n:
        raise InputError(f"weights has {len(values)} entries for {n} outputs: pass one per output.")
    if not np.isfinite(values).all() or (values < 0).any():
        raise InputError("weights must be finite and at least 0.")
    return values


class _Task:
    """One projection: what goes in, and what came out."""

    result: Result
    excess: float = 0.0

    def __init__(self, system: System, box: Box, discrepancy: Discrepancy, fused: bool, infeasible: Infeasible):
        self.system = system
        self.box = box
        self.discrepancy = discrepancy
        self.fused = fused
        self.infeasible = infeasible

    def run(self, z: Tensor) -> Tensor:
        """Solve, and find out why where that fails."""
        z = z.contiguous()
        self.result = solve(z, self.system, self.box, self.discrepancy, self.fused)
        if self.result.outcome != DONE:
            rows = self.system.rows
            excess, blamed = least_excess(rows, *cell_extremes(self.system, self.box))
            if self.infeasible == "raise" and excess > 1e-9 * _magnitude(rows, z):
                names = [name for name, guilty in zip(self.system.names, blamed, strict=True) if guilty]
                half = 0.5 * (rows.upper - rows.lower)[blamed]
                raise InfeasibleError(names, excess, half + excess)
            self._relax(z, excess)
        return self.result.value

    def _relax(self, z: Tensor, excess: float) -> None:
        """Widen the rows by as little as makes them feasible, and a hair more, so that the solver has room."""
        rows = self.system.rows
        for room in (1e-12, 1e-10, 1e-8, 1e-6):
            self.excess = excess + room * max(excess, _magnitude(rows, z))
            wider = rows._replace(lower=rows.lower - self.excess, upper=rows.upper + self.excess)
            self.system = replace(self.system, rows=wider)
            self.result = solve(z, self.system, self.box, self.discrepancy, self.fused)
            if self.result.outcome == DONE:
                return
        raise FairlayerError("The solver did not converge on this problem; please report it with the inputs.")

    def solution(self, value: Tensor) -> Solution:
        """What the user gets."""
        result, rows, plan = self.result, self.system.rows, self.system.plan
        q = np.append(result.statistics, 0.0)  # minus = -1 reads the zero at the end
        if self.excess:
            status = Status.RELAXED
        elif len(result.missed) and result.missed.max() > 0.0:
            status = Status.ROUNDED
        else:
            status = Status.VACUOUS if plan.vacuous else Status.OPTIMAL
        return Solution(
            value,
            torch.from_numpy(q[rows.plus] - q[rows.minus]),
            torch.from_numpy(result.multipliers),
            plan.names,
            rows.lower,
            rows.upper,
            status,
            plan.vacuous,
            self.excess,
        )


def _magnitude(rows: Rows, z: Tensor) -> float:
    """The size of the numbers at hand."""
    finite = [np.abs(side[np.isfinite(side)]).max(initial=0.0) for side in (rows.lower, rows.upper)]
    return max(float(z.abs().max()), *finite, np.abs(rows.offset).max(initial=0.0), 1e-300)


class _Projection(torch.autograd.Function):
    """The projection as a function of z, row bounds, statistic offsets, and the box."""

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        lower: Tensor | None,
        upper: Tensor | None,
        offset: Tensor | None,
        lo: Tensor | None,
        hi: Tensor | None,
        task: _Task,
    ) -> Tensor:
        value = task.run(z)
        ctx.save_for_backward(z)
        ctx.task = task
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        task: _Task = ctx.task
        (z,) = ctx.saved_tensors
        only_z = not any(ctx.needs_input_grad[1:])
        if task.fused and only_z and not torch.is_grad_enabled():
            return _fused_gradient(task, z, gradient), None, None, None, None, None, None
        if torch.is_grad_enabled() and not task.discrepancy.piecewise_linear:
            raise RuntimeError(
                f"Double backward through the {task.discrepancy.name!r} discrepancy is not available: "
                "its second derivatives are not implemented. Use create_graph=False, or discrepancy='squared'."
            )
        return _tensor_gradients(task, z.detach(), gradient, ctx.needs_input_grad)


def _fused_gradient(task: _Task, z: Tensor, gradient: Tensor) -> Tensor:
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    system, result = task.system, task.result
    pull_back(
        gradient.contiguous().numpy(),
        z.detach().contiguous().numpy(),
        system.index,
        system.weights,
        task.box.lo,
        task.box.hi,
        result.shift,
        result.slopes,
        system.rows,
        result.active,
        out.numpy(),
    )
    return out


def _tensor_gradients(task: _Task, z: Tensor, gradient: Tensor, needed: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """Gradients in tensor operations, themselves differentiable with respect to `gradient`.

    With A the active rows, D the slopes and rho_z the sensitivities: v = (A D A')^+ A D g, and

        dz = rho_z (g - A'v),   d(row bound) = v,   d(offset) = R'v,   d(box) = g - A'v where a sample rests on it.
    """
    system, result, device = task.system, task.result, z.device
    rows = system.rows
    index = torch.as_tensor(system.index, device=device).long()
    lo, hi = task.box.tensors(device)
    s = torch.from_numpy(result.shift).to(device)[index]
    exact = z.double()
    if task.fused:  # which side of a bound a sample is on was decided in its own dtype
        exact, s = (exact - s).to(z.dtype).double(), torch.zeros((), dtype=torch.float64)
    slope = task.discrepancy.slope(exact, s, lo, hi)
    sensitivity = task.discrepancy.sensitivity(exact, s, lo, hi)

    R = np.zeros((len(result.active), rows.M.shape[1]))
    for a, j in enumerate(result.active):
        R[a, rows.plus[j]] += 1.0
        if rows.minus[j] >= 0:
            R[a, rows.minus[j]] -= 1.0
    over_cells = R @ rows.M.T  # (a, G)
    inverse = np.linalg.pinv((over_cells * result.slopes) @ over_cells.T, rcond=1e-12, hermitian=True)
    A = torch.from_numpy(over_cells).to(device)

    g = gradient.double()
    sums = torch.zeros(A.shape[1], dtype=torch.float64, device=device).index_add(0, index, slope * g)
    v = torch.from_numpy(inverse).to(device) @ (A @ sums)
    correction = (v @ A)[index]
    if len(system.weights):
        correction = correction * torch.from_numpy(system.weights).to(device)
    free = g - correction

    mu = torch.from_numpy(result.multipliers[result.active]).to(device)
    active = torch.from_numpy(result.active).to(device)
    per_row = torch.zeros(len(rows.plus), dtype=torch.float64, device=device)
    held = 1.0 - slope
    raw = exact - s
    return (
        (sensitivity * free).to(z.dtype) if needed[0] else None,
        per_row.index_add(0, active, v * (mu < 0)).cpu() if needed[1] else None,
        per_row.index_add(0, active, v * (mu >= 0)).cpu() if needed[2] else None,
        (v @ torch.from_numpy(R).to(device)).cpu() if needed[3] else None,
        _to_bound(held * free * (raw < lo), task.box.lo_tensor) if needed[4] else None,
        _to_bound(held * free * (raw > hi), task.box.hi_tensor) if needed[5] else None,
        None,
    )


def _to_bound(gradient: Tensor, bound: Tensor | None) -> Tensor | None:
    """Sum to the shape of the bound, which may be one number for all samples."""
    if bound is None:
        return None
    return (gradient if bound.ndim else gradient.sum()).to(bound.dtype).to(bound.device)


def _project_each(
    z: Tensor,
    constraints: Sequence[Constraint],
    bounds: Any,
    weights: Any,
    discrepancy: str | Discrepancy,
    infeasible: Infeasible,
    path: Path,
) -> Solution:
    """Project a batch of independent problems, z of shape (B, n), one after the other."""
    affine: list[Affine] = [c for c in constraints if isinstance(c, Affine)]
    for constraint in affine:
        if constraint.A.ndim == 3 and len(constraint.A) != len(z):
            raise InputError(f"A holds {len(constraint.A)} problems, z holds {len(z)}: their numbers must agree.")
    solutions = [
        _project_one(
            z[b], None, [c.problem(b) for c in affine], bounds, None, None, weights, discrepancy, None, "vacuous",
            infeasible, path,
        )
        for b in range(len(z))
    ]  # fmt: skip
    if not solutions:
        empty = torch.zeros((0, 0), dtype=torch.float64)
        return Solution(z.clone(), empty, empty, (), np.zeros((0, 0)), np.zeros((0, 0)), Status.VACUOUS)
    severity = list(Status)
    return Solution(
        torch.stack([s.value for s in solutions]),
        torch.stack([s.gaps for s in solutions]),
        torch.stack([s.multipliers for s in solutions]),
        solutions[0].rows,
        np.stack([s.lower for s in solutions]),
        np.stack([s.upper for s in solutions]),
        max((s.status for s in solutions), key=severity.index),
        excess=max(s.excess for s in solutions),
    )
