"""The parts of the solver by themselves: the small quadratic programme, the search, the certificate, feasibility."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import numba
import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize, nnls

from duality import distance, least_distance
from exact import exact_dot
from fairlayer import EqualizedResiduals, MeanParity, ResidualMean, Status, project
from fairlayer.binding.bounds import read_bounds
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.exact_sums import exact_cell_sums, exact_sums
from fairlayer.binding.rows import DIFFERENCE, EACH, RATIO, Rows, dense
from fairlayer.binding.system import bind
from fairlayer.solve import driver
from fairlayer.solve.active_set import CONFLICT, SOLVED, small_memory, solve_small
from fairlayer.solve.certify import all_hold, first_margins, shortfalls, widen_margins
from fairlayer.solve.exact import exact_shortfalls, search_grid
from fairlayer.solve.families import MINUS, PLUS, M, P, active_rows, largest_excess
from fairlayer.solve.feasibility import least_excess
from fairlayer.solve.newton import (
    ABSOLUTE,
    DONE,
    ERROR,
    INFEASIBLE,
    SHIFT,
    TRIAL,
    D,
    S,
    proves_contradiction,
    solve_active,
)
from fairlayer.solve.sides import guess_sides
from formulas import Problem, exact_violations, plain
from oracle import matrix_form, project_reference

SEEDS = range(25)
INF = np.inf


def make_rows(matrix: np.ndarray, offset, families) -> Rows:
    """Rows over cells. families: (kind, number of statistics, ratio, lower, upper) of each."""
    matrix = np.asarray(matrix, dtype=np.float64)
    cell, statistic = np.nonzero(matrix)
    start = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=len(matrix)))])
    first = np.cumsum([0, *(size for _, size, *_ in families)])
    family = np.array([(kind, ratio, lower, upper) for kind, _, ratio, lower, upper in families]).T.reshape(4, -1)
    K = matrix.shape[1]
    assert first[-1] == K
    return Rows(
        start.astype(np.int64),
        statistic.astype(np.int64),
        matrix[cell, statistic],
        np.array(offset, dtype=np.float64),
        np.ones(K, dtype=bool),
        first.astype(np.int64),
        np.ascontiguousarray(family),
    )


def random_rows(seed: int, G: int = 8) -> Rows:
    """Differences, ratios and singles over cell sums: one-sided, two-sided, an equality of each kind."""
    rng = np.random.default_rng(seed)
    bound = rng.uniform(0.1, 1.0, 6)
    families = [
        (DIFFERENCE, 3, 1.0, -bound[0], bound[0]),
        (RATIO, 3, 0.8, -INF, 0.0),
        (EACH, 1, 1.0, -bound[1], INF),
        (EACH, 1, 1.0, 0.05, 0.05),
        (DIFFERENCE, 2, 1.0, 0.0, 0.0),
        (EACH, 1, 1.0, -bound[2], bound[3]),
        (RATIO, 2, 0.5, -INF, 0.1),
    ]
    K = sum(size for _, size, *_ in families)
    return make_rows(rng.normal(size=(G, K)), 0.1 * rng.normal(size=K), families)


def listed(rows: Rows, only: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Every row of every family, R q <= bound."""
    R, bound = [], []
    eye = np.eye(len(rows.offset))
    for f, (begin, end) in enumerate(zip(rows.first[:-1], rows.first[1:], strict=True)):
        here = [k for k in range(begin, end) if rows.present[k] and (only is None or only[k])]
        if rows.kind[f] == EACH:
            for k in here:
                R += [eye[k]] * bool(np.isfinite(rows.upper[f])) + [-eye[k]] * bool(np.isfinite(rows.lower[f]))
                bound += [side for side in (rows.upper[f], -rows.lower[f]) if np.isfinite(side)]
        else:
            R += [rows.ratio[f] * eye[a] - eye[b] for a, b in permutations(here, 2)]
            bound += [rows.upper[f]] * (len(here) * (len(here) - 1))
    return np.array(R).reshape(-1, len(eye)), np.array(bound)


