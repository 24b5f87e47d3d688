"""`project`: the nearest batch of outputs that satisfies the constraints, and its derivative.

    min_y  sum_i w_i d(y_i, z_i)    subject to    lower <= rows(y) <= upper,  lo <= y <= hi.

Outputs are copied to the host where they are not there, projected by the core, and copied back: one wait forwards, and
one backwards. The autograd function is in core/gradient.py (the only custom backward of the library), the module
`FairLayer` in layer.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy, check_dense, on_host
from fairlayer.constraints.constraint import Constraint
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.core.affine import AffineBatch
from fairlayer.core.classes import project_classes
from fairlayer.core.discrepancies import Discrepancy
from fairlayer.core.gradient import attach_gradient
from fairlayer.core.rational import exact_statistics
from fairlayer.core.solver import Batch, solve
from fairlayer.decisions.project import project_decisions
from fairlayer.eager import eager
from fairlayer.errors import InputError
from fairlayer.gaps import bind_batch
from fairlayer.margin import settle
from fairlayer.problem.bounds import Box, read_bounds
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.process_group import Group, find_ranks
from fairlayer.problem.system import System
from fairlayer.ranks import project_share
from fairlayer.request import Absent, Data, Infeasible, Request, Surrogate, read_weights
from fairlayer.solution import JointSolution, Problems, Solution


@eager
def project(
    z: Any,  # (n,) or (n, d); (B, n) with Affine alone; tensor or numpy array
    groups: Any = None,
    constraints: Sequence[Constraint] | Constraint | ConstraintSet = (),
    bounds: Any = None,
    targets: Any = None,  # (n,), or (n, d) for outputs of several columns
    features: Any = None,
    weights: Any = None,  # (n,)
    discrepancy: str | Discrepancy = "squared",
    *,
    levels: Mapping[Name, Sequence[Label]] | None = None,
    absent: Absent = "vacuous",
    infeasible: Infeasible = "raise",
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
    object, see `WeightedSquared`, `Discrepancy`. targets, features: where a constraint needs them.
    weights: a sample of weight 2 counts as two equal samples. levels: all labels an attribute can have.
    absent: what to do about groups without a sample: "vacuous" (the status names them) or "raise".
    infeasible: "raise", or "relax" for the output that violates the rows least.
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
    request = Request(
        constraints, bounds, discrepancy, levels, absent, infeasible, surrogate, temperature, process_group, simplex
    )
    return answer(z, request, request.data(groups, targets, features, weights), confidence)


@eager
def answer(z: Any, request: Request, data: Data, confidence: float | None = None) -> Solution:
    """Project tensors as they are, and arrays by way of tensors."""
    if confidence is not None:
        return _settled(z, request, data, confidence)
    if isinstance(z, Tensor):
        return _project(z, request, data) if z.is_cpu else _project_on_host(z, request, data)
    array = as_numpy(z, "z")
    if array.dtype not in (np.float16, np.float32, np.float64):
        raise InputError(f"z must hold floats; got an array of {array.dtype}.")
    tensor = torch.from_numpy(np.require(array, requirements=["C", "W"]))  # PyTorch has no read-only tensors
    with torch.no_grad():  # an array carries no gradient
        solution = _project(tensor, request, data)
    solution.value = solution.value.numpy()
    return solution


def _settled(z: Any, request: Request, data: Data, confidence: float) -> Solution:
    """Project onto constraints so tight that the population keeps the stated ones."""
    z = z if isinstance(z, Tensor) else as_numpy(z, "z")
    rules, targets = request.rules, data.targets
    if rules.matrices or find_ranks(request.process_group) is not None:
        raise InputError("confidence is about groups of samples in one process: leave it out.")
    if request.simplex or (np.ndim(z) == 2 and z.shape[1] != 1):
        raise InputError("confidence is about one output per sample: leave it out for outputs of several columns.")
    n = z.numel() if isinstance(z, Tensor) else np.size(z)
    system = bind_batch(rules, n, *data, request.levels)
    return settle(rules, confidence, system, targets, request.span(), lambda tight: answer(z, request.of(tight), data))


def _project_on_host(z: Tensor, request: Request, data: Data) -> Solution:
    """Project outputs of another device, to which the output and its gradient are copied back."""
    check_dense(z, "z")
    solution = _project(z.cpu(), request, Data(*map(on_host, data)))
    solution.value = solution.value.to(z.device)
    return solution


def _project(z: Tensor, request: Request, data: Data) -> Solution:
    """Project outputs of any shape."""
    ranks = None if request.process_group is None else find_ranks(request.process_group)
    if ranks is not None:
        return project_share(z, request, data, ranks, project_bound)
    request.check(z, data)
    rules = request.rules
    if z.ndim == 1:
        if rules.only_matrices and all(constraint.problems is None for constraint in rules.matrices):
            return _project_each(z[None], request, data).problem(0)
        return _project_one(z, request, data)
    # One column is a batch of problems only where each has one output.
    if rules.only_matrices and (z.shape[1] != 1 or rules.matrices[0].A.shape[-1] == 1):
        return _project_each(z, request, data)
    if request.simplex:
        system = request.bind(len(z), data)
        return project_classes(z, system, request.discrepancy) if len(z) else nothing(z, system)
    if z.shape[1] != 1:
        return _project_columns(z, request, data)
    solution = _project(z.reshape(-1), request, data)
    solution.value = solution.value.reshape(z.shape)
    return solution


def _project_columns(z: Tensor, request: Request, data: Data) -> Solution:
    """Project independent outputs, z of shape (n, d): one problem per column, with the same groups."""
    targets, d = data.targets, z.shape[1]
    each = [data] * d
    if targets is not None and np.ndim(targets) == 2 and targets.shape[1] != 1:
        if tuple(targets.shape) != tuple(z.shape):
            raise InputError(
                f"targets has shape {tuple(targets.shape)} for z of {tuple(z.shape)}: pass (n,) or (n, d)."
            )
        each = [data._replace(targets=targets[:, j]) for j in range(d)]
    solutions = [_project_one(z[:, j], request, each[j]) for j in range(d)]
    if not solutions:
        raise InputError(f"z has shape {tuple(z.shape)}: pass at least one column.")
    value = torch.stack([solution.value for solution in solutions], dim=1)
    return JointSolution(value, solutions, "output")


def _project_one(z: Tensor, request: Request, data: Data) -> Solution:
    """Project one batch, z of shape (n,)."""
    n = z.shape[0]
    box = request.box(n, z.dtype)
    system = request.bind(n, data)
    return project_bound(z, system, box, request) if n else nothing(z, system)


def project_bound(z: Tensor, system: System, box: Box, request: Request) -> Solution:
    """Project a batch that the constraints are bound to."""
    relax = request.infeasible == "relax"
    if request.simplex:
        return project_classes(z, system, request.discrepancy)
    if request.rules.about_decisions:
        return project_decisions(z, system, request.rules, box, relax, request.surrogate, request.temperature)
    projected = solve(Batch(z.detach().contiguous(), system, box, request.discrepancy), relax)
    return Solution(
        attach_gradient(z, projected), system.view, projected.statistics, projected.nu, projected.missed,
        projected.excess, projected.optimality_gap, exact=partial(exact_statistics, projected.value, system),
    )  # fmt: skip


def nothing(z: Tensor, system: System) -> Solution:
    """What is known of an empty batch."""
    none = np.zeros(len(system.rows.offset))
    return Solution(z.clone(), system.view, none, none, none[:0])


def _project_each(z: Tensor, request: Request, data: Data) -> JointSolution:
    """Project a batch of independent problems, z of shape (B, n)."""
    (B, n), rules, weights = z.shape, request.rules, data.weights
    for constraint in rules.matrices:
        if constraint.problems not in (None, B):
            raise InputError(f"A holds {constraint.problems} problems, z holds {B}: their numbers must agree.")
        if constraint.A.shape[-1] != n:
            raise InputError(f"A has shape {constraint.A.shape}, which does not fit {n} outputs.")
    box = read_bounds(request.bounds, n, z.dtype)
    if weights is not None:
        weights = read_weights(weights, n)
        if not (weights > 0).all():
            raise InputError("weights has zeros: Affine rows need a positive weight for every output.")

    def alone(b: int) -> Solution:
        problem = request.of(ConstraintSet([constraint.problem(b) for constraint in rules.matrices]))
        return _project_one(z[b], problem, data._replace(weights=weights))

    wants_others = box.wants_gradient or rules.wants_gradient
    if request.discrepancy.name != "squared" or wants_others or not z.numel():
        solutions = [alone(b) for b in range(B)]
        value = torch.stack([solution.value for solution in solutions]) if solutions else z.clone()
        return JointSolution(value, solutions)
    batch = AffineBatch(z, rules.matrices, box, weights)
    value, closer = batch.value, {}
    if not batch.sure.all():  # a contradiction, or a tolerance finer than the dtype: those get a closer look
        doubtful = np.flatnonzero(~batch.sure)
        solutions = [alone(b) for b in doubtful.tolist()]
        value = value.index_copy(0, torch.from_numpy(doubtful), torch.stack([each.value for each in solutions]))
        closer = dict(zip(doubtful.tolist(), solutions, strict=True))
    ends = np.stack([batch.statistics, batch.multipliers, batch.missed])
    return JointSolution(value, Problems(rules.matrix_at, ends, closer))
