"""The same small programme for many groups, by guessing the side of every statistic.

Of a family of differences let c be the middle of its range: every statistic is held at c + tolerance / 2, at
c - tolerance / 2, or lies between. Given which, multipliers and middles solve one linear system, whose matrix is as
sparse as the groups are disjoint; and the solution says which sides were guessed wrong. For one attribute a few guesses
suffice, whatever the number of groups. Where the guesses go round in circles, `active_set` takes over.
"""

from __future__ import annotations

import numpy as np

from fairlayer.binding.rows import COEFFICIENT, DIFFERENCE, EACH, KIND, UPPER
from fairlayer.compiled import compiled
from fairlayer.solve.families import extremes, held_at

FEW = 24  # statistics up to which the active-set method is quicker
_MOST_GUESSES = 40
_MORE, _MOST_ROUNDS = 1e-8, 8  # a little more on the diagonal, and rounds of refinement that take it back


@compiled(inner=True)
def _sparse_factor(H):
    """Cholesky factor in place, passing over zeros; False where a pivot all but vanishes."""
    n = H.shape[0]
    below, own = np.empty(n, dtype=np.int64), np.empty(n)
    for k in range(n):
        own[k] = H[k, k]
    for k in range(n):
        if not H[k, k] > 1e-9 * own[k]:
            return False
        root = np.sqrt(H[k, k])
        H[k, k] = root
        size = 0
        for i in range(k + 1, n):
            if H[i, k] != 0.0:
                H[i, k] /= root
                below[size] = i
                size += 1
        for x in range(size):
            i = below[x]
            for y in range(x + 1):
                j = below[y]
                H[i, j] -= H[i, k] * H[j, k]
    return True


@compiled(inner=True, borrows=True)
def _sparse_solve(L, x):
    """x <- (L L')^-1 x."""
    n = x.size
    for k in range(n):
        x[k] /= L[k, k]
        if x[k] != 0.0:
            for i in range(k + 1, n):
                if L[i, k] != 0.0:
                    x[i] -= L[i, k] * x[k]
    for k in range(n - 1, -1, -1):
        total = x[k]
        for i in range(k + 1, n):
            if L[i, k] != 0.0:
                total -= L[i, k] * x[i]
        x[k] = total / L[k, k]


@compiled(small=True, borrows=True)
def _middle_share(rows, f, side):
    """How much a statistic held on a side moves with the middle of its family."""
    if rows.family[KIND, f] == EACH:
        return 0.0
    if rows.family[KIND, f] == DIFFERENCE or side < 0:
        return 1.0
    return 1.0 / rows.family[COEFFICIENT, f]


@compiled(inner=True)
def solve_sides(H, rows, family, side, want, nu, middle):
    """Multipliers of the statistics held on a side: H nu + (share of the middle) = want there, and families add up.

    Fills `nu` and `middle`; False where that has no solution. Groups of several attributes depend on each other, so H
    is made definite by a little more on its diagonal, which a few rounds of refinement take back.
    """
    held, n = np.empty(nu.size, dtype=np.int64), 0
    for k in range(nu.size):
        nu[k] = 0.0
        if side[k] != 0:
            held[n] = k
            n += 1
    if n == 0:
        return True
    # Families with a middle, each a column of shares.
    number, count = np.zeros(rows.family.shape[1], dtype=np.int64) - 1, 0
    for a in range(n):
        f = family[held[a]]
        if rows.family[KIND, f] != EACH and number[f] < 0:
            number[f] = count
            count += 1
    L, shares, columns = np.empty((n, n)), np.empty(n), np.zeros((count, n))
    for a in range(n):
        for b in range(n):
            L[a, b] = H[held[a], held[b]]
        L[a, a] *= 1.0 + _MORE
        f = family[held[a]]
        shares[a] = _middle_share(rows, f, side[held[a]])
        if number[f] >= 0:
            columns[number[f], a] = shares[a]
    if not _sparse_factor(L):
        return False
    schur = np.zeros((count, count))
    for g in range(count):
        _sparse_solve(L, columns[g])
    for a in range(n):
        g = number[family[held[a]]]
        if g >= 0:
            for h in range(count):
                schur[g, h] += shares[a] * columns[h, a]
    if not _sparse_factor(schur):
        return False
    x, right, total, level = np.empty(n), np.empty(count), np.zeros(n), np.zeros(count)
    for _ in range(_MOST_ROUNDS):
        size, left = 0.0, 0.0
        for g in range(count):
            right[g] = 0.0
        for a in range(n):
            g = number[family[held[a]]]
            x[a] = want[held[a]]
            size = max(size, abs(x[a]))
            for b in range(n):
                if total[b] != 0.0:
                    x[a] -= H[held[a], held[b]] * total[b]
            if g >= 0:
                x[a] -= shares[a] * level[g]
                right[g] += shares[a] * total[a]
            left = max(left, abs(x[a]))
        if left <= 1e-14 * size:
            break
        _sparse_solve(L, x)
        for a in range(n):
            g = number[family[held[a]]]
            if g >= 0:
                right[g] += shares[a] * x[a]
        _sparse_solve(schur, right)
        for g in range(count):
            level[g] += right[g]
        for a in range(n):
            total[a] += x[a]
            for g in range(count):
                if right[g] != 0.0:
                    total[a] -= right[g] * columns[g, a]
    if not left <= 1e-9 * size:
        return False
    for a in range(n):
        nu[held[a]] = total[a]
    for f in range(rows.family.shape[1]):
        if number[f] >= 0:
            middle[f] = level[number[f]]
    return True


