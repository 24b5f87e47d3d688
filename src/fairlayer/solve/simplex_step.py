"""One Newton step of the projection on the simplex: a small quadratic programme in the multipliers of the rows.

    min x'Hx / 2 - b'x + sum half |x|    with sums of 0 in every family and class.

By an interior-point method the first time, and then by the rows found active, while these remain the right ones. Rows
of different classes depend on each other (the classes of a sample add up to 1), so that guessing active rows one by one
would often ask for what contradicts itself.
"""

from __future__ import annotations

import numpy as np

from fairlayer.compiled import compiled

_MOST_INNER, _MOST_CORRECTIONS = 60, 8
EQUAL = 1e-15  # half a tolerance, below which means are to be equal
_RIDGE = 1e-11  # of the largest entry of the Gram matrix: keeps directions that change nothing from being infinite


@compiled(inner=True)
def gram(start, statistic, entry, D, H):
    """Fill H = C D C', one row and column for each statistic and class."""
    d = D.shape[1]
    H[:] = 0.0
    for c in range(D.shape[0]):
        for e in range(start[c], start[c + 1]):
            for f in range(start[c], start[c + 1]):
                both = entry[e] * entry[f]
                for j in range(d):
                    for k in range(d):
                        H[statistic[e] * d + j, statistic[f] * d + k] += both * D[c, j, k]


