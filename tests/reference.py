"""The whole method in plain NumPy, without any of its speed: what to read first, and an oracle for the tests.

    min_y  sum_i w_i d(y_i, z_i)    s.t.    every family of statistics within its limits,  lo_i <= y_i <= hi_i

A group constraint sees a batch only through the sums of its cells, S_c = sum of w_i y_i over the cell c. A statistic is
the mean of a group, a combination of cell sums; a family compares statistics with each other or with limits. Listed one
by one, the rows are C S(y) <= b. With a multiplier mu_j >= 0 for each row, samples separate: all that a sample sees is
the shift s = C' mu of its cell, and its output is the response rho(z, s). So the dual has as many unknowns as rows, its
gradient is C S(y) - b, and its curvature C diag(D) C', D the cell sums of the slopes -d rho / d s: one pass over the
samples and one small quadratic programme for each step of Newton's method.

Nothing of the library is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import permutations
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

Array = np.ndarray


class Discrepancy(NamedTuple):
    """d(y, z) without bounds: response to a shift, slope -d rho / d s, sensitivity d rho / d z, and d itself."""

    response: Callable[[Array, Array], Array]  # of z, s
    slope: Callable[[Array], Array]  # of y
    sensitivity: Callable[[Array, Array], Array]  # of y, z
    value: Callable[[Array, Array], Array]  # of y, z


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    return np.exp(-np.logaddexp(0.0, -x))


def relative_entropy(y: Array, log_z: Array, log_not_z: Array) -> Array:
    """y log(y / z) + (1 - y) log((1 - y) / (1 - z)), 0 log 0 being 0."""
    p, q = np.clip(y, 1e-300, None), np.clip(1.0 - y, 1e-300, None)
    return y * (np.log(p) - log_z) + (1.0 - y) * (np.log(q) - log_not_z)


DISCREPANCIES = {
    "squared": Discrepancy(
        lambda z, s: z - s, lambda y: np.ones_like(y), lambda y, z: np.ones_like(y), lambda y, z: 0.5 * (y - z) ** 2
    ),
    "entropy": Discrepancy(
        lambda z, s: sigmoid(np.log(z) - np.log1p(-z) - s),
        lambda y: y * (1.0 - y),
        lambda y, z: y * (1.0 - y) / (z * (1.0 - z)),
        lambda y, z: relative_entropy(y, np.log(z), np.log1p(-z)),
    ),
    "logits": Discrepancy(
        lambda z, s: sigmoid(z - s),
        lambda y: y * (1.0 - y),
        lambda y, z: y * (1.0 - y),
        lambda y, z: relative_entropy(y, -np.logaddexp(0.0, -z), -np.logaddexp(0.0, z)),
    ),
    "kl": Discrepancy(
        lambda z, s: z * np.exp(np.minimum(-s, 700.0)),
        lambda y: y,
        lambda y, z: y / z,
        lambda y, z: y * np.log(np.clip(y, 1e-300, None) / z) - y + z,
    ),
}


def cells_of(*columns: Array) -> Array:
    """The cell of every sample: one for each combination of labels that occurs."""
    return np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1].reshape(-1)


@dataclass(frozen=True)
class Family:
    """Statistics of one kind, and what is asked of them.

    "difference": no two are more than `limit` apart; "ratio": none is less than `limit` times another; "each": each is
    at most `limit` from 0. member[k, c]: how much the cell c belongs to the group k. residual: statistics are means of
    y - t, t the targets.
    """

    kind: str
    member: Array  # (K, G)
    limit: float
    residual: bool = False


@dataclass
class Batch:
    """Samples and what is asked of them."""

    z: Array  # (n,)
    cell: Array  # (n,) integers
    families: list[Family]
    weights: Array | float = 1.0
    lo: Array | float = -np.inf
    hi: Array | float = np.inf
    targets: Array | float = 0.0
    discrepancy: str = "squared"
    G: int = field(init=False)

    def __post_init__(self) -> None:
        n, self.G = len(self.z), int(self.cell.max()) + 1
        for name in ("weights", "lo", "hi", "targets"):
            setattr(self, name, np.broadcast_to(np.asarray(getattr(self, name), dtype=np.float64), n))

    def sums(self, values: Array) -> Array:
        """Sums over cells, by weight."""
        return np.bincount(self.cell, self.weights * values, self.G)

    def rows(self) -> tuple[Array, Array]:
        """C, b: rows C S(y) <= b."""
        C, b = [np.zeros((0, self.G))], [np.zeros(0)]
        mass, target = self.sums(np.ones(len(self.z))), self.sums(self.targets)
        for family in self.families:
            total = family.member @ mass
            means = (family.member / np.where(total > 0, total, 1.0)[:, None])[total > 0]  # absent groups have no rows
            R, limits = listed(family, len(means))
            C.append(R @ means)
            b.append(limits + (R @ means @ target if family.residual else 0.0))
        return np.concatenate(C), np.concatenate(b)

    def respond(self, s: Array) -> Array:
        """Outputs to the shift of every cell."""
        return np.clip(DISCREPANCIES[self.discrepancy].response(self.z, s[self.cell]), self.lo, self.hi)

    def free(self, y: Array) -> Array:
        """1 where no bound holds a sample, 0 elsewhere."""
        return ((y > self.lo) & (y < self.hi)).astype(np.float64)


def listed(family: Family, K: int) -> tuple[Array, Array]:
    """The rows of a family of K statistics q, R q <= limits."""
    eye = np.eye(K)
    if family.kind == "each":
        return np.concatenate([eye, -eye]), np.full(2 * K, family.limit)
    factor, limit = (family.limit, 0.0) if family.kind == "ratio" else (1.0, family.limit)
    R = np.array([factor * eye[a] - eye[b] for a, b in permutations(range(K), 2)]).reshape(-1, K)
    return R, np.full(len(R), limit)


def multipliers(batch: Batch, C: Array, b: Array, steps: int = 200) -> Array:
    """mu >= 0 that maximises the dual, by a semismooth Newton method with a line search."""
    n, d, w = len(batch.z), DISCREPANCIES[batch.discrepancy], batch.weights
    C, b = C * n, b * n  # means become sums, so that rows and multipliers are of the size of z
    mu, scale, best = np.zeros(len(C)), max(1.0, np.abs(b).max(initial=0.0)), np.inf

    def look(mu: Array) -> tuple[Array, Array, float]:
        y = batch.respond(mu @ C)
        r = C @ batch.sums(y) - b
        return y, r, float(w @ d.value(y, batch.z) + mu @ r)

    def residual(mu: Array, r: Array) -> float:
        return np.abs(np.minimum(mu, -r)).max(initial=0.0)  # 0 at the optimum: mu >= 0, r <= 0, mu r = 0

    y, r, dual = look(mu)
    for step in range(steps):
        missed = residual(mu, r)
        if missed < 1e-15 * n * scale or (step > 20 and missed >= best):
            break
        best = min(best, missed) if step > 10 else np.inf
        H = (C * batch.sums(d.slope(y) * batch.free(y))) @ C.T
        H += np.eye(len(C)) * (1e-12 * np.trace(H) / len(C) + 1e-3 * min(missed, 1.0))  # rows may imply each other
        L = np.linalg.cholesky(H)
        new = nnls(L.T, L.T @ mu + np.linalg.solve(L, r), maxiter=100 * len(C))[0]  # the model's optimum over mu >= 0
        t, rise = 1.0, float(r @ (new - mu))
        while True:  # near the optimum the dual has no digits left to tell, and the residual decides
            trial = mu + t * (new - mu)
            y1, r1, dual1 = look(trial)
            if dual1 >= dual + 1e-4 * t * rise or residual(trial, r1) < 0.5 * missed or t < 1e-9:
                break
            t /= 2.0
        mu, y, r, dual = trial, y1, r1, dual1
    return mu * n


def certify(batch: Batch, y: Array) -> list[Fraction]:
    """By how much each row is missed, in rational arithmetic: at most 0 where it holds."""
    S, T, W = ([Fraction(0)] * batch.G for _ in range(3))
    samples = zip(batch.cell.tolist(), y.tolist(), batch.targets.tolist(), batch.weights.tolist(), strict=True)
    for c, value, target, weight in samples:
        S[c] += Fraction(weight) * Fraction(value)
        T[c] += Fraction(weight) * Fraction(target)
        W[c] += Fraction(weight)
    missed = []
    for family in batch.families:
        q = []
        for member in family.member:
            share = [(Fraction(float(m)), c) for c, m in enumerate(member) if m]
            total = sum(m * W[c] for m, c in share)
            if total:
                q.append(sum(m * (S[c] - (T[c] if family.residual else 0)) for m, c in share) / total)
        R, limits = listed(family, len(q))
        missed += [
            sum((Fraction(x) * v for x, v in zip(row, q, strict=True) if x), Fraction(0)) - Fraction(limit)
            for row, limit in zip(R.tolist(), limits.tolist(), strict=True)
        ]
    return missed


class Answer(NamedTuple):
    """Outputs, multipliers of the rows, the rows C, and whether they all hold exactly."""

    y: Array
    mu: Array
    C: Array
    holds: bool


def project(batch: Batch, dtype: type = np.float64) -> Answer:
    """Write, certify, tighten: limits shrink by what rows are missed by until all hold for outputs of this dtype."""
    C, b = batch.rows()
    inside = np.zeros(len(b))
    for attempt in range(10):
        mu = multipliers(batch, C, b - inside)
        y = batch.respond(mu @ C).astype(dtype)
        missed = np.array([float(m) for m in certify(batch, y)])
        if (missed <= 0.0).all():
            return Answer(y, mu, C, True)
        rounding = np.finfo(dtype).eps * np.abs(y).max()
        inside += np.where(missed > 0.0, 2.0**attempt * (1.1 * missed + 0.1 * rounding), 0.0)
    return Answer(y, mu, C, False)


def pull_back(batch: Batch, answer: Answer, g: Array) -> Array:
    """The gradient with respect to z of a loss with gradient g of y: with A the rows that bind,

    dy = rho_z dz - D A' dmu and A dy = 0, so that g becomes rho_z (g - A' (A D A')^+ A D g).
    """
    d, free = DISCREPANCIES[batch.discrepancy], batch.free(answer.y)
    slope = d.slope(answer.y) * free
    A = answer.C[answer.mu > 1e-9 * answer.mu.max(initial=0.0)]
    v = np.linalg.pinv((A * batch.sums(slope)) @ A.T, rcond=1e-11) @ (A @ np.bincount(batch.cell, slope * g, batch.G))
    return d.sensitivity(answer.y, batch.z) * free * (g - batch.weights * (v @ A)[batch.cell])
