"""Batches of independent affine problems, which other layers for optimisation problems are made for.

    min ||y - z||^2   s.t.   |A y| <= tolerance in every row of A,   -1 <= y <= 1,     for each problem of the batch.

Needs only NumPy, as `problems` does, and a batch is a function of its seed.
"""

import math
import zlib
from dataclasses import dataclass

import numpy as np

TOLERANCE = 0.1
BOX = (-1.0, 1.0)


@dataclass(frozen=True)
class AffineCase:
    """What does not change between repeats."""

    problems: int
    n: int = 20  # outputs of each problem
    k: int = 5  # rows of each
    tolerance: float = TOLERANCE

    def make(self, seed: int, fixed_seed: int | None = None) -> "AffineProblems":
        """Draw a batch in which most rows and part of the box bind; `fixed_seed` fixes the rows while z changes."""
        rows = np.random.default_rng([seed if fixed_seed is None else fixed_seed, 1])
        rng = np.random.default_rng([seed, 2])
        shape = (self.problems, self.n)
        A = rows.standard_normal((self.problems, self.k, self.n)) / math.sqrt(self.n)
        z, weights = 0.8 * rng.standard_normal(shape), rng.standard_normal(shape)
        return AffineProblems(*(array.astype(np.float32) for array in (z, A, weights)))


@dataclass(frozen=True)
class AffineProblems:
    """One batch, in float32, so that peers of either precision receive exactly the same numbers."""

    z: np.ndarray  # (problems, n)
    A: np.ndarray  # (problems, k, n)
    weights: np.ndarray  # (problems, n), the loss is the sum of weights * y

    @property
    def given(self) -> np.ndarray:
        """What a method gets beside z."""
        return self.A

    def fingerprint(self) -> int:
        """Tell two batches apart."""
        return zlib.crc32(self.z.tobytes() + self.A.tobytes() + self.weights.tobytes())


def row_violation(y: np.ndarray, batch: AffineProblems, case: AffineCase) -> float:
    """By how much the worst row exceeds the tolerance, its sums rounded only once."""
    products = batch.A.astype(np.float64) * y[:, None, :]  # exact: products of two numbers of float32, or nearly
    worst = max(abs(math.fsum(row)) for problem in products for row in problem)
    return max(0.0, worst - case.tolerance)


def box_violation(y: np.ndarray) -> float:
    """By how much the worst output leaves the box."""
    return max(0.0, BOX[0] - float(y.min()), float(y.max()) - BOX[1])
