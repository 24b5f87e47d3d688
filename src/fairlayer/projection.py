"""`project`: the nearest batch of outputs that satisfies the constraints, and its derivative.

    min_y  sum_i w_i d(y_i, z_i)    subject to    lower <= rows(y) <= upper,  lo <= y <= hi.

Three layers, as for any operator: the autograd function in gradient.py (the only custom backward of the library), the
function `project` here, and the module `FairLayer` in layer.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.binding.bounds import Box, read_bounds
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.groups import Label, Name
from fairlayer.binding.rows import Rows
from fairlayer.binding.system import System, bind
from fairlayer.constraints import Constraint, as_numpy
from fairlayer.eager import eager
from fairlayer.errors import AbsentGroupError, FairlayerError, InfeasibleError, InputError
from fairlayer.gaps import exact_statistics
from fairlayer.gradient import Solved, attach_gradient
from fairlayer.solution import BatchFacts, Facts, Solution
from fairlayer.solve import cell_extremes, is_fused, solve
from fairlayer.solve.discrepancy import Discrepancy, find_discrepancy
from fairlayer.solve.feasibility import least_excess, widened
from fairlayer.solve.fused import MOST_SUM
from fairlayer.solve.newton import DONE
from fairlayer.solve.same_labels import Template, remember, solve_again

Absent = Literal["vacuous", "raise"]
Infeasible = Literal["raise", "relax"]
Path = Literal["auto", "fused", "tensor"]

_NUMPY_DTYPE = {torch.float64: np.float64, torch.float32: np.float32, torch.float16: np.float16}


@eager
def project(
    z: Any,  # (n,), (n, 1), or (B, n) with Affine; tensor or numpy array
    groups: Any = None,
    constraints: Sequence[Constraint] | Constraint | ConstraintSet = (),
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

    The value has z's type, dtype, device and shape; gradients flow to z, targets, tolerances and bounds (of an output
    that had to be relaxed, to z alone).
    """
    rules = constraints if isinstance(constraints, ConstraintSet) else ConstraintSet(constraints)
    if rules.needs_targets is None:  # whoever has them passes them; what nobody looks at must not slow the rest
        targets = None
    if not rules.needs_features:
        features = None
    how = ProjectOptions(bounds, find_discrepancy(discrepancy), levels, absent, infeasible, path)
    if isinstance(z, Tensor):
        return _project(z, rules, how, groups, targets, features, weights)
    array = np.asarray(z)
    if array.dtype not in (np.float16, np.float32, np.float64):
        raise InputError(f"z must hold floats; got an array of {array.dtype}.")
    tensor = torch.from_numpy(np.require(array, requirements=["C", "W"]))  # PyTorch has no read-only tensors
    with torch.no_grad():  # an array carries no gradient
        solution = _project(tensor, rules, how, groups, targets, features, weights)
    solution.value = solution.value.numpy()
    return solution


class ProjectOptions(NamedTuple):
    """The arguments of `project` that are not data."""

    bounds: Any
    discrepancy: Discrepancy
    levels: Mapping[Name, Sequence[Label]] | None
    absent: Absent
    infeasible: Infeasible
    path: Path


_CHOICES = {"absent": ("vacuous", "raise"), "infeasible": ("raise", "relax"), "path": ("auto", "fused", "tensor")}


def _check(z: Tensor, rules: ConstraintSet, targets: Any, how: ProjectOptions) -> None:
    """Refuse what cannot be projected, before any work."""
    if not z.is_floating_point():
        raise InputError(f"z must hold floats; got a tensor of {z.dtype}.")
    if z.ndim > 2 or z.ndim == 0 or (z.ndim == 2 and z.shape[1] != 1 and not rules.only_affine):
        raise InputError(f"z has shape {tuple(z.shape)}: pass one output per sample, shape (n,) or (n, 1).")
    if rules.needs_targets and targets is None:
        raise InputError(f"targets is missing: {rules.needs_targets} compares outputs with them.")
    for name, known in _CHOICES.items():
        if getattr(how, name) not in known:
            raise InputError(f"{name} must be one of {known}; got {getattr(how, name)!r}.")


