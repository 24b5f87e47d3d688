"""The rows of constraints at given outputs: measured exactly, or as a differentiable function of the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.binding.cells import exact_sums
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.groups import Label, Name
from fairlayer.binding.rows import values_of
from fairlayer.binding.system import System, bind
from fairlayer.constraints import as_numpy
from fairlayer.solve.certify import all_hold, shortfalls
from fairlayer.solve.newton import statistics

Levels = Mapping[Name, Sequence[Label]] | None


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
        """The largest amount by which a row passes its bound, negative within; nan where there is no row."""
        beyond = np.maximum(self.values - self.upper, self.lower - self.values)
        return float(beyond.max()) if len(beyond) else float("nan")


def bind_batch(
    rules: ConstraintSet,
    n: int,
    groups: Any = None,
    targets: Any = None,
    features: Any = None,
    weights: Any = None,
    levels: Levels = None,
) -> System:
    """Bind constraints to a batch of n outputs, with data in any form that `project` takes."""
    flat = None if targets is None else targets.reshape(-1) if isinstance(targets, Tensor) else np.ravel(targets)
    sample_weights = None if weights is None else as_numpy(weights).reshape(-1).astype(np.float64)
    return bind(rules, n, groups=groups, targets=flat, features=features, weights=sample_weights, levels=levels)


def row_values(y: Tensor, system: System) -> Tensor:
    """Value of every row at y, of shape (n,): a (m,) float64 tensor through which gradients flow."""
    rows, device = system.rows, y.device
    index = torch.as_tensor(system.cell, device=device).long()
    values = y.double()
    if len(system.weights):
        values = values * torch.from_numpy(system.weights).to(device)
    sums = values.new_zeros(len(rows.M)).index_add(0, index, values)
    q = sums @ torch.from_numpy(rows.M).to(device) - torch.from_numpy(rows.offset).to(device)
    return values_of(rows, q)


def row_excesses(y: Tensor, system: System) -> Tensor:
    """By how much every row passes its upper and its lower bound, negative within: a (2, m) float64 tensor."""
    values = row_values(y, system)
    upper, lower = (torch.from_numpy(side).to(y.device) for side in (system.rows.upper, system.rows.lower))
    return torch.stack([values - upper, lower - values])


def measure(
    y: Any,  # (n,) tensor or array
    rules: ConstraintSet,
    groups: Any = None,
    targets: Any = None,
    features: Any = None,
    weights: Any = None,
    levels: Levels = None,
) -> Gaps:
    """Measure every row of the constraints at outputs y."""
    values = as_numpy(y).reshape(-1).astype(np.float64)
    system = bind_batch(rules, len(values), groups, targets, features, weights, levels)
    rows = system.rows
    q, missed = exact_statistics(values, system)
    return Gaps(
        system.view.names, values_of(rows, q), rows.lower, rows.upper, system.view.vacuous, bool(all_hold(missed))
    )


def exact_statistics(values: np.ndarray, system: System) -> tuple[np.ndarray, np.ndarray]:
    """(K,) statistics of float64 outputs, and (m,) by how much each row may be missed, rounding errors included."""
    rows = system.rows
    S, error = np.zeros(len(rows.M)), np.zeros(len(rows.M))
    exact_sums(values, as_numpy(system.cell).astype(np.int32), system.weights, S, error)
    return statistics(rows, S), shortfalls(rows, S, error)
