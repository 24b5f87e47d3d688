"""The problem every method solves: the nearest fair outputs to a batch z.

    min ||y - z||^2   s.t.   |mean(y | a_j = 1) - mean(y | a_j = 0)| <= tolerance for each attribute j,
                             0 <= y <= 1 where there is a box.

Needs only NumPy, because the worker of every peer imports it in an environment of its own. A problem is
a function of its seed, so that all peers solve the same ones without exchanging files.
"""

import math
import zlib
from dataclasses import dataclass

import numpy as np

TOLERANCE = 0.01


@dataclass(frozen=True)
class Case:
    """What does not change between repeats: a method may build for it once, before the clock starts."""

    n: int
    k: int
    box: bool
    tolerance: float = TOLERANCE

    def make(self, seed: int, fixed_seed: int | None = None) -> "Problem":
        """The batch of a seed; `fixed_seed` fixes its membership while z changes."""
        return make(self, seed, fixed_seed)


@dataclass(frozen=True)
class Problem:
    """One batch. z is float32, so that peers of either precision receive exactly the same numbers."""

    z: np.ndarray  # (n,) float32
    groups: np.ndarray  # (n, k) int64, values 0 and 1
    weights: np.ndarray  # (n,) float32, the loss is weights @ y

    @property
    def given(self) -> np.ndarray:
        """What a method gets beside z."""
        return self.groups

    def fingerprint(self) -> int:
        """Tell two problems apart; the scorer checks that a worker solved the one it thinks."""
        return zlib.crc32(self.z.tobytes() + self.groups.tobytes() + self.weights.tobytes())


def make(case: Case, seed: int, group_seed: int | None = None) -> Problem:
    """Draw a batch in which the gap rows and the box both bind.

    `group_seed` fixes the membership while z changes, for methods that cannot change groups cheaply.
    """
    groups = _membership(case, np.random.default_rng([seed if group_seed is None else group_seed, 1]))
    rng = np.random.default_rng([seed, 2])
    effect = 0.15 / math.sqrt(case.k)
    z = 0.5 + 0.35 * rng.standard_normal(case.n) + effect * (2 * groups - 1).sum(axis=1)
    return Problem(z.astype(np.float32), groups, rng.standard_normal(case.n).astype(np.float32))


def _membership(case: Case, rng: np.random.Generator) -> np.ndarray:
    """Shares from 50 % down to 25 %; redrawn until both sides of every attribute have a member."""
    shares = np.linspace(0.5, 0.25, case.k)
    while True:
        groups = (rng.random((case.n, case.k)) < shares).astype(np.int64)
        sizes = groups.sum(axis=0)
        if sizes.min() > 0 and sizes.max() < case.n:
            return groups


def rows(groups: np.ndarray) -> np.ndarray:
    """The matrix A (k, n) with A @ y the gaps, in float64."""
    ones = groups.sum(axis=0)
    return np.where(groups == 1, 1.0 / ones, -1.0 / (len(groups) - ones)).T


def gap_violation(y: np.ndarray, problem: Problem, case: Case) -> float:
    """By how much the worst gap exceeds the tolerance, its sums rounded only once."""
    worst = 0.0
    for member in problem.groups.T.astype(bool):
        inside, outside = y[member], y[~member]
        gap = math.fsum(inside) / len(inside) - math.fsum(outside) / len(outside)
        worst = max(worst, abs(gap) - case.tolerance)
    return worst


def box_violation(y: np.ndarray, case: Case) -> float:
    """By how much the worst output leaves [0, 1]."""
    return max(0.0, float(-y.min()), float(y.max()) - 1.0) if case.box else 0.0
