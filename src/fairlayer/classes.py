"""Class probabilities: outputs (n, d) whose rows lie on the simplex, projected so that every class is fair.

The method is in solve/simplex.py. Here the input is checked, what was written is certified in exact arithmetic, class
by class and in the output's dtype, and the derivative is attached. Rows of differences can always hold: equal
probabilities for everyone satisfy them all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.system import System
from fairlayer.errors import FairlayerError, InputError
from fairlayer.solution import Facts, JointFacts, Solution
from fairlayer.solve.class_driver import ClassProblem, Found, nearest_classes
from fairlayer.solve.class_rows import Layout, class_layout, column_rows, missed_by
from fairlayer.solve.exact import exact_shortfalls
from fairlayer.solve.newton import statistics
from fairlayer.solve.simplex import pull_back
from fairlayer.solve.simplex_passes import ENTROPY, SQUARED, first_fault

KINDS = {"entropy": ENTROPY, "squared": SQUARED}
_OFF = 1e-5  # that a row may add up to more or less than 1, as softmax in float32 does
_MOST_ROWS, _MOST_NUMBERS = 4000, 50_000_000  # groups times classes; cells times classes squared


def check_class_rules(rules: ConstraintSet, what: str = "simplex=True") -> None:
    """Refuse constraints that do not compare mean probabilities."""
    for constraint in rules.constraints:
        if constraint.quantity != "output" or getattr(constraint, "comparison", "") != "difference":
            raise InputError(
                f"{type(constraint).__name__} does not go with {what}, where differences of mean probabilities are "
                "compared: use MeanParity, ConditionalParity or EqualizedOdds."
            )


def check_class_kind(discrepancy: str) -> None:
    """Refuse a discrepancy that is not one of points on the simplex."""
    if discrepancy not in KINDS:
        raise InputError(
            f"discrepancy {discrepancy!r} does not go with simplex=True: use 'entropy' or 'squared' (and softmax for "
            "logits)."
        )


def check_class_shape(z: Any) -> None:
    """Refuse what are not probabilities of classes."""
    if z.ndim != 2 or z.shape[1] < 2:
        raise InputError(
            f"simplex=True takes probabilities of two or more classes, shape (n, d); got {tuple(z.shape)}."
        )


def check_probabilities(z: np.ndarray, kind: str, unit: float) -> None:
    """Refuse rows that are not on the simplex. z: (n, d) float64; unit: relative rounding error of its own dtype."""
    i, j = first_fault(z, kind == "entropy", max(_OFF, 2.0 * z.shape[1] * unit))
    if i < 0:
        return
    value = float(z[i, j])
    if not np.isfinite(value):
        raise InputError(f"z[{i}, {j}] is {value}: probabilities must be finite.")
    if value < 0.0 or (value == 0.0 and kind == "entropy"):
        remedy = "use 'squared', or clamp and rescale the row" if value == 0.0 else "pass softmax's output"
        asked = "positive for discrepancy='entropy'" if kind == "entropy" else "at least 0"
        raise InputError(f"z[{i}, {j}] is {value:g}: probabilities must be {asked}: {remedy}.")
    raise InputError(
        f"z[{i}] adds up to {float(z[i].sum()):.9g}: with simplex=True every row must add up to 1: "
        "divide it by its sum, or pass softmax's output."
    )


def project_classes(z: Tensor, system: System, discrepancy: Any) -> Solution:
    """Project probabilities (n, d) of at least one sample."""
    if system.lower is not None or system.upper is not None:
        raise InputError("tolerance wants a gradient, which simplex=True does not have: detach it.")
    values, unit = np.ascontiguousarray(as_numpy(z.detach().double())), torch.finfo(z.dtype).eps / 2
    check_probabilities(values, discrepancy.name, unit)
    d, weights = values.shape[1], system.weights
    layout = class_layout(system.view, system.rows, d)
    problem, total = _state(values, system, layout, KINDS[discrepancy.name])
    rows, families = column_rows(system.rows, layout, d), layout.families
    least = torch.finfo(z.dtype).tiny if problem.kind == ENTROPY else 0.0

    def rounded(out: np.ndarray) -> tuple[Tensor, np.ndarray]:
        value = torch.from_numpy(out).to(dtype=z.dtype, device=z.device, copy=True).clamp_(min=least)
        return value, as_numpy(value.double())

    def certify(exact: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sums, missed = missed_by(exact, problem.cell, weights, rows)
        return sums, missed.reshape(d, -1)[:, families].T

    value, found, missed, sums, responses, solved = nearest_classes(problem, unit, rounded, certify)
    if not solved:
        raise FairlayerError("The solver did not converge on this problem; please report it with the inputs.")
    by_class = np.full((d, len(system.rows.kind)), -np.inf)
    by_class[:, families] = missed.T
    if not (missed <= 0.0).all():  # rational arithmetic has the last word
        columns = as_numpy(value.double()).T
        by_class = np.stack([exact_shortfalls(columns[j], system, by_class[j]) for j in range(d)])
    multipliers = np.zeros((d, len(system.rows.offset)))
    multipliers[:, layout.used] = total * found.nu.T
    of_class = zip(statistics(rows, sums).reshape(d, -1), multipliers, by_class, strict=True)
    facts = JointFacts([Facts(system.view, *one) for one in of_class], "class")
    if torch.is_grad_enabled() and z.requires_grad:
        value = _OnSimplex.apply(z, value, problem, found, responses)
    return Solution(value, facts)


def _state(z: np.ndarray, system: System, layout: Layout, kind: int) -> tuple[ClassProblem, float]:
    """The problem of a batch, and what its weights add up to."""
    rows, (n, d), used = system.rows, z.shape, layout.used
    if len(used) * d > _MOST_ROWS or len(system.weight) * d * d > _MOST_NUMBERS:
        raise InputError(
            f"z has {d} classes for {len(used)} groups and {len(system.weight)} cells, too many for simplex=True: "
            f"groups times classes may be {_MOST_ROWS}, cells times classes squared {_MOST_NUMBERS}."
        )
    weighted = len(system.weights) > 0
    total = (float(system.weights.sum()) if weighted else float(n)) or 1.0
    half = np.empty((len(used), d))
    half[:] = 0.5 * rows.upper[layout.families][layout.family, None]
    problem = ClassProblem(
        kind,
        z,
        as_numpy(system.cell).astype(np.int32, copy=False),
        system.weights / total if weighted else np.empty(0),
        1.0 / total,
        (layout.start, layout.statistic, rows.value[layout.kept] * total),
        np.zeros((len(used), d)),
        layout.family,
        half,
    )
    return problem, total


class _OnSimplex(torch.autograd.Function):
    """The projection as a function of z."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, value: Tensor, problem: ClassProblem, found: Found, responses: np.ndarray
    ) -> Tensor:
        ctx.save_for_backward(z)
        ctx.problem, ctx.found, ctx.responses = problem, found, responses
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("Double backward with simplex=True is not available: use create_graph=False.")
        _ = ctx.saved_tensors  # which refuses a z that was overwritten
        given = np.ascontiguousarray(as_numpy(gradient.double()))
        out, (_, side, _, gram) = np.empty_like(given), ctx.found
        pull_back(*ctx.problem[:6], ctx.responses, gram, side, ctx.problem.family, given, out)
        return torch.from_numpy(out).to(dtype=gradient.dtype, device=gradient.device), None, None, None, None