@compiled(small=True)
def family_of(rows):
    """(K,) the family of each statistic."""
    family = np.empty(rows.offset.size, dtype=np.int64)
    for f in range(rows.family.shape[1]):
        for k in range(rows.first[f], rows.first[f + 1]):
            family[k] = f
    return family


@compiled(inner=True, later="bool")
def guess_sides(H, b, rows, tolerance, start, nu):
    """Fill `nu` with the solution of the small programme; False where no guess proved right.

    start: multipliers whose sides are the first guess.
    """
    K, F = b.size, rows.family.shape[1]
    family = family_of(rows)
    side, want, middle = np.zeros(K, dtype=np.int64), np.empty(K), np.zeros(F)
    for k in range(K):
        side[k] = 1 if start[k] > 0.0 else -1 if start[k] < 0.0 else 0
    q = b.copy()
    for guess in range(_MOST_GUESSES):
        if guess > 0:
            for k in range(K):
                want[k] = b[k] - held_at(rows, family[k], side[k] > 0, 0.0)
            if not solve_sides(H, rows, family, side, want, nu, middle):
                return False
            for k in range(K):
                total = b[k]
                for i in range(K):
                    if side[i] != 0:
                        total -= H[k, i] * nu[i]
                q[k] = total
        changed = guess == 0
        for f in range(F):
            begin, end = rows.first[f], rows.first[f + 1]
            if rows.family[KIND, f] != EACH:
                up, down = False, False
                for k in range(begin, end):
                    up, down = up or side[k] > 0, down or side[k] < 0
                if guess == 0 and up and down:
                    continue
                if not (up and down):  # nobody says where the middle is: take that of the extremes
                    greatest, least = extremes(rows, q, f)
                    range_ = rows.family[COEFFICIENT, f] * q[greatest] - q[least]
                    allowed = rows.family[UPPER, f] + tolerance[greatest] + tolerance[least]
                    if greatest == least or range_ <= allowed:
                        for k in range(begin, end):
                            changed = changed or side[k] != 0
                            side[k] = 0
                        continue
                    if rows.family[KIND, f] == DIFFERENCE:
                        middle[f] = 0.5 * (q[greatest] + q[least])
                    else:
                        middle[f] = 0.5 * (rows.family[COEFFICIENT, f] * q[greatest] + q[least])
            for k in range(begin, end):
                if not rows.present[k]:
                    continue
                above = q[k] - _middle_share(rows, f, 1) * middle[f] - held_at(rows, f, True, 0.0)
                below = _middle_share(rows, f, -1) * middle[f] + held_at(rows, f, False, 0.0) - q[k]
                now = side[k]
                if side[k] != 0:
                    if guess > 0 and nu[k] * side[k] <= 0.0:
                        now = 0
                elif above > tolerance[k]:
                    now = 1
                elif below > tolerance[k]:
                    now = -1
                if now != side[k]:
                    side[k] = now
                    changed = True
        if not changed:
            return True
    return False
