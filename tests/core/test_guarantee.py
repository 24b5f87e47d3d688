"""The guarantee: what is returned satisfies every row in rational arithmetic, or the status says it does not."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from conformance import CASES, DTYPES, assert_close, assert_holds, make_problem, name_of, solve
from exact import exact_dot
from fairlayer import (
    Affine,
    EqualizedResiduals,
    FairlayerError,
    MeanParity,
    ResidualMean,
    SoftGroup,
    Status,
    Stream,
    project,
)
from formulas import Problem, exact_violations, plain
from judge import assert_true_status
from oracle import project_reference
from pairs import pairwise

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
FLOATS = (torch.float64, torch.float32)


def two_groups(n: int, seed: int = 0, share: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    groups = (rng.random(n) < share).astype(int)
    groups[:2] = 0, 1
    return rng.normal(size=n) + groups, groups


def assert_not_false(problem: Problem, solution: Any) -> None:
    """What is satisfied is so in rational arithmetic, and what is not is not."""
    assert solution.satisfied == (max(exact_violations(problem.rows, plain(solution.value)), default=0) <= 0)


def test_exact_arithmetic_is_exact():
    """The judge itself, against the slow and certain way."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 50)) * 10.0 ** rng.integers(-200, 100, (2, 50))
    assert exact_dot(x) == sum(map(Fraction, x.tolist()))
    assert exact_dot(x, y) == sum(Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), y.tolist(), strict=True))


def test_the_judge_sees_what_is_false():
    """A row that is missed, a bound that is broken, an answer that is too far, a rounding without need."""
    z, groups = np.array([0.1, 0.4, 0.6, 0.9]), np.array([0, 1, 0, 1])
    problem = Problem(z, [MeanParity(0.1)], groups, (0.0, 1.0))
    right = project(z, **problem.arguments())
    assert_true_status(right, problem)

    class Said:
        def __init__(self, value, status=Status.OPTIMAL):
            self.value, self.status, self.vacuous, self.optimality_gap = np.array(value), status, (), 1e-6
            self.multipliers, self.satisfied = right.multipliers, status is not Status.ROUNDED

    false = (
        Said(z),
        Said([0.5, 0.5, 0.5, 0.5]),
        Said(right.value + np.array([2.0, 2.0, 0.0, 0.0])),
        Said(right.value, Status.ROUNDED),
        Said([0.5, 0.5, 0.5, 0.5], Status.BOUNDED),
        Said(z, Status.ROUNDED),
        Said(right.value, Status.VACUOUS),
    )
    for one in false:
        with pytest.raises(AssertionError):
            assert_true_status(one, problem)


