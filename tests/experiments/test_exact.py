"""The check in rational arithmetic sees what floats cannot."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from experiments import exact


def test_sums_are_exact():
    values = [0.1, 0.2, -0.3, 1e300, -1e300, 5e-324]
    assert exact.total(values) == sum(map(Fraction, values))
    assert exact.mean([0.1, 0.2]) == (Fraction(0.1) + Fraction(0.2)) / 2
    assert exact.total([]) == 0
    random = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    assert exact.total(random) == sum(Fraction(float(value)) for value in random)


def test_gap_by_an_ulp():
    tolerance = 0.25
    groups = {"sex": np.array(["f", "m"]), "one value": np.array([1, 1])}
    assert exact.largest_gap([0.25, 0.0], groups) <= tolerance
    assert exact.largest_gap([np.nextafter(0.25, 1), 0.0], groups) > tolerance
    three = {"race": np.array([0, 1, 2])}
    assert exact.largest_gap([0.0, 0.5, 2.0], three) == 2


def test_residual_means():
    found = exact.residual_means([1.0, 2.0, 4.0], [0.0, 0.0, 1.0], {"a": np.array([0, 0, 1])})
    assert found == {("a", 0): Fraction(3, 2), ("a", 1): 3}


def test_excess_of_rows():
    A = [[1.0, 1.0], [1.0, 0.0]]
    assert exact.largest_excess(A, [0.25, 0.5], upper=[1.0, 0.25]) == [0]
    assert exact.largest_excess(A, [0.25, 0.5], lower=[0.5, 0.5]) == [Fraction(1, 4)]
    assert exact.largest_excess(A, [0.25, 0.5], lower=[-np.inf, -np.inf], upper=1.0) == [-Fraction(1, 4)]
    both = exact.largest_excess(A, [[0.25, 0.5], [1.0, 0.0]], upper=[[1.0, 0.25], [0.5, 1.0]])
    assert both == [0, Fraction(1, 2)]
    assert exact.largest_excess([[1e16, 1.0, -1e16]], [1.0, 1.0, 1.0], upper=0.0) == [1]  # floats would lose the 1


def test_excess_agrees_with_fractions():
    random = np.random.default_rng(1)
    A, y = random.normal(size=(4, 6)) * 10.0 ** random.integers(-9, 9, (4, 6)), random.normal(size=(3, 6))
    upper = random.normal(size=4)
    rows = [
        [sum(Fraction(a) * Fraction(v) for a, v in zip(row, case, strict=True)) for row in A.tolist()]
        for case in y.tolist()
    ]
    expected = [max(value - Fraction(most) for value, most in zip(case, upper.tolist(), strict=True)) for case in rows]
    assert exact.largest_excess(A, y, upper=upper) == expected


def test_bounds():
    assert exact.within([0.0, 1.0], (0.0, 1.0))
    assert not exact.within([0.0, np.nextafter(1.0, 2)], (0.0, 1.0))
    assert exact.within([-5.0], (None, None))
    assert not exact.within([-5.0], (0.0, None))
