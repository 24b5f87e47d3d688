"""An interior-point method: the last resort for batches on which the search over cell sums does not end.

With nearly every sample at a bound the dual is all kinks, and a search along lines may creep from one to the next. An
interior point keeps away from all of them until the end. Each step solves one system in as many unknowns as there are
rows and families; what it finds is where the search then begins, close enough to end in a few steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box
from fairlayer.binding.rows import EACH, RATIO, Rows, dense
from fairlayer.binding.system import System

_MOST_STEPS = 80
_MOST_IDLE = 8  # steps without progress
_MOST_ENTRIES = 2_000_000  # samples times statistics
_SMALL, _ENOUGH = 1e-14, 1e-6  # residuals at which to stop, and above which nothing was found


def interior_multipliers(z: np.ndarray, system: System, rows: Rows, box: Box) -> np.ndarray | None:
    """Multipliers of the statistics; None where there are too many samples, or no end is found.

    min 1/2 sum_i w_i (y_i - z_i)^2  subject to  A y + E c <= b  and  lo <= y <= hi,  c the middles of the families.
    """
    n = len(z)
    if n * len(rows.offset) > _MOST_ENTRIES:
        return None
    weight = system.weights if len(system.weights) else np.ones(n)
    lo, hi = (np.broadcast_to(side.astype(np.float64), n) for side in (box.lo, box.hi))
    free = (weight > 0) & (lo < hi)  # the others do not move, and are part of the offsets
    held = dense(rows)[as_numpy(system.cell)] * weight[:, None]
    constant = np.clip(z, lo, hi)[~free] @ held[~free]
    R, E, b = _inequalities(rows, rows.offset - constant)
    A = R @ held[free].T
    outputs = np.abs(np.clip(z, lo, hi))[free]
    size = np.maximum(np.abs(A) @ outputs, np.abs(b))
    size = np.where(size > 0, size, 1.0)
    if not free.any() or not len(b):
        return None
    # The method knows no other scale than 1: outputs in units of the largest that rows or bounds make of them.
    entries = np.abs(A).sum(axis=1)
    needed = np.abs(b)[entries > 0] / entries[entries > 0]
    unit = max(float(outputs.max()), float(needed.max(initial=0.0))) or 1.0
    heaviest = float(weight[free].max())
    with np.errstate(all="ignore"):
        v = _interior(
            z[free] / unit,
            weight[free] / heaviest,
            A * (unit / size)[:, None],
            E / size[:, None],
            b / size,
            lo[free] / unit,
            hi[free] / unit,
        )
    return None if v is None else R.T @ (v / size) * (heaviest * unit**2)


def _inequalities(rows: Rows, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows as R M'y + E c <= b, both sides of every statistic."""
    K, F = len(offset), len(rows.kind)
    family = np.repeat(np.arange(F), np.diff(rows.first))
    each, up = rows.kind[family] == EACH, np.where(rows.kind[family] == RATIO, rows.ratio[family], 1.0)
    half = np.where(rows.kind == RATIO, 1.0, 0.5)  # of differences c is the middle, of ratios the least
    upper = np.where(each, rows.upper[family], (half * rows.upper)[family])
    lower = np.where(each, rows.lower[family], ((half - 1.0) * rows.upper)[family])
    middles = np.where(each, 0.0, 1.0)[:, None] * (family[:, None] == np.arange(F))
    R = np.concatenate([up[:, None] * np.eye(K), -np.eye(K)])
    E = np.concatenate([-middles, middles])
    b = np.concatenate([upper + up * offset, -lower - offset])
    kept = np.concatenate([rows.present, rows.present]) & np.isfinite(b)
    return R[kept], E[kept][:, np.abs(E[kept]).any(axis=0)], b[kept]


class _Point(NamedTuple):
    """Outputs and middles; slacks and multipliers of rows, lower and upper bounds (1 and 0 where there is none)."""

    y: np.ndarray
    c: np.ndarray
    s: np.ndarray
    v: np.ndarray
    s_low: np.ndarray
    v_low: np.ndarray
    s_high: np.ndarray
    v_high: np.ndarray

    def moved(self, step: _Point, alpha: float) -> _Point:
        """A share of a step further."""
        return _Point(*(here + alpha * there for here, there in zip(self, step, strict=True)))

    def gap(self) -> float:
        """What is left of slacks times multipliers."""
        return float(self.s @ self.v + self.s_low @ self.v_low + self.s_high @ self.v_high)

    def longest(self, step: _Point) -> float:
        """How far a step can go before a slack or multiplier would be negative."""
        alpha = 1.0
        for here, there in zip(self[2:], step[2:], strict=True):
            falls = there < 0.0
            alpha = min(alpha, float((-here[falls] / there[falls]).min(initial=1.0)))
        return alpha