def assert_optimal(H: np.ndarray, b: np.ndarray, rows: Rows, nu: np.ndarray, slack: float = 1e-8) -> np.ndarray:
    """Every row holds, and the multipliers are a sum of rows that bind, each with the right sign. Returns q."""
    q = b - H @ nu
    R, bound = listed(rows)
    assert (R @ q <= bound + slack).all()
    binding = R[np.abs(R @ q - bound) < slack]
    rest = nnls(binding.T, nu)[1] if len(binding) else np.linalg.norm(nu)
    assert rest <= 1e-7 * (1.0 + np.abs(nu).max())
    return q


def small_programme(H, b, rows: Rows):
    nu = np.zeros(len(b))
    outcome = _solve(H, b, rows, np.full(len(b), 1e-12), nu)
    return outcome, nu


@numba.njit
def _solve(H, b, rows, tolerance, nu):  # compiled functions alone can call these
    return solve_small(H, b, rows, tolerance, nu, np.empty(small_memory(b.size, rows.family.shape[1])))


@numba.njit
def _guess(H, b, rows, tolerance, start, nu):
    return guess_sides(H, b, rows, tolerance, start, nu)


class TestActiveSet:
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("rank", [3, 8, 13])
    def test_optimality(self, seed, rank):
        """Primal feasible, complementary, signs right: nothing else is asked of a convex programme's answer."""
        rng = np.random.default_rng(seed)
        rows = random_rows(seed)
        K = len(rows.offset)
        half = rng.normal(size=(K, rank))
        H = half @ half.T
        b = H @ rng.normal(size=K) + (0.0 if rank < K else 1.0) * rng.normal(size=K)
        outcome, nu = small_programme(H, b, rows)
        if outcome == CONFLICT:
            assert rank < K, "a positive definite H can move every row"
            self._assert_contradiction(H, b, rows, nu)
            return
        assert outcome == SOLVED
        assert_optimal(H, b, rows, nu)

    @staticmethod
    def _assert_contradiction(H, b, rows, nu):
        """No multipliers move what nu weighs, and that lies beyond what the rows allow it."""
        R, bound = listed(rows)
        assert np.abs(H @ nu).max() < 1e-6 * np.abs(H).max() * np.abs(nu).max()
        allowed = linprog(bound, A_eq=R.T, b_eq=nu, method="highs")
        assert allowed.status == 0
        assert b @ nu > allowed.fun

    def test_a_conflict_names_its_statistics(self):
        """Statistic 0 at least 1 and within 1/2 of statistic 1, which is at most -1; statistic 2 has no part in it."""
        families = [(DIFFERENCE, 3, 1.0, -0.5, 0.5)]
        singles = [(EACH, 1, 1.0, 1.0, INF), (EACH, 1, 1.0, -INF, -1.0)]
        rows = make_rows(np.eye(5), np.zeros(5), families + singles)
        # Statistics 3 and 4 are 0 and 1 once more.
        same = np.eye(3)[[0, 1, 2, 0, 1]]
        outcome, nu = small_programme(same @ same.T, np.zeros(5), rows)
        assert outcome == CONFLICT
        assert nu[0] > 0 > nu[1]
        assert nu[3] < 0 < nu[4]
        assert nu[2] == 0

    def test_nothing_to_do(self):
        rows = random_rows(0)
        K = len(rows.offset)
        b = np.zeros(K)
        b[7] = 0.05  # the equality
        outcome, nu = small_programme(np.eye(K), b, rows)
        assert outcome == SOLVED
        assert not nu.any()

    @pytest.mark.parametrize("sizes", [(30,), (100,), (300,), (40, 60), (2, 3, 30)], ids=str)
    @pytest.mark.parametrize("seed", range(4))
    def test_guessed_sides_are_the_optimum(self, sizes, seed):
        """For many groups, against the conditions and against the method for few. A guess may fail, never be wrong."""
        rng = np.random.default_rng(seed)
        n = 20 * max(sizes)
        labels = [np.concatenate([np.arange(size), rng.integers(0, size, n - size)]) for size in sizes]
        cells, at = np.unique(np.stack(labels, axis=1), axis=0, return_inverse=True)
        count = np.bincount(at.reshape(-1)).astype(np.float64)
        member = np.concatenate([cells[:, [j]] == np.arange(size) for j, size in enumerate(sizes)], axis=1)
        rows = make_rows(
            member / (member.T @ count), np.zeros(sum(sizes)), [(DIFFERENCE, size, 1.0, -0.3, 0.3) for size in sizes]
        )
        matrix = dense(rows)
        H = (matrix.T * count) @ matrix
        b = matrix.T @ (count * rng.normal(size=len(count)))
        nu, tolerance = np.zeros(len(b)), np.full(len(b), 1e-12)
        if not _guess(H, b, rows, tolerance, np.zeros(len(b)), nu):
            assert len(sizes) > 1, "groups of one attribute are disjoint: guesses end"
            return
        outcome, other = small_programme(H, b, rows)
        assert outcome == SOLVED
        assert np.abs(H @ (nu - other)).max() < 1e-9
        if sum(sizes) <= 100:
            assert_optimal(H, b, rows, nu)


