"""The paper's 32 synthetic regression sets, bit for bit, and a variant whose features really depend on the group.

Two groups differ in the mean of the target by a large bias. In the paper's generator the group enters the features as
the sign of a symmetric noise, which leaves them independent of it: only the group column itself carries the group.
`corrected=True` takes the absolute value of that noise (same draws), so that group 1 has larger values.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from experiments.datasets.dataset import Dataset
from experiments.datasets.tables import pandas

ROWS, FEATURES = 40_000, 150
BLOCKS, BLOCK_WIDTH, LOOSE = 7, 21, 3  # correlated blocks, and features in none
GROUP_FEATURES, LINEAR, QUADRATIC, INTERACTIONS = 25, 10, 15, 7
SETS = 32


@dataclass(frozen=True)
class Factors:
    """What differs between the sets."""

    share: float  # of group 1
    relevance: float
    bias: float
    noise: float  # standard deviation
    bounds: tuple[float, float]
    structure: Literal["linear", "nonlinear"]


def synthetic_factors(index: int) -> Factors:
    """The factors of set `index`, 0 to 31."""
    if not 0 <= index < SETS:
        raise IndexError(f"There are {SETS} synthetic sets, 0 to {SETS - 1}; got {index}.")
    grid = product(
        (0.2, 0.5), ((0.3, 3.0), (0.7, 6.0)), (0.125, 0.6), ((-3.5, 3.5), (0.0, 3.5)), ("linear", "nonlinear")
    )
    share, (relevance, bias), noise, bounds, structure = list(grid)[index]
    return Factors(share, relevance, bias, noise, bounds, structure)  # type: ignore[arg-type]


def synthetic_arrays(index: int, *, corrected: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features (40000, 150), target and group of set `index`, from the legacy generator with seed 2 * index."""
    factors = synthetic_factors(index)
    seed = 2 * index
    group = np.random.RandomState(seed).binomial(1, factors.share, ROWS)
    X = _features(seed, group, factors.relevance, corrected)
    random = np.random.RandomState(seed + 1)
    score = _score(random, X, factors.structure)
    y = score + np.where(group == 0, -factors.bias, factors.bias) + random.normal(0, factors.noise, ROWS)
    y = (y - y.mean()) / y.std()
    y[group == 0] *= 0.85
    return X, y, group


def _features(seed: int, group: np.ndarray, relevance: float, corrected: bool) -> np.ndarray:
    """Standardised features; the same seed as the groups' is part of the published generator."""
    random = np.random.RandomState(seed)
    correlation = np.full((BLOCK_WIDTH, BLOCK_WIDTH), 0.3)
    np.fill_diagonal(correlation, 1.0)
    factor = np.linalg.cholesky(correlation).T
    X = np.zeros((ROWS, FEATURES))
    for block in range(BLOCKS):
        start = block * BLOCK_WIDTH
        X[:, start : start + BLOCK_WIDTH] = random.normal(size=(ROWS, BLOCK_WIDTH)) @ factor
        X[:, FEATURES - LOOSE :] = random.normal(size=(ROWS, LOOSE))  # seven times: only the last draw stays
    for feature in random.choice(FEATURES, GROUP_FEATURES, replace=False):
        noise = random.normal(0, 0.5, ROWS)
        X[:, feature] += relevance * (2 * group - 1) * (np.abs(noise) if corrected else noise)
    return (X - X.mean(axis=0)) / X.std(axis=0)


def _score(random: np.random.RandomState, X: np.ndarray, structure: str) -> np.ndarray:
    """What the target is made of, before bias and noise."""
    chosen = random.choice(FEATURES, LINEAR, replace=False)
    linear = X[:, chosen] @ random.normal(0, 1, LINEAR)
    if structure == "linear":
        return linear
    squared = random.choice(FEATURES, QUADRATIC, replace=False)
    quadratic = (X[:, squared] ** 2) @ random.normal(0, 0.4, QUADRATIC)
    interactions = np.zeros(ROWS)
    for _ in range(INTERACTIONS):
        first, second = random.choice(FEATURES, 2, replace=False)
        interactions += random.normal(0, 0.4) * X[:, first] * X[:, second]
    return 0.7 * linear + 0.2 * quadratic + 0.1 * interactions


def synthetic(index: int = 0, *, corrected: bool = False) -> Dataset:
    """One of the 32 sets: 40,000 rows, 150 features and the group, a standardised target."""
    pd = pandas()
    X, y, group = synthetic_arrays(index, corrected=corrected)
    factors = synthetic_factors(index)
    features = pd.DataFrame(X, columns=[f"x{j}" for j in range(FEATURES)])
    features.insert(0, "group", group)
    return Dataset(
        name=f"synthetic_{index}{'_corrected' if corrected else ''}",
        task="regression",
        features=features,
        target=pd.Series(y, name="y"),
        protected=features[["group"]],
        bounds=factors.bounds,
        description=f"Synthetic set {index} of 32: {factors}. "
        + ("Features depend on the group." if corrected else "Features do not depend on the group."),
        licence="generated",
        source="the generator of the paper's experiments, seed 2 * index",
    )