class TestMagnitudes:
    @pytest.mark.parametrize("scale", [1e-250, 1e-100, 1e-6, 1e-3, 1e3, 1e6, 1e100, 1e200])
    @pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
    def test_any_scale(self, scale, bounds):
        """Multiplying everything by a number multiplies the answer by it."""
        z, groups = two_groups(80)
        within = None if bounds is None else (0.0, scale)
        for dtype in FLOATS if 1e-9 < scale < 1e9 else FLOATS[:1]:
            given = plain(torch.tensor(z * scale, dtype=dtype))
            problem = Problem(given, [MeanParity(0.05 * scale)], groups, within)
            solution = solve(problem, dtype)
            assert_holds(problem, solution)
            near = {torch.float64: 1e-10, torch.float32: 1e-6}[dtype]
            unit = Problem(given / scale, [MeanParity(0.05)], groups, bounds)
            assert_close(plain(solution.value) / scale, project_reference(unit), near * np.ptp(unit.z))

    @pytest.mark.parametrize("offset", [1e4, 1e6, 1e8])
    def test_a_large_offset(self, offset):
        z, groups = two_groups(80)
        problem = Problem(z + offset, [MeanParity(0.05)], groups)
        solution = solve(problem)
        assert_holds(problem, solution)
        moved = solve(Problem(z, [MeanParity(0.05)], groups)).value + offset
        assert_close(solution.value, moved, 250 * np.spacing(offset))

    @pytest.mark.parametrize(
        ("dtype", "outlier", "bounds"), pairwise(FLOATS, [1e3, 1e6, 1e9, 1e12], [None, (0.0, 1.0), (0.0, None)])
    )
    def test_one_outlier(self, dtype, outlier, bounds):
        rng = np.random.default_rng(4)
        z = rng.random(40)
        z[7] = outlier
        z = torch.tensor(z, dtype=dtype)
        problem = Problem(plain(z), [MeanParity(0.05)], rng.integers(0, 2, (40, 2)), bounds)
        solution = project(z, **problem.arguments())
        assert_true_status(solution, problem)
        assert solution.status is Status.OPTIMAL or bounds != (0.0, 1.0)

    def test_an_unrelated_tolerance(self):
        """A tolerance of 1e12 on one attribute does not loosen the other."""
        rng = np.random.default_rng(6)
        asked = [MeanParity(1e12, over=0), MeanParity(1e-6, over=1)]
        problem = Problem(rng.normal(size=30), asked, rng.integers(0, 2, (30, 2)))
        solution = project(problem.z, **problem.arguments())
        assert solution.status is Status.OPTIMAL
        assert_true_status(solution, problem)

    @pytest.mark.parametrize("weights", [None, [1.0, 3.0, 1.5, 2.0, 0.7]])
    def test_gaps_of_large_outputs_are_exact(self, weights):
        """Means of 1e16 are rounded to 2, their differences are not."""
        z, groups = np.array([1e16, 1e16 + 6, 1e16 - 8, 1e16 + 10, 1e16 + 2]), np.array([0, 0, 1, 1, 2])
        problem = Problem(z, [MeanParity(3.0)], groups, weights=None if weights is None else np.array(weights))
        solution = project(z, **problem.arguments())
        assert_true_status(solution, problem)
        assert solution.gaps.tolist() == [float(row.exact(solution.value)) for row in problem.rows]
        assert pickle.loads(pickle.dumps(solution)).gaps.tolist() == solution.gaps.tolist()