class NumpyPasses:
    """Passes over samples in plain numpy, for the driver."""

    def __init__(self, z: np.ndarray, cell: np.ndarray, low: float, high: float, size: int):
        self.z, self.cell, self.low, self.high, self.size = z, cell, low, high, size
        self.value = z
        self.requests: list[int] = []

    def sums(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.cell, weights=values, minlength=self.size)

    def answer(self, request: int, of_cell: np.ndarray) -> None:
        self.requests.append(request)
        if request == driver.EXACT:
            exact_sums(self.value, self.cell.astype(np.int32), np.empty(0), of_cell[S], of_cell[ERROR])
            return
        raw = self.z - of_cell[SHIFT][self.cell]
        y = raw.clip(self.low, self.high)
        of_cell[S], of_cell[D] = self.sums(y), self.sums((y == raw).astype(np.float64))
        if request == driver.MEASURE:
            of_cell[ABSOLUTE] = self.sums(np.abs(y))
        if request == driver.WRITE:
            self.value = y
            of_cell[ERROR] = 1e-15 * len(y) * self.sums(np.abs(y))


def run_driver(rows: Rows, z: np.ndarray, cell: np.ndarray, low: float, high: float):
    """The whole solve, with sums taken by hand."""
    G = len(rows.start) - 1
    count = np.bincount(cell, minlength=G).astype(np.float64)
    passes = NumpyPasses(z, cell, low, high, G)
    reach = 2.0 * np.abs(z).max() + 2.0
    solve = driver.begin(rows, count, count, count * low, count * high, reach, np.zeros(0), 2.0**-53)
    request = driver.MEASURE
    while request != driver.FINISHED:
        passes.answer(request, solve.search.cell)
        request = driver.proceed(solve)
    return int(solve.search.number[driver.OUTCOME]), passes, solve


