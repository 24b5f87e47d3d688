"""Arithmetic in twice the precision of float64: every number is the sum of two, the second what the first leaves over.

For batches whose numbers lie further apart than float64 has digits: an output of 1e12 beside a tolerance of 1e-8,
weights over twelve decades. Error-free sums and products are those of Dekker (Numer. Math. 18, 1971) and Knuth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fairlayer.compiled import compiled

_SPLIT = 134217729.0  # 2^27 + 1
_DENSE = 3  # times as many numbers in a line as there are zeros and others: it is worked out as a whole
_DEPENDENT = 1e-26  # of a pivot's own entry: what is left of a row that depends on those before


@compiled(inline=True)
def add(a, b, c, d):
    """(a + b) + (c + d)."""
    s = a + c
    back = s - a
    e = (a - (s - back)) + (c - back)
    t = b + d
    back = t - b
    f = (b - (t - back)) + (d - back)
    e += t
    high = s + e
    e = (e - (high - s)) + f
    total = high + e
    return total, e - (total - high)


@compiled(inline=True)
def times(a, b, c, d):
    """(a + b) (c + d)."""
    p = a * c
    t = _SPLIT * a
    a_high = t - (t - a)
    a_low = a - a_high
    t = _SPLIT * c
    c_high = t - (t - c)
    c_low = c - c_high
    e = ((a_high * c_high - p) + a_high * c_low + a_low * c_high) + a_low * c_low
    e += a * d + b * c
    high = p + e
    return high, e - (high - p)


@compiled(inner=True)
def _over(a, b, c, d):
    """(a + b) / (c + d)."""
    first = a / c
    p, e = times(first, 0.0, c, d)
    r, f = add(a, b, -p, -e)
    second = r / c
    p, e = times(second, 0.0, c, d)
    r, f = add(r, f, -p, -e)
    high, low = add(first, 0.0, second, 0.0)
    return add(high, low, r / c, 0.0)


@compiled
def _sum_by(high, low, place, out_high, out_low):
    """Add numbers up, each at its place."""
    for i in range(place.size):
        k = place[i]
        out_high[k], out_low[k] = add(out_high[k], out_low[k], high[i], low[i])


@compiled
def _gram(start, statistic, high, low, slope_high, slope_low, H, h):
    """H + h = M' diag(slopes) M, the lower half; M cell by cell, without its zeros."""
    for c in range(start.size - 1):
        for a in range(start[c], start[c + 1]):
            x, y = times(high[a], low[a], slope_high[c], slope_low[c])
            for b in range(start[c], start[c + 1]):
                i, j = statistic[a], statistic[b]
                if j <= i:
                    p, e = times(x, y, high[b], low[b])
                    H[i, j], h[i, j] = add(H[i, j], h[i, j], p, e)


@compiled(inner=True)
def _take_away(row, low, a, b, column, rest):
    """row + low -= (a + b) (column + rest), many numbers at a time."""
    for j in range(row.size):
        p, e = times(a, b, column[j], rest[j])
        row[j], low[j] = add(row[j], low[j], -p, -e)


@compiled
def _factor(H, h):
    """Cholesky factor in place, passing over zeros. A row that depends on others is given no weight."""
    n = H.shape[0]
    below, own = np.empty(n, dtype=np.int64), np.empty(n)
    column, rest = np.empty(n), np.empty(n)
    for k in range(n):
        own[k] = H[k, k]
    for k in range(n):
        if not H[k, k] > _DEPENDENT * own[k]:
            H[k, k], h[k, k] = np.inf, 0.0
            for i in range(k + 1, n):
                H[i, k], h[i, k] = 0.0, 0.0
            continue
        # One Newton step makes twice the digits of a root.
        root = np.sqrt(H[k, k])
        p, e = times(root, 0.0, root, 0.0)
        p, e = add(H[k, k], h[k, k], -p, -e)
        H[k, k], h[k, k] = add(root, 0.0, p / (2.0 * root), 0.0)
        size = 0
        for i in range(k + 1, n):
            if H[i, k] != 0.0:
                H[i, k], h[i, k] = _over(H[i, k], h[i, k], H[k, k], h[k, k])
                below[size] = i
                size += 1
        if _DENSE * size > n - k:  # whole lines
            for i in range(k + 1, n):
                column[i], rest[i] = H[i, k], h[i, k]
            for x in range(size):
                i = below[x]
                line, low = H[i, k + 1 : i + 1], h[i, k + 1 : i + 1]
                _take_away(line, low, column[i], rest[i], column[k + 1 : i + 1], rest[k + 1 : i + 1])
            continue
        for x in range(size):
            i = below[x]
            for y in range(x + 1):
                j = below[y]
                p, e = times(H[i, k], h[i, k], H[j, k], h[j, k])
                H[i, j], h[i, j] = add(H[i, j], h[i, j], -p, -e)


