"""What the constraints mean, read off their declarations sample by sample: a second opinion on the library's rows.

Nothing of `fairlayer.problem` is used here, neither cells nor plans. A statistic is sum_i f_i y_i / sum_i f_i (less the
same of the targets for residuals), f_i the product of its factors; a row is a statistic, or the difference of two, in
bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import torch

from exact import exact_dot
from fairlayer import Affine, SoftGroup
from fairlayer.constraints import Constraint


def plain(values: Any) -> np.ndarray:
    """Any column as an array; halves of any kind in float64."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return (values.double() if values.is_floating_point() else values).numpy()
    return np.asarray(values)


@dataclass
class Problem:
    """One batch and what is asked of it: the arguments of `project`."""

    z: np.ndarray
    constraints: list[Constraint]
    groups: Any = None
    bounds: Any = None
    targets: Any = None
    features: Any = None
    weights: Any = None
    rows: list[Row] = field(init=False)

    def __post_init__(self) -> None:
        self.rows = [row for constraint in self.constraints for row in read_rows(constraint, self)]

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `project`; all except the last two are also those of a layer's call."""
        return {
            "groups": self.groups,
            "targets": self.targets,
            "features": self.features,
            "weights": self.weights,
            "bounds": self.bounds,
            "constraints": self.constraints,
        }

    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """Both bounds, one number per sample."""
        low, high = self.bounds if self.bounds is not None else (None, None)
        n = len(self.z)
        lo = np.full(n, -np.inf) if low is None else np.broadcast_to(plain(low).astype(np.float64), n)
        hi = np.full(n, np.inf) if high is None else np.broadcast_to(plain(high).astype(np.float64), n)
        return lo, hi

    def sample_weights(self) -> np.ndarray:
        """Weights, ones where none were given."""
        return np.ones(len(self.z)) if self.weights is None else plain(self.weights).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Statistic:
    """A group's mean, or a row of a matrix where `normalised` is false."""

    factors: tuple[np.ndarray, ...]
    support: np.ndarray  # positions at which no factor is zero
    targets: np.ndarray | None = None
    normalised: bool = True

    @property
    def absent(self) -> bool:
        """Whether no sample belongs to the group."""
        return self.normalised and len(self.support) == 0

    def exact(self, y: np.ndarray) -> Fraction:
        """Its value for outputs y, in rational arithmetic."""
        here = [factor[self.support] for factor in self.factors]
        total = exact_dot(*here, y[self.support])
        if self.targets is not None:
            total -= exact_dot(*here, self.targets[self.support])
        return total / exact_dot(*here) if self.normalised else total

    def coefficients(self, n: int) -> tuple[np.ndarray, float]:
        """The statistic as a vector and a constant: c @ y - constant, in float64."""
        c = np.zeros(n)
        c[self.support] = np.prod([factor[self.support] for factor in self.factors], axis=0)
        if self.normalised:
            c /= c.sum()
        return c, 0.0 if self.targets is None else float(c @ self.targets)


@dataclass(frozen=True, eq=False)
class Row:
    """lower <= factor * plus - minus <= upper."""

    plus: Statistic
    minus: Statistic | None
    lower: float
    upper: float
    factor: float = 1.0

    def exact(self, y: np.ndarray) -> Fraction:
        """Its value for outputs y, in rational arithmetic."""
        return Fraction(self.factor) * self.plus.exact(y) - (self.minus.exact(y) if self.minus is not None else 0)

    def coefficients(self, n: int) -> tuple[np.ndarray, float]:
        """The row as a vector and a constant."""
        c, constant = (self.factor * part for part in self.plus.coefficients(n))
        if self.minus is not None:
            other, other_constant = self.minus.coefficients(n)
            c, constant = c - other, constant - other_constant
        return c, constant


