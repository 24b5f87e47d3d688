"""The parts of the solver by themselves: the small quadratic programme, the search, the certificate, feasibility."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from fairlayer.solve.fused import largest_magnitude, reach_and_magnitude
from scipy.optimize import linprog, minimize

from exact import exact_dot
from fairlayer import MeanParity, ResidualMean, Status, project
from fairlayer.binding.cells import exact_sums
from fairlayer.binding.rows import Rows
from fairlayer.solve.active_set import CONFLICT, SOLVED, solve_small
from fairlayer.solve.certify import aimed, all_hold, first_margins, shortfalls, widen_margins
from fairlayer.solve.feasibility import least_excess
from fairlayer.solve.newton import DONE, EVALUATE, INFEASIBLE, advance, new_search, proves_contradiction, solve_active
from formulas import Problem
from oracle import matrix_form, project_reference

SEEDS = range(25)


def random_rows(seed: int, G: int = 6, K: int = 5, m: int = 9) -> Rows:
    """Rows over cell sums, some of them dependent, some one-sided, some equalities."""
    rng = np.random.default_rng(seed)
    plus = rng.integers(0, K, m)
    minus = np.where(rng.random(m) < 0.7, (plus + rng.integers(1, K, m)) % K, -1)
    lower, upper = -rng.uniform(0.1, 1.0, m), rng.uniform(0.1, 1.0, m)
    lower[0], upper[1] = -np.inf, np.inf
    upper[2] = lower[2] = 0.05
    return Rows(rng.normal(size=(G, K)), 0.1 * rng.normal(size=K), plus, minus, lower, upper)


def matrix(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """A and the constants t of rows A S - t."""
    R = np.zeros((len(rows.plus), rows.M.shape[1]))
    for j, (a, b) in enumerate(zip(rows.plus, rows.minus, strict=True)):
        R[j, a] += 1.0
        if b >= 0:
            R[j, b] -= 1.0
    return R @ rows.M.T, R @ rows.offset


def small_programme(H, b, rows: Rows):
    mu, active = np.zeros(len(rows.plus)), np.zeros(min(len(rows.plus), len(b)) + 1, dtype=np.int64)
    outcome, size, _ = solve_small(H, b, rows.plus, rows.minus, rows.lower, rows.upper, 1e-12, mu, active)
    return outcome, mu, active[:size]


class TestActiveSet:
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("rank", [2, 5])
    def test_optimality(self, seed, rank):
        """Primal feasible, complementary, signs right: nothing else is asked of a convex programme's answer."""
        rng = np.random.default_rng(seed)
        rows = random_rows(seed)
        half = rng.normal(size=(5, rank))
        H = half @ half.T
        b = H @ rng.normal(size=5) + (0.0 if rank < 5 else 1.0) * rng.normal(size=5)
        outcome, mu, active = small_programme(H, b, rows)
        if outcome == CONFLICT:
            assert rank < 5, "a positive definite H can move every row"
            return
        assert outcome == SOLVED
        R = matrix(rows._replace(M=np.eye(5)))[0]
        values = R @ (b - H @ (R.T @ mu))
        assert (values <= rows.upper + 1e-9).all()
        assert (values >= rows.lower - 1e-9).all()
        free = rows.lower < rows.upper
        assert np.abs((values - rows.upper)[(mu > 0) & free]).max(initial=0.0) < 1e-9
        assert np.abs((values - rows.lower)[(mu < 0) & free]).max(initial=0.0) < 1e-9
        assert set(np.flatnonzero(mu)) <= set(active.tolist())
        assert np.linalg.matrix_rank(R[active] @ H @ R[active].T) == len(active)

    def test_a_conflict_names_its_rows(self):
        """Statistic 0 at most -1 and at least 1, a third row that has nothing to do with it."""
        rows = Rows(
            np.eye(2),
            np.zeros(2),
            np.array([0, 0, 1]),
            np.array([-1, -1, -1]),
            np.array([-np.inf, 1.0, -1.0]),
            np.array([-1.0, np.inf, 1.0]),
        )
        outcome, mu, _ = small_programme(np.eye(2), np.array([0.0, 5.0]), rows)
        assert outcome == CONFLICT
        assert mu[0] > 0 > mu[1]
        assert mu[2] == 0

    def test_nothing_to_do(self):
        outcome, mu, active = small_programme(np.eye(5), np.zeros(5), random_rows(0)._replace(lower=np.full(9, -9.0)))
        assert outcome == SOLVED
        assert not mu.any()
        assert len(active) == 0