class TestDriver:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_it_finds_the_optimum(self, seed):
        rng = np.random.default_rng(seed)
        groups = rng.integers(0, 3, 40)
        groups[:3] = range(3)
        z = 2 * rng.normal(size=40) + groups
        problem = Problem(z, [MeanParity(0.05)], groups, (0.0, 1.0))
        rows = make_rows(np.diag(1 / np.bincount(groups)), np.zeros(3), [(DIFFERENCE, 3, 1.0, -0.05, 0.05)])
        outcome, passes, solve = run_driver(rows, z, groups, 0.0, 1.0)
        assert outcome == DONE
        assert (solve.family[driver.MISSED] <= 0).all()
        assert max(exact_violations(problem.rows, passes.value)) <= 0
        assert np.abs(passes.value - project_reference(problem)).max() < 1e-9
        assert passes.requests.count(driver.SUMS) <= 15

    @pytest.mark.parametrize("seed", SEEDS)
    def test_ratios(self, seed):
        """The least of the means is at least 4/5 of the greatest; the optimum by a general solver."""
        rng = np.random.default_rng(seed)
        groups = np.arange(12) % 3
        z = rng.uniform(0.0, 1.0, 12) + groups
        rows = make_rows(np.eye(3) / 4, np.zeros(3), [(RATIO, 3, 0.8, -INF, 0.0)])
        outcome, passes, _ = run_driver(rows, z, groups, 0.0, 10.0)
        assert outcome == DONE
        means = np.array([passes.value[groups == g].mean() for g in range(3)])
        assert means.min() >= 0.8 * means.max() * (1 - 1e-15)
        R = listed(rows)[0] @ (np.arange(3)[:, None] == groups) / 4
        answer = minimize(
            lambda y: 0.5 * np.square(y - z).sum(),
            np.full(12, z.mean()),
            jac=lambda y: y - z,
            bounds=[(0.0, 10.0)] * 12,
            constraints={"type": "ineq", "fun": lambda y: -R @ y, "jac": lambda y: -R},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 500},
        )
        assert np.abs(passes.value - answer.x).max() < 1e-6

    def test_outputs_that_hold_already_are_left_alone(self):
        z = np.array([0.1, 0.2, 0.15, 0.2])
        rows = make_rows(np.eye(2) / 2, np.zeros(2), [(DIFFERENCE, 2, 1.0, -0.1, 0.1)])
        outcome, passes, _ = run_driver(rows, z, np.arange(4) % 2, -1.0, 1.0)
        assert outcome == DONE
        assert np.array_equal(passes.value, z)
        assert passes.requests == [driver.MEASURE, driver.WRITE]

    def test_a_contradiction_is_proved(self):
        """Mean at least 2 of outputs at most 1."""
        rows = make_rows([[0.1]], np.zeros(1), [(EACH, 1, 1.0, 2.0, INF)])
        outcome, _, solve = run_driver(rows, np.zeros(10), np.zeros(10, dtype=int), 0.0, 1.0)
        assert outcome == INFEASIBLE
        nu = solve.search.statistic[TRIAL]
        assert proves_contradiction(rows, nu, np.zeros(1), np.full(1, 10.0))
        assert not proves_contradiction(rows, nu, np.zeros(1), np.full(1, 30.0))

    @pytest.mark.parametrize("seed", SEEDS)
    def test_solve_active_is_a_pseudo_inverse(self, seed):
        rng = np.random.default_rng(seed)
        rows = random_rows(seed)
        slopes, sums = rng.uniform(0.5, 2.0, 8), rng.normal(size=8)
        nu = rng.normal(size=len(rows.offset)) * (rng.random(len(rows.offset)) < 0.4)
        pairs = active_rows(rows, nu)
        R = np.zeros((pairs.shape[1], len(nu)))
        np.add.at(R, (np.arange(len(R)), pairs[PLUS].astype(int)), pairs[P])
        np.subtract.at(R, (np.arange(len(R)), pairs[MINUS].astype(int)), pairs[M])
        A = R @ dense(rows).T
        expected = A.T @ np.linalg.pinv((A * slopes) @ A.T, rcond=1e-11) @ A @ sums
        assert np.abs(dense(rows) @ solve_active(rows, nu, slopes, sums) - expected).max() < 1e-7


def exact_excesses(rows: Rows, sums: np.ndarray) -> list[Fraction | float]:
    """By how much the worst row of each family exceeds its bound, in rational arithmetic."""
    matrix = dense(rows)
    q = [exact_dot(matrix[:, k], sums) - Fraction(rows.offset[k]) for k in range(len(rows.offset))]
    worst: list[Fraction | float] = []
    for f, (begin, end) in enumerate(zip(rows.first[:-1], rows.first[1:], strict=True)):
        here = q[begin:end]
        if rows.kind[f] == EACH:
            sides = [here[0] - Fraction(rows.upper[f])] if np.isfinite(rows.upper[f]) else []
            sides += [Fraction(rows.lower[f]) - here[0]] if np.isfinite(rows.lower[f]) else []
        else:
            sides = [Fraction(rows.ratio[f]) * a - b - Fraction(rows.upper[f]) for a, b in permutations(here, 2)]
        worst.append(max(sides))
    return worst