def _project(
    z: Tensor, rules: ConstraintSet, how: ProjectOptions, groups: Any, targets: Any, features: Any, weights: Any
) -> Solution:
    """Project outputs of any shape."""
    _check(z, rules, targets, how)
    if z.ndim == 1:
        return _project_one(z, rules, how, groups, targets, features, weights)
    # One column is a batch of problems only where each has one output.
    if rules.only_affine and (z.shape[1] != 1 or rules.affine[0].A.shape[-1] == 1):
        return _project_each(z, rules, how, weights)
    solution = _project_one(z.reshape(-1), rules, how, groups, targets, features, weights)
    solution.value = solution.value.reshape(z.shape)
    return solution


def _project_one(
    z: Tensor,
    rules: ConstraintSet,
    how: ProjectOptions,
    groups: Any = None,
    targets: Any = None,
    features: Any = None,
    weights: Any = None,
) -> Solution:
    """Project one batch, z of shape (n,)."""
    n = len(z)
    box = read_bounds(how.bounds, n, _NUMPY_DTYPE.get(z.dtype, z.dtype))
    fused = is_fused(z, how.discrepancy) and how.path != "tensor"
    if how.path == "fused" and not fused:
        raise InputError(f"path='fused' takes float32 or float64 on the CPU; z is {z.dtype} on {z.device}.")
    simple = fused and targets is None and features is None and weights is None and how.levels is None
    simple = simple and not rules.affine
    simple = simple and isinstance(groups, Tensor) and groups.dtype == torch.int64 and groups.is_contiguous()
    template = rules.template
    solved = (
        _solve_like_last(z.detach(), rules, template, how, groups, box) if simple and template is not None else None
    )
    if solved is None:
        targets, weights = _read_targets(targets, n), _read_weights(weights, n)
        extent = _extent(z.detach())
        system = bind(rules, n, groups=groups, targets=targets, features=features, weights=weights, levels=how.levels)
        if system.view.vacuous and how.absent == "raise":
            raise AbsentGroupError(
                f"Groups are absent from this batch: {'; '.join(system.view.vacuous[:5])}. Use larger or stratified "
                'batches, or absent="vacuous" to project what can be compared.'
            )
        if n == 0:
            nothing = np.zeros(0)
            return Solution(z.clone(), Facts((), system.view.vacuous, system.rows, nothing, nothing, nothing))
        _refuse_overflow(extent, system, box)
        solved = _solve(z.detach().contiguous(), system, how, box, extent, fused)
        rules.template = remember(rules, system, groups) if simple else None
    return Solution(attach_gradient(z, solved), solved.facts())


def _solve_like_last(
    z: Tensor, rules: ConstraintSet, template: Template, how: ProjectOptions, table: Tensor, box: Box
) -> Solved | None:
    """Solve by the template of the last batch; None where this one differs in more than the arrangement of labels."""
    tolerances = rules.tolerances()
    if box.per_sample or box.wants_gradient or table.ndim != 2 or table.device.type != "cpu":
        return None
    if any(isinstance(tolerance, Tensor) for tolerance in tolerances):
        return None
    both = solve_again(z.contiguous(), table, template, box, template.view.limits(tolerances))
    return None if both is None else Solved(*both, box, how.discrepancy, True)