def read_rows(constraint: Constraint, problem: Problem) -> list[Row]:
    """All rows that can be stated about a batch."""
    if isinstance(constraint, Affine):
        matrix, n = constraint.A, len(problem.z)
        return [
            Row(Statistic((a, np.ones(n)), np.flatnonzero(a), normalised=False), None, float(low), float(high))
            for a, low, high in zip(matrix, plain(constraint.lower), plain(constraint.upper), strict=True)
        ]
    tolerance = float(constraint.tolerance)
    rows = []
    for region, grouping in product(_regions(constraint, problem), _groupings(constraint, problem)):
        found = [s for s in _statistics(constraint, problem, grouping, region) if not s.absent]
        if constraint.comparison == "ratio":
            rows += [Row(a, b, -np.inf, 0.0, constraint.ratio) for a, b in permutations(found, 2)]
            continue
        pairs = combinations(found, 2) if constraint.comparison == "difference" else ((s, None) for s in found)
        rows += [Row(a, b, -tolerance, tolerance) for a, b in pairs]
    return rows


def _columns(groups: Any) -> dict[Any, Any]:
    if isinstance(groups, SoftGroup):
        return {0: groups}
    if hasattr(groups, "columns"):
        return {name: groups[name] for name in groups.columns}
    if isinstance(groups, dict):
        return groups
    table = plain(groups)
    return {j: table[:, j] for j in range(table.shape[1])} if table.ndim == 2 else {0: table}


def _groupings(constraint: Any, problem: Problem) -> list[tuple[Any, ...]]:
    if constraint.over is None:
        return [(name,) for name in _columns(problem.groups)]
    listed = constraint.over if isinstance(constraint.over, list) else [constraint.over]
    return [entry if isinstance(entry, tuple) else (entry,) for entry in listed]


def _memberships(column: Any) -> list[np.ndarray]:
    """For each label, how much every sample belongs to it."""
    if isinstance(column, SoftGroup):
        return list(column.probabilities.T)
    values = plain(column)
    return [(values == label).astype(np.float64) for label in np.unique(values)]


def _statistics(constraint: Any, problem: Problem, grouping: tuple[Any, ...], region: np.ndarray) -> list[Statistic]:
    columns = _columns(problem.groups)
    targets = plain(problem.targets).astype(np.float64) if constraint.quantity == "residual" else None
    statistics = []
    for memberships in product(*(_memberships(columns[name]) for name in grouping)):
        factors = (*memberships, region)
        if problem.weights is not None:
            factors = (*factors, problem.sample_weights())
        factors = tuple(f for f in factors if not (f == 1.0).all()) or (np.ones(len(problem.z)),)
        indicators = [f for f in factors if np.isin(f, (0.0, 1.0)).all()]
        support = np.flatnonzero(np.all([f != 0 for f in factors], axis=0))
        rest = tuple(f for f in factors if not any(f is i for i in indicators)) or (np.ones(len(problem.z)),)
        statistics.append(Statistic(rest, support, targets))
    return statistics


def _regions(constraint: Any, problem: Problem) -> list[np.ndarray]:
    """Membership of every part of the batch within which groups are compared."""
    parts = []
    for condition in constraint.conditions:
        source, name, regions = condition.source, condition.name, condition.regions
        values = plain(problem.targets if source == "target" else problem.features[name])
        listed = regions if regions is not None else [{label} for label in np.unique(values)]
        parts += [_inside(values, region) for region in listed]
    return parts if constraint.conditions else [np.ones(len(problem.z))]


def _inside(values: np.ndarray, region: Any) -> np.ndarray:
    if isinstance(region, set | frozenset):
        return np.array([float(value in region) for value in values.tolist()])
    low, high = region
    return ((values >= (-np.inf if low is None else low)) & (values < (np.inf if high is None else high))).astype(float)


def exact_statistics(rows: list[Row], y: np.ndarray) -> dict[int, Fraction]:
    """The value of every statistic that the rows speak of, each worked out once."""
    found = {id(s): s for row in rows for s in (row.plus, row.minus) if s is not None}
    return {key: statistic.exact(y) for key, statistic in found.items()}


def exact_violations(rows: list[Row], y: np.ndarray) -> list[Fraction]:
    """By how much each row is missed, at most 0 where it holds; infinite bounds are left out."""
    value_of = exact_statistics(rows, y)
    missed = []
    for row in rows:
        value = Fraction(row.factor) * value_of[id(row.plus)] - (
            value_of[id(row.minus)] if row.minus is not None else 0
        )
        above = value - Fraction(row.upper) if np.isfinite(row.upper) else Fraction(-1)
        below = Fraction(row.lower) - value if np.isfinite(row.lower) else Fraction(-1)
        missed.append(max(above, below))
    return missed