@compiled(inner=True)
def solve_active(H, b, half, family, side, x, middle):
    """Fill x so that b - H x is at the middle of its family and class plus side * half, wherever a side is not 0.

    x becomes 0 elsewhere, and adds up to 0 in every family and class. Where that leaves it free, it stays near what it
    was. middle: (m,) of the family and class of each, nan where none is active.
    """
    m, K = b.size, family.size
    d = m // K
    place = np.full(m, -1)  # of each active one among the unknowns, and behind them of its family and class
    of_middle = np.full((K, d), -1)
    active, ridge = 0, 1e-300
    for v in range(m):
        ridge = max(ridge, _RIDGE * H[v, v])
        if side[v] != 0:
            place[v] = active
            active += 1
        else:
            x[v] = 0.0
    size = active
    for v in range(m):
        middle[v] = np.nan
        if side[v] != 0 and of_middle[family[v // d], v % d] < 0:
            of_middle[family[v // d], v % d] = size
            size += 1
    if active == 0:
        return
    A, r = np.zeros((size, size)), np.zeros(size)
    for v in range(m):
        if place[v] >= 0:
            row = place[v]
            r[row] = b[v] - side[v] * half[v]
            for u in range(m):
                if place[u] >= 0:
                    A[row, place[u]] = H[v, u]
                    r[row] -= H[v, u] * x[u]
            A[row, row] += ridge
            at = of_middle[family[v // d], v % d]
            A[row, at] = A[at, row] = 1.0
            r[at] -= x[v]
    move = np.linalg.solve(A, r)
    for v in range(m):
        if place[v] >= 0:
            x[v] += move[place[v]]
        at = of_middle[family[v // d], v % d]
        if at >= 0:
            middle[v] = move[at]


@compiled(inner=True)
def _extremes(q, half, family):
    """Of every family and class, where the lowest of the upper ends q + half is, and the highest of the lower ends."""
    m, K = q.size, family.size
    d = m // K
    low, high = np.full((K, d), -1), np.full((K, d), -1)
    for v in range(m):
        f, j = family[v // d], v % d
        if low[f, j] < 0 or q[v] + half[v] < q[low[f, j]] + half[low[f, j]]:
            low[f, j] = v
        if high[f, j] < 0 or q[v] - half[v] > q[high[f, j]] - half[high[f, j]]:
            high[f, j] = v
    return low, high


@compiled(inner=True)
def guess(q, half, family, side):
    """Fill side, which rows may be active, from the statistics q.

    Gaps of all classes add up to 0, so of those that are too wide not all can be at their bounds: where more of them
    widen in one direction than in the other, it is taken to be those in the other.
    """
    m, K = q.size, family.size
    d, F = m // K, family[K - 1] + 1
    low, high = _extremes(q, half, family)
    for v in range(m):
        side[v] = 1 if half[v] <= EQUAL else 0
    for f in range(F):
        up, down = 0, 0
        for j in range(d):
            top, bottom = high[f, j], low[f, j]
            if q[top] - half[top] > q[bottom] + half[bottom]:
                up += top > bottom
                down += top < bottom
        for j in range(d):
            top, bottom = high[f, j], low[f, j]
            if q[top] - half[top] > q[bottom] + half[bottom] and (up == down or (top > bottom) == (up < down)):
                side[top], side[bottom] = 1, -1


@compiled(inner=True)
def settle(H, b, half, family, side, x):
    """Fill x by the active rows, and correct these; whether it then minimises the model."""
    m, K = b.size, family.size
    d = m // K
    middle, u, given = np.empty(m), np.empty(m), x.copy()
    for _ in range(_MOST_CORRECTIONS):
        x[:] = given
        solve_active(H, b, half, family, side, x, middle)
        largest, changed = 0.0, False
        for v in range(m):
            largest = max(largest, abs(x[v]))
        if not largest < np.inf:
            return False
        for v in range(m):
            u[v] = b[v]
            for k in range(m):
                u[v] -= H[v, k] * x[k]
        low, high = _extremes(u, half, family)
        for v in range(m):
            slack = 1e-13 + 1e-9 * half[v]
            f, j = family[v // d], v % d
            if half[v] <= EQUAL:
                continue
            if side[v] != 0:
                if x[v] * side[v] < -1e-12 * largest:
                    side[v], changed = 0, True
            elif not np.isnan(middle[v]):
                if abs(u[v] - middle[v]) > half[v] + slack:
                    side[v], changed = (1 if u[v] > middle[v] else -1), True
            elif v == high[f, j] or v == low[f, j]:
                top, bottom = high[f, j], low[f, j]
                if u[top] - half[top] - (u[bottom] + half[bottom]) > 2.0 * slack:
                    side[v], changed = (1 if v == top else -1), True
        if not changed:
            return True
    return False


@compiled(inner=True)
def interior(H, b, half, family, x, side):
    """Fill x, which minimises x'Hx / 2 - b'x + sum half |x| with sums of 0, nearly, and the sides of its rows.

    With u = b - H x and a middle for every family and class, -half <= u - middle <= half: slacks `up` and `down`, whose
    multipliers differ by x. A primal-dual interior-point method.
    """
    m, K = b.size, family.size
    d, F = m // K, family[K - 1] + 1
    size = m + F * d
    middle, count = np.zeros(F * d), np.zeros(F * d)
    for v in range(m):
        middle[family[v // d] * d + v % d] += b[v]
        count[family[v // d] * d + v % d] += 1.0
    middle /= count
    furthest, stiff, ridge = 1e-12, 1e-300, 1e-300
    for v in range(m):
        ridge = max(ridge, _RIDGE * H[v, v])
        furthest = max(furthest, abs(b[v] - middle[family[v // d] * d + v % d]) + half[v])
        stiff += H[v, v] / m
    # Slacks that are right for means in the middle, and multipliers large enough for the first step to take them there.
    scale = 2.0 * furthest / stiff
    now, change = np.empty((4, m)), np.empty((4, m))
    now[:2], now[2:] = half, scale
    up, down, more, less = now[0], now[1], now[2], now[3]
    aim, first = 0.1, half.max() * scale
    A, r = np.empty((size, size)), np.empty(size)
    beyond, below, u = np.empty(m), np.empty(m), np.empty(m)
    x[:] = 0.0
    for _ in range(_MOST_INNER):
        slack, missed, inequalities = 0.0, 0.0, 0
        for v in range(m):
            at = family[v // d] * d + v % d
            u[v] = b[v] - middle[at]
            for k in range(m):
                u[v] -= H[v, k] * x[k]
            if half[v] > EQUAL:
                beyond[v], below[v] = half[v] - up[v] - u[v], half[v] - down[v] + u[v]
                slack += up[v] * more[v] + down[v] * less[v]
                missed = max(missed, abs(beyond[v]), abs(below[v]))
                inequalities += 2
            else:
                missed = max(missed, abs(u[v]))
        if missed <= 1e-9 * furthest and slack <= 1e-7 * first * max(inequalities, 1):
            break
        target = aim * slack / max(inequalities, 1)
        A[:], r[:] = 0.0, 0.0
        for v in range(m):
            at = m + family[v // d] * d + v % d
            for k in range(m):
                A[v, k] = H[v, k]
            A[v, v] += ridge
            A[v, at] = A[at, v] = 1.0
            r[at] -= x[v]
            if half[v] > EQUAL:
                plus, minus = more[v] / up[v], less[v] / down[v]
                A[v, v] += 1.0 / (plus + minus)
                a = (target - up[v] * more[v]) / up[v] - plus * beyond[v]
                a -= (target - down[v] * less[v]) / down[v] - minus * below[v]
                r[v] = a / (plus + minus)
            else:
                r[v] = u[v]
        move = np.linalg.solve(A, r)
        step = 1.0
        for v in range(m):
            if half[v] > EQUAL:
                falls = move[m + family[v // d] * d + v % d]
                for k in range(m):
                    falls += H[v, k] * move[k]
                change[0, v], change[1, v] = beyond[v] + falls, below[v] - falls
                for k in range(2):
                    change[2 + k, v] = (target - now[2 + k, v] * (now[k, v] + change[k, v])) / now[k, v]
                for k in range(4):
                    if change[k, v] < 0.0:
                        step = min(step, -0.995 * now[k, v] / change[k, v])
        if not step > 1e-12:
            break
        for v in range(m):
            if half[v] > EQUAL:
                for k in range(4):
                    now[k, v] = max(now[k, v] + step * change[k, v], 1e-300)
                x[v] = more[v] - less[v]
            else:
                x[v] += step * move[v]
        for at in range(F * d):
            middle[at] += step * move[m + at]
        aim = 0.02 if step > 0.9 else 0.1 if step > 0.5 else 0.4
    for v in range(m):
        side[v] = 0
        if half[v] <= EQUAL or (more[v] * half[v] > up[v] * scale and more[v] > less[v]):
            side[v] = 1
        elif less[v] * half[v] > down[v] * scale and less[v] > more[v]:
            side[v] = -1


@compiled(small=True)
def center(family, d, x):
    """Make x add up to 0 in every family and class, which rounding leaves in doubt."""
    K = family.size
    k = 0
    while k < K:
        end = k
        while end < K and family[end] == family[k]:
            end += 1
        for j in range(d):
            total, moved = 0.0, 0
            for a in range(k, end):
                total += x[a * d + j]
                moved += x[a * d + j] != 0.0
            for a in range(k, end):
                if x[a * d + j] != 0.0:
                    x[a * d + j] -= total / moved
        k = end
