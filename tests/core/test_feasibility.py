"""Rows that cannot all hold are refused by name, whatever the scales; rows that can are never taken for such."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
import torch

from fairlayer import (
    Affine,
    EqualizedResiduals,
    InfeasibleError,
    MeanParity,
    ResidualMean,
    SoftGroup,
    Status,
    project,
)
from formulas import Problem, exact_statistics, exact_violations, plain
from judge import assert_true_status
from oracle import least_widening

N = 12
SEEDS = range(6)


def conflicting(seed: int) -> Problem:
    """Targets beyond the box in some groups, so that no output is right on average in each."""
    rng = np.random.default_rng(seed)
    groups = {"a": np.arange(N) % 2, "b": rng.integers(0, 3, N)}
    targets = rng.uniform(0.0, 1.0, N) + rng.uniform(0.5, 2.0) * (groups["b"] == 1)
    return Problem(rng.normal(size=N), [ResidualMean(0.05)], groups, (0.0, 1.0), targets)


def refused(problem: Problem, dtype: torch.dtype = torch.float64) -> InfeasibleError:
    """The refusal, after seeing that relaxing answers it."""
    z = torch.tensor(problem.z, dtype=dtype)
    with pytest.raises(InfeasibleError) as caught:
        project(z, **problem.arguments())
    relaxed = project(z, **problem.arguments(), infeasible="relax")
    assert relaxed.status is Status.RELAXED
    assert not relaxed.satisfied
    assert relaxed.excess == pytest.approx(caught.value.excess, rel=1e-6)
    y = plain(relaxed.value).astype(np.float64)
    worst = float(max(exact_violations(problem.rows, y)))
    assert worst == pytest.approx(relaxed.excess, rel=1e-6, abs=torch.finfo(dtype).eps * np.abs(problem.targets).max())
    lo, hi = problem.box()
    assert (y >= lo).all()
    assert (y <= hi).all()
    return caught.value


@pytest.mark.parametrize("seed", SEEDS)
def test_a_refusal_says_how_far_to_go(seed):
    problem = conflicting(seed)
    error = refused(problem)
    assert error.excess == pytest.approx(least_widening(problem), abs=1e-9)
    assert all(limit == pytest.approx(0.05 + error.excess) for limit in error.smallest)
    stated = float(re.search(r"tolerance ([0-9.]+[0-9])", str(error))[1])
    assert stated == pytest.approx(error.smallest[0], rel=1e-5)
    assert 'infeasible="relax"' in str(error)
    enough = Problem(**{**problem.arguments(), "z": problem.z, "constraints": [ResidualMean(error.smallest[0] + 1e-7)]})
    assert project(enough.z, **enough.arguments()).status is Status.OPTIMAL
    with pytest.raises(InfeasibleError):
        project(problem.z, **{**problem.arguments(), "constraints": [ResidualMean(error.smallest[0] - 1e-6)]})


@pytest.mark.parametrize("seed", SEEDS)
def test_a_refusal_names_rows_that_conflict(seed):
    """The named rows alone, without the others, are infeasible by the same amount."""
    problem = conflicting(seed)
    error = refused(problem)
    everything = project(problem.z, **problem.arguments(), infeasible="relax").rows
    kept = [position for position, name in enumerate(everything) if name in error.rows]
    assert len(kept) == len(error.rows) > 0
    part = Problem(**{**problem.arguments(), "z": problem.z})
    part.rows = [part.rows[position] for position in kept]
    assert least_widening(part) == pytest.approx(error.excess, abs=1e-9)


def test_relaxing_changes_nothing_where_nothing_conflicts():
    z, groups = np.linspace(0.0, 1.0, N), np.arange(N) % 2
    relaxed = project(z, groups, MeanParity(0.1), infeasible="relax")
    assert relaxed.status is Status.OPTIMAL
    assert relaxed.excess == 0
    assert np.array_equal(relaxed.value, project(z, groups, MeanParity(0.1)).value)


def test_rows_of_a_matrix():
    z = np.linspace(0.0, 1.0, N)
    with pytest.raises(InfeasibleError, match=r"budget: row 0.*by 88"):
        project(z, None, Affine(np.ones((1, N)), lower=100.0, name="budget"), bounds=(0.0, 1.0))
    with pytest.raises(InfeasibleError):
        project(z, None, [Affine(np.ones((1, N)), lower=1.0), Affine(np.ones((1, N)), upper=0.0)])


def test_errors_can_be_pickled():
    error = InfeasibleError(["a row"], 0.5, [0.75])
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert (copy.rows, copy.excess, copy.smallest) == (("a row",), 0.5, (0.75,))


HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])


@HALVES
@pytest.mark.parametrize(
    ("constraint", "excess"),
    [(ResidualMean(0.125), 0.875), (EqualizedResiduals(0.125), 0.375), (Affine(np.ones((1, 4)), upper=-1.0), 1.0)],
)
def test_relaxing_in_coarse_dtypes(dtype, constraint, excess):
    """The least violation, up to the rounding of the output."""
    z = torch.tensor([0.2, 0.7, 0.4, 0.9], dtype=dtype)
    solution = project(z, [0, 0, 1, 1], constraint, (0, 1), targets=[2.0, 2.0, 0.5, 0.5], infeasible="relax")
    assert solution.status is Status.RELAXED
    assert solution.excess == pytest.approx(excess, abs=torch.finfo(dtype).eps)


@HALVES
def test_rows_without_room_for_rounding(dtype):
    """Only outputs of exactly 1 will do in the first group; whether they were hit is not left to the room given."""
    z = torch.tensor([0.2, 0.7, 0.4, 0.9], dtype=dtype)
    solution = project(z, [0, 0, 1, 1], ResidualMean(0.125), (0, 1), targets=[1.125, 1.125, 0.5, 0.5])
    assert solution.value[:2].tolist() == [1.0, 1.0]
    assert solution.excess == 0


class TestScales:
    @pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e-10, 1e-5, 1.0, 1e5, 1e10, 1e100])
    def test_any_scale(self, scale):
        z, targets = scale * np.array([0.2, 0.4, 0.6, 0.8]), scale * np.array([0.0, 0, 2, 2])
        problem = Problem(z, [ResidualMean(0.1 * scale)], np.array([0, 0, 1, 1]), (0.0, scale), targets)
        assert refused(problem).excess == pytest.approx(0.9 * scale, rel=1e-9, abs=0)

    def test_an_outlier_does_not_hide_a_contradiction(self):
        z, groups, targets = np.array([1e10, 0.4, 0.6, 0.8]), np.array([0, 0, 1, 1]), np.array([0.0, 0, 2, 2])
        problem = Problem(z, [ResidualMean(0.1)], groups, (0, 1), targets)
        error = refused(problem)
        assert error.excess == pytest.approx(0.9, rel=1e-9)
        assert all("1" in row.split(": ")[1] for row in error.rows)

    @pytest.mark.parametrize("outlier", [1e6, 1e12])
    def test_an_outlier_without_bounds(self, outlier):
        """In a group that conflicts with nothing."""
        z = np.array([0.4, 0.6, 0.5, 0.5, outlier, -outlier])
        bounds = np.array([0, 0, 0, 0, -np.inf, -np.inf]), np.array([1, 1, 1, 1, np.inf, np.inf])
        call: dict[str, Any] = {"bounds": bounds, "targets": [2.0, 2, 0.5, 0.5, 0, 0]}
        solution = project(z, [0, 0, 1, 1, 2, 2], [ResidualMean(0.1)], **call, infeasible="relax")
        assert solution.status is Status.RELAXED
        assert solution.excess == pytest.approx(0.9, rel=1e-9)
        assert abs(solution.gaps).max() == pytest.approx(1.0, rel=1e-9)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_rows_without_a_scale_beside_rows_with_one(self, dtype):
        """Two samples are asked to stay where their bound holds them, a third to leave its bounds by 1/4."""
        z, targets = np.array([-3.0, -1e-4, 100.0]), np.array([0.0, 0.0, 1.25])
        problem = Problem(z, [ResidualMean(0.0)], np.array([0, 1, 2]), (0.0, 1.0), targets=targets)
        error = refused(problem, dtype)
        assert error.excess == pytest.approx(0.25, rel=1e-9)
        assert len(error.rows) == 1

    @pytest.mark.parametrize("offset", [1e8, -1e12])
    def test_means_around_a_large_number(self, offset):
        """They are compared with each other, not with 0."""
        rng = np.random.default_rng(16760)
        n = 243
        lo, hi = offset - rng.uniform(0.0, 1.0, n), offset + rng.uniform(0.0, 1.0, n)
        z = np.where(rng.random(n) < 0.5, lo, hi)
        problem = Problem(z, [MeanParity(0.01)], rng.integers(0, 2, (n, 8)), (lo, hi))
        solution = project(problem.z, **problem.arguments())
        assert solution.excess == 0.0
        assert np.abs(solution.gaps).max() <= 0.01 + 10 * np.spacing(abs(offset))


def equal_means_and_residuals(seed: int, scale: float) -> tuple[Problem, bool]:
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
    return problem, len(set(exact_statistics(residuals, problem.z).values())) > 1


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_equal_means_and_equal_residuals(scale):
    drawn = [equal_means_and_residuals(seed, scale) for seed in range(40)]
    assert {contradicts for _, contradicts in drawn} == {True, False}
    for problem, contradicts in drawn:
        if contradicts:
            assert refused(problem).excess > 1e-6 * scale
        else:
            assert_true_status(project(problem.z, **problem.arguments()), problem)


def test_equal_residuals_of_light_and_heavy_groups():
    """One attribute without bounds can always be satisfied, be its groups ten decades apart in weight."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        n = int(rng.integers(4, 12))
        groups, weights = rng.integers(0, 5, n), 10.0 ** rng.uniform(-5, 5, n)
        asked = [EqualizedResiduals(0.0), MeanParity(10.0)]
        problem = Problem(rng.normal(size=n), asked, groups, targets=rng.normal(size=n), weights=weights)
        solution = project(problem.z, **problem.arguments())
        assert_true_status(solution, problem)
        size = np.abs(np.concatenate([solution.value, problem.targets])).max()
        assert max(exact_violations(problem.rows, solution.value), default=0) <= 1e-10 * size


def test_groups_without_members_are_no_contradiction():
    solution = project(np.ones(4), SoftGroup(np.zeros((4, 1))), [ResidualMean(0.1)], targets=np.zeros(4))
    assert solution.status is Status.VACUOUS