def _solve(
    z: Tensor, system: System, how: ProjectOptions, box: Box, extent: tuple[float, float], fused: bool
) -> Solved:
    """Solve, and find out why where that fails."""
    result = solve(z, system, box, extent, how.discrepancy, fused)
    if result.outcome == DONE:
        return Solved(system, result, box, how.discrepancy, fused)
    rows = system.rows
    magnitude = _magnitude(rows, extent)
    excess, blamed = least_excess(rows, *cell_extremes(system, box))
    contradiction = is_contradiction(excess, magnitude)
    if contradiction and how.infeasible == "raise":
        names = [name for name, guilty in zip(system.view.names, blamed, strict=True) if guilty]
        raise InfeasibleError(names, excess, 0.5 * (rows.upper - rows.lower)[blamed] + excess)
    for wider, wide in widened(rows, excess, magnitude):
        relaxed = system._replace(rows=wide)
        result = solve(z, relaxed, box, extent, how.discrepancy, fused, allows_rounding=True)
        if result.outcome == DONE and contradiction:
            return Solved(relaxed, result, box, how.discrepancy, fused, wider + max(result.missed.max(), 0.0))
        if result.outcome == DONE:  # feasible, at a point that rounding may not hit
            _, missed = exact_statistics(as_numpy(result.value).astype(np.float64), system)
            return Solved(system, result._replace(missed=missed), box, how.discrepancy, fused)
    raise FairlayerError("The solver did not converge on this problem; please report it with the inputs.")


def is_contradiction(excess: float, magnitude: float) -> bool:
    """Whether rows that must give way by `excess` contradict each other; less is within what rounding can tell."""
    return excess > 1e-9 * magnitude


def _magnitude(rows: Rows, extent: tuple[float, float]) -> float:
    """The size of the numbers at hand."""
    finite = [np.abs(side[np.isfinite(side)]).max(initial=0.0) for side in (rows.lower, rows.upper)]
    return max(*map(abs, extent), *finite, np.abs(rows.offset).max(initial=0.0), 1e-300)


def _extent(z: Tensor) -> tuple[float, float]:
    """Least and greatest output, all of which must be finite."""
    if len(z) == 0:
        return 0.0, 0.0
    least, greatest = torch.aminmax(z)
    extent = float(least), float(greatest)
    if not (math.isfinite(extent[0]) and math.isfinite(extent[1])):
        position = int((~torch.isfinite(z)).nonzero()[0])
        raise InputError(f"z[{position}] is {float(z[position])}: outputs must be finite.")
    return extent


def _refuse_overflow(extent: tuple[float, float], system: System, box: Box) -> None:
    """Refuse outputs whose sums may exceed what float64 can hold."""
    largest = max(*map(abs, extent), float(box.lo.max()), -float(box.hi.min()))
    total = float(max(system.weight.sum(), (system.weight @ np.abs(system.rows.M)).max(initial=0.0)))
    if not largest * total <= MOST_SUM:
        raise InputError(
            f"z is too large: with outputs (or bounds) up to {largest:.3g}, the rows' sums may pass {MOST_SUM:g}, near "
            "the end of float64's range. Scale z, and with it targets, tolerances and bounds, down."
        )


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
    try:
        values = as_numpy(weights).reshape(-1).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"weights must be numbers, one per output: {error}") from error
    if len(values) != n:
        raise InputError(f"weights has {len(values)} entries for {n} outputs: pass one per output.")
    if not np.isfinite(values).all() or (values < 0).any():
        raise InputError("weights must be finite and at least 0.")
    return values


def _project_each(z: Tensor, rules: ConstraintSet, how: ProjectOptions, weights: Any) -> Solution:
    """Project a batch of independent problems, z of shape (B, n), one after the other."""
    for constraint in rules.affine:
        if constraint.problems not in (None, len(z)):
            raise InputError(f"A holds {constraint.problems} problems, z holds {len(z)}: their numbers must agree.")
    solutions = [
        _project_one(z[b], ConstraintSet([c.problem(b) for c in rules.affine]), how, weights=weights)
        for b in range(len(z))
    ]
    value = torch.stack([solution.value for solution in solutions]) if solutions else z.clone()
    return Solution(value, BatchFacts([solution.facts for solution in solutions]))