class TestCertificate:
    @pytest.mark.parametrize("seed", range(60))
    def test_shortfalls_are_never_too_small(self, seed):
        """The bound on how far a family is missed, against its rows in rational arithmetic."""
        rng = np.random.default_rng(seed)
        rows = random_rows(seed)
        sums = rng.normal(size=8) * 10.0 ** rng.integers(-3, 9, 8)
        missed = np.empty(len(rows.kind))
        shortfalls(rows, sums, np.zeros(8), missed)
        for found, truth in zip(missed, exact_excesses(rows, sums), strict=True):
            assert found >= truth
            assert found <= truth + 1e-12 * np.abs(sums).max()

    @pytest.mark.parametrize("seed", SEEDS)
    def test_errors_of_sums_are_allowed_for(self, seed):
        """Whatever the true sums are, within the errors given."""
        rng = np.random.default_rng(seed)
        rows = random_rows(seed)
        sums, error = rng.normal(size=8), 10.0 ** rng.uniform(-12, -1, 8)
        missed = np.empty(len(rows.kind))
        shortfalls(rows, sums, error, missed)
        for _ in range(20):
            truth = exact_excesses(rows, sums + 0.999 * error * rng.choice([-1.0, 1.0], 8))
            assert all(found >= value for found, value in zip(missed, truth, strict=True))

    @pytest.mark.parametrize("seed", SEEDS)
    def test_the_largest_excess_is_that_of_a_listed_row(self, seed):
        rows, q = random_rows(seed), np.random.default_rng(seed).normal(size=13)
        R, bound = listed(rows)
        assert largest_excess(rows, q) == pytest.approx((R @ q - bound).max(), abs=1e-14)

    def test_margins_grow_until_there_is_no_room(self):
        families = [(DIFFERENCE, 2, 1.0, -1.0, 1.0), (EACH, 1, 1.0, -1.0, 1.0), (EACH, 1, 1.0, -1.0, 1.0)]
        rows = make_rows(np.random.default_rng(3).normal(size=(6, 4)), np.zeros(4), families)
        margins, tolerance = np.zeros(3), np.full(4, 1e-12)
        first_margins(rows, np.ones(6), 2.0**-24, tolerance, margins, np.empty(100))
        assert (margins > 0).all()
        assert (margins < 1e-5).all()
        missed = np.array([-0.1, 0.3, -0.1])
        assert not all_hold(missed)
        assert not all_hold(np.array([np.nan]))
        assert widen_margins(rows, margins, missed, tolerance, False)
        assert 0.3 < margins[1] < 0.35
        for _ in range(60):
            widen_margins(rows, margins, missed, tolerance, True)
        assert (margins == 1.0).all()
        assert not widen_margins(rows, margins, missed, tolerance, True)

    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("decades", [8, 300])
    def test_exact_sums(self, seed, decades):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=500) * 10.0 ** rng.integers(-decades, decades, 500)
        cell = rng.integers(0, 4, 500).astype(np.int32)
        weights = 10.0 ** rng.uniform(-6, 6, 500) if seed % 2 else np.empty(0)
        sums, error = np.empty(4), np.empty(4)
        exact_sums(values, cell, weights, sums, error)
        for c, whole in enumerate(exact_cell_sums(values, cell, weights, 4)):
            here = cell == c
            truth = exact_dot(values[here], weights[here]) if len(weights) else exact_dot(values[here])
            assert whole == truth
            assert abs(Fraction(sums[c]) - truth) <= Fraction(error[c])
            assert error[c] <= 2.0**-52 * abs(sums[c]) + 2.0**-1074

    @pytest.mark.parametrize(
        "values",
        [[1e308, 1e-320, -1e308], [1e30, 5e13, *[0.003] * 10, -1e30, -5e13], [5e-324] * 3, [-0.0, 0.0], [-5e-324, 1.0]],
    )
    def test_exact_sums_at_the_ends_of_the_range(self, values):
        sums, error = np.empty(1), np.empty(1)
        exact_sums(np.array(values), np.zeros(len(values), dtype=np.int32), np.empty(0), sums, error)
        truth = sum(map(Fraction, values))
        assert abs(Fraction(sums[0]) - truth) <= Fraction(error[0])

    @pytest.mark.parametrize("limbs", ["sums", "products"])
    def test_exact_sums_of_products_that_underflow(self, limbs):
        values, weights = np.array([3e-200, -1e-200, 5e-324]), np.array([2e-200, 1e-180, 5e-324])
        if limbs == "sums":
            values, weights = values * weights, np.empty(0)
        (whole,) = exact_cell_sums(values, np.zeros(3, dtype=np.int32), weights, 1)
        assert whole == sum(
            Fraction(v) * Fraction(w) for v, w in zip(values, weights if len(weights) else np.ones(3), strict=True)
        )