class TestTolerances:
    @pytest.mark.parametrize("tolerance", [1e-5, 1e-3, 0.1])
    @pytest.mark.parametrize("n", [2, 3, 17, 1000])
    @every_dtype
    def test_the_status_tells_the_truth(self, dtype, n, tolerance):
        """Satisfied where every row holds exactly; otherwise ROUNDED, with the gaps that were reached."""
        z, groups = two_groups(n)
        problem = Problem(plain(torch.tensor(z, dtype=dtype)), [MeanParity(tolerance)], groups)
        solution = solve(problem, dtype)
        assert_true_status(solution, problem)
        worst = float(max(exact_violations(problem.rows, plain(solution.value))))
        assert solution.gaps.abs().max().item() == pytest.approx(worst + tolerance, rel=1e-6)
        assert worst <= 16 * torch.finfo(dtype).eps * np.abs(z).max()

    @every_dtype
    def test_equal_outputs_stay(self, dtype):
        z = torch.tensor([0.5, 0.5], dtype=dtype)
        solution = project(z, [0, 1], MeanParity(0))
        assert solution.status is Status.OPTIMAL
        assert torch.equal(solution.value, z)

    @every_dtype
    @pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
    def test_a_tolerance_of_zero(self, dtype, bounds):
        """Equal means to the last digits, exactly so in most cases, and said to be where they are."""
        rng = np.random.default_rng(7)
        found = 0
        for _ in range(30):
            n = int(rng.integers(4, 40))
            z = torch.tensor(rng.random(n), dtype=dtype)
            problem = Problem(plain(z), [MeanParity(0.0)], rng.integers(0, 2, (n, 2)), bounds)
            solution = project(z, **problem.arguments())
            assert_true_status(solution, problem)
            exact = [float(row.exact(plain(solution.value))) for row in problem.rows]
            assert np.abs(plain(solution.gaps) - exact).max(initial=0) < 1e-15
            assert np.abs(exact).max(initial=0) <= 4 * torch.finfo(dtype).eps
            found += solution.satisfied
        assert found >= 15

    @every_dtype
    def test_a_tolerance_finer_than_the_dtype(self, dtype):
        """One sample per group, where no two numbers of the dtype are as close as asked without being equal."""
        z = torch.tensor([1000.0, 1003.0], dtype=dtype)
        problem = Problem(plain(z), [MeanParity(1e-14)], np.array([0, 1]))
        solution = project(z, **problem.arguments())
        assert_true_status(solution, problem)
        assert abs(float(solution.value[0]) - float(solution.value[1])) <= 1100 * torch.finfo(dtype).eps

    @pytest.mark.parametrize("weights", [None, [1.0, 3.0, 1.3]])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_tolerances_far_below_the_last_digit(self, dtype, weights):
        z, groups = np.array([0.1, 0.3, 0.7], dtype=dtype), np.array([0, 0, 1])
        fine = [MeanParity(0.01 * float(np.finfo(dtype).eps))]
        weights = None if weights is None else np.array(weights)
        problem = Problem(z.astype(np.float64), fine, groups, weights=weights)
        solution = project(z, **problem.arguments())
        assert_true_status(solution, problem)
        assert np.abs(solution.value - project_reference(problem)).max() <= 4 * np.finfo(dtype).eps + 1e-10

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_a_constant_is_always_there_for_a_stream(self, dtype):
        """Outputs in thirds, which no float is: a constant satisfies every row exactly."""
        stream = Stream([MeanParity(0.0)], bounds=(0.0, 1.0))
        z = np.random.default_rng(9).random(7).astype(dtype)
        assert stream.update(z, {"sex": [0, 0, 0, 1, 1, 0, 1]}).satisfied
        assert max(map(abs, stream.gaps().values())) == 0.0

    @pytest.mark.parametrize(("z", "tolerance"), [([0.0, 0.5], 0.5), ([0.0, 1.0], 1.0), ([0.1, 0.2], 0.1)])
    def test_a_gap_of_exactly_the_tolerance_is_left_alone(self, z, tolerance):
        solution = project(np.array(z), [0, 1], MeanParity(tolerance))
        assert solution.status is Status.OPTIMAL
        assert solution.value.tolist() == z

    @pytest.mark.parametrize("discrepancy", ["squared", "entropy"])
    def test_a_gap_of_one_rounding_more_is_closed(self, discrepancy):
        tolerance = np.nextafter(0.4 - 0.3, 0.0)
        problem = Problem(np.array([0.3, 0.4]), [MeanParity(tolerance)], np.array([0, 1]))
        assert_holds(problem, project(problem.z, **problem.arguments(), discrepancy=discrepancy))

    def test_a_single_feasible_point(self):
        """Outputs at most 1, targets 1.5, tolerance 1/2: all ones, and nothing else."""
        problem = Problem(np.zeros(8), [ResidualMean(0.5)], np.arange(8) % 2, (0.0, 1.0), np.full(8, 1.5))
        solution = solve(problem)
        assert np.array_equal(plain(solution.value), np.ones(8))
        assert_not_false(problem, solution)

    def test_equality_rows_hold_to_rounding(self):
        A = np.random.default_rng(0).normal(size=(3, 20))
        problem = Problem(np.random.default_rng(1).normal(size=20), [Affine(A, 1.0, 1.0)])
        solution = solve(problem)
        assert_close(A @ plain(solution.value), np.ones(3), 1e-13)
        assert_close(solution.value, project_reference(problem), 1e-10)
        assert_not_false(problem, solution)

    @pytest.mark.parametrize("constraint", [ResidualMean(0.0), EqualizedResiduals(0.0)])
    def test_equal_residuals(self, constraint):
        rng = np.random.default_rng(0)
        groups, targets = rng.integers(0, 2, (30, 2)), rng.integers(0, 100, 30) / 128.0
        problem = Problem(rng.random(30), [constraint], groups, None, targets)
        assert_true_status(project(problem.z, **problem.arguments()), problem)

    @pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
    @pytest.mark.parametrize("seed", range(3))
    def test_what_is_finer_than_the_last_digit(self, dtype, seed):
        """One output of 1e6, a tolerance of a hundredth of its last digit, and overlapping groups."""
        rng = np.random.default_rng(seed)
        z, groups = torch.tensor(rng.random(30), dtype=dtype), rng.integers(0, 2, (30, 3))
        z[seed] = 1e6
        problem = Problem(plain(z), [MeanParity(1e4 * torch.finfo(dtype).eps)], groups)
        solution = project(z, **problem.arguments())
        assert_true_status(solution, problem)
        apart = np.abs(plain(solution.value) - project(plain(z), **problem.arguments()).value).max()
        assert apart < 30 * 1e6 * torch.finfo(dtype).eps

    @pytest.mark.parametrize("case", CASES)
    def test_what_is_feasible_is_not_changed(self, case):
        """An input well inside all rows comes back bit for bit."""
        problem = make_problem(case)
        first = problem.constraints[0]
        inside = problem.targets if first.quantity == "residual" else np.full(len(problem.z), 0.5)
        solution = solve(Problem(**{**problem.arguments(), "z": inside}))
        assert np.array_equal(plain(solution.value), inside)
        assert not plain(solution.multipliers).any()