def run_search(rows: Rows, z: np.ndarray, cell: np.ndarray, low: float, high: float):
    """Drive `advance` by hand, with sums taken in plain numpy."""
    G = len(rows.M)
    weight = np.bincount(cell, minlength=G).astype(np.float64)
    search = new_search(len(rows.plus), rows.M.shape[1], G)
    outcome, evaluations = EVALUATE, 0
    while outcome == EVALUATE:
        raw = z - search.shift[cell]
        y = raw.clip(low, high)
        S = np.bincount(cell, weights=y, minlength=G)
        D = np.bincount(cell, weights=(y == raw).astype(np.float64), minlength=G)
        outcome = advance(rows, search, S, D, weight, weight * low, weight * high, 2.0 * np.abs(z).max() + 2.0, 1e-12)
        evaluations += 1
    return outcome, y, search, evaluations


class TestNewton:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_search_finds_the_optimum(self, seed):
        rng = np.random.default_rng(seed)
        groups = rng.integers(0, 3, 40)
        groups[:3] = range(3)
        z = 2 * rng.normal(size=40) + groups
        problem = Problem(z, [MeanParity(0.05)], groups, (0.0, 1.0))
        count = np.bincount(groups).astype(np.float64)
        rows = Rows(
            np.diag(1 / count),
            np.zeros(3),
            np.array([0, 0, 1]),
            np.array([1, 2, 2]),
            np.full(3, -0.05),
            np.full(3, 0.05),
        )
        outcome, y, _search, evaluations = run_search(rows, z, groups, 0.0, 1.0)
        assert outcome == DONE
        assert np.abs(y - project_reference(problem)).max() < 1e-9
        assert evaluations <= 15

    def test_a_contradiction_is_proved(self):
        """Mean at least 2 of outputs at most 1."""
        rows = Rows(np.array([[0.1]]), np.zeros(1), np.array([0]), np.array([-1]), np.array([2.0]), np.array([np.inf]))
        outcome, _, search, _ = run_search(rows, np.zeros(10), np.zeros(10, dtype=int), 0.0, 1.0)
        assert outcome == INFEASIBLE
        assert proves_contradiction(rows, search.trial, np.zeros(1), np.full(1, 10.0))
        assert not proves_contradiction(rows, search.trial, np.zeros(1), np.full(1, 30.0))

    @pytest.mark.parametrize("seed", SEEDS)
    def test_solve_active_is_a_pseudo_inverse(self, seed):
        rng = np.random.default_rng(seed)
        rows = random_rows(seed)
        A, _ = matrix(rows)
        slopes, sums = rng.uniform(0.5, 2.0, 6), rng.normal(size=6)
        active = rng.permutation(9)[: rng.integers(0, 6)]
        chosen = A[active]
        expected = chosen.T @ np.linalg.pinv((chosen * slopes) @ chosen.T, rcond=1e-11) @ chosen @ sums
        assert np.abs(solve_active(rows, active, slopes, sums) - expected).max() < 1e-8


