"""Projection of points on the simplex: class probabilities whose group means are compared class by class.

    min sum_i w_i d(y_i, z_i)    s.t.    max_k q_kj - min_k q_kj <= 2 t_fj  for every family f and class j,

y_i on the simplex, q_kj = sum_c M_ck S_cj the mean of class j in group k. With multipliers nu_kj, which add up to zero
in every family and class, the inner minimum separates by sample, given the shifts s_c = sum_k M_ck nu_k of its cell:

    relative entropy    y_j = z_j exp(-s_j) / sum_l z_l exp(-s_l)         slope  diag(y) - y y'
    squared             y = the point of the simplex nearest to z - s     slope  diag(1_A) - 1_A 1_A' / |A|

with A the support of y.

The dual is smooth but for the norm sum t |nu|. Each Newton step minimises its quadratic model and that norm together: a
small quadratic programme, by an interior-point method the first time, and then by the rows found active, while these
remain the right ones. Rows of different classes depend on each other (the classes of a sample add up to 1), so that
guessing active rows one by one would often ask for what contradicts itself.

One pass over the samples takes the sums S and the sums D of the slopes, a block of d x d per cell.
"""

from __future__ import annotations

import numpy as np

from fairlayer.binding.exact_sums import UNIT
from fairlayer.compiled import compiled

ENTROPY, SQUARED = 0, 1
SOLVED, UNSOLVED = 0, 1
_MOST_STEPS, _MOST_INNER, _MOST_HALVINGS, _MOST_CORRECTIONS = 80, 60, 40, 8
_FURTHEST = 600.0  # shifts between classes, beyond which exp(-s) is nothing
_EQUAL = 1e-15  # half a tolerance, below which means are to be equal
_RIDGE = 1e-11  # of the largest entry of the Gram matrix: keeps directions that change nothing from being infinite
_REACH_ENTROPY, _REACH_SQUARED = 30.0, 4.0  # of shifts in one step
_NOTHING = 1e-10  # of the largest multiplier
_STALLED = 5  # steps without progress after which rounding is all that is left


@compiled(small=True)
def _respond(kind, z, shift, factor, y):
    """Fill y, the response of one sample; return d(y, z) + s.y, and the size of its support."""
    d = z.size
    if kind == ENTROPY:
        total = 0.0
        for j in range(d):
            y[j] = z[j] * factor[j]
            total += y[j]
        for j in range(d):
            y[j] /= total
        return -np.log(total), d
    above, size, theta = 0.0, d, 0.0
    for j in range(d):
        y[j] = z[j] - shift[j]
        above += y[j]
    theta = (above - 1.0) / d
    while True:  # leave out what the threshold makes negative, until nothing is
        above, left = 0.0, 0
        for j in range(d):
            if y[j] > theta:
                above += y[j]
                left += 1
        if left == size or left == 0:
            break
        size, theta = left, (above - 1.0) / left
    value = 0.0
    for j in range(d):
        y[j] = max(y[j] - theta, 0.0)
        value += 0.5 * (y[j] - z[j]) ** 2 + shift[j] * y[j]
    size = 0
    for j in range(d):
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
    d = z.shape[1]
    factor, base = factors(shift)
    S[:], D[:] = 0.0, 0.0
    y, value = np.empty(d), 0.0
    for i in range(z.shape[0]):
        c = cell[i]
        w = weight[i] if weight.size > 0 else share
        least, size = _respond(kind, z[i], shift[c], factor[c], y)
        value += w * (least + (base[c] if kind == ENTROPY else 0.0))
        for j in range(d):
            a = w * y[j]
            S[c, j] += a
            if kind == ENTROPY:
                for k in range(j + 1):
                    D[c, j, k] -= a * y[k]
            elif y[j] > 0.0:
                D[c, j, j] += w
                for k in range(j + 1):
                    if y[k] > 0.0:
                        D[c, j, k] -= w / size
    for c in range(S.shape[0]):
        for j in range(d):
            if kind == ENTROPY:
                D[c, j, j] += S[c, j]
            for k in range(j):
                D[c, k, j] = D[c, j, k]
    return value