class TestExact:
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("seed", range(10))
    def test_shortfalls_in_rational_arithmetic(self, seed, weighted):
        rng = np.random.default_rng(seed)
        groups, y, targets = rng.integers(0, 3, (30, 2)), rng.normal(size=30), rng.normal(size=30)
        weights = rng.random(30) if weighted else None
        constraints = [MeanParity(0.1), ResidualMean(0.2, over=1)]
        problem = Problem(y, constraints, groups, None, targets, None, weights)
        system = bind(ConstraintSet(constraints), 30, groups=groups, targets=targets, weights=weights)
        missed = exact_shortfalls(y, system, np.zeros(len(system.rows.kind)))
        by_row = np.array([float(v) for v in exact_violations(problem.rows, y)])
        # Of differences the worst row of a family, of singles each.
        expected = [by_row[:3].max(), by_row[3:6].max(), *by_row[6:]]
        assert np.abs(missed - expected).max() < 1e-15
        sharp = ConstraintSet([MeanParity(float(by_row[:3].max()) + 0.1)])
        system = bind(sharp, 30, groups=groups, weights=weights)
        asked = Problem(y, sharp.constraints, groups, weights=weights)
        sign = exact_shortfalls(y, system, np.zeros(2)) > 0
        assert sign[0] == (max(exact_violations(asked.rows, y)[:3]) > 0)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
    @pytest.mark.parametrize("seed", range(10))
    def test_the_grid_holds_equal_means(self, dtype, seed):
        rng = np.random.default_rng(seed)
        groups = rng.integers(0, 3, (20, 2))
        rules = ConstraintSet([MeanParity(0.0)])
        near = torch.tensor(project(rng.random(20), groups, rules, bounds=(0.0, 1.0)).value, dtype=dtype)
        found = search_grid(near, bind(rules, 20, groups=groups), read_bounds((0.0, 1.0), 20, np.float64))
        assert found is not None
        assert found.dtype == dtype
        assert (found >= 0).all()
        assert (found <= 1).all()
        rows = Problem(plain(near), [MeanParity(0.0)], groups).rows
        assert max(exact_violations(rows, plain(found))) <= 0
        assert (found.double() - near.double()).abs().max() <= 2000 * max(torch.finfo(dtype).eps / 100, 1e-14)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("seed", range(5))
    def test_the_grid_holds_what_is_finer_than_the_last_digit(self, dtype, seed):
        """One output of 1e6, a tolerance of a hundredth of its last digit, and overlapping groups."""
        rng = np.random.default_rng(seed)
        z, groups = torch.tensor(rng.random(30), dtype=dtype), rng.integers(0, 2, (30, 3))
        z[seed] = 1e6
        problem = Problem(plain(z), [MeanParity(1e4 * torch.finfo(dtype).eps)], groups)
        solution = project(z, **problem.arguments())
        y = plain(solution.value).astype(np.float64)
        assert solution.satisfied
        assert max(exact_violations(problem.rows, y)) <= 0
        assert np.abs(y - project(plain(z), **problem.arguments()).value).max() < 30 * 1e6 * torch.finfo(dtype).eps

    def test_the_grid_holds_means_of_residuals(self):
        rng = np.random.default_rng(0)
        groups, targets = rng.integers(0, 2, (30, 2)), rng.integers(0, 100, 30) / 128.0
        for constraint in (ResidualMean(0.0), EqualizedResiduals(0.0)):
            problem = Problem(rng.random(30), [constraint], groups, None, targets)
            solution = project(problem.z, **problem.arguments())
            assert solution.status is Status.OPTIMAL
            assert max(exact_violations(problem.rows, solution.value)) <= 0

    def test_no_grid_for_what_it_cannot_say(self):
        rules, groups = ConstraintSet([MeanParity(0.0)]), np.arange(4) % 2
        weighted = bind(rules, 4, groups=groups, weights=np.array([1.0, 2.0, 3.0, 4.0]))
        assert search_grid(torch.ones(4), weighted, read_bounds(None, 4, np.float32)) is None
        third = bind(ConstraintSet([ResidualMean(0.0)]), 4, groups=groups, targets=np.full(4, 1 / 3))
        assert search_grid(torch.ones(4), third, read_bounds(None, 4, np.float32)) is None


