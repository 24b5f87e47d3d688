"""A made-up table of people, for the tests of the estimators."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np


def people(n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """Features as an array of numbers, a class of 0 and 1, a wage above 0, and two protected attributes."""
    random = np.random.default_rng(seed)
    sex = random.choice(["f", "m"], n, p=[0.4, 0.6])
    region = random.choice(["north", "south", "west"], n)
    skill = random.normal(size=n)
    years = random.gamma(2.0, 4.0, n) + 6.0 * (sex == "m")
    score = skill + 0.1 * years + 0.5 * (region == "north") - 1.5
    X = np.stack([skill, years, random.normal(size=n)], axis=1)
    y = (score + random.logistic(0, 0.3, n) > 0).astype(int)
    wage = np.exp(2.5 + 0.2 * score + 0.1 * random.normal(size=n))
    return X, y, wage, {"sex": sex, "region": region}


def exact_gap(values: np.ndarray, labels: Any) -> Fraction:
    """The largest difference of group means, in rational arithmetic."""
    labels = np.asarray(labels)
    means = []
    for label in set(labels.tolist()):
        members = [Fraction(value) for value in values[labels == label].tolist()]
        means.append(sum(members, Fraction(0)) / len(members))
    return max(means) - min(means)
