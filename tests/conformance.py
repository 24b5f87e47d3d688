"""Problems that every constraint, bound, weight and dtype must get right, and what right means.

A new constraint joins by one entry in `CASES`; `core/test_conformance.py` then runs every check on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch

from fairlayer import (
    Affine,
    ConditionalParity,
    EqualizedOdds,
    EqualizedResiduals,
    MeanParity,
    RatioParity,
    ResidualMean,
    SoftGroup,
    Solution,
    project,
)
from fairlayer.constraints import GroupConstraint
from fairlayer.constraints.regions import Condition
from formulas import Problem, exact_violations, plain
from oracle import matrix_form, project_reference

Data = dict[str, Any]


@dataclass(frozen=True, eq=False)
class MadeUp(GroupConstraint):
    """A constraint that the library does not know: mean parity among samples whose feature x is at least `share`."""

    share: float = field(default=0.0, kw_only=True)

    title: ClassVar[str] = "made-up parity"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The samples it looks at."""
        return (Condition("feature", "x", ((self.share, None),)),)


def _table(rng: np.random.Generator, n: int, *sizes: int) -> torch.Tensor:
    """Integer labels; the first samples hold every label, so that none is absent."""
    columns = [np.where(np.arange(n) < size, np.arange(n), rng.integers(0, size, n)) for size in sizes]
    return torch.tensor(np.stack(columns, axis=1))


def _people(rng: np.random.Generator, n: int) -> Data:
    race = np.array(["black", "other", "white"])[_table(rng, n, 3).numpy()[:, 0]]
    return {"race": race, "sex": np.arange(n) % 2 == 1}


def _targets(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(0.35, 0.65, n)


def _soft(rng: np.random.Generator, n: int) -> SoftGroup:
    return SoftGroup(rng.dirichlet(np.ones(3), n))


def _matrix(rng: np.random.Generator, n: int) -> Affine:
    A = rng.normal(size=(4, n))
    middle = A.sum(axis=1) * 0.5  # so that y = 1/2 satisfies every row
    return Affine(A, lower=[*(middle - 0.2)[:3], -np.inf], upper=[*(middle + 0.2)[:2], np.inf, middle[3] + 0.1])


CASES: dict[str, Callable[[np.random.Generator, int], Data]] = {
    "mean parity": lambda rng, n: {"constraints": [MeanParity(0.05)], "groups": _table(rng, n, 2, 2)},
    "14 groups": lambda rng, n: {"constraints": [MeanParity(0.05)], "groups": _table(rng, n, 14)},
    "intersection": lambda rng, n: {
        "constraints": [MeanParity(0.05, over=("race", "sex"))],
        "groups": _people(rng, n),
    },
    "margins and intersection": lambda rng, n: {
        "constraints": [MeanParity(0.1, over=["sex", ("race", "sex")])],
        "groups": _people(rng, n),
    },
    "ratio parity": lambda rng, n: {
        "constraints": [RatioParity(0.9)],
        "groups": _table(rng, n, 2, 3),
        "lowest": 0.0,
    },
    "ratio of 14 groups": lambda rng, n: {
        "constraints": [RatioParity(0.8)],
        "groups": _table(rng, n, 14),
        "lowest": 0.0,
    },
    "ratio and difference": lambda rng, n: {
        "constraints": [RatioParity(0.85, over="sex"), MeanParity(0.1, over=("race", "sex"))],
        "groups": _people(rng, n),
        "lowest": 0.0,
    },
    "conditional parity": lambda rng, n: {
        "constraints": [ConditionalParity(0.05, over="sex", regions={"age": [(None, 40), (30, 60)], "job": [{1, 2}]})],
        "groups": _people(rng, n),
        "features": {"age": rng.integers(18, 70, n), "job": rng.integers(0, 4, n)},
    },
    "equalized residuals": lambda rng, n: {
        "constraints": [EqualizedResiduals(0.03)],
        "groups": _table(rng, n, 2, 3),
        "targets": _targets(rng, n),
    },
    "residual mean": lambda rng, n: {
        "constraints": [ResidualMean(0.03)],
        "groups": _table(rng, n, 2, 3),
        "targets": _targets(rng, n),
    },
    "equalized odds": lambda rng, n: {
        "constraints": [EqualizedOdds(0.05, over="sex")],
        "groups": _people(rng, n),
        "targets": rng.integers(0, 2, n),
    },
    "equalized odds, intervals": lambda rng, n: {
        "constraints": [EqualizedOdds(0.05, over="sex", regions=[(None, 0.5), (0.45, None)])],
        "groups": _people(rng, n),
        "targets": _targets(rng, n),
    },
    "made up": lambda rng, n: {
        "constraints": [MadeUp(0.05, share=0.5)],
        "groups": _people(rng, n),
        "features": {"x": (np.arange(n) % 4) / 3},
    },
    "affine": lambda rng, n: {"constraints": [_matrix(rng, n)]},
    "soft membership": lambda rng, n: {
        "constraints": [MeanParity(0.02)],
        "groups": {"proxy": _soft(rng, n), "sex": np.arange(n) % 2},
    },
    "several constraints": lambda rng, n: {
        "constraints": [
            MeanParity(0.05, over="sex"),
            EqualizedOdds(0.1, over="race", regions=[(None, 0.46), (0.46, None)]),
            EqualizedResiduals(0.2, over=("race", "sex")),
        ],
        "groups": _people(rng, n),
        "targets": rng.integers(0, 2, n) * 0.02 + 0.45,
    },
    "with a matrix": lambda rng, n: {
        "constraints": [MeanParity(0.05), _matrix(rng, n)],
        "groups": _table(rng, n, 2),
    },
    "one constraint twice": lambda rng, n: {
        "constraints": [MeanParity(0.05), MeanParity(0.05)],
        "groups": _table(rng, n, 3),
    },
    "one attribute twice": lambda rng, n: {
        "constraints": [MeanParity(0.05)],
        "groups": _table(rng, n, 3)[:, [0, 0]].contiguous(),
    },
    "groups of one": lambda rng, n: {
        "constraints": [MeanParity(0.05)],
        "groups": {"rare": np.where(np.arange(n) < 3, np.arange(n), 3)},
    },
}
# Cases whose rows are listed as multipliers are; a ratio of two groups is two rows, and has one multiplier.
BY_ROW = [name for name in CASES if "ratio" not in name]

BOUNDS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "no bounds": lambda rng, n: None,
    "box": lambda rng, n: (0.0, 1.0),
    "per sample": lambda rng, n: (rng.uniform(-0.1, 0.3, n), torch.tensor(rng.uniform(0.7, 1.1, n))),
    "lower only": lambda rng, n: (0.1, None),
    "upper only": lambda rng, n: (None, 0.9),
}

