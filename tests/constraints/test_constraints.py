"""What each constraint bounds, computed by hand from the outputs; and how constraints combine."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from fairlayer import (
    Affine,
    ConditionalParity,
    EqualizedOdds,
    EqualizedResiduals,
    MeanParity,
    ResidualMean,
    Status,
    Stream,
    project,
)
from fairlayer.constraints.regions import Condition
from formulas import plain

N = 120
RNG = np.random.default_rng(5)
SEX, RACE, AGE = RNG.integers(0, 2, N), RNG.integers(0, 3, N), RNG.integers(18, 80, N)
CLASS, WAGE, WEIGHTS = RNG.integers(0, 2, N), RNG.normal(size=N), RNG.uniform(0.2, 3.0, N)
Z = RNG.normal(size=N) + SEX + 0.7 * RACE + 0.3 * CLASS
GROUPS = {"sex": SEX, "race": RACE}
EPS = 0.04
SLACK = 1e-12


def largest_gap(y, labels, where=None, weights=None) -> float:
    """Largest difference of the means of two groups."""
    where = np.ones(N, dtype=bool) if where is None else where
    means = [np.average(y[g], weights=None if weights is None else weights[g]) for g in _parts(labels, where)]
    return max(abs(a - b) for a, b in combinations(means, 2))


def _parts(labels, where):
    return [(labels == label) & where for label in np.unique(labels[where])]


def assert_binds(gap: float) -> None:
    """Held, and only just: a row that has room to spare was not what shaped the answer."""
    assert EPS - 1e-9 <= gap <= EPS + SLACK


def answer(constraints, **data) -> np.ndarray:
    return project(Z, GROUPS, constraints, **data).value


ALL = np.ones(N, dtype=bool)
JOB = np.random.default_rng(1).integers(0, 3, N)
REGIONS = {"age": [(None, 40), (30, 60), (60, None)], "job": [{0, 2}]}
KINDS_OF_CLASSES = CLASS, CLASS == 1, CLASS + 0.0, torch.tensor(CLASS), np.array(["no", "yes"])[CLASS], CLASS[:, None]
BOUND = [
    (MeanParity(EPS), {}, [(SEX, ALL), (RACE, ALL)]),
    (MeanParity(EPS, over=("race", "sex")), {}, [(2 * RACE + SEX, ALL)]),
    (
        ConditionalParity(EPS, over="sex", regions=REGIONS),
        {"features": {"age": AGE, "job": JOB}},
        [(SEX, AGE < 40), (SEX, (AGE >= 30) & (AGE < 60)), (SEX, AGE >= 60), (SEX, JOB != 1)],
    ),
    (
        ConditionalParity(EPS, over="sex", regions={"place": [{"town", "city"}]}),
        {"features": {"place": np.array(["town", "village", "city"])[RACE]}},
        [(SEX, RACE != 1)],
    ),
    *(
        (
            EqualizedOdds(EPS),
            {"targets": targets},
            [(column, label == CLASS) for column in (SEX, RACE) for label in (0, 1)],
        )
        for targets in KINDS_OF_CLASSES
    ),
    (
        EqualizedOdds(EPS, over="sex", regions=[(None, 0.0), (-0.5, None)]),
        {"targets": WAGE},
        [(SEX, WAGE < 0), (SEX, WAGE >= -0.5)],
    ),
]


@pytest.mark.parametrize(("constraint", "data", "parts"), BOUND)
def test_differences_of_means_are_bounded(constraint, data, parts):
    y = answer(constraint, **data)
    for labels, where in parts:
        assert_binds(largest_gap(y, labels, where))


def test_mean_parity_of_one_attribute_leaves_the_other():
    y = answer(MeanParity(EPS, over="sex"))
    assert_binds(largest_gap(y, SEX))
    assert largest_gap(y, RACE) > 10 * EPS


def test_intersections_and_margins_in_a_list():
    y = answer([MeanParity(EPS, over=["sex", "race"]), MeanParity(3 * EPS, over=("sex", "race"))])
    assert_binds(largest_gap(y, SEX))
    assert largest_gap(y, 2 * RACE + SEX) <= 3 * EPS + SLACK


@pytest.mark.parametrize("form", ["columns", "table", "tensor"])
def test_tolerances_follow_their_attribute(form):
    """Also where constraints name the attributes in another order than the table has them."""
    table = np.stack([SEX, RACE], axis=1)
    groups = {"columns": {0: SEX, 1: RACE}, "table": table, "tensor": torch.tensor(table)}[form]
    solution = project(Z, groups, [MeanParity(EPS, over=1), MeanParity(0.3, over=0)])
    assert_binds(largest_gap(solution.value, RACE))
    assert 0.3 - 1e-9 <= largest_gap(solution.value, SEX) <= 0.3 + SLACK
    gaps = dict(zip(solution.rows, solution.gaps.tolist(), strict=True))
    assert gaps["mean parity, 0: 0 - 1"] == pytest.approx(
        solution.value[SEX == 0].mean() - solution.value[SEX == 1].mean()
    )


def test_weighted_means():
    y = answer(MeanParity(EPS), weights=WEIGHTS)
    assert_binds(largest_gap(y, SEX, weights=WEIGHTS))
    assert largest_gap(y, RACE) > EPS + 1e-3


def test_a_weight_of_two_is_two_samples():
    weights = RNG.integers(1, 4, N)
    twice = np.repeat(np.arange(N), weights)
    once = answer(MeanParity(EPS), weights=weights, bounds=(0.0, 1.0))
    groups = {name: column[twice] for name, column in GROUPS.items()}
    repeated = project(Z[twice], groups, MeanParity(EPS), bounds=(0.0, 1.0)).value
    assert np.abs(once[twice] - repeated).max() < 1e-10


def test_a_weight_of_zero_is_no_sample():
    weights = (np.arange(N) % 5 > 0).astype(float)
    kept = weights > 0
    y = answer(MeanParity(EPS), weights=weights)
    part = project(Z[kept], {name: column[kept] for name, column in GROUPS.items()}, MeanParity(EPS)).value
    assert np.abs(y[kept] - part).max() < 1e-10


def test_weightless_groups_are_absent():
    solution = project(Z, {"sex": SEX}, MeanParity(EPS), weights=(SEX == 0).astype(float))
    assert solution.status is Status.VACUOUS
    assert "mean parity, sex: 1 is absent" in solution.vacuous


def test_regions_without_samples_are_vacuous():
    constraint = ConditionalParity(EPS, over="sex", regions={"age": [(None, 40), (200, None)]})
    solution = project(Z, GROUPS, constraint, features={"age": AGE})
    assert solution.status is Status.VACUOUS
    assert all("200" in text for text in solution.vacuous)
    assert_binds(largest_gap(solution.value, SEX, AGE < 40))


def test_equalized_residuals():
    y = answer(EqualizedResiduals(EPS), targets=WAGE)
    assert_binds(largest_gap(y - WAGE, SEX))
    assert_binds(largest_gap(y - WAGE, RACE))


def test_residual_mean():
    y = answer(ResidualMean(EPS), targets=WAGE)
    for part in (*_parts(SEX, np.ones(N, bool)), *_parts(RACE, np.ones(N, bool))):
        assert abs((y - WAGE)[part].mean()) <= EPS + SLACK
    assert_binds(max(abs((y - WAGE)[label == RACE].mean()) for label in range(3)))


def test_residual_mean_with_weights():
    y = answer(ResidualMean(EPS, over="race"), targets=WAGE, weights=WEIGHTS)
    gaps = [abs(np.average((y - WAGE)[label == RACE], weights=WEIGHTS[label == RACE])) for label in range(3)]
    assert_binds(max(gaps))


def test_affine_rows():
    A = RNG.normal(size=(3, N))
    solution = project(Z, None, Affine(A, lower=[-1.0, None or -np.inf, 2.0], upper=[1.0, 0.5, 2.0]))
    values = A @ solution.value
    assert abs(values[0]) <= 1.0 + SLACK
    assert values[1] <= 0.5 + SLACK
    assert values[2] == pytest.approx(2.0, abs=1e-12)
    assert np.abs(solution.gaps - values).max() < 1e-12


def test_affine_with_weights():
    """Weights price the changes; the matrix applies to the outputs as they are."""
    A = np.ones((1, 3))
    y = project(np.zeros(3), None, Affine(A, lower=3.0), weights=[1.0, 1.0, 4.0]).value
    assert np.abs(y - np.array([4, 4, 1]) / 3).max() < 1e-12


@pytest.mark.parametrize("constraint", [MeanParity(EPS), EqualizedOdds(EPS)])
def test_a_repeated_constraint_changes_nothing(constraint):
    once = answer(constraint, targets=CLASS)
    assert np.abs(answer([constraint, constraint], targets=CLASS) - once).max() < 1e-11


def test_the_tighter_of_two_tolerances_counts():
    both = answer([MeanParity(0.5), MeanParity(EPS)])
    assert np.abs(both - answer(MeanParity(EPS))).max() < 1e-11


def test_names_appear_in_rows():
    solution = project(Z, GROUPS, MeanParity(EPS, over=("sex", "race"), name="pay"))
    assert solution.rows[0] == "pay, sex & race: 0 & 0 - 0 & 1"
    assert len(solution.rows) == 15


def test_gaps_are_the_values_of_the_rows():
    solution = project(torch.tensor(Z), GROUPS, [MeanParity(EPS, over="sex"), ResidualMean(0.1)], targets=WAGE)
    y = plain(solution.value)
    expected = [y[SEX == 0].mean() - y[SEX == 1].mean()]
    expected += [(y - WAGE)[column == label].mean() for column, size in ((SEX, 2), (RACE, 3)) for label in range(size)]
    assert np.abs(plain(solution.gaps) - expected).max() < 1e-12


def test_multipliers_are_zero_where_rows_have_room():
    solution = project(torch.tensor(Z), GROUPS, [MeanParity(EPS, over="sex"), MeanParity(10.0, over="race")])
    assert solution.multipliers[0] != 0
    assert not solution.multipliers[1:].any()


def test_names_of_rows_differ():
    """Streams know statistics by their names, and users rows."""
    groups = {"sex": np.arange(4) % 2}
    z = np.array([0.0, 1.0, 2.0, 5.0])
    constraints = [MeanParity(0.05, over="sex"), MeanParity(0.1), MeanParity(0.1, name="mean parity")]
    assert project(z, groups, constraints).rows == (
        "mean parity, sex: 0 - 1",
        "mean parity, sex (2): 0 - 1",
        "mean parity, sex (3): 0 - 1",
    )
    rows = [Affine(np.ones((1, 4)), upper=upper) for upper in (1.0, 2.0)]
    assert project(z, None, rows).rows == ("affine: row 0", "affine (2): row 0")
    stream = Stream(constraints)
    stream.update(z, groups)
    assert len(stream.gaps()) == 3


def test_classes_are_named_in_full():
    targets = np.array([1234567.0, 1234567.0, 1234568.0, 1234568.0])
    rows = project(np.arange(4.0), {"sex": [0, 1, 0, 1]}, EqualizedOdds(0.1), targets=targets).rows
    assert rows == tuple(f"equalized odds, sex within target {name}: 0 - 1" for name in (1234567, 1234568))


def test_classes_of_one_name_have_their_own_plans():
    def declare(low: float) -> MeanParity:
        class Mine(MeanParity):
            needs_features = True

            @property
            def conditions(self):
                return (Condition("feature", "age", ((low, None),)),)

        return Mine(0.1)

    z, groups, features = np.array([0.0, 1.0]), {"sex": [0, 1]}, {"age": np.array([3.0, 3.0])}
    assert project(z, groups, declare(1.0), features=features).status is Status.OPTIMAL
    assert project(z, groups, declare(5.0), features=features).status is Status.VACUOUS


@pytest.mark.parametrize("tolerance", [1, np.float32(1.0), np.int64(1), True])
def test_tolerances_are_floats(tolerance):
    assert type(MeanParity(tolerance).tolerance) is float
    assert repr(MeanParity(tolerance)) == repr(MeanParity(1.0))


def test_row_limits_of_a_batch_under_one_matrix():
    z = np.random.default_rng(0).uniform(size=(3, 4))
    lower = np.array([[1.0], [2.0], [3.0]])
    y = project(z, None, Affine(np.ones((1, 4)), lower)).value
    each = [project(z[b], None, Affine(np.ones((1, 4)), lower[b])).value for b in range(3)]
    assert np.array_equal(y, np.stack(each))


def test_a_column_of_outputs_under_a_matrix():
    z = np.random.default_rng(0).uniform(size=(4, 1))
    y = project(z, None, Affine(np.ones((1, 4)), lower=3.0)).value
    assert np.array_equal(y[:, 0], project(z[:, 0], None, Affine(np.ones((1, 4)), lower=3.0)).value)
    four = project(z, None, Affine(np.ones((1, 1)), lower=3.0))  # problems of one output each
    assert four.value == pytest.approx(3.0)
    assert four.gaps.shape == (4, 1)


def test_a_column_of_features():
    constraint = ConditionalParity(0.1, regions={"age": [(None, 30), (30, None)]})
    age = np.array([10.0, 20.0, 40.0, 50.0])
    flat, column = (
        project(np.arange(4.0), [0, 1, 0, 1], constraint, features={"age": values}) for values in (age, age[:, None])
    )
    assert np.array_equal(flat.value, column.value)


def test_a_tolerance_without_limit_beside_one_finer_than_the_dtype():
    rng = np.random.default_rng(0)
    for _ in range(5):
        z = np.where(rng.random(60) < 0.5, 0.0, rng.random(60))
        groups = {"a": rng.integers(0, 3, 60), "b": rng.integers(0, 2, 60)}
        solution = project(z, groups, [MeanParity(1e-16, over="a"), MeanParity(1e300, over="b")], bounds=(0, 1))
        assert np.abs(solution.gaps[:3]).max() < 1e-15


@pytest.mark.filterwarnings("error")
def test_open_bounds_of_samples_without_weight():
    bounds = np.array([-np.inf, 0.0, 0.0, 0.0]), np.ones(4)
    y = project(np.array([0.0, 0.2, 0.4, 0.9]), [0, 0, 1, 1], MeanParity(0.1), bounds, weights=[0, 1, 1, 1]).value
    assert y[2:].mean() - y[1] == pytest.approx(0.1)
