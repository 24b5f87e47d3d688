"""Class probabilities: outputs (n, d) whose rows lie on the simplex, projected so that every class is fair.

A sample in cell c with d classes counts as d, in the cells c d to c d + d - 1; of K statistics those of class j are j K
to j K + K - 1. So whatever is said of cells and rows, the proof that rows hold included, is said of every class. Rows
of differences can always hold: equal probabilities for everyone satisfy them all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairlayer.core import _native
from fairlayer.core.solver import DTYPES, Cells, as_bits, from_bits
from fairlayer.errors import InputError
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.rational import exact_shortfalls
from fairlayer.problem.rows import Rows
from fairlayer.problem.system import System
from fairlayer.solution import JointSolution, Solution

KINDS = ("entropy", "squared")
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


def check_class_kind(discrepancy: Any) -> None:
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
    outside = ~((z > 0.0) & (z < np.inf)) if kind == "entropy" else ~((z >= 0.0) & (z < np.inf))
    if outside.any():
        i, j = (int(at) for at in np.argwhere(outside)[0])
        value = float(z[i, j])
        if not np.isfinite(value):
            raise InputError(f"z[{i}, {j}] is {value}: probabilities must be finite.")
        remedy = "use 'squared', or clamp and rescale the row" if value == 0.0 else "pass softmax's output"
        asked = "positive for discrepancy='entropy'" if kind == "entropy" else "at least 0"
        raise InputError(f"z[{i}, {j}] is {value:g}: probabilities must be {asked}: {remedy}.")
    off = np.abs(z.sum(axis=1) - 1.0) > max(_OFF, 2.0 * z.shape[1] * unit)
    if off.any():
        i = int(off.argmax())
        raise InputError(
            f"z[{i}] adds up to {float(z[i].sum()):.9g}: with simplex=True every row must add up to 1: "
            "divide it by its sum, or pass softmax's output."
        )


def column_cells(cell: np.ndarray, classes: int) -> np.ndarray:
    """(n d,) the cells of each sample's classes, sample by sample. cell: (n,) of the samples."""
    if classes == 1:
        return cell
    return (cell[:, None] * np.int32(classes) + np.arange(classes, dtype=np.int32)).reshape(-1)


def respond(entropy: bool, z: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Points (n, d) of the simplex as shifts (n, d) move them, in float64: see core/native/simplex.cpp."""
    if entropy:
        moved = z * np.exp(-np.minimum(shift - shift.min(axis=1, keepdims=True), 600.0))
        return moved / moved.sum(axis=1, keepdims=True)
    raw = z - shift
    falling = -np.sort(-raw, axis=1)
    theta = (np.cumsum(falling, axis=1) - 1.0) / np.arange(1, z.shape[1] + 1)
    support = (falling > theta).sum(axis=1) - 1  # where the threshold of the nearest point stands
    return np.maximum(raw - np.take_along_axis(theta, support[:, None], axis=1), 0.0)


def class_rows(rows: Rows, classes: int) -> Rows:
    """The rows of every class, over cells and statistics that stand for one class each."""
    G, K, width = len(rows.start) - 1, len(rows.offset), np.diff(rows.start)
    cell = np.repeat(np.arange(G), classes * width)  # of each entry; its class, and its place within the cell, follow
    of_class, within = np.divmod(np.arange(len(cell)) - classes * rows.start[cell], width[cell])
    source = rows.start[cell] + within
    return Rows(
        np.concatenate([[0], np.cumsum(np.repeat(width, classes))]).astype(np.int64),
        rows.statistic[source] + of_class * K,
        rows.value[source],
        np.tile(rows.offset, classes),
        np.tile(rows.present, classes),
        np.concatenate([[0], (rows.first[1:] + K * np.arange(classes)[:, None]).reshape(-1)]).astype(np.int64),
        np.tile(rows.family, classes),
    )


def project_points(z: Tensor, entropy: bool, cells: System | Cells, rows: Rows, start: np.ndarray | None = None) -> Any:
    """The core's projection of points (n, d) on the simplex; rows: those of every class."""
    return _native.project_simplex(
        DTYPES[z.dtype], entropy, as_bits(z), cells.cell, cells.weights, cells.samples, cells.weight, rows, start, True
    )


def project_classes(z: Tensor, system: System, discrepancy: Any) -> Solution:
    """Project probabilities (n, d) of at least one sample."""
    if system.lower is not None or system.upper is not None:
        raise InputError("tolerance wants a gradient, which simplex=True does not have: detach it.")
    host, d = z.detach().contiguous(), z.shape[1]
    check_probabilities(host.double().numpy(), discrepancy.name, torch.finfo(z.dtype).eps / 2)
    rows = system.rows
    if len(rows.offset) * d > _MOST_ROWS or len(system.weight) * d * d > _MOST_NUMBERS:
        raise InputError(
            f"z has {d} classes for {len(rows.offset)} groups and {len(system.weight)} cells, too many for "
            f"simplex=True: groups times classes may be {_MOST_ROWS}, cells times classes squared {_MOST_NUMBERS}."
        )
    found = project_points(host, discrepancy.name == "entropy", system, class_rows(rows, d))
    value = from_bits(found.value, z.dtype).reshape(z.shape)
    missed = np.asarray(found.missed).reshape(d, -1)
    if not found.holds:  # rational arithmetic has the last word
        exact = value.double().numpy()
        missed = np.stack([exact_shortfalls(exact[:, j], system, missed[j]) for j in range(d)])
    of_class = (np.asarray(found.statistics).reshape(d, -1), np.asarray(found.nu).reshape(d, -1), missed)
    parts = [Solution(None, system.view, *one) for one in zip(*of_class, strict=True)]
    if torch.is_grad_enabled() and z.requires_grad:
        value = _OnSimplex.apply(z, value, found)
    return JointSolution(value, parts, "class")


class _OnSimplex(torch.autograd.Function):
    """The projection as a function of z."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, value: Tensor, found: Any) -> Tensor:
        ctx.save_for_backward(z)
        ctx.found = found
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("Double backward with simplex=True is not available: use create_graph=False.")
        _ = ctx.saved_tensors  # which refuses a z that was overwritten
        pulled = from_bits(ctx.found.pull_back(as_bits(gradient.detach().contiguous())), gradient.dtype)
        return pulled.reshape(gradient.shape), None, None