WEIGHTS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "unweighted": lambda rng, n: None,
    "weighted": lambda rng, n: rng.uniform(0.5, 3.0, n),
}

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# Distance to the optimum, relative to the spread of z. Half precision has room of a few roundings only.
ACCURACY = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def name_of(setting: Any) -> str:
    """How a setting is called in the names of tests."""
    return str(setting).removeprefix("torch.")


@cache
def make_problem(
    case: str, bounds: str = "no bounds", weights: str = "unweighted", dtype: torch.dtype = torch.float64, n: int = 60
) -> Problem:
    """The problem of this name, its inputs representable in `dtype`."""
    rng = np.random.default_rng([n, *map(ord, case + bounds + weights)])
    data = CASES[case](rng, n)
    lowest, box = data.pop("lowest", None), BOUNDS[bounds](rng, n)
    if lowest is not None:
        low, high = box or (None, None)
        box = (lowest if low is None else np.maximum(low, lowest), high)
    problem = Problem(0.5 + 0.5 * rng.standard_normal(n), bounds=box, weights=WEIGHTS[weights](rng, n), **data)
    push = np.sign(matrix_form(problem)[0].T @ rng.choice([-1.0, 1.0], len(problem.rows)))  # so that rows bind
    return replace(problem, z=plain(torch.tensor(problem.z + 0.5 * push).to(dtype)))


@cache
def reference(*names: Any) -> np.ndarray:
    """The optimum of the problem of this name, by the oracle."""
    return project_reference(make_problem(*names))


def solve(problem: Problem, dtype: torch.dtype = torch.float64, **options: Any) -> Solution:
    """Project the problem's inputs in the given dtype."""
    return project(torch.tensor(problem.z, dtype=dtype), **problem.arguments(), **options)


def permuted(problem: Problem, order: np.ndarray) -> Problem:
    """The problem with its samples in another order."""

    def reorder(values: Any) -> Any:
        if isinstance(values, dict):
            return {name: reorder(column) for name, column in values.items()}
        if isinstance(values, SoftGroup):
            return SoftGroup(values.probabilities[order], values.labels)
        return values[order] if np.ndim(values) else values

    return replace(
        problem,
        z=problem.z[order],
        constraints=[
            Affine(c.A[:, order], c.lower, c.upper) if isinstance(c, Affine) else c for c in problem.constraints
        ],
        groups=reorder(problem.groups),
        targets=reorder(problem.targets),
        features=reorder(problem.features),
        weights=reorder(problem.weights),
        bounds=None if problem.bounds is None else tuple(map(reorder, problem.bounds)),
    )


def assert_holds(problem: Problem, solution: Solution) -> None:
    """Every row and bound holds for the returned tensor, in rational arithmetic, and the status says so."""
    y = plain(solution.value).reshape(-1)
    lo, hi = problem.box()
    assert (y >= lo).all()
    assert (y <= hi).all()
    worst = max(exact_violations(problem.rows, y), default=0)
    assert worst <= 0, f"a row is missed by {float(worst):.3g}, status {solution.status.name}"
    assert solution.satisfied


def assert_close(actual: Any, expected: Any, tolerance: float) -> None:
    """Nowhere further apart than the tolerance."""
    worst = np.abs(plain(actual).astype(np.float64) - plain(expected)).max(initial=0.0)
    assert worst <= tolerance, f"{worst:.3g} apart, more than {tolerance:.3g}"


def rounding(problem: Problem, dtype: torch.dtype) -> float:
    """Rounding error of the largest input."""
    return torch.finfo(dtype).eps * np.abs(problem.z).max()