@compiled
def write(kind, z, cell, shift, out):
    """Fill `out` (n, d) with the responses."""
    factor, _ = factors(shift)
    for i in range(z.shape[0]):
        _respond(kind, z[i], shift[cell[i]], factor[cell[i]], out[i])


@compiled
def pull_back(kind, z, cell, weight, share, rows, shift, gram, side, family, gradient, out):
    """Fill `out` (n, d): the gradient with respect to z, given that with respect to the output."""
    start, statistic, entry = rows
    G, d = shift.shape
    factor, _ = factors(shift)
    y, left, total = np.empty(d), np.empty(d), np.zeros((G, d))
    for i in range(z.shape[0]):
        c = cell[i]
        _respond(kind, z[i], shift[c], factor[c], y)
        _slope_times(kind, y, gradient[i], out[i])
        for j in range(d):
            total[c, j] += out[i, j]
    K = family.size
    b = _statistics(start, statistic, entry, total, K).reshape(K * d)
    nu = np.zeros((K, d))
    for _ in range(2):  # again, for what the ridge has left
        _solve_active(gram, b, np.zeros(K * d), family, side, nu.reshape(K * d), np.empty(K * d))
    correction = np.zeros((G, d))
    _shifts(start, statistic, entry, nu, correction)
    for i in range(z.shape[0]):
        c = cell[i]
        w = weight[i] if weight.size > 0 else share
        _respond(kind, z[i], shift[c], factor[c], y)
        for j in range(d):
            left[j] = gradient[i, j] - w * correction[c, j]
        _slope_times(kind, y, left, out[i])
        if kind == ENTROPY:  # the sensitivity to z is the slope over z
            for j in range(d):
                out[i, j] /= z[i, j]


@compiled(small=True)
def _slope_times(kind, y, g, out):
    """Fill `out` with the slope of one sample, whose response is y, times g."""
    mean, size = 0.0, 0
    for j in range(y.size):
        if kind == ENTROPY:
            mean += y[j] * g[j]
        elif y[j] > 0.0:
            mean += g[j]
            size += 1
    if kind != ENTROPY:
        mean /= size
    for j in range(y.size):
        slope = y[j] if kind == ENTROPY else 1.0 if y[j] > 0.0 else 0.0
        out[j] = slope * (g[j] - mean)


@compiled(small=True)
def _shifts(start, statistic, entry, nu, shift):
    shift[:] = 0.0
    for c in range(shift.shape[0]):
        for e in range(start[c], start[c + 1]):
            for j in range(shift.shape[1]):
                shift[c, j] += entry[e] * nu[statistic[e], j]


@compiled(inner=True)
def _statistics(start, statistic, entry, S, K):
    q = np.zeros((K, S.shape[1]))
    for c in range(S.shape[0]):
        for e in range(start[c], start[c + 1]):
            for j in range(S.shape[1]):
                q[statistic[e], j] += entry[e] * S[c, j]
    return q