@compiled
def _solve(L, low, x, y):
    """x + y <- (L L')^-1 (x + y)."""
    n = x.size
    for k in range(n):
        if L[k, k] == np.inf:
            x[k], y[k] = 0.0, 0.0
            continue
        x[k], y[k] = _over(x[k], y[k], L[k, k], low[k, k])
        for i in range(k + 1, n):
            if L[i, k] != 0.0:
                p, e = times(L[i, k], low[i, k], x[k], y[k])
                x[i], y[i] = add(x[i], y[i], -p, -e)
    for k in range(n - 1, -1, -1):
        if L[k, k] == np.inf:
            continue
        for i in range(k + 1, n):
            if L[i, k] != 0.0:
                p, e = times(L[i, k], low[i, k], x[i], y[i])
                x[k], y[k] = add(x[k], y[k], -p, -e)
        x[k], y[k] = _over(x[k], y[k], L[k, k], low[k, k])


@compiled
def _sums(a, b, c, d, high, low):
    for i in range(high.size):
        high[i], low[i] = add(a[i], b[i], c[i], d[i])


@compiled
def _products(a, b, c, d, high, low):
    for i in range(high.size):
        high[i], low[i] = times(a[i], b[i], c[i], d[i])


@compiled
def _quotients(a, b, c, d, high, low):
    for i in range(high.size):
        high[i], low[i] = _over(a[i], b[i], c[i], d[i])


class Twofold:
    """A vector of numbers with some 31 digits."""

    __array_ufunc__ = None  # so that numpy's numbers leave arithmetic to this class
    __slots__ = ("high", "low")

    def __init__(self, high: Any, low: Any = None):
        self.high = high
        self.low = np.zeros(high.shape) if low is None else low

    def _with(self, other: Any, operation: Callable[..., None]) -> Twofold:
        """What an operation makes of these and as many other numbers, or one."""
        size = len(self.high)
        if not isinstance(other, Twofold):
            other = Twofold(np.full(size, other) if np.ndim(other) == 0 else np.require(other, np.float64, ["C", "W"]))
        found = Twofold(np.empty(size), np.empty(size))
        operation(self.high, self.low, other.high, other.low, found.high, found.low)
        return found

    def __add__(self, other: Any) -> Twofold:
        return self._with(other, _sums)

    def __sub__(self, other: Any) -> Twofold:
        return self + -other

    def __neg__(self) -> Twofold:
        return Twofold(-self.high, -self.low)

    def __mul__(self, other: Any) -> Twofold:
        return self._with(other, _products)

    def __truediv__(self, other: Any) -> Twofold:
        return self._with(other, _quotients)

    def __getitem__(self, index: Any) -> Twofold:
        return Twofold(self.high[index], self.low[index])

    def __len__(self) -> int:
        return len(self.high)

    def where(self, condition: np.ndarray, other: Any = 0.0) -> Twofold:
        """These numbers where a condition holds, others elsewhere."""
        high, low = (other.high, other.low) if isinstance(other, Twofold) else (other, 0.0)
        return Twofold(np.where(condition, self.high, high), np.where(condition, self.low, low))

    def sums(self, place: np.ndarray, size: int) -> Twofold:
        """(size,) the sum of the numbers at each place."""
        high, low = np.zeros(size), np.zeros(size)
        _sum_by(self.high, self.low, place, high, low)
        return Twofold(high, low)


def gram(start: np.ndarray, statistic: np.ndarray, value: Twofold, slopes: Twofold, size: int) -> Twofold:
    """(size, size) M' diag(slopes) M, the lower half. M: cell by cell, without its zeros."""
    H = Twofold(np.zeros((size, size)))
    _gram(start, statistic, value.high, value.low, slopes.high, slopes.low, H.high, H.low)
    return H


class Factor:
    """The Cholesky factor of a matrix, of which the lower half is looked at, and replaced."""

    def __init__(self, matrix: Twofold, diagonal: Callable[[Twofold], Twofold]):
        """diagonal: what is to stand on the diagonal, given what does."""
        self.matrix, own = matrix, np.arange(len(matrix))
        new = diagonal(matrix[own, own])
        matrix.high[own, own], matrix.low[own, own] = new.high, new.low
        _factor(matrix.high, matrix.low)

    def solve(self, right: Twofold) -> Twofold:
        """The solution for a right side."""
        x = Twofold(right.high.copy(), right.low.copy())
        _solve(self.matrix.high, self.matrix.low, x.high, x.low)
        return x
