"""`project`: the nearest batch of outputs that satisfies the constraints, and its derivative.

    min_y  sum_i w_i d(y_i, z_i)    subject to    lower <= rows(y) <= upper,  lo <= y <= hi.

Three layers, as for any operator: the autograd function in gradient.py (the only custom backward of the library), the
function `project` here, and the module `FairLayer` in layer.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy, check_dense, is_dense
from fairlayer.binding.bounds import Box, read_bounds
from fairlayer.binding.cells import assign_cells
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.groups import SoftGroup, is_missing
from fairlayer.binding.process_group import Group, Ranks, find_ranks
from fairlayer.binding.system import System, bind, read_columns
from fairlayer.classes import check_classes, check_probabilities, project_classes
from fairlayer.constraints.constraint import Constraint
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.decisions.project import project_decisions, read_threshold
from fairlayer.decisions.surrogate import check_surrogate
from fairlayer.eager import eager
from fairlayer.errors import AbsentGroupError, InputError
from fairlayer.gaps import bind_batch
from fairlayer.gradient import (
    WholeBatch,
    attach_gradient,
    attach_share,
    in_forward_mode,
    project_batch,
    refuse_tangents,
    stacked,
)
from fairlayer.margin import settle
from fairlayer.solution import BatchFacts, ColumnFacts, ConicFacts, Facts, ProblemFacts, Solution
from fairlayer.solve import Task, is_compiled, solve
from fairlayer.solve.conic import Conic
from fairlayer.solve.discrepancy import Discrepancy, check_interval, find_discrepancy, has_loops
from fairlayer.solve.gathering import gather
from fairlayer.solve.opening import Whole, open_batch
from fairlayer.solve.part import Part, per_sample, shared_settings
from fairlayer.solve.ranks import solve_ranks

Absent = Literal["vacuous", "raise"]
Infeasible = Literal["raise", "relax"]
Path = Literal["auto", "compiled", "tensor"]
Surrogate = Literal["sigmoid"] | None

# The dtypes of outputs, and how bounds are read in each: as torch has them where numpy has none.
_DTYPES: dict[torch.dtype, Any] = {
    torch.float64: np.float64,
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.bfloat16: torch.bfloat16,
}
_LEAST_WEIGHT, _WIDEST_WEIGHTS = 1e-250, 1e100


@eager
def project(
    z: Any,  # (n,) or (n, d); (B, n) with Affine alone; tensor or numpy array
    groups: Any = None,
    constraints: Sequence[Constraint] | Constraint | ConstraintSet = (),
    bounds: Any = None,
    targets: Any = None,  # (n,), or (n, d) for outputs of several columns
    features: Any = None,
    weights: Any = None,  # (n,)
    discrepancy: str | Discrepancy | Conic = "squared",
    *,
    levels: Mapping[Name, Sequence[Label]] | None = None,
    absent: Absent = "vacuous",
    infeasible: Infeasible = "raise",
    path: Path = "auto",
    surrogate: Surrogate = None,
    temperature: float = 0.1,
    process_group: Group = None,
    confidence: float | None = None,
    simplex: bool = False,
) -> Solution:
    """Project outputs onto constraints.

    z: raw outputs. groups: protected attributes, as columns by name, a frame, or an (n,) or (n, k) array.
    bounds: (lo, hi), each None, a number, or one number per output. discrepancy: what "nearest" means: "squared";
    "entropy" for probabilities; "logits" for z that are logits, with probabilities as outputs; "kl" for amounts; or an
    object, see `WeightedSquared`, `Discrepancy`, `Conic`. targets, features: where a constraint needs them.
    weights: a sample of weight 2 counts as two equal samples. levels: all labels an attribute can have.
    absent: what to do about groups without a sample: "vacuous" (the status names them) or "raise".
    infeasible: "raise", or "relax" for the output that violates the rows least.
    path: "compiled" (loops on the CPU), "tensor" (any device), or "auto".
    surrogate, temperature: of decisions alone, see `RateParity`. None for the exact derivative, 1 for scores that stay
    and 0 for those that are moved; "sigmoid" for a smooth stand-in, in which rates are means of sigmoids.
    process_group: ranks whose samples are one batch with these: a group of torch.distributed, "default" for all ranks,
    or None for these samples alone. Every rank of it must make the same calls, if need be with an empty batch.

    confidence: aim at tighter tolerances, so that intervals at this confidence say that the population, from which the
    samples were drawn, keeps the stated ones. `solution.margin` says what was aimed at, and what the data are too few
    for.

    simplex: z holds the probabilities of d classes, shape (n, d), each row adding up to 1; every class satisfies the
    constraints, and rows stay on the simplex. discrepancy is "entropy" or "squared". Without it the columns of an
    (n, d) z are independent outputs, each projected by itself; targets may then have shape (n, d) as well.

    The value has z's type, dtype, device and shape; gradients flow to z, targets, tolerances and bounds (of an output
    that had to be relaxed, to z alone).
    """
    rules = constraints if isinstance(constraints, ConstraintSet) else ConstraintSet(constraints)
    if confidence is not None:
        if rules.matrices or process_group is not None:
            raise InputError("confidence is about groups of samples in one process: leave it out.")
        if simplex or (np.ndim(z) == 2 and z.shape[1] != 1):
            raise InputError("confidence is about one output per sample: leave it out for outputs of several columns.")
        given = (groups, targets, features, weights)
        choices: dict[str, Any] = {"levels": levels, "absent": absent, "infeasible": infeasible, "path": path}
        choices |= {"surrogate": surrogate, "temperature": temperature}
        n = z.numel() if isinstance(z, Tensor) else np.size(z)
        return settle(
            rules,
            confidence,
            bind_batch(rules, n, *given, levels),
            targets,
            _span(bounds),
            lambda tighter: project(z, groups, tighter, bounds, *given[1:], discrepancy, **choices),
        )
    if rules.needs_targets is None:  # whoever has them passes them; what nobody looks at must not slow the rest
        targets = None
    if not rules.needs_features:
        features = None
    if surrogate is not None or rules.about_decisions:
        check_surrogate(surrogate, temperature)
    kind = discrepancy if isinstance(discrepancy, Conic) else find_discrepancy(discrepancy)
    ranks = None if process_group is None else find_ranks(process_group)
    options = ProjectOptions(bounds, kind, levels, absent, infeasible, path, surrogate, temperature, ranks, simplex)
    if isinstance(z, Tensor):
        return _project(z, rules, options, groups, targets, features, weights)
    array = np.asarray(z)
    if array.dtype not in (np.float16, np.float32, np.float64):
        raise InputError(f"z must hold floats; got an array of {array.dtype}.")
    tensor = torch.from_numpy(np.require(array, requirements=["C", "W"]))  # PyTorch has no read-only tensors
    with torch.no_grad():  # an array carries no gradient
        solution = _project(tensor, rules, options, groups, targets, features, weights)
    solution.value = solution.value.numpy()
    return solution


def _span(bounds: Any) -> tuple[float, float]:
    """The range of outputs within bounds that are numbers; infinite where they are not."""
    if bounds is not None and any(np.ndim(as_numpy(side)) for side in bounds):
        return -np.inf, np.inf
    box = read_bounds(bounds, 2, np.float64)
    return box.lowest, box.highest


class ProjectOptions(NamedTuple):
    """The arguments of `project` that are not data."""

    bounds: Any
    discrepancy: Any  # a Discrepancy, or a Conic
    levels: Mapping[Name, Sequence[Label]] | None
    absent: Absent
    infeasible: Infeasible
    path: Path
    surrogate: Surrogate = None
    temperature: float = 0.1
    ranks: Ranks | None = None
    simplex: bool = False


_CHOICES = {"absent": ("vacuous", "raise"), "infeasible": ("raise", "relax"), "path": ("auto", "compiled", "tensor")}
_CHOSEN = set(product(*_CHOICES.values()))


def _check(z: Tensor, rules: ConstraintSet, targets: Any, options: ProjectOptions) -> None:
    """Refuse what cannot be projected, before any work."""
    if z.dtype not in _DTYPES:
        raise InputError(f"z must hold floats of 16, 32 or 64 bits; got a tensor of {z.dtype}.")
    if torch._C._functorch.is_functorch_wrapped_tensor(z):
        raise InputError(
            "z is inside a transform of torch.func, such as forward mode, which the solver cannot see: use backward()."
        )
    if not is_dense(z):
        check_dense(z, "z")
    if z.ndim not in (1, 2):
        raise InputError(f"z has shape {tuple(z.shape)}: pass outputs of shape (n,) or (n, d).")
    if options.ranks is not None and not options.simplex and z.ndim == 2 and z.shape[1] != 1:
        raise InputError(
            f"z has shape {tuple(z.shape)}: over a process group, project each column by itself, z[:, j], or class "
            "probabilities with simplex=True."
        )
    if options.simplex:
        if options.bounds is not None or options.surrogate is not None or options.path == "tensor":
            raise InputError("simplex=True knows neither bounds, nor a surrogate, nor path='tensor': leave them out.")
        check_classes(z, rules, options.discrepancy)
    if rules.needs_targets and targets is None:
        raise InputError(f"targets is missing: {rules.needs_targets} compares outputs with them.")
    if rules.about_decisions:
        read_threshold(rules)
        if options.discrepancy.name != "squared":
            raise InputError(f"discrepancy {options.discrepancy.name!r} does not go with decisions: use 'squared'.")
    if in_forward_mode():
        limits = [getattr(c, name, None) for c in rules.constraints for name in ("tolerance", "lower", "upper")]
        refuse_tangents(z=z, targets=targets, bounds=options.bounds, constraints=limits)
    if options[3:6] not in _CHOSEN:
        for name, known in _CHOICES.items():
            if getattr(options, name) not in known:
                raise InputError(f"{name} must be one of {known}; got {getattr(options, name)!r}.")


def _project(
    z: Tensor, rules: ConstraintSet, options: ProjectOptions, groups: Any, targets: Any, features: Any, weights: Any
) -> Solution:
    """Project outputs of any shape."""
    if options.ranks is not None:
        return _project_share(z, options.ranks, rules, options, groups, targets, features, weights)
    _check(z, rules, targets, options)
    if z.ndim == 1:
        if rules.only_matrices and all(constraint.problems is None for constraint in rules.matrices):
            return _project_each(z[None], rules, options, weights).problem(0)
        return _project_one(z, rules, options, groups, targets, features, weights)
    # One column is a batch of problems only where each has one output.
    if rules.only_matrices and (z.shape[1] != 1 or rules.matrices[0].A.shape[-1] == 1):
        return _project_each(z, rules, options, weights)
    if options.simplex:
        return _project_simplex(z, rules, options, groups, targets, features, weights)
    if z.shape[1] != 1:
        return _project_columns(z, rules, options, groups, targets, features, weights)
    solution = _project(z.reshape(-1), rules, options, groups, targets, features, weights)
    solution.value = solution.value.reshape(z.shape)
    return solution


def _project_simplex(
    z: Tensor, rules: ConstraintSet, options: ProjectOptions, groups: Any, targets: Any, features: Any, weights: Any
) -> Solution:
    """Project class probabilities, z of shape (n, d)."""
    n = len(z)
    targets = None if targets is None else _read_targets(targets, n)
    weights = None if weights is None else _read_weights(weights, n)
    system = bind(rules, n, groups=groups, targets=targets, features=features, weights=weights, levels=options.levels)
    _refuse_absent(system, options)
    if n == 0:
        return _nothing(z, system)
    return _project_bound(z, system, rules, read_bounds(None, n, np.float64), options, True)


def _project_columns(
    z: Tensor, rules: ConstraintSet, options: ProjectOptions, groups: Any, targets: Any, features: Any, weights: Any
) -> Solution:
    """Project independent outputs, z of shape (n, d): one problem per column, with the same groups."""
    d = z.shape[1]
    each = [targets] * d
    if targets is not None and np.ndim(targets) == 2 and targets.shape[1] != 1:
        if tuple(targets.shape) != tuple(z.shape):
            raise InputError(
                f"targets has shape {tuple(targets.shape)} for z of {tuple(z.shape)}: pass (n,) or (n, d)."
            )
        each = [targets[:, j] for j in range(d)]
    solutions = [_project_one(z[:, j], rules, options, groups, each[j], features, weights) for j in range(d)]
    if not solutions:
        raise InputError(f"z has shape {tuple(z.shape)}: pass at least one column.")
    value = torch.stack([solution.value for solution in solutions], dim=1)
    return Solution(value, ColumnFacts([solution.facts for solution in solutions], "output"))  # type: ignore[misc]


def _project_one(
    z: Tensor,
    rules: ConstraintSet,
    options: ProjectOptions,
    groups: Any = None,
    targets: Any = None,
    features: Any = None,
    weights: Any = None,
) -> Solution:
    """Project one batch, z of shape (n,)."""
    n = z.shape[0]
    box = read_bounds(options.bounds, n, _DTYPES[z.dtype])
    rules.check_bounds(box.lowest)
    check_interval(box, options.discrepancy)
    compiled = _takes_loops(z, options)
    if targets is not None:
        targets = _read_targets(targets, n)
    if weights is not None:
        weights = _read_weights(weights, n)
    in_parts = not (rules.about_decisions or isinstance(options.discrepancy, Conic))
    system = bind(
        rules,
        n,
        groups=groups,
        targets=targets,
        features=features,
        weights=weights,
        levels=options.levels,
        in_parts=in_parts,
    )
    _refuse_absent(system, options)
    if n == 0:
        return _nothing(z, system)
    return _project_bound(z, system, rules, box, options, compiled)


def _takes_loops(z: Tensor, options: ProjectOptions) -> bool:
    """Whether compiled loops take this problem, as the path asks."""
    compiled = is_compiled(z, options.discrepancy) and options.path != "tensor"
    if options.path == "compiled" and not compiled:
        raise InputError(
            "path='compiled' takes float32 or float64 on the CPU, and a discrepancy by its name; z is "
            f"{z.dtype} on {z.device}, discrepancy {options.discrepancy.name!r}."
        )
    return compiled


def _project_bound(
    z: Tensor, system: System, rules: ConstraintSet, box: Box, options: ProjectOptions, compiled: bool
) -> Solution:
    """Project a batch that the constraints are bound to."""
    if options.simplex:
        return project_classes(z, system, options.discrepancy)
    if rules.about_decisions:
        relax = options.infeasible == "relax"
        return project_decisions(z, system, rules, box, relax, options.surrogate, options.temperature)
    if isinstance(options.discrepancy, Conic):
        return _project_conic(z, options, options.discrepancy, system, box)
    task = Task(z.detach().contiguous(), system, box, options.discrepancy, compiled)
    result, excess = solve(task, relax=options.infeasible == "relax")
    facts = Facts(system.view, result.statistics, result.nu, result.missed, excess, result.beyond)
    return Solution(attach_gradient(z, task, result, excess), facts)


def _refuse_absent(system: System, options: ProjectOptions) -> None:
    if options.absent == "raise" and system.view.vacuous:
        raise AbsentGroupError(
            f"Groups are absent from this batch: {'; '.join(system.view.vacuous[:5])}. Use larger or stratified "
            'batches, or absent="vacuous" to project what can be compared.'
        )


def _nothing(z: Tensor, system: System) -> Solution:
    """What is known of an empty batch."""
    nothing = np.zeros(len(system.rows.offset))
    return Solution(z.clone(), Facts(system.view, nothing, nothing, nothing[:0]))


def _project_share(
    z: Tensor,
    ranks: Ranks,
    rules: ConstraintSet,
    options: ProjectOptions,
    groups: Any,
    targets: Any,
    features: Any,
    weights: Any,
) -> Solution:
    """Project the samples of this rank, which with those of all others are one batch."""

    def read() -> Part:
        _check(z, rules, targets, options)
        if options.simplex:
            exact = np.ascontiguousarray(as_numpy(z.detach().double()))
            check_probabilities(exact, options.discrepancy.name, torch.finfo(z.dtype).eps / 2)
        if rules.matrices:
            raise InputError("Affine has a matrix over the outputs of one process: use it with process_group=None.")
        if not has_loops(options.discrepancy):
            raise InputError(
                f"discrepancy {options.discrepancy.name!r} is not available over a process group: use one by its name, "
                "or process_group=None."
            )
        n, dtype = len(z), _DTYPES[z.dtype]
        known = None if targets is None else _read_targets(targets, n)
        weighed = None if weights is None else _read_weights(weights, n)
        groupings, columns = read_columns(
            rules, n, groups=groups, targets=known, features=features, levels=options.levels
        )
        soft = {key: column for key, column in columns.items() if isinstance(column, SoftGroup)}
        firm = {key: column for key, column in columns.items() if key not in soft}
        gathers = options.simplex or rules.about_decisions or bool(soft)
        compiled = _takes_loops(z, options)
        box = read_bounds(options.bounds, n, dtype)
        rules.check_bounds(box.lowest)
        check_interval(box, options.discrepancy)
        settings = shared_settings(
            z,
            rules,
            box,
            options.bounds,
            known,
            columns=z.shape[1] if options.simplex else 1,
            attributes=(*firm, *((key, column.labels) for key, column in soft.items())),
            levels=None if options.levels is None else repr(options.levels),
            weights="some" if weighed is not None else "none",
            discrepancy=options.discrepancy.name,
            surrogate=(options.surrogate, options.temperature),
            absent=options.absent,
            infeasible=options.infeasible,
            path="compiled" if compiled else "tensor",
        )
        if gathers and set(dict(settings)["gradients wanted of"]) - {"z"}:  # type: ignore[call-overload]
            raise InputError(
                "Decisions, classes and SoftGroup have a gradient with respect to z alone over a process group: detach "
                "targets, tolerances and bounds."
            )
        return Part(
            z=z.detach().contiguous() if options.simplex else z.detach().reshape(-1).contiguous(),
            box=box,
            sides=per_sample(options.bounds),
            weights=weighed,
            targets=known,
            groupings=groupings,
            keys=tuple(firm),
            cells=assign_cells([*firm.values()], n, weighed),  # type: ignore[list-item]
            soft=soft,
            gathers=gathers,
            has_residuals=any(constraint.quantity == "residual" for constraint in rules.constraints),
            discrepancy=options.discrepancy,
            compiled=compiled,
            settings=settings,
        )

    whole = open_batch(ranks, rules, read)
    if whole.system is None or whole.part.gathers:
        return _project_gathered(z, ranks, options, whole)
    system, flat = whole.system, z.reshape(-1)
    _refuse_absent(system, options)
    if not sum(whole.counts):
        return _nothing(z, system)
    task = Task(whole.part.z, system, whole.part.box, options.discrepancy, whole.part.compiled, ranks)
    result, excess = solve_ranks(task, whole, relax=options.infeasible == "relax")
    facts = Facts(system.view, result.statistics, result.nu, result.missed, excess, result.beyond)
    return Solution(attach_gradient(flat, task, result, excess).reshape(z.shape), facts)


def _project_gathered(z: Tensor, ranks: Ranks, options: ProjectOptions, whole: Whole) -> Solution:
    """Project the samples of all ranks, and keep those of this one: for what sums over cells are not enough for."""
    batch = gather(ranks, whole)
    _refuse_absent(batch.system, options)
    if not sum(whole.counts):
        return _nothing(z, batch.system)
    everyones = batch.z.requires_grad_(z.requires_grad and torch.is_grad_enabled())
    solution = _project_bound(everyones, batch.system, whole.rules, batch.box, options, whole.part.compiled)
    flat = z if options.simplex else z.reshape(-1)
    together = WholeBatch(everyones, solution.value, batch, ranks, whole.counts)
    solution.value = attach_share(flat, together).reshape(z.shape)
    return solution


def _project_conic(z: Tensor, options: ProjectOptions, conic: Conic, system: System, box: Box) -> Solution:
    """Project by a general solver."""
    if options.infeasible != "raise" or options.path != "auto":
        raise InputError("Conic knows neither infeasible='relax' nor a path: leave both out.")
    if not bool(torch.isfinite(z).all()):
        position = int((~torch.isfinite(z)).nonzero()[0])
        raise InputError(f"z[{position}] is {float(z[position])}: outputs must be finite.")
    value, statistics, missed = conic.project(z, system, box)
    return Solution(value, ConicFacts(system.view, statistics, missed))


def _read_targets(targets: Any, n: int) -> Any:
    flat = (
        targets.reshape(-1)
        if isinstance(targets, Tensor) and is_dense(targets)
        else as_numpy(targets, "targets").reshape(-1)
    )
    if len(flat) != n:
        raise InputError(f"targets has {len(flat)} entries for {n} outputs: pass one per output.")
    values = as_numpy(flat)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError(f"targets[{int(np.flatnonzero(~np.isfinite(values))[0])}] is not finite.")
    if values.dtype == object:
        missing = [i for i, value in enumerate(values.tolist()) if is_missing(value)]
        if missing:
            raise InputError(f"targets[{missing[0]}] is missing: leave such samples out, or fill their targets in.")
    return flat


def _read_weights(weights: Any, n: int) -> np.ndarray:
    try:
        values = as_numpy(weights, "weights").reshape(-1).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"weights must be numbers, one per output: {error}") from error
    if len(values) != n:
        raise InputError(f"weights has {len(values)} entries for {n} outputs: pass one per output.")
    if not np.isfinite(values).all() or (values < 0).any():
        raise InputError("weights must be finite and at least 0.")
    some = values[values > 0]
    least, most = some.min(initial=np.inf), some.max(initial=0.0)
    if len(some) and (least < _LEAST_WEIGHT or most / least > _WIDEST_WEIGHTS):
        raise InputError(
            f"weights range from {least:g} to {most:g}: the least must be at least {_LEAST_WEIGHT:g}, and the greatest "
            f"at most {_WIDEST_WEIGHTS:g} times as much. Only their ratios matter: scale them, and leave out those who "
            "hardly count."
        )
    return values


def _project_each(z: Tensor, rules: ConstraintSet, options: ProjectOptions, weights: Any) -> Solution:
    """Project a batch of independent problems, z of shape (B, n)."""
    B, n = z.shape
    for constraint in rules.matrices:
        if constraint.problems not in (None, B):
            raise InputError(f"A holds {constraint.problems} problems, z holds {B}: their numbers must agree.")
        if constraint.A.shape[-1] != n:
            raise InputError(f"A has shape {constraint.A.shape}, which does not fit {n} outputs.")
    box = read_bounds(options.bounds, n, _DTYPES[z.dtype])
    if weights is not None:
        weights = _read_weights(weights, n)
        if not (weights > 0).all():
            raise InputError("weights has zeros: Affine rows need a positive weight for every output.")

    def alone(b: int) -> Solution:
        problem = ConstraintSet([constraint.problem(b) for constraint in rules.matrices])
        return _project_one(z[b], problem, options, weights=weights)

    together = is_compiled(z, options.discrepancy) and options.discrepancy.piecewise_linear and options.path != "tensor"
    if together and z.numel() > 0 and not box.wants_gradient and not rules.wants_gradient:
        value, ends = project_batch(z, stacked(rules.matrices, box, weights))
        closer = {}
        if (
            not ends.done.all()
        ):  # whoever needs a closer look gets it: a contradiction, a tolerance finer than the dtype
            doubtful = np.flatnonzero(~ends.done)
            solutions = [alone(b) for b in doubtful.tolist()]
            value = value.index_copy(0, torch.from_numpy(doubtful), torch.stack([each.value for each in solutions]))
            closer = {b: each.facts for b, each in zip(doubtful.tolist(), solutions, strict=True)}
        return Solution(value, BatchFacts(ProblemFacts(rules.matrix_at, ends.row, closer)))
    solutions = [alone(b) for b in range(B)]
    value = torch.stack([solution.value for solution in solutions]) if solutions else z.clone()
    return Solution(value, BatchFacts([solution.facts for solution in solutions]))  # type: ignore[misc]
