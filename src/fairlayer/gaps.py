"""The rows of constraints at given outputs: measured exactly, or as a differentiable function of the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.core._native import shortfalls, statistics
from fairlayer.decisions.project import read_threshold
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.exact_sums import exact_sums
from fairlayer.problem.groups import GivenLevels
from fairlayer.problem.rational import exact_shortfalls, exact_statistics
from fairlayer.problem.system import System, bind


class Gaps(NamedTuple):
    """Rows at given outputs, measured in exact arithmetic."""

    names: tuple[str, ...]
    values: np.ndarray  # (m,) signed
    lower: np.ndarray  # (m,) what is allowed
    upper: np.ndarray  # (m,)
    vacuous: tuple[str, ...]  # what cannot be compared, because a group is absent
    satisfied: bool  # whether every row holds, without any allowance for rounding

    @property
    def largest(self) -> float:
        """The largest |row|; nan where there is none."""
        return float(np.abs(self.values).max()) if len(self.values) else float("nan")

    @property
    def excess(self) -> float:
        """The largest amount by which a row exceeds its bound, negative within; nan where there is no row."""
        beyond = np.maximum(self.values - self.upper, self.lower - self.values)
        return float(beyond.max()) if len(beyond) else float("nan")


def bind_batch(
    rules: ConstraintSet,
    n: int,
    groups: Any = None,
    targets: Any = None,
    features: Any = None,
    weights: Any = None,
    levels: GivenLevels = None,
) -> System:
    """Bind constraints to a batch of n outputs, with data in any form that `project` takes."""
    flat = None if targets is None else targets.reshape(-1) if isinstance(targets, Tensor) else np.ravel(targets)
    sample_weights = None if weights is None else as_numpy(weights).reshape(-1).astype(np.float64)
    return bind(rules, n, groups=groups, targets=flat, features=features, weights=sample_weights, levels=levels)


def row_values(y: Tensor, system: System) -> Tensor:
    """Value of every row at y, of shape (n,): a (m,) float64 tensor through which gradients flow."""
    rows, values = system.rows, y.cpu().double()
    if len(system.weights):
        values = values * torch.from_numpy(system.weights)
    sums = values.new_zeros(len(system.weight)).index_add(0, torch.from_numpy(system.cell).long(), values)
    q = sums @ torch.from_numpy(rows.dense()) - torch.from_numpy(rows.offset)
    return system.view.values(q)


def row_excesses(y: Tensor, system: System) -> Tensor:
    """By how much every row exceeds its upper and its lower bound, negative within: a (2, m) float64 tensor."""
    values, sides = row_values(y, system), system.view.limits(system.rows.lower, system.rows.upper)
    lower, upper = (torch.from_numpy(side).to(values.device) for side in sides)
    return torch.stack([values - upper, lower - values])


def measure(
    y: Any,  # (n,) tensor or array, or (n, d)
    rules: ConstraintSet,
    groups: Any = None,
    targets: Any = None,
    features: Any = None,
    weights: Any = None,
    levels: GivenLevels = None,
    columns: Sequence[str] | None = None,
) -> Gaps:
    """Measure every row of the constraints at outputs y; of outputs (n, d) for every column.

    columns: what columns are called in the names of rows; "output 0" and so on where it is left out.
    """
    outputs = as_numpy(y)
    outputs = outputs if outputs.ndim == 2 and outputs.shape[1] > 1 else outputs.reshape(-1, 1)
    values = outputs.astype(np.float64)
    if rules.about_decisions:  # of which the rates are measured, as outputs of 0 and 1
        values = (outputs >= outputs.dtype.type(read_threshold(rules))).astype(np.float64)
    system = bind_batch(rules, len(values), groups, targets, features, weights, levels)
    view, d = system.view, values.shape[1]
    found = [_measure_column(np.ascontiguousarray(values[:, j]), system) for j in range(d)]
    lower, upper = (np.tile(side, d) for side in view.limits(*system.stated))
    ends = [""] if d == 1 else [f", {name}" for name in columns or [f"output {j}" for j in range(d)]]
    return Gaps(
        tuple(name + end for end in ends for name in view.names),
        np.concatenate([gaps for gaps, _ in found]),
        lower,
        upper,
        view.vacuous,
        all(bool((missed <= 0.0).all()) for _, missed in found),
    )


def _measure_column(values: np.ndarray, system: System) -> tuple[np.ndarray, np.ndarray]:
    """(m,) rows at float64 outputs, and (F,) by how much each family of them is missed, rounding included."""
    rows, size = system.rows, len(system.weight)
    S, error = np.zeros(size), np.zeros(size)
    exact_sums(values, system.cell, system.weights, S, error)
    missed = shortfalls(rows, S, error)
    if not (missed <= 0.0).all():
        missed = exact_shortfalls(values, system, missed)
    return system.view.exact_values(statistics(rows, S), partial(exact_statistics, values, system)), missed
