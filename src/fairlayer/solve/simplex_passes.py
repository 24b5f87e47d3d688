"""Passes over points on the simplex: the response of every sample to the shifts of its cell, and sums of responses.

What a sample needs of its cell are factors exp(-s), taken once per cell and class: a pass over the samples has no
exponential in it. The sums D of the slopes are blocks of d x d, one per cell.
"""

from __future__ import annotations

import numpy as np

from fairlayer.binding.exact_sums import UNIT
from fairlayer.compiled import compiled

ENTROPY, SQUARED = 0, 1
_FURTHEST = 600.0  # shifts between classes, beyond which exp(-s) is nothing


@compiled(small=True, borrows=True)
def _nearest(z, shift, y):
    """Fill y, the point of the simplex nearest to z - s; return |y - z|^2 / 2 + s.y, and the size of its support."""
    d = z.size
    above, size, top = 0.0, d, -np.inf
    for j in range(d):
        y[j] = z[j] - shift[j]
        top = max(top, y[j])
    for j in range(d):  # from the largest on, so that far out nothing is lost to rounding
        y[j] -= top
        above += y[j]
    theta = (above - 1.0) / d
    while True:  # leave out what the threshold makes negative, until nothing is
        above, left = 0.0, 0
        for j in range(d):
            inside = y[j] > theta
            above += y[j] if inside else 0.0
            left += inside
        if left >= size or left == 0:
            break
        size, theta = left, (above - 1.0) / left
    value, size = 0.0, 0
    for j in range(d):
        y[j] = max(y[j] - theta, 0.0)
        value += 0.5 * (y[j] - z[j]) ** 2 + shift[j] * y[j]
        size += y[j] > 0.0
    return value, size


@compiled
def factors(shift):
    """(G, d) exp(-s), but for a factor common to the classes of a cell; and (G,) the shift that was left out."""
    factor, base = np.empty_like(shift), np.empty(shift.shape[0])
    for c in range(shift.shape[0]):
        least = np.inf
        for j in range(shift.shape[1]):
            least = min(least, shift[c, j])
        base[c] = least
        for j in range(shift.shape[1]):
            factor[c, j] = np.exp(-min(shift[c, j] - least, _FURTHEST))
    return factor, base


@compiled
def measure(kind, z, cell, weight, share, shift, S, D):
    """Fill the sums S (G, d) of the responses and D (G, d, d) of their slopes; return that of d(y, z) + s.y.

    weight: of each sample, or empty where each has the same `share`.
    """
    (G, d), y = S.shape, np.empty(S.shape[1])
    S[:], D[:] = 0.0, 0.0
    if kind == ENTROPY:
        factor, base = factors(shift)
        value = _sum_entropy(z, cell, weight, share, factor, base, S, D, y)
    else:
        whole = np.zeros(G)
        value = _sum_squared(z, cell, weight, share, shift, S, D, whole, y)
    for c in range(G):
        for j in range(d):
            if kind == ENTROPY:
                D[c, j, j] += S[c, j]
            else:
                D[c, j, j] += whole[c]
                for k in range(j + 1):
                    D[c, j, k] -= whole[c] / d
            for k in range(j):
                D[c, k, j] = D[c, j, k]
    return value


@compiled(reorder=True, inner=True, borrows=True)
def _sum_entropy(z, cell, weight, share, factor, base, S, D, y):
    """Add up responses, and less the products of them; of equal weights, many logarithms are taken as one."""
    d, value, product = z.shape[1], 0.0, 1.0
    for i in range(z.shape[0]):
        c, total = cell[i], 0.0
        of_cell, sums, products = factor[c], S[c], D[c]
        for j in range(d):
            y[j] = z[i, j] * of_cell[j]
            total += y[j]
        w = weight[i] if weight.size > 0 else share
        value += w * base[c]
        if weight.size > 0:
            value -= w * np.log(total)
        else:
            product *= total
            if product < 1e-150 or product > 1e150:
                value -= w * np.log(product)
                product = 1.0
        per = 1.0 / total
        for j in range(d):
            y[j] *= per
            a = w * y[j]
            sums[j] += a
            for k in range(j + 1):
                products[j, k] -= a * y[k]
    return value - share * np.log(product)


