"""Beyond the first attempt: arithmetic in twice the precision, careful rounding, and what each step is for."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import fairlayer.solve
from duality import distance, least_distance, rounding_norm
from fairlayer import Affine, FairlayerError, MeanParity, RatioParity, ResidualMean, Status, project
from fairlayer.binding.bounds import read_bounds
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.system import bind
from fairlayer.solve.duality import distances
from fairlayer.solve.interior import exact_means, interior_point
from fairlayer.solve.twofold import Factor, Twofold, gram
from formulas import Problem, exact_violations, plain
from oracle import project_reference
from test_attack import stored_problem


def exact(numbers: Twofold) -> list[Fraction]:
    return [Fraction(a) + Fraction(b) for a, b in zip(numbers.high.tolist(), numbers.low.tolist(), strict=True)]


def random_numbers(rng: np.random.Generator, n: int) -> Twofold:
    high = rng.normal(size=n) * 10.0 ** rng.uniform(-12, 12, n)
    return Twofold(high, high * rng.uniform(-1, 1, n) * 2.0**-54)


class TestTwofold:
    @pytest.mark.parametrize("sign", ["+", "-", "*", "/"])
    def test_31_digits(self, sign):
        rng = np.random.default_rng(0)
        a, b = random_numbers(rng, 1000), random_numbers(rng, 1000)
        found = {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[sign]
        for x, y, z in zip(exact(a), exact(b), exact(found), strict=True):
            true = {"+": x + y, "-": x - y, "*": x * y, "/": x / y}[sign]
            size = abs(true) if sign in "*/" else abs(x) + abs(y)
            assert abs(z - true) <= size * Fraction(1, 10**31)

    def test_sums_that_cancel(self):
        numbers = Twofold(np.array([1e20, 1.0, -1e20, 1e-9]))
        (total,) = exact(numbers.sums(np.zeros(4, dtype=np.int64), 1))
        assert abs(total - 1 - Fraction(1e-9)) < Fraction(1, 10**11)

    def test_a_system_of_twelve_decades(self):
        """Float64 cannot even tell that the matrix is definite."""
        rng = np.random.default_rng(1)
        M = np.where(rng.random((40, 6)) < 0.5, 1.0, 0.0)
        slopes = 10.0 ** rng.uniform(-6, 6, 40)
        start, statistic = np.arange(0, 241, 6), np.tile(np.arange(6), 40)
        factor = Factor(gram(start, statistic, Twofold(M.ravel()), Twofold(slopes), 6), lambda diagonal: diagonal)
        wanted = rng.normal(size=6)
        weighted = [
            [Fraction(m) * Fraction(s) for m in row] for row, s in zip(M.tolist(), slopes.tolist(), strict=True)
        ]
        H = [[sum(M[c, i] * Fraction(1) * weighted[c][j] for c in range(40)) for j in range(6)] for i in range(6)]
        right = [sum(h * Fraction(x) for h, x in zip(row, wanted.tolist(), strict=True)) for row in H]
        high = np.array([float(r) for r in right])
        low = np.array([float(r - Fraction(float(r))) for r in right])
        assert np.abs(factor.solve(Twofold(high, low)).high - wanted).max() < 1e-14


@pytest.mark.parametrize("seed", range(20))
def test_the_interior_point_is_the_optimum(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 60))
    groups, z = rng.integers(0, 3, (n, 2)), rng.normal(size=n)
    constraints = [MeanParity(float(rng.choice([0.0, 0.01, 0.2])))]
    bounds = [None, (-1.0, 1.0), (-0.5, None)][seed % 3]
    weights = rng.uniform(0.5, 2.0, n) if seed % 2 else None
    problem = Problem(z, constraints, groups, bounds, weights=weights)
    system = bind(ConstraintSet(constraints), n, groups=groups, weights=weights)
    lo, hi = problem.box()
    found = interior_point(z, system, exact_means(system), np.zeros(len(system.rows.offset)), lo, hi)
    assert found.residual < 1e-20
    assert np.abs(found.y.high - project_reference(problem)).max() < 1e-9


def test_samples_without_weight_go_with_their_cell():
    problem, _ = stored_problem("an outlier of 5e11, classes of the target")
    z, weights = np.append(problem.z, problem.z[0]), np.append(problem.weights, 0.0)
    groups = {name: np.append(labels, labels[0]) for name, labels in problem.groups.items()}
    targets = np.append(problem.targets, problem.targets[0])
    more = project(z, groups, problem.constraints, targets=targets, weights=weights)
    assert more.status is Status.OPTIMAL
    assert more.value[-1] == pytest.approx(more.value[0], rel=1e-12)


def judged(problem: Problem, dtype: torch.dtype) -> tuple[bool, bool]:
    """Whether an output was found that satisfies every row, and whether it is as near as it says."""
    try:
        solution = project(torch.tensor(problem.z).to(dtype), **problem.arguments())
    except FairlayerError:
        return False, False
    y = plain(solution.value).astype(np.float64)
    holds = max(exact_violations(problem.rows, y), default=0) <= 0
    assert holds == solution.satisfied
    optimum = least_distance(problem, solution.multipliers)
    near = distance(problem, y) <= (1 + 1e-6) * optimum + rounding_norm(problem, y, dtype)
    return holds, near or solution.status is Status.BOUNDED


def equal_means() -> tuple[Problem, torch.dtype]:
    rng = np.random.default_rng(0)
    z = torch.tensor(rng.random(20), dtype=torch.float32).double().numpy()
    return Problem(z, [MeanParity(0.0)], rng.integers(0, 3, (20, 2)), (0.0, 1.0)), torch.float32


def left_out(task: Any, given: Any) -> Any:
    return given


NEEDED = {
    "_careful, to end at all": ("_careful", lambda *_: None, "weights nine decades apart, four samples"),
    "_careful, for outputs of many sizes": ("_careful", lambda *_: None, "an outlier of 5e11, classes of the target"),
    "_near": ("_near", left_out, "a coarse light group among heavy ones"),
    "_on_grid": ("_on_grid", left_out, equal_means),
}


@pytest.mark.parametrize("case", NEEDED)
def test_what_each_step_is_for(case, monkeypatch):
    """With it the problem is solved, without it it is not."""
    name, nothing, source = NEEDED[case]
    problem, dtype = source() if callable(source) else stored_problem(source)
    assert judged(problem, dtype) == (True, True)
    monkeypatch.setattr(fairlayer.solve, name, nothing)
    assert judged(problem, dtype) != (True, True)


@pytest.mark.parametrize("weights", [None, [1.0, 3.0, 1.3]])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tolerances_far_below_the_last_digit(dtype, weights):
    """Outputs next to the nearest ones have means that are equal, and they are found."""
    z, groups = np.array([0.1, 0.3, 0.7], dtype=dtype), np.array([0, 0, 1])
    constraint = MeanParity(0.01 * float(np.finfo(dtype).eps))
    solution = project(z, groups, constraint, weights=weights)
    problem = Problem(
        z.astype(np.float64), [constraint], groups, weights=None if weights is None else np.array(weights)
    )
    assert solution.status is Status.OPTIMAL
    assert max(exact_violations(problem.rows, solution.value.astype(np.float64))) <= 0
    assert np.abs(solution.value - project(z.astype(np.float64), groups, constraint, weights=weights).value).max() <= (
        2 * np.finfo(dtype).eps
    )


def test_a_gap_of_exactly_the_tolerance_is_left_alone(monkeypatch):
    z, groups = np.array([0.1, 0.2]), np.array([0, 1])
    assert (project(z, groups, MeanParity(0.1)).value == z).all()
    monkeypatch.setattr(fairlayer.solve, "_checked", left_out)
    assert (project(z, groups, MeanParity(0.1)).value != z).any()


def test_a_gap_of_a_hair_more_is_closed():
    """Probabilities have no other way than the search, which must not take such a gap for none."""
    z, groups = np.array([0.3, 0.4]), np.array([0, 1])
    tolerance = np.nextafter(0.4 - 0.3, 0.0)
    assert project(z, groups, MeanParity(tolerance), discrepancy="entropy").status is Status.OPTIMAL
    assert project(z, groups, MeanParity(tolerance)).status is Status.OPTIMAL


@pytest.mark.parametrize(
    "name", ["coarse light samples in four attributes", "heavy samples at bounds of their own, float32"]
)
def test_an_output_that_is_not_the_nearest_says_so(name):
    """A light group of coarse numbers beside heavy ones of fine numbers, and a tolerance between the two.

    The least is that within the bounds as stated, not as rounded to the dtype.
    """
    problem, dtype = stored_problem(name)
    solution = project(torch.tensor(problem.z).to(dtype), **problem.arguments())
    optimum = least_distance(problem, solution.multipliers)
    reached = distance(problem, plain(solution.value).astype(np.float64))
    assert solution.satisfied
    assert reached**2 <= (1 + 1e-15) * (optimum**2 + solution.optimality_gap)


@pytest.mark.parametrize("offset", [1e11, 1e12, 1e14, 1e15, 1e16])
@pytest.mark.parametrize("way", ["compiled", "tensor", "affine", "batch", "open"])
def test_large_outputs_that_are_moved_by_little(way, offset):
    """Rows are aimed inside by a few roundings of 1e15, which is much of the way: the output is not the nearest."""
    z, groups, rows = (
        offset + np.array([6.0, 16.0, -13.0]),
        np.array([1, 1, 0]),
        Affine([[0.5, 0.5, -1.0]], None if way == "open" else -19.2, 19.2),
    )
    problem = Problem(z, [MeanParity(19.2)] if way in ("compiled", "tensor") else [rows], groups)
    if way == "batch":
        many = project(np.stack([z, z]), None, rows)
        solution, y = many, many.value[1]
        multipliers = plain(many.multipliers)[1]
    else:
        solution = project(z, **problem.arguments(), path="tensor" if way == "tensor" else "auto")
        y, multipliers = solution.value, solution.multipliers
    assert solution.satisfied
    assert max(exact_violations(problem.rows, y)) <= 0
    nearest, allowed = least_distance(problem, multipliers), 4.0 * rounding_norm(problem, y, torch.float64)
    if way != "open" or solution.status is not Status.BOUNDED:  # no nearer one may be found of those, which says so
        assert distance(problem, y) <= (1 + 1e-6) * nearest + allowed
    if solution.status is not Status.BOUNDED:
        assert distance(problem, y) <= (1 + 1e-6) * nearest + 1.1 * rounding_norm(problem, y, torch.float64)


def test_weights_too_far_apart_for_a_linear_programme_are_no_contradiction():
    """Targets themselves satisfy these rows."""
    rng = np.random.default_rng(4)
    groups = np.stack([rng.permutation(143) % labels for labels in (37, 25, 16)], axis=1)
    z = rng.normal(size=143)
    targets, weights = z + 0.3 * rng.normal(size=143), 10.0 ** rng.uniform(-20, 20, 143)
    solution = project(z, groups, ResidualMean(0.0), targets=targets, weights=weights)
    assert solution.excess == 0.0
    assert np.abs(solution.gaps).max() <= 1e-14


def test_a_search_that_ends_short_of_the_optimum_says_so(monkeypatch):
    """Its rows hold, and how much nearer another output may be is known."""
    problem, dtype = stored_problem("intersections in boxes of their own")
    monkeypatch.setattr(fairlayer.solve.interior, "_MOST_STEPS", 10)
    solution = project(torch.tensor(problem.z).to(dtype), **problem.arguments())
    y = plain(solution.value).astype(np.float64)
    assert solution.status is Status.BOUNDED
    assert max(exact_violations(problem.rows, y)) <= 0
    assert distance(problem, y) ** 2 <= least_distance(problem, solution.multipliers) ** 2 + solution.optimality_gap


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("constraint", [MeanParity(0.01), RatioParity(0.9), ResidualMean(0.05)])
def test_the_bound_of_optimality_is_that_of_weak_duality(constraint, weighted):
    rng = np.random.default_rng(3)
    n = 40
    z, groups, targets = rng.random(n) + 0.1, rng.integers(0, 3, (n, 2)), rng.random(n)
    z += 0.2 * groups[:, 0]
    weights = 10.0 ** rng.uniform(-3, 3, n) if weighted else None
    problem = Problem(z, [constraint], groups, (0.0, 2.0), targets, weights=weights)
    solution = project(z, **problem.arguments())
    system = bind(ConstraintSet([constraint]), n, groups=groups, targets=targets, weights=weights)
    box = read_bounds((0.0, 2.0), n, np.float64)
    reached, least = distances(z, solution.value, system, box, solution.facts.nu)
    assert reached == pytest.approx(distance(problem, solution.value), rel=1e-15)
    assert reached * (1 - 1e-9) <= least <= reached
    if not isinstance(constraint, RatioParity):
        for scale in (1.0, 0.5):  # any multipliers will do
            _, least = distances(z, solution.value, system, box, scale * solution.facts.nu)
            assert least == pytest.approx(least_distance(problem, scale * solution.multipliers), rel=1e-12)