def _start(z: np.ndarray, A: np.ndarray, E: np.ndarray, b: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> _Point:
    """A point well inside."""
    low, high = np.isfinite(lo), np.isfinite(hi)
    inner = np.where(low & high, 0.1 * (hi - lo), 0.1)
    y = np.clip(z, np.where(low, lo + inner, -np.inf), np.where(high, hi - inner, np.inf))
    c = np.linalg.lstsq(E, b - A @ y, rcond=None)[0] if E.shape[1] else np.zeros(0)
    scale = max(1.0, float(np.abs(z - y).max(initial=0.0)))
    s = np.maximum(b - A @ y - E @ c, 1e-2)
    return _Point(
        y,
        c,
        s,
        np.full(len(b), scale),
        np.where(low, y - lo, 1.0),
        np.where(low, scale, 0.0),
        np.where(high, hi - y, 1.0),
        np.where(high, scale, 0.0),
    )


class _Model(NamedTuple):
    """The equations of a point, linearised there."""

    A: np.ndarray
    E: np.ndarray
    low: np.ndarray  # which outputs have a lower bound
    high: np.ndarray
    at: _Point
    dual: np.ndarray
    dual_c: np.ndarray
    primal: np.ndarray
    primal_low: np.ndarray
    primal_high: np.ndarray
    H: np.ndarray  # (n,)
    matrix: np.ndarray  # in multipliers of rows, and middles

    def step(self, aim: np.ndarray, aim_low: np.ndarray, aim_high: np.ndarray) -> _Point:
        """Towards products of slacks and multipliers that are what is aimed at."""
        A, E, low, high, at, m = self.A, self.E, self.low, self.high, self.at, len(self.primal)
        right = -self.dual
        right += np.where(low, (aim_low - at.s_low * at.v_low + at.v_low * self.primal_low) / at.s_low, 0.0)
        right -= np.where(high, (aim_high - at.s_high * at.v_high + at.v_high * self.primal_high) / at.s_high, 0.0)
        own = (aim - at.s * at.v + at.v * self.primal) / at.v
        rhs = np.concatenate([own + (A / self.H) @ right, -self.dual_c])
        try:
            both = np.linalg.solve(self.matrix, rhs)
        except np.linalg.LinAlgError:
            both = np.linalg.lstsq(self.matrix, rhs, rcond=None)[0]
        v, c = both[:m], both[m:]
        y = (right - v @ A) / self.H
        s_low, s_high = np.where(low, y - self.primal_low, 0.0), np.where(high, -y - self.primal_high, 0.0)
        v_low = np.where(low, (aim_low - at.s_low * at.v_low - at.v_low * s_low) / at.s_low, 0.0)
        v_high = np.where(high, (aim_high - at.s_high * at.v_high - at.v_high * s_high) / at.s_high, 0.0)
        return _Point(y, c, -self.primal - A @ y - E @ c, v, s_low, v_low, s_high, v_high)


def _interior(
    z: np.ndarray, w: np.ndarray, A: np.ndarray, E: np.ndarray, b: np.ndarray, lo: np.ndarray, hi: np.ndarray
) -> np.ndarray | None:
    """Mehrotra's predictor and corrector; the multipliers of the rows."""
    (m, n), middles = A.shape, E.shape[1]
    low, high = np.isfinite(lo), np.isfinite(hi)
    at = _start(z, A, E, b, lo, hi)
    pairs = max(m + int(low.sum()) + int(high.sum()), 1)
    best, found, idle = np.inf, at.v, 0
    for _ in range(_MOST_STEPS):
        dual, dual_c = w * (at.y - z) + at.v @ A - at.v_low + at.v_high, at.v @ E
        primal = A @ at.y + E @ at.c + at.s - b
        primal_low = np.where(low, lo + at.s_low - at.y, 0.0)
        primal_high = np.where(high, at.y + at.s_high - hi, 0.0)
        gap = at.gap() / pairs
        size = 1.0 + float(np.abs(w * (at.y - z)).max(initial=0.0))
        errors = (dual / size, dual_c / size, primal, primal_low, primal_high, np.array([gap / size]))
        residual = max(float(np.abs(part).max(initial=0.0)) for part in errors)
        idle = 0 if residual < 0.9 * best else idle + 1
        if residual < best:
            best, found = residual, at.v
        if not np.isfinite(residual) or best < _SMALL or idle > _MOST_IDLE:
            break
        H = w + np.where(low, at.v_low / at.s_low, 0.0) + np.where(high, at.v_high / at.s_high, 0.0)
        matrix = np.zeros((m + middles, m + middles))
        matrix[:m, :m] = (A / H) @ A.T + np.diag(at.s / at.v)
        matrix[:m, m:], matrix[m:, :m] = -E, E.T
        model = _Model(A, E, low, high, at, dual, dual_c, primal, primal_low, primal_high, H, matrix)
        ahead = model.step(np.zeros(m), np.zeros(n), np.zeros(n))
        reached = at.moved(ahead, at.longest(ahead)).gap() / pairs
        aim = min((reached / gap) ** 3, 1.0) * gap if gap > 0 else 0.0
        ahead = model.step(aim - ahead.s * ahead.v, aim - ahead.s_low * ahead.v_low, aim - ahead.s_high * ahead.v_high)
        at = at.moved(ahead, min(1.0, 0.995 * at.longest(ahead)))
    return found if best < _ENOUGH else None