@compiled(inner=True, borrows=True)
def _sum_squared(z, cell, weight, share, shift, S, D, whole, y):
    """Add up responses, and their slopes; of samples with all classes in their support, weights alone."""
    d, value = z.shape[1], 0.0
    for i in range(z.shape[0]):
        c = cell[i]
        w = weight[i] if weight.size > 0 else share
        least, size = _nearest(z[i], shift[c], y)
        value += w * least
        for j in range(d):
            S[c, j] += w * y[j]
        if size == d:
            whole[c] += w
            continue
        for j in range(d):
            if y[j] > 0.0:
                D[c, j, j] += w
                for k in range(j + 1):
                    D[c, j, k] -= w / size if y[k] > 0.0 else 0.0
    return value


@compiled
def write(kind, z, cell, shift, out):
    """Fill `out` (n, d) with the responses."""
    factor, _ = factors(shift)
    _write(kind, z, cell, shift, factor, out)


@compiled(inner=True, borrows=True)
def _write(kind, z, cell, shift, factor, out):
    for i in range(z.shape[0]):
        c, total = cell[i], 0.0
        if kind != ENTROPY:
            _nearest(z[i], shift[c], out[i])
            continue
        for j in range(z.shape[1]):
            out[i, j] = z[i, j] * factor[c, j]
            total += out[i, j]
        for j in range(z.shape[1]):
            out[i, j] /= total


@compiled(inner=True, borrows=True)
def slopes_times(kind, y, cell, weight, share, gradient, less, out, total):
    """Fill `out` (n, d), the slopes of responses y times (gradient - weight * less of the cell), and its sums."""
    total[:] = 0.0
    for i in range(y.shape[0]):
        c, mean, size = cell[i], 0.0, 0
        w = weight[i] if weight.size > 0 else share
        for j in range(y.shape[1]):
            out[i, j] = gradient[i, j] - w * less[c, j]
            if kind == ENTROPY:
                mean += y[i, j] * out[i, j]
            elif y[i, j] > 0.0:
                mean += out[i, j]
                size += 1
        if kind != ENTROPY:
            mean /= size
        for j in range(y.shape[1]):
            slope = y[i, j] if kind == ENTROPY else 1.0 if y[i, j] > 0.0 else 0.0
            out[i, j] = slope * (out[i, j] - mean)
            total[c, j] += out[i, j]


@compiled(small=True)
def spread(start, statistic, entry, nu, shift):
    """Fill the shifts (G, d) of the cells, given the multipliers (K, d)."""
    shift[:] = 0.0
    for c in range(shift.shape[0]):
        for e in range(start[c], start[c + 1]):
            for j in range(shift.shape[1]):
                shift[c, j] += entry[e] * nu[statistic[e], j]


@compiled(inner=True)
def gather(start, statistic, entry, S, K):
    """(K, d) the statistics of sums (G, d)."""
    q = np.zeros((K, S.shape[1]))
    for c in range(S.shape[0]):
        for e in range(start[c], start[c + 1]):
            for j in range(S.shape[1]):
                q[statistic[e], j] += entry[e] * S[c, j]
    return q


@compiled
def first_fault(z, positive, off):
    """Where a row of z is not on the simplex: the entry that is negative or not finite, or else (row, 0); (-1, -1).

    positive: whether 0 is a fault too; off: that a row may add up to more or less than 1.
    """
    for i in range(z.shape[0]):
        total = 0.0
        for j in range(z.shape[1]):
            if not 0.0 <= z[i, j] < np.inf or (positive and z[i, j] == 0.0):
                return i, j
            total += z[i, j]
        if abs(total - 1.0) > off:
            return i, 0
    return -1, -1


@compiled
def near_sums(y, cell, S, error):
    """Sums (G d,) of outputs (n, d) by cell and column in twice the precision, and a bound on the error of each."""
    n, d = y.shape
    low, absolute = np.zeros(S.size), np.zeros(S.size)
    S[:] = 0.0
    for i in range(n):
        first = cell[i] * d
        for j in range(d):
            at, value = first + j, y[i, j]
            total = S[at] + value
            back = total - S[at]
            low[at] += (S[at] - (total - back)) + (value - back)
            absolute[at] += abs(value)
            S[at] = total
    for at in range(S.size):
        S[at] += low[at]
        error[at] = 2.0 * UNIT * abs(S[at]) + 4.0 * (n * UNIT) ** 2 * absolute[at]