@compiled(inner=True)
def _gram(start, statistic, entry, D, H):
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
def _solve_active(H, b, half, family, side, x, middle):
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
def _settle(H, b, half, family, side, x):
    """Fill x by the active rows, and correct these; whether it then minimises the model."""
    m, K = b.size, family.size
    d = m // K
    middle, u, given = np.empty(m), np.empty(m), x.copy()
    for _ in range(_MOST_CORRECTIONS):
        x[:] = given
        _solve_active(H, b, half, family, side, x, middle)
        largest, changed = 0.0, False
        for v in range(m):
            largest = max(largest, abs(x[v]))
        if not largest < np.inf:
            return False
        low, high = np.full((K, d), -1), np.full((K, d), -1)
        for v in range(m):
            u[v] = b[v]
            for k in range(m):
                u[v] -= H[v, k] * x[k]
            f, j = family[v // d], v % d
            if low[f, j] < 0 or u[v] < u[low[f, j]]:
                low[f, j] = v
            if high[f, j] < 0 or u[v] > u[high[f, j]]:
                high[f, j] = v
        for v in range(m):
            allowed = half[v] + 1e-13 + 1e-9 * half[v]
            f, j = family[v // d], v % d
            if half[v] <= _EQUAL:
                continue
            if side[v] != 0:
                if x[v] * side[v] < -1e-12 * largest:
                    side[v], changed = 0, True
            elif not np.isnan(middle[v]):
                if abs(u[v] - middle[v]) > allowed:
                    side[v], changed = (1 if u[v] > middle[v] else -1), True
            elif u[high[f, j]] - u[low[f, j]] > 2.0 * allowed and (v == high[f, j] or v == low[f, j]):
                side[v], changed = (1 if v == high[f, j] else -1), True
        if not changed:
            return True
    return False


@compiled(inner=True)
def _interior(H, b, half, family, x, side):
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
    up, down = half.copy(), half.copy()
    more, less = np.full(m, scale), np.full(m, scale)
    aim, first, step = 0.1, half.max() * scale, 1.0
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
            if half[v] > _EQUAL:
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
            if half[v] > _EQUAL:
                plus, minus = more[v] / up[v], less[v] / down[v]
                A[v, v] += 1.0 / (plus + minus)
                a = (target - up[v] * more[v]) / up[v] - plus * beyond[v]
                a -= (target - down[v] * less[v]) / down[v] - minus * below[v]
                r[v] = a / (plus + minus)
            else:
                r[v] = u[v]
        move = np.linalg.solve(A, r)
        longest = 1.0
        for v in range(m):
            if half[v] > _EQUAL:
                change = move[m + family[v // d] * d + v % d]
                for k in range(m):
                    change += H[v, k] * move[k]
                d_up, d_down = beyond[v] + change, below[v] - change
                d_more = (target - up[v] * more[v] - more[v] * d_up) / up[v]
                d_less = (target - down[v] * less[v] - less[v] * d_down) / down[v]
                if d_up < 0.0:
                    longest = min(longest, -0.995 * up[v] / d_up)
                if d_down < 0.0:
                    longest = min(longest, -0.995 * down[v] / d_down)
                if d_more < 0.0:
                    longest = min(longest, -0.995 * more[v] / d_more)
                if d_less < 0.0:
                    longest = min(longest, -0.995 * less[v] / d_less)
        step = longest
        if not step > 1e-12:
            break
        for v in range(m):
            if half[v] > _EQUAL:
                change = move[m + family[v // d] * d + v % d]
                for k in range(m):
                    change += H[v, k] * move[k]
                d_up, d_down = beyond[v] + change, below[v] - change
                d_more = (target - up[v] * more[v] - more[v] * d_up) / up[v]
                d_less = (target - down[v] * less[v] - less[v] * d_down) / down[v]
                up[v] = max(up[v] + step * d_up, 1e-300)
                down[v] = max(down[v] + step * d_down, 1e-300)
                more[v] = max(more[v] + step * d_more, 1e-300)
                less[v] = max(less[v] + step * d_less, 1e-300)
                x[v] = more[v] - less[v]
            else:
                x[v] += step * move[v]
        for at in range(F * d):
            middle[at] += step * move[m + at]
        aim = 0.02 if step > 0.9 else 0.1 if step > 0.5 else 0.4
    for v in range(m):
        side[v] = 0
        if half[v] <= _EQUAL or (more[v] * half[v] > up[v] * scale and more[v] > less[v]):
            side[v] = 1
        elif less[v] * half[v] > down[v] * scale and less[v] > more[v]:
            side[v] = -1


@compiled(small=True)
def _center(family, d, x):
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


@compiled
def solve_simplex(kind, z, cell, weight, share, rows, family, half, nu, side, shift, S, D, H):
    """Find the multipliers nu (K, d), to start from as given; how it ended, and how far the rows are from their bounds.

    rows: where the entries of each cell start, the statistic of each and its value; family: (K,) of each statistic, in
    order; half: (K d,) half the tolerance of each family and class. Fills side (K d,), which rows are active and where,
    the shifts (G, d), sums S and D at them, and the Gram matrix H.
    """
    start, statistic, entry = rows
    (K, d), m = nu.shape, half.size
    flat, x, trial = nu.reshape(m), np.empty(m), np.empty((K, d))
    noise = UNIT * (16.0 + np.sqrt(float(z.shape[0])))
    _shifts(start, statistic, entry, nu, shift)
    value = -measure(kind, z, cell, weight, share, shift, S, D)
    least, stalled, outcome, known, beyond = np.inf, 0, UNSOLVED, False, np.inf
    scale, reach = 0.0, _REACH_ENTROPY if kind == ENTROPY else _REACH_SQUARED
    for e in range(entry.size):
        scale = max(scale, abs(entry[e]))
    # A sample at a corner of the simplex has no slope: a little is put in its place.
    base = 0.0 if kind == ENTROPY else 1e-7 * scale
    lift = base
    for _ in range(_MOST_STEPS):
        q = _statistics(start, statistic, entry, S, K).reshape(m)
        low, high = np.full((K, d), np.inf), np.full((K, d), -np.inf)
        beyond, between, norm, size = 0.0, 0.0, 0.0, 0.0
        for v in range(m):
            f, j = family[v // d], v % d
            low[f, j], high[f, j] = min(low[f, j], q[v]), max(high[f, j], q[v])
            beyond = max(beyond, high[f, j] - low[f, j] - 2.0 * half[v])
            between += half[v] * abs(flat[v]) - flat[v] * q[v]
            norm += half[v] * abs(flat[v])
            size += abs(flat[v])
        _gram(start, statistic, entry, D, H)
        # What is left between the output's cost and the dual: 0 at the solution, and each step makes it much smaller.
        if beyond <= noise and abs(between) <= 4.0 * noise * size:
            outcome = SOLVED
            break
        distance = beyond + abs(between) / max(size, 1.0)
        stalled = 0 if distance < 0.5 * least else stalled + 1
        least = min(least, distance)
        if stalled > _STALLED and distance <= 1e-10:
            outcome = SOLVED
            break
        stiff = 0.0
        for v in range(m):
            stiff = max(stiff, H[v, v])
        if stiff < 1e-6 * scale:
            lift = max(lift, 1e-3 * scale)
        for v in range(m):
            H[v, v] += lift
        b = q + np.dot(H, flat)
        x[:] = flat
        known = known and _settle(H, b, half, family, side, x)
        if not known:
            _interior(H, b, half, family, x, side)
            inner = x.copy()
            known = _settle(H, b, half, family, side, x)
            if not known:
                x[:] = inner
        _center(family, d, x)
        decrease = norm
        for v in range(m):
            decrease += q[v] * (x[v] - flat[v]) - half[v] * abs(x[v])
        if not decrease > -np.inf:
            break
        for v in range(m):
            trial[v // d, v % d] = x[v] - flat[v]
        _shifts(start, statistic, entry, trial, shift)
        furthest = max(np.abs(shift).max(), 1e-300)
        length, before, taken = min(1.0, reach / furthest), value + norm, False
        for _ in range(_MOST_HALVINGS):
            after = 0.0
            for v in range(m):
                trial[v // d, v % d] = flat[v] + length * (x[v] - flat[v])
                after += half[v] * abs(trial[v // d, v % d])
            _shifts(start, statistic, entry, trial, shift)
            value = -measure(kind, z, cell, weight, share, shift, S, D)
            after += value
            if after <= before - 1e-4 * length * decrease + 1e-13 * (1.0 + abs(before)):
                taken = True
                break
            length *= 0.5
        if not taken:
            break
        flat[:] = trial.reshape(m)
        # Where the model is good for short steps only, make it stiffer, so that the next is short of itself.
        lift = max(10.0 * lift, 1e-4 * scale) if length < 0.1 else base if lift < 1e-6 * scale else 0.1 * lift
    if outcome != SOLVED:  # sums were last taken elsewhere
        _shifts(start, statistic, entry, nu, shift)
        measure(kind, z, cell, weight, share, shift, S, D)
        _gram(start, statistic, entry, D, H)
    # Which rows the derivative holds fast: those whose multipliers are not 0.
    largest = np.abs(flat).max()
    for v in range(m):
        free = half[v] > _EQUAL and abs(flat[v]) <= _NOTHING * largest
        side[v] = 0 if free else 1 if flat[v] >= 0.0 else -1
    return outcome, beyond