class TestFeasibility:
    @pytest.mark.parametrize("seed", range(60))
    def test_least_excess(self, seed):
        rows = random_rows(seed)
        rng = np.random.default_rng(seed)
        least = rng.normal(size=8) - 0.3
        most = least + rng.uniform(0.0, 0.6, 8)
        excess, push = least_excess(rows, least, most, np.ones(13))
        assert excess == pytest.approx(self._by_hand(rows, least, most), abs=1e-8)
        if excess > 1e-8:
            assert push.any()
            assert self._by_hand(rows, least, most, push != 0) == pytest.approx(excess, abs=1e-7)

    @pytest.mark.parametrize("scale", [1e-10, 1e10])
    def test_units_do_not_matter(self, scale):
        rows = random_rows(1)
        least, most = -np.ones(8), np.full(8, -0.5)
        excess, push = least_excess(rows, least, most, np.ones(13))
        wide = rows._replace(offset=scale * rows.offset).between(scale * rows.lower, scale * rows.upper)
        scaled, same = least_excess(wide, scale * least, scale * most, np.full(13, scale))
        assert excess > 0.01
        assert scaled == pytest.approx(scale * excess, rel=1e-8)
        assert np.array_equal(same != 0, push != 0)

    @pytest.mark.parametrize("offset", [1e8, -1e12])
    def test_what_all_have_in_common_does_not_matter(self, offset):
        """Means around 1e8 are compared with each other, not with 0."""
        rng = np.random.default_rng(16760)
        n = 243
        groups = rng.integers(0, 2, (n, 8))
        system = bind(ConstraintSet([MeanParity(1e-4)]), n, groups=groups)
        lo, hi = offset - rng.uniform(0.0, 1.0, n), offset + rng.uniform(0.0, 1.0, n)
        extremes = (np.bincount(system.cell, side, minlength=len(system.weight)) for side in (lo, hi))
        excess, _ = least_excess(system.rows, *extremes, np.full(len(system.rows.offset), abs(offset)))
        assert excess == 0.0

    @staticmethod
    def _by_hand(rows: Rows, least: np.ndarray, most: np.ndarray, only: np.ndarray | None = None) -> float:
        """The same with every row listed, as a function of the cell sums."""
        R, bound = listed(rows, only)
        A = np.c_[R @ dense(rows).T, -np.ones(len(R))]
        bounds = [*zip(least, most, strict=True), (0, None)]
        return linprog([*np.zeros(len(least)), 1.0], A_ub=A, b_ub=bound + R @ rows.offset, bounds=bounds).fun