class TestSums:
    """Sums of many numbers, and of numbers that cancel: what rounding would lose is not certified."""

    def test_weights_are_summed_without_error(self):
        """Many weights that are not dyadic: their plain sum is off by enough to break the last digits of a mean."""
        for seed, share in enumerate((0.03, 0.2, 0.5)):
            z, groups = two_groups(30_000, seed, share)
            weights = np.random.default_rng(seed).choice([0.1, 0.7], len(z))
            for sign in (1, -1):
                problem = Problem(1000 + sign * z, [MeanParity(0.01)], groups, weights=weights)
                assert_holds(problem, solve(problem))

    def test_large_targets_with_small_means(self):
        """The error of a mean is that of its largest terms."""
        rng = np.random.default_rng(1)
        groups = rng.integers(0, 2, (1000, 2))
        targets = np.where(groups[:, 1] == 0, 1e8, -1e8) + rng.normal(size=1000)
        for label in (0, 1):
            targets[groups[:, 0] == label] -= targets[groups[:, 0] == label].mean()
        asked = [ResidualMean(0.1, over=0), MeanParity(5.0, over=1)]
        problem = Problem(1 + 1e-3 * rng.normal(size=1000), asked, groups, targets=targets)
        assert_holds(problem, solve(problem))

    def test_sums_of_many_equal_numbers(self):
        """Rounding errors all of one sign, and all of a group's samples in the same place of an unrolled loop."""
        for value in (0.1, 0.6, 1 / 3):
            groups = (np.arange(40_000) % 4 == 0).astype(int)
            z = np.where(groups == 1, value, 0.0)
            for tolerance in (value, np.nextafter(value, 0), value * (1 - 1e-12), value * (1 - 1e-10)):
                problem = Problem(z, [MeanParity(tolerance)], groups)
                assert_holds(problem, solve(problem))

    @pytest.mark.parametrize("mixed", [False, True])
    def test_outputs_that_cancel(self, mixed):
        values = [1e30, 5e13, *[0.003] * 1000, -1e30, -5e13]
        z, groups = np.array([*values, 0.0, 0.0, 0.0, 0.0]), np.array([0] * len(values) + [1] * 4)
        order = np.random.default_rng(0).permutation(len(z)) if mixed else np.arange(len(z))
        problem = Problem(z[order], [MeanParity(1e-3)], groups[order])
        assert_not_false(problem, project(problem.z, **problem.arguments()))

    def test_targets_that_cancel(self):
        targets = np.array([1e30, 5e13, *[0.003] * 100, -1e30, -5e13])
        groups = np.zeros(len(targets), dtype=int)
        problem = Problem(np.zeros(len(targets)), [ResidualMean(1e-3)], groups, None, targets)
        assert_not_false(problem, project(problem.z, **problem.arguments()))

    def test_products_that_underflow(self):
        """Weights and outputs whose product is below the least float."""
        z, weights = np.array([3e-160, 1e-160, -2e-160, 5e-160] * 4), np.array([1e-170, 3e-170, 1e-165, 7e-168] * 4)
        problem = Problem(z, [MeanParity(1e-162)], np.arange(16) % 2, weights=weights)
        assert_not_false(problem, project(z, **problem.arguments()))  # squares of such numbers cannot be compared
        z, weights = np.array([1e-160, 1e-160, 1e-160 + 1e-175]), np.array([1e-160, 1e-170, 1e-165])
        problem = Problem(z, [MeanParity(0.0)], np.array([0, 0, 1]), weights=weights)
        solution = project(z, **problem.arguments())
        assert_not_false(problem, solution)
        assert solution.satisfied == (np.abs(solution.gaps) == 0.0).all()

    @pytest.mark.parametrize(
        ("z", "row", "side"), [(1e-150, 1e-200, 0.0), (1.5e-323, 0.3, 5e-324), (1e300, 1e-320, 1e-20)]
    )
    @pytest.mark.parametrize("batch", [False, True])
    def test_rows_that_underflow(self, batch, z, row, side):
        """An entry times an output: less than the least float is not nothing."""
        A = np.array([[[row]], [[row]]]) if batch else np.array([[row]])
        solution = project(np.array([[z], [z]]) if batch else np.array([z]), None, Affine(A, side, side))
        met = Fraction(row) * Fraction(float(solution.value.reshape(-1)[0])) == Fraction(side)
        assert met or not solution.satisfied

    @pytest.mark.parametrize("dtype", DTYPES[:3], ids=name_of)
    def test_the_least_numbers_that_there_are(self, dtype):
        least = torch.finfo(dtype).tiny * torch.finfo(dtype).eps
        problem = Problem(np.array([0.0, least, 2.0 * least]), [MeanParity(0.0)], np.array([0, 0, 1]))
        solution = project(torch.tensor(problem.z).to(dtype), **problem.arguments())
        assert_not_false(problem, solution)
        assert float(solution.value.abs().max()) <= 2.0 * least

    def test_answers_do_not_depend_on_the_order(self):
        rng = np.random.default_rng(1)
        z = rng.normal(size=60) * 10.0 ** rng.integers(-6, 7, 60)
        groups, order = rng.integers(0, 3, 60), rng.permutation(60)
        straight = project(z, groups, MeanParity(0.01))
        mixed = project(z[order], groups[order], MeanParity(0.01))
        assert straight.status is mixed.status
        assert np.abs(mixed.value - straight.value[order]).max() <= 1e-14 * np.abs(z).max()

    @pytest.mark.parametrize("soft", [False, True])
    def test_sums_that_are_rounded(self, soft):
        """Tolerances next to the exact gap on both sides of it, with 4,000 weights or probabilities in the sum."""
        rng = np.random.default_rng(2)
        for _ in range(3):
            z = 1.0 + rng.random(4000)
            groups = SoftGroup(rng.dirichlet(np.ones(2), 4000)) if soft else np.arange(4000) % 2
            weights = None if soft else 10.0 ** rng.uniform(-1, 1, 4000)
            gap = abs(float(Problem(z, [MeanParity(1.0)], groups, weights=weights).rows[0].exact(z)))
            for steps in (-8, -3, -1, 0, 1):
                problem = Problem(z, [MeanParity(gap + steps * 2.0**-56)], groups, weights=weights)
                assert_not_false(problem, project(z, **problem.arguments()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("constraint", [ResidualMean(0.1), EqualizedResiduals(0.1)])
def test_targets_beyond_the_range_of_half_precision(dtype, constraint):
    """Outputs are finite, or the call is refused: means of 1e5 are beyond float16, differences of 1e5 are not."""
    z, groups, targets = torch.tensor([0.1, 0.4, 0.6, 0.8], dtype=dtype), [0, 0, 1, 1], np.array([1e5, 1e5, 0, 0])
    problem = Problem(plain(z), [constraint], np.array(groups), None, targets)
    if dtype == torch.float16 and isinstance(constraint, ResidualMean):
        with pytest.raises(FairlayerError):
            project(z, **problem.arguments())
        return
    solution = project(z, **problem.arguments())
    assert torch.isfinite(solution.value).all()
    assert_not_false(problem, solution)
