"""Class probabilities: outputs (n, d) whose rows lie on the simplex, projected so that every class is fair.

The method is in solve/simplex.py. Here the input is checked, what was written is certified in exact arithmetic, class
by class and in the output's dtype, and the derivative is attached. Rows of differences can always hold: equal
probabilities for everyone satisfy them all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.exact_sums import UNIT, exact_sums
from fairlayer.binding.system import System
from fairlayer.errors import FairlayerError, InputError
from fairlayer.solution import ColumnFacts, Facts, Solution
from fairlayer.solve.certify import shortfalls
from fairlayer.solve.exact import exact_shortfalls
from fairlayer.solve.newton import statistics
from fairlayer.solve.simplex import ENTROPY, SOLVED, SQUARED, pull_back, solve_simplex, write

KINDS = {"entropy": ENTROPY, "squared": SQUARED}
_OFF = 1e-5  # that a row may add up to more or less than 1, as softmax in float32 does
_MOST_REPAIRS = 12
_NEARLY = 1e-6  # beyond their bounds, from where repairs can bring rows back
_FINEST = 1e-6  # half a tolerance, times what follows: the stages on the way to a finer one
_CONTINUED = (1e5, 1e4, 1e3, 1e2, 1e1, 1.0)
_MOST_ROWS, _MOST_NUMBERS = 4000, 50_000_000  # groups times classes; cells times classes squared


class Problem(NamedTuple):
    """Rows over the cells of one batch, as the solver has them: means of groups that are there to be compared."""

    kind: int
    z: np.ndarray  # (n, d) float64
    cell: np.ndarray  # (n,) int32
    weight: np.ndarray  # (n,) adding up to 1, or empty where all are equal
    share: float
    rows: tuple[np.ndarray, np.ndarray, np.ndarray]
    used: np.ndarray  # (K,) the statistics that are compared
    family: np.ndarray  # (K,) numbered from 0
    families: np.ndarray  # of the system, that these are
    total: float  # weight of all samples


class Found(NamedTuple):
    """What the derivative needs."""

    side: np.ndarray
    shift: np.ndarray
    gram: np.ndarray


def check_class_rules(rules: ConstraintSet) -> None:
    """Refuse constraints that do not compare mean probabilities."""
    for constraint in rules.constraints:
        if constraint.quantity != "output" or getattr(constraint, "comparison", "") != "difference":
            raise InputError(
                f"{type(constraint).__name__} does not go with simplex=True, which compares differences of mean "
                "probabilities: use MeanParity, ConditionalParity or EqualizedOdds."
            )


def check_classes(z: Tensor, rules: ConstraintSet, discrepancy: Any) -> None:
    """Refuse what cannot be projected on the simplex."""
    if z.ndim != 2 or z.shape[1] < 2:
        raise InputError(
            f"simplex=True takes probabilities of two or more classes, shape (n, d); got {tuple(z.shape)}."
        )
    if discrepancy.name not in KINDS:
        raise InputError(
            f"discrepancy {discrepancy.name!r} does not go with simplex=True: use 'entropy' or 'squared' (and "
            "softmax for logits)."
        )
    check_class_rules(rules)
    values = z.detach().double()
    bad = ~torch.isfinite(values)
    if bool(bad.any()):
        i, j = bad.nonzero()[0].tolist()
        raise InputError(f"z[{i}, {j}] is {float(z[i, j])}: probabilities must be finite.")
    bad = values <= 0.0 if discrepancy.name == "entropy" else values < 0.0
    if bool(bad.any()):
        i, j = bad.nonzero()[0].tolist()
        remedy = "use 'squared', or clamp and rescale the row" if float(z[i, j]) == 0.0 else "pass softmax's output"
        asked = "positive for discrepancy='entropy'" if discrepancy.name == "entropy" else "at least 0"
        raise InputError(f"z[{i}, {j}] is {float(z[i, j]):g}: probabilities must be {asked}: {remedy}.")
    off = (values.sum(1) - 1.0).abs()
    allowed = max(_OFF, z.shape[1] * torch.finfo(z.dtype).eps)
    if bool((off > allowed).any()):
        i = int((off > allowed).nonzero()[0])
        raise InputError(
            f"z[{i}] adds up to {float(values[i].sum()):.9g}: with simplex=True every row must add up to 1."
        )


def project_classes(z: Tensor, system: System, discrepancy: Any) -> Solution:
    """Project probabilities (n, d), which have been checked, and at least one sample."""
    if system.lower is not None or system.upper is not None:
        raise InputError("tolerance wants a gradient, which simplex=True does not have: detach it.")
    problem = _state(z, system, KINDS[discrepancy.name])
    value, found, parts = _solve(z, problem, system)
    if torch.is_grad_enabled() and z.requires_grad:
        value = _OnSimplex.apply(z, value, problem, found)
    return Solution(value, ColumnFacts(parts, "class"))


def _state(z: Tensor, system: System, kind: int) -> Problem:
    rows, d = system.rows, z.shape[1]
    owner = np.repeat(np.arange(len(rows.kind)), np.diff(rows.first))
    compared = np.bincount(owner, weights=rows.present, minlength=len(rows.kind)) > 1
    used = np.flatnonzero(rows.present & compared[owner])
    if len(used) * d > _MOST_ROWS or len(system.weight) * d * d > _MOST_NUMBERS:
        raise InputError(
            f"z has {d} classes for {len(used)} groups and {len(system.weight)} cells, too many for simplex=True: "
            f"groups times classes may be {_MOST_ROWS}, cells times classes squared {_MOST_NUMBERS}."
        )
    place = np.full(len(owner), -1)
    place[used] = np.arange(len(used))
    families, family = np.unique(owner[used], return_inverse=True)
    kept = place[rows.statistic] >= 0
    cell_of_entry = np.repeat(np.arange(len(system.weight)), np.diff(rows.start))[kept]
    start = np.concatenate([[0], np.cumsum(np.bincount(cell_of_entry, minlength=len(system.weight)))])
    weighted = len(system.weights) > 0
    total = float(system.weights.sum()) if weighted else float(len(z))
    scale = total if total > 0.0 else 1.0
    return Problem(
        kind,
        np.ascontiguousarray(as_numpy(z.detach().double()), dtype=np.float64),
        as_numpy(system.cell).astype(np.int32),
        system.weights / scale if weighted else np.empty(0),
        1.0 / scale,
        (start.astype(np.int64), place[rows.statistic][kept].astype(np.int64), rows.value[kept] * scale),
        used,
        family.astype(np.int64),
        families,
        scale,
    )


def _solve(z: Tensor, problem: Problem, system: System) -> tuple[Tensor, Found, list[Facts]]:
    """Aim a little inside, write, certify, and aim further inside where a row was missed."""
    (n, d), G, K = z.shape, len(system.weight), len(problem.used)
    nu, side, out = np.zeros((K, d)), np.zeros(K * d, dtype=np.int64), np.empty((n, d))
    shift, S, D, gram = np.zeros((G, d)), np.empty((G, d)), np.empty((G, d, d)), np.empty((K * d, K * d))
    tolerance = system.rows.upper[problem.families][:, None]  # (F, 1)
    unit, mean = torch.finfo(z.dtype).eps / 2, problem.z.mean(axis=0)
    noise = UNIT * (32.0 + np.sqrt(n))
    margin = np.minimum(1.5 * (unit + 16.0 * UNIT) * mean + 2.0 * noise, 0.125 * tolerance)
    best: tuple[Tensor, np.ndarray, np.ndarray, np.ndarray] | None = None
    for _ in range(_MOST_REPAIRS):
        if K:
            half = 0.5 * np.maximum(tolerance - margin, 0.0)[problem.family].reshape(-1)
            for wider in (1.0, *_CONTINUED):  # where the search does not end, from afar and in shorter stages
                if wider == _CONTINUED[0]:
                    nu[:] = 0.0
                aim = np.maximum(half, (wider - 1.0) * _FINEST) if wider > 1.0 else half
                outcome, beyond = solve_simplex(*problem[:6], problem.family, aim, nu, side, shift, S, D, gram)
                if wider == 1.0 and (outcome == SOLVED or beyond <= _NEARLY):
                    break
            if outcome != SOLVED and not beyond <= _NEARLY:
                raise FairlayerError("The solver did not converge on this problem; please report it with the inputs.")
        write(problem.kind, problem.z, problem.cell, shift, out)
        value = torch.from_numpy(out).to(dtype=z.dtype, device=z.device, copy=True)
        columns = np.ascontiguousarray(as_numpy(value.double()).T)
        sums, missed = _certify(columns, problem, system)
        if best is None or missed.max(initial=-np.inf) < best[2].max(initial=-np.inf):
            best = value, sums, missed, nu.copy()
        if not K or (missed <= 0.0).all():
            break
        over = np.maximum(missed[:, problem.families].T, 0.0)
        wider = np.minimum(margin + 1.1 * over + (over > 0.0) * noise, tolerance)
        if (wider <= margin).all():
            break
        margin = wider
    value, sums, missed, nu = best  # type: ignore[misc]
    if not (missed <= 0.0).all():  # rational arithmetic has the last word
        columns = as_numpy(value.double()).T
        missed = np.stack([exact_shortfalls(columns[j], system, missed[j]) for j in range(d)])
    parts = []
    for j in range(d):
        multipliers = np.zeros(len(system.rows.offset))
        multipliers[problem.used] = problem.total * nu[:, j]
        parts.append(Facts(system.view, statistics(system.rows, sums[j]), multipliers, missed[j]))
    return value, Found(side, shift, gram), parts


def _certify(columns: np.ndarray, problem: Problem, system: System) -> tuple[np.ndarray, np.ndarray]:
    """Exact cell sums of every class, rounded once, and by how much each family may be missed."""
    sums, missed = np.empty((len(columns), len(system.weight))), np.empty((len(columns), len(system.rows.kind)))
    error = np.empty(len(system.weight))
    for j, column in enumerate(columns):
        exact_sums(column, problem.cell, system.weights, sums[j], error)
        shortfalls(system.rows, sums[j], error, missed[j])
    return sums, missed


class _OnSimplex(torch.autograd.Function):
    """The projection as a function of z."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, value: Tensor, problem: Problem, found: Found) -> Tensor:
        ctx.problem, ctx.found = problem, found
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("Double backward with simplex=True is not available: use create_graph=False.")
        given = np.ascontiguousarray(as_numpy(gradient.double()))
        out, (side, shift, gram) = np.empty_like(given), ctx.found
        pull_back(*ctx.problem[:6], shift, gram, side, ctx.problem.family, given, out)
        return torch.from_numpy(out).to(dtype=gradient.dtype, device=gradient.device), None, None, None