def saturated(seed: int) -> Problem:
    """Outputs a hundred times the width of the box, so that nearly all samples rest on a bound."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 60))
    groups = rng.integers(0, rng.integers(2, 6), (n, int(rng.integers(1, 5))))
    return Problem(100 * rng.normal(size=n), [MeanParity(10 ** rng.uniform(-5, -0.5))], groups, (0.0, 1.0))


@pytest.mark.parametrize("path", ["compiled", "tensor"])
def test_saturated_boxes(path):
    failed = []
    for seed in range(150):
        problem = saturated(seed)
        try:
            solution = project(problem.z, **problem.arguments(), path=path)
        except ValueError as error:
            failed.append((seed, str(error)[:40]))
            continue
        if not solution.satisfied:
            failed.append((seed, solution.status.name))
    assert not failed


HARD = {
    "equalities that imply each other": ([-40, 29, 87, -75], [[3, 3], [3, 0], [2, 1], [4, 3]], 0.0),
    "z far wider than the box": (
        [40, 149, -225, -134, 8, 12],
        [[1, 0], [0, 1], [0, 0], [0, 0], [1, 1], [0, 1]],
        0.1,
    ),
    "a kink at every turn": (
        [-57, -35, 156, -76, 20, 52, 123, 77, 142],
        [
            [1, 0, 1, 3],
            [0, 0, 0, 0],
            [0, 4, 0, 3],
            [0, 4, 4, 3],
            [0, 0, 4, 2],
            [0, 3, 4, 2],
            [0, 1, 3, 0],
            [1, 2, 3, 2],
            [1, 2, 2, 2],
        ],
        0.01,
    ),
    "nearly all outputs at a bound": (
        [-167, -154, -53, -106, 55, 65, -8, 12, 152, -36, 9, 32, -165, -21, 84],
        [
            [0, 0, 2, 1],
            [0, 11, 2, 1],
            [1, 1, 1, 2],
            [0, 11, 0, 1],
            [1, 1, 1, 0],
            [3, 3, 4, 0],
            [0, 3, 5, 4],
            [1, 4, 4, 1],
            [1, 1, 2, 2],
            [1, 1, 5, 1],
            [2, 10, 3, 0],
            [2, 1, 0, 1],
            [2, 10, 4, 2],
            [3, 11, 4, 1],
            [1, 3, 1, 0],
        ],
        1e-5,
    ),
}


@pytest.mark.parametrize("case", HARD)
def test_hard_problems(case):
    """Small problems on which the search has failed, all feasible: a constant satisfies them."""
    z, groups, tolerance = HARD[case]
    problem = Problem(np.array(z, dtype=np.float64), [MeanParity(tolerance)], np.array(groups), (0.0, 1.0))
    solution = project(problem.z, **problem.arguments())
    assert solution.status is Status.OPTIMAL
    assert max(exact_violations(problem.rows, solution.value)) <= 0
    # Too degenerate for the oracle: the multipliers prove the optimum instead.
    optimum = least_distance(problem, solution.multipliers)
    assert distance(problem, solution.value) <= optimum * (1 + 1e-9)


def test_the_oracle_agrees_with_a_general_solver():
    """The judge's own check: SLSQP on a tiny problem, which shares nothing with Clarabel or with us."""
    problem = Problem(
        np.array([2.0, -1.0, 0.5, 3.0, 0.1]),
        [MeanParity(0.2), ResidualMean(0.4)],
        np.array([0, 1, 0, 1, 1]),
        (0.0, 1.0),
        np.full(5, 0.6),
    )
    A, lower, upper = matrix_form(problem)
    answer = minimize(
        lambda y: 0.5 * np.square(y - problem.z).sum(),
        np.full(5, 0.5),
        jac=lambda y: y - problem.z,
        bounds=[(0.0, 1.0)] * 5,
        constraints=[
            {"type": "ineq", "fun": lambda y: upper - A @ y, "jac": lambda y: -A},
            {"type": "ineq", "fun": lambda y: A @ y - lower, "jac": lambda y: A},
        ],
        method="SLSQP",
        options={"ftol": 1e-15},
    )
    assert np.abs(project_reference(problem) - answer.x).max() < 1e-6
    assert torch.allclose(
        project(torch.tensor(problem.z), **problem.arguments()).value, torch.tensor(answer.x), atol=1e-6
    )
