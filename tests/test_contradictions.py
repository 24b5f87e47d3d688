"""Rows that cannot all hold are refused by name, whatever the scales; rows that can are never taken for such."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fairlayer import (
    EqualizedResiduals,
    InfeasibleError,
    MeanParity,
    ResidualMean,
    SoftGroup,
    Status,
    project,
)
from formulas import Problem, exact_statistics, exact_violations

PATHS = ["compiled", "tensor"]


def refused(problem: Problem, path: str, dtype: torch.dtype = torch.float64) -> InfeasibleError:
    """The refusal, after seeing that relaxing answers it."""
    z = torch.tensor(problem.z, dtype=dtype)
    with pytest.raises(InfeasibleError) as caught:
        project(z, **problem.arguments(), path=path)
    relaxed = project(z, **problem.arguments(), path=path, infeasible="relax")
    assert relaxed.status is Status.RELAXED
    assert relaxed.excess == pytest.approx(caught.value.excess, rel=1e-6)
    worst = float(max(exact_violations(problem.rows, relaxed.value.double().numpy())))
    assert worst <= relaxed.excess * (1 + 1e-6) + torch.finfo(dtype).eps * np.abs(problem.targets).max()
    return caught.value


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_equal_means_and_equal_residuals(seed, path, scale):
    """Together they say that the targets have equal means, which is theirs to have or not. z is 0: it has no scale."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    problem = Problem(
        np.zeros(n),
        [MeanParity(0.0), EqualizedResiduals(0.0)],
        {"a": np.zeros(n, dtype=int), "soft": SoftGroup(rng.dirichlet(np.ones(3), n))},
        targets=scale * (rng.integers(0, 2, n) + rng.choice([0.0, 0.25], n)),
    )
    residuals = [row for row in problem.rows if row.plus.targets is not None]
    if len(set(exact_statistics(residuals, problem.z).values())) > 1:
        assert refused(problem, path).excess > 1e-6 * scale
    else:
        assert project(problem.z, **problem.arguments(), path=path).satisfied


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rows_without_a_scale_beside_rows_with_one(path, dtype):
    """Two samples are asked to stay where their bound holds them, a third to leave its bounds by 1/4."""
    problem = Problem(
        np.array([-3.0, -1e-4, 100.0]),
        [ResidualMean(0.0)],
        np.array([0, 1, 2]),
        (0.0, 1.0),
        targets=np.array([0.0, 0.0, 1.25]),
    )
    error = refused(problem, path, dtype)
    assert error.excess == pytest.approx(0.25, rel=1e-9)
    assert len(error.rows) == 1


@pytest.mark.parametrize("path", PATHS)
def test_equal_residuals_of_light_and_heavy_groups(path):
    """One attribute without bounds can always be satisfied, be its groups ten decades apart in weight."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        n = int(rng.integers(4, 12))
        groups, weights = rng.integers(0, 5, n), 10.0 ** rng.uniform(-5, 5, n)
        problem = Problem(
            rng.normal(size=n),
            [EqualizedResiduals(0.0), MeanParity(10.0)],
            groups,
            targets=rng.normal(size=n),
            weights=weights,
        )
        solution = project(problem.z, **problem.arguments(), path=path)
        assert solution.status in (Status.OPTIMAL, Status.ROUNDED, Status.VACUOUS)
        size = np.abs(np.concatenate([solution.value, problem.targets])).max()
        assert max(exact_violations(problem.rows, solution.value), default=0) <= 1e-10 * size


def test_groups_that_nobody_is_in_have_rows_of_the_same_type():
    """Everything is compiled anew for another type."""
    soft = SoftGroup(np.zeros((4, 1)))
    solution = project(np.ones(4), soft, [ResidualMean(0.1)], targets=np.zeros(4))
    assert solution.status is Status.VACUOUS
    assert solution.facts.statistics.dtype == np.float64
