"""`project`: the nearest batch of outputs that satisfies the constraints, and its derivative.

    min_y  sum_i w_i d(y_i, z_i)    subject to    lower <= rows(y) <= upper,  lo <= y <= hi.

Three layers, as for any operator: the autograd function in gradient.py (the only custom backward of the library), the
function `project` here, and the module `FairLayer` in layer.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.asked import DTYPES, Absent, Asked, Given, Infeasible, Path, Surrogate, read_targets, read_weights
from fairlayer.binding.bounds import Box, read_bounds
from fairlayer.binding.cells import assign_cells
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.groups import SoftGroup
from fairlayer.binding.process_group import Group, Ranks, find_ranks
from fairlayer.binding.system import System, read_columns
from fairlayer.classes import check_probabilities, project_classes
from fairlayer.constraints.constraint import Constraint
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.decisions.project import project_decisions
from fairlayer.eager import eager
from fairlayer.errors import InputError
from fairlayer.gaps import bind_batch
from fairlayer.gradient import attach_gradient, attach_share, project_batch, stacked
from fairlayer.margin import settle
from fairlayer.solution import Facts, JointFacts, ProblemFacts, Solution, Status
from fairlayer.solve import Task, solve
from fairlayer.solve.conic import Conic
from fairlayer.solve.discrepancy import Discrepancy, has_loops
from fairlayer.solve.exact import exact_statistics
from fairlayer.solve.gathering import gather
from fairlayer.solve.opening import Whole, open_batch
from fairlayer.solve.part import Part, per_sample, shared_settings
from fairlayer.solve.ranks import solve_ranks


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
    asked = Asked(
        constraints, bounds, discrepancy, levels, absent, infeasible, path, surrogate, temperature, process_group,
        simplex,
    )  # fmt: skip
    return answer(z, asked, asked.given(groups, targets, features, weights), confidence)


@eager
def answer(z: Any, asked: Asked, given: Given, confidence: float | None = None) -> Solution:
    """Project tensors as they are, and arrays by way of tensors."""
    if confidence is not None:
        return _settled(z, asked, given, confidence)
    if isinstance(z, Tensor):
        return _project(z, asked, given)
    array = as_numpy(z, "z")
    if array.dtype not in (np.float16, np.float32, np.float64):
        raise InputError(f"z must hold floats; got an array of {array.dtype}.")
    tensor = torch.from_numpy(np.require(array, requirements=["C", "W"]))  # PyTorch has no read-only tensors
    with torch.no_grad():  # an array carries no gradient
        solution = _project(tensor, asked, given)
    solution.value = solution.value.numpy()
    return solution


def _settled(z: Any, asked: Asked, given: Given, confidence: float) -> Solution:
    """Project onto constraints so tight that the population keeps the stated ones."""
    z = z if isinstance(z, Tensor) else as_numpy(z, "z")
    rules, targets = asked.rules, given.targets
    if rules.matrices or find_ranks(asked.process_group) is not None:
        raise InputError("confidence is about groups of samples in one process: leave it out.")
    if asked.simplex or (np.ndim(z) == 2 and z.shape[1] != 1):
        raise InputError("confidence is about one output per sample: leave it out for outputs of several columns.")
    n = z.numel() if isinstance(z, Tensor) else np.size(z)
    system = bind_batch(rules, n, *given, asked.levels)
    return settle(rules, confidence, system, targets, asked.span(), lambda tight: answer(z, asked.of(tight), given))


def _project(z: Tensor, asked: Asked, given: Given) -> Solution:
    """Project outputs of any shape."""
    ranks = None if asked.process_group is None else find_ranks(asked.process_group)
    if ranks is not None:
        return _project_share(z, asked, given, ranks)
    asked.check(z, given)
    rules = asked.rules
    if z.ndim == 1:
        if rules.only_matrices and all(constraint.problems is None for constraint in rules.matrices):
            return _project_each(z[None], asked, given).problem(0)
        return _project_one(z, asked, given)
    # One column is a batch of problems only where each has one output.
    if rules.only_matrices and (z.shape[1] != 1 or rules.matrices[0].A.shape[-1] == 1):
        return _project_each(z, asked, given)
    if asked.simplex:
        system = asked.bind(len(z), given)
        return project_classes(z, system, asked.discrepancy) if len(z) else _nothing(z, system)
    if z.shape[1] != 1:
        return _project_columns(z, asked, given)
    solution = _project(z.reshape(-1), asked, given)
    solution.value = solution.value.reshape(z.shape)
    return solution


def _project_columns(z: Tensor, asked: Asked, given: Given) -> Solution:
    """Project independent outputs, z of shape (n, d): one problem per column, with the same groups."""
    targets, d = given.targets, z.shape[1]
    each = [given] * d
    if targets is not None and np.ndim(targets) == 2 and targets.shape[1] != 1:
        if tuple(targets.shape) != tuple(z.shape):
            raise InputError(
                f"targets has shape {tuple(targets.shape)} for z of {tuple(z.shape)}: pass (n,) or (n, d)."
            )
        each = [given._replace(targets=targets[:, j]) for j in range(d)]
    solutions = [_project_one(z[:, j], asked, each[j]) for j in range(d)]
    if not solutions:
        raise InputError(f"z has shape {tuple(z.shape)}: pass at least one column.")
    value = torch.stack([solution.value for solution in solutions], dim=1)
    return Solution(value, JointFacts([solution.facts for solution in solutions], "output"))  # type: ignore[misc]


def _project_one(z: Tensor, asked: Asked, given: Given) -> Solution:
    """Project one batch, z of shape (n,)."""
    n = z.shape[0]
    box = asked.box(n, z.dtype)
    compiled = asked.takes_loops(z)
    system = asked.bind(n, given)
    return _project_bound(z, system, box, asked, compiled) if n else _nothing(z, system)


def _project_bound(z: Tensor, system: System, box: Box, asked: Asked, compiled: bool) -> Solution:
    """Project a batch that the constraints are bound to."""
    relax = asked.infeasible == "relax"
    if asked.simplex:
        return project_classes(z, system, asked.discrepancy)
    if asked.rules.about_decisions:
        return project_decisions(z, system, asked.rules, box, relax, asked.surrogate, asked.temperature)
    if isinstance(asked.discrepancy, Conic):
        return _project_conic(z, asked, system, box)
    task = Task.of(z.detach().contiguous(), system, box, asked.discrepancy, compiled)
    result, excess = solve(task, relax=relax)
    exact = partial(exact_statistics, result.value.detach(), system)  # which will have a graph
    facts = Facts(system.view, result.statistics, result.nu, result.missed, excess, result.beyond, exact=exact)
    return Solution(attach_gradient(z, task, result, excess), facts)


def _nothing(z: Tensor, system: System) -> Solution:
    """What is known of an empty batch."""
    nothing = np.zeros(len(system.rows.offset))
    return Solution(z.clone(), Facts(system.view, nothing, nothing, nothing[:0]))


def _project_share(z: Tensor, asked: Asked, given: Given, ranks: Ranks) -> Solution:
    """Project the samples of this rank, which with those of all others are one batch."""
    rules, (groups, targets, features, weights) = asked.rules, given

    def read() -> Part:
        asked.check(z, given)
        if not asked.simplex and z.ndim == 2 and z.shape[1] != 1:
            raise InputError(
                f"z has shape {tuple(z.shape)}: over a process group, project each column by itself, z[:, j], or class "
                "probabilities with simplex=True."
            )
        if asked.simplex:
            exact = np.ascontiguousarray(as_numpy(z.detach().double()))
            check_probabilities(exact, asked.discrepancy.name, torch.finfo(z.dtype).eps / 2)
        if rules.matrices:
            raise InputError("Affine has a matrix over the outputs of one process: use it with process_group=None.")
        if not has_loops(asked.discrepancy):
            raise InputError(
                f"discrepancy {asked.discrepancy.name!r} is not available over a process group: use one by its name, "
                "or process_group=None."
            )
        n = len(z)
        known = None if targets is None else read_targets(targets, n)
        weighed = None if weights is None else read_weights(weights, n)
        groupings, columns = read_columns(rules, n, groups, known, features, asked.levels)
        soft = {key: column for key, column in columns.items() if isinstance(column, SoftGroup)}
        firm = {key: column for key, column in columns.items() if key not in soft}
        gathers = asked.simplex or rules.about_decisions or bool(soft)
        compiled = asked.takes_loops(z)
        box = asked.box(n, z.dtype)
        settings = shared_settings(
            z,
            rules,
            box,
            asked.bounds,
            known,
            columns=z.shape[1] if asked.simplex else 1,
            attributes=(*firm, *((key, column.labels) for key, column in soft.items())),
            levels=None if asked.levels is None else repr(asked.levels),
            weights="some" if weighed is not None else "none",
            discrepancy=asked.discrepancy.name,
            surrogate=(asked.surrogate, asked.temperature),
            absent=asked.absent,
            infeasible=asked.infeasible,
            path="compiled" if compiled else "tensor",
        )
        if gathers and set(dict(settings)["gradients wanted of"]) - {"z"}:  # type: ignore[call-overload]
            raise InputError(
                "Decisions, classes and SoftGroup have a gradient with respect to z alone over a process group: detach "
                "targets, tolerances and bounds."
            )
        return Part(
            z=z.detach().contiguous() if asked.simplex else z.detach().reshape(-1).contiguous(),
            box=box,
            sides=per_sample(asked.bounds),
            weights=weighed,
            targets=known,
            groupings=groupings,
            keys=tuple(firm),
            cells=assign_cells([*firm.values()], n, weighed),  # type: ignore[list-item]
            soft=soft,
            gathers=gathers,
            has_residuals=any(constraint.quantity == "residual" for constraint in rules.constraints),
            discrepancy=asked.discrepancy,
            compiled=compiled,
            settings=settings,
        )

    whole = open_batch(ranks, rules, read)
    if whole.system is None or whole.part.gathers:
        return _project_gathered(z, ranks, asked, whole)
    system, flat = whole.system, z.reshape(-1)
    asked.refuse_absent(system)
    if not sum(whole.counts):
        return _nothing(z, system)
    task = Task.of(whole.part.z, system, whole.part.box, asked.discrepancy, whole.part.compiled, ranks)
    result, excess = solve_ranks(task, whole, relax=asked.infeasible == "relax")
    facts = Facts(system.view, result.statistics, result.nu, result.missed, excess, result.beyond)
    return Solution(attach_gradient(flat, task, result, excess).reshape(z.shape), facts)


def _project_gathered(z: Tensor, ranks: Ranks, asked: Asked, whole: Whole) -> Solution:
    """Project the samples of all ranks, and keep those of this one: for what sums over cells are not enough for."""
    batch = gather(ranks, whole)
    asked.refuse_absent(batch.system)
    if not sum(whole.counts):
        return _nothing(z, batch.system)
    everyones = batch.z.requires_grad_(z.requires_grad and torch.is_grad_enabled())
    solution = _project_bound(everyones, batch.system, batch.box, asked.of(whole.rules), whole.part.compiled)
    flat = z if asked.simplex else z.reshape(-1)
    solution.value = attach_share(flat, everyones, solution.value, batch, ranks, whole.counts).reshape(z.shape)
    return solution


def _project_conic(z: Tensor, asked: Asked, system: System, box: Box) -> Solution:
    """Project by a general solver."""
    if asked.infeasible != "raise" or asked.path != "auto":
        raise InputError("Conic knows neither infeasible='relax' nor a path: leave both out.")
    if not bool(torch.isfinite(z).all()):
        position = int((~torch.isfinite(z)).nonzero()[0])
        raise InputError(f"z[{position}] is {float(z[position])}: outputs must be finite.")
    value, statistics, missed = asked.discrepancy.project(z, system, box)
    return Solution(value, Facts(system.view, statistics, None, missed, promise=Status.APPROXIMATE))


def _project_each(z: Tensor, asked: Asked, given: Given) -> Solution:
    """Project a batch of independent problems, z of shape (B, n)."""
    (B, n), rules, weights = z.shape, asked.rules, given.weights
    for constraint in rules.matrices:
        if constraint.problems not in (None, B):
            raise InputError(f"A holds {constraint.problems} problems, z holds {B}: their numbers must agree.")
        if constraint.A.shape[-1] != n:
            raise InputError(f"A has shape {constraint.A.shape}, which does not fit {n} outputs.")
    box = read_bounds(asked.bounds, n, DTYPES[z.dtype])
    if weights is not None:
        weights = read_weights(weights, n)
        if not (weights > 0).all():
            raise InputError("weights has zeros: Affine rows need a positive weight for every output.")

    def alone(b: int) -> Solution:
        problem = asked.of(ConstraintSet([constraint.problem(b) for constraint in rules.matrices]))
        return _project_one(z[b], problem, given._replace(weights=weights))

    together = asked.takes_loops(z) and asked.discrepancy.piecewise_linear
    if together and z.numel() > 0 and not box.wants_gradient and not rules.wants_gradient:
        value, ends = project_batch(z, stacked(rules.matrices, box, weights))
        closer = {}
        if not ends.done.all():  # a contradiction, or a tolerance finer than the dtype: those get a closer look
            doubtful = np.flatnonzero(~ends.done)
            solutions = [alone(b) for b in doubtful.tolist()]
            value = value.index_copy(0, torch.from_numpy(doubtful), torch.stack([each.value for each in solutions]))
            closer = {b: each.facts for b, each in zip(doubtful.tolist(), solutions, strict=True)}
        return Solution(value, JointFacts(ProblemFacts(rules.matrix_at, ends.row, closer)))
    solutions = [alone(b) for b in range(B)]
    value = torch.stack([solution.value for solution in solutions]) if solutions else z.clone()
    return Solution(value, JointFacts([solution.facts for solution in solutions]))  # type: ignore[misc]
