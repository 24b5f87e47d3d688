"""Random problems: exactly feasible, not beaten by anything feasible, and a status that tells the truth."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlayer import (
    Affine,
    ConditionalParity,
    EqualizedOdds,
    EqualizedResiduals,
    InfeasibleError,
    MeanParity,
    ResidualMean,
    SoftGroup,
    Solution,
    project,
)
from formulas import Problem, plain
from judge import assert_true_status
from oracle import least_widening, matrix_form

bounded = settings(max_examples=150, deadline=None, derandomize=True)
floats = st.floats(-1e3, 1e3, allow_nan=False, width=32)


@st.composite
def problems(draw) -> tuple[Problem, torch.dtype]:
    """Anything a user may bring: few or many samples, ties, any constraints, bounds and weights."""
    n = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from([torch.float64, torch.float32]))
    z = draw(
        st.one_of(
            st.lists(floats, min_size=n, max_size=n).map(np.array),
            st.sampled_from([0.1, 1.0, 100.0]).map(lambda scale: scale * rng.normal(size=n)),
            st.just(rng.integers(-2, 3, n) / 2),
        )
    )
    groups = {name: rng.integers(0, draw(st.integers(1, 5)), n) for name in "ab"[: draw(st.integers(1, 2))]}
    if draw(st.integers(0, 5)) == 0:
        groups["soft"] = SoftGroup(rng.dirichlet(np.ones(3), n))
    tolerance = draw(st.one_of(st.just(0.0), st.floats(1e-5, 1.0)))
    targets, features = rng.integers(0, 2, n) + rng.choice([0.0, 0.25], n), {"x": rng.normal(size=n)}
    constraints = draw(
        st.lists(
            st.sampled_from(
                [
                    MeanParity(tolerance),
                    MeanParity(tolerance, over=("a", next(reversed(groups)))),
                    ConditionalParity(tolerance, over="a", regions={"x": [(None, 0.0), (-1.0, None)]}),
                    EqualizedResiduals(tolerance),
                    ResidualMean(tolerance),
                    EqualizedOdds(tolerance, regions=[{0.0}, {0.25}, {1.0}, {1.25}]),
                    Affine(rng.normal(size=(2, n)), -1.0, [1.0, np.inf]),
                ]
            ),
            min_size=1,
            max_size=2,
        )
    )
    box = draw(st.sampled_from([None, (0.0, 1.0), (-1.0, None), (None, 0.5), (-1e4, 1e4), "per sample"]))
    bounds = (rng.uniform(-1.0, 0.0, n), rng.uniform(1.0, 2.0, n)) if box == "per sample" else box
    weights = rng.choice([0.1, 1.0, 2.5], n) if draw(st.booleans()) else None
    z = plain(torch.tensor(z, dtype=dtype))
    return Problem(z, constraints, groups, bounds, targets, features, weights), dtype


def answer(problem: Problem, dtype: torch.dtype = torch.float64) -> Solution | None:
    """The projection, or None where there is none."""
    try:
        return project(torch.tensor(problem.z, dtype=dtype), **problem.arguments())
    except InfeasibleError:
        return None


def distance(problem: Problem, y: np.ndarray) -> float:
    return float((problem.sample_weights() * np.square(y - problem.z)).sum())


@bounded
@given(problems())
def test_the_status_is_true(drawn):
    """Feasible exactly and as near as can be, or the status says otherwise; what is refused cannot be satisfied."""
    problem, dtype = drawn
    solution = answer(problem, dtype)
    if solution is None:
        assert least_widening(problem) > 0
        return
    assert_true_status(solution, problem)
    assert len(solution.rows) == len(problem.rows)


@bounded
@given(problems())
def test_nothing_feasible_is_closer(drawn):
    """Between the answer and any feasible point, the first step must lead away from z."""
    problem, _ = drawn
    solution = answer(problem)
    if solution is None or not solution.satisfied:
        return
    y = plain(solution.value)
    A, lower, upper = matrix_form(problem)
    lo, hi = problem.box()
    rng = np.random.default_rng(0)
    best = distance(problem, y)
    slack = 1e-9 * (1.0 + best)
    for _ in range(20):
        # Feasible competitors near the answer: steps that keep all rows and bounds.
        step = rng.normal(size=len(y)) * 10.0 ** rng.uniform(-4, 0)
        other = (y + step).clip(lo, hi)
        reach = other - y
        values, change = A @ y, A @ reach
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(change > 0, (upper - values) / change, np.where(change < 0, (lower - values) / change, 1.0))
        share = float(np.clip(room.min(initial=1.0), 0.0, 1.0))
        assert distance(problem, y + share * reach) >= best - slack


@bounded
@given(problems(), st.integers(0, 2**16))
def test_gradients_are_bounded_and_keep_the_rows(drawn, seed):
    """However degenerate the point: the backward pass never grows a gradient, in the metric of the weights."""
    problem, _ = drawn
    z = torch.tensor(problem.z, requires_grad=True)
    try:
        y = project(z, **problem.arguments()).value
    except InfeasibleError:
        return
    upstream = torch.tensor(np.random.default_rng(seed).normal(size=len(problem.z)))
    y.backward(upstream)
    root = np.sqrt(problem.sample_weights())
    assert np.linalg.norm(plain(z.grad) / root) <= np.linalg.norm(plain(upstream) / root) * (1 + 1e-6)