class TestCertificate:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_shortfalls_are_never_too_small(self, seed):
        """The bound on how far a row is missed, against the row in rational arithmetic."""
        rng = np.random.default_rng(seed)
        rows = random_rows(seed)
        S = rng.normal(size=6) * 10.0 ** rng.integers(-3, 9, 6)
        missed = shortfalls(rows, S, np.zeros(6))
        for j, (a, b) in enumerate(zip(rows.plus, rows.minus, strict=True)):
            value = exact_dot(rows.M[:, a], S) - Fraction(rows.offset[a])
            if b >= 0:
                value -= exact_dot(rows.M[:, b], S) - Fraction(rows.offset[b])
            truth = max(
                value - Fraction(rows.upper[j]) if np.isfinite(rows.upper[j]) else -np.inf,
                Fraction(rows.lower[j]) - value if np.isfinite(rows.lower[j]) else -np.inf,
            )
            assert missed[j] >= truth
            assert missed[j] <= truth + 1e-12 * np.abs(S).max()

    def test_margins_grow_until_there_is_no_room(self):
        rows = random_rows(3)._replace(lower=np.full(9, -1.0), upper=np.full(9, 1.0))
        margins = first_margins(rows, np.ones(6), 1.0, 2.0**-24, 1e-12)
        assert (margins > 0).all()
        assert (margins < 1e-5).all()
        tight = aimed(rows, margins)
        assert np.array_equal(tight.upper, 1.0 - margins)
        missed = np.where(np.arange(9) == 4, 0.3, -0.1)
        assert not all_hold(missed)
        assert widen_margins(rows, margins, missed)
        assert margins[4] > 0.3
        for _ in range(5):
            widen_margins(rows, margins, missed)
        assert margins[4] == 1.0
        assert not widen_margins(rows, margins, missed)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_exact_sums(self, seed):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=500) * 10.0 ** rng.integers(-8, 8, 500)
        cell = rng.integers(0, 4, 500).astype(np.int32)
        weights = rng.random(500) if seed % 2 else np.empty(0)
        S, error = np.empty(4), np.empty(4)
        exact_sums(values, cell, weights, S, error)
        for c in range(4):
            here = cell == c
            truth = exact_dot(values[here], weights[here]) if len(weights) else exact_dot(values[here])
            assert abs(Fraction(S[c]) - truth) <= Fraction(error[c])
            assert error[c] <= 1e-15 * np.abs(values[here]).sum()

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_largest_magnitude(self, dtype):
        values = np.array([0.0, -3.5, 2.0], dtype=dtype)
        assert largest_magnitude(values) == 3.5
        assert largest_magnitude(values[:0]) == 0
        for bad in (np.nan, -np.inf):
            assert not np.isfinite(largest_magnitude(np.append(values, bad).astype(dtype)))

    @pytest.mark.parametrize("bounds", [(-np.inf, np.inf), (0.0, 1.0), (-50.0, 50.0), (5.0, 9.0), (0.0, np.inf)])
    def test_magnitude_bounds_the_clipped_outputs(self, bounds):
        z = np.array([-3.0, 0.2, 4.0])
        reach, magnitude = reach_and_magnitude(z.min(), z.max(), *bounds)
        assert magnitude == np.abs(z.clip(*bounds)).max()
        if np.isfinite(bounds).all():
            for shift in (-reach, reach):
                assert np.isin((z - shift).clip(*bounds), bounds).all()


class TestFeasibility:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_least_excess(self, seed):
        rows = random_rows(seed)
        rng = np.random.default_rng(seed)
        least = rng.normal(size=6) - 0.3
        most = least + rng.uniform(0.0, 0.6, 6)
        excess, blamed = least_excess(rows, least, most)
        assert excess == pytest.approx(self._by_hand(rows, least, most), abs=1e-8)
        if excess > 1e-8:
            assert blamed.any()
            only = Rows(rows.M, rows.offset, *(part[blamed] for part in rows[2:]))
            assert self._by_hand(only, least, most) == pytest.approx(excess, abs=1e-7)

    @staticmethod
    def _by_hand(rows: Rows, least: np.ndarray, most: np.ndarray) -> float:
        """The same by minimising the largest breach, as a function of the cell sums."""
        A, t = matrix(rows)
        above, below = np.isfinite(rows.upper), np.isfinite(rows.lower)
        ub = np.vstack([np.c_[A, -np.ones(len(A))][above], np.c_[-A, -np.ones(len(A))][below]])
        limit = np.concatenate([(rows.upper + t)[above], (-rows.lower - t)[below]])
        bounds = [*zip(least, most, strict=True), (0, None)]
        return linprog([*np.zeros(A.shape[1]), 1.0], A_ub=ub, b_ub=limit, bounds=bounds, method="highs-ipm").fun


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
    assert solution.satisfied if tolerance > 0 else solution.status is Status.ROUNDED
    # Too degenerate for the oracle: the multipliers prove the optimum instead.
    A, lower, upper = matrix_form(problem)
    spread = np.ptp(problem.z)
    assert np.abs(solution.value - np.clip(problem.z - solution.multipliers @ A, 0.0, 1.0)).max() < 1e-9 * spread
    values = A @ solution.value
    assert (np.abs(values - upper)[solution.multipliers > 0] < 1e-9).all()
    assert (np.abs(values - lower)[solution.multipliers < 0] < 1e-9).all()


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
