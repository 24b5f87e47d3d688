"""Dual Newton on cell sums: the whole solver, without a single sample in it.

The dual of the projection is concave in the multipliers mu and sees the data only through two sums per cell: the
outputs S_c and the slopes D_c at the current shifts s = M'R'mu. So the method is written in reverse: `advance` is
given (S, D), and answers either with the shifts at which it wants them next, or that it has finished. Whoever calls
it may take the sums in a compiled loop, in tensor operations on any device, or over many machines.

Each step solves the quadratic model exactly (`active_set.solve_small`), then searches along the line only where the
full step overshoots. The dual is piecewise quadratic for the squared discrepancy, so this ends in finitely many steps,
3 to 6 in practice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairlayer.compiled import compiled
from fairlayer.solve.active_set import (
    CONFLICT,
    SOLVED,
    add_row,
    backward,
    forward,
    row_gram,
    row_value,
    solve_small,
)

EVALUATE, DONE, INFEASIBLE, STALLED = 0, 1, 2, 3

# A cell all of whose samples rest on a bound has slope zero, and a Newton step on it would be endless. Its slope is
# taken to be `damping` times its weight: less after each full step, more after each cut one.
_LEAST_DAMPING, _FIRST_DAMPING, _MOST_DAMPING = 1e-10, 1e-2, 1.0
_MOST_EVALUATIONS = 2000
_NEAR = 1e5  # times the tolerance: slopes are rounding alone, and steps are taken without looking at them
_NEGLIGIBLE = 300.0  # times the tolerance: good enough once rounding stops progress

# Places in Search.number
_ALPHA, _LEFT, _RIGHT, _SLOPE_LEFT, _SLOPE_RIGHT, _SLOPE_START, _RESIDUAL, _BEST, _DAMPING = range(9)
# Places in Search.tally
_ACTIVE, _EVALUATIONS, _STARTED, _IDLE, _HALVINGS = range(5)


class Search(NamedTuple):
    """State of the search between two evaluations."""

    mu: np.ndarray  # (m,) multipliers of the last accepted point
    trial: np.ndarray  # (m,) multipliers at which sums are wanted
    direction: np.ndarray  # (m,)
    shift: np.ndarray  # (G,) s = M R'trial
    active: np.ndarray  # rows with a multiplier at the trial point, `tally[0]` of them
    number: np.ndarray
    tally: np.ndarray
    slopes: np.ndarray  # (2, G) slopes per cell at the two ends of the bracket


@compiled
def new_search(m, K, G):
    """A search that starts from zero multipliers."""
    return Search(
        np.zeros(m),
        np.zeros(m),
        np.zeros(m),
        np.zeros(G),
        np.zeros(min(m, K) + 1, dtype=np.int64),
        np.zeros(9),
        np.zeros(5, dtype=np.int64),
        np.zeros((2, G)),
    )


@compiled
def statistics(rows, S):
    """q = M'S - offset, one number per statistic."""
    G, K = rows.M.shape
    q = -rows.offset
    for c in range(G):
        for k in range(K):
            q[k] += rows.M[c, k] * S[c]
    return q


@compiled
def gram(M, D):
    """H = M' diag(D) M, skipping the zeros that group membership is full of."""
    G, K = M.shape
    H = np.zeros((K, K))
    index = np.empty(K, dtype=np.int64)
    for c in range(G):
        if D[c] == 0.0:
            continue
        filled = 0
        for k in range(K):
            if M[c, k] != 0.0:
                index[filled] = k
                filled += 1
        for a in range(filled):
            weighted = M[c, index[a]] * D[c]
            for b in range(a + 1):
                H[index[a], index[b]] += weighted * M[c, index[b]]
    for k in range(K):
        for i in range(k):
            H[i, k] = H[k, i]
    return H


@compiled
def _slope(rows, search, q, ahead):
    """Slope of the negated dual along the direction, ahead of the trial point or behind it.

    The two differ where a multiplier is zero: there the price upper * mu^+ - lower * mu^- has a kink.
    """
    total = 0.0
    for j in range(search.mu.size):
        d = search.direction[j]
        if d != 0.0:
            mu = search.trial[j]
            above = mu > 0.0 or (mu == 0.0 and (d > 0.0) == ahead)
            total += d * ((rows.upper[j] if above else rows.lower[j]) - row_value(q, rows.plus, rows.minus, j))
    return total


@compiled
def _residual(rows, search, q):
    """Largest breach of a row, or of complementarity between a row and its multiplier."""
    worst = 0.0
    for j in range(search.trial.size):
        value = row_value(q, rows.plus, rows.minus, j)
        if search.trial[j] > 0.0:
            breach = abs(value - rows.upper[j])
        elif search.trial[j] < 0.0:
            breach = abs(value - rows.lower[j])
        else:
            breach = max(value - rows.upper[j], rows.lower[j] - value)
        worst = max(worst, breach)
    return worst


@compiled
def proves_contradiction(rows, mu, least, most):
    """Whether multipliers `mu` prove that no output within its bounds satisfies the rows (Farkas).

    `least` and `most` are the smallest and largest value each cell sum can take.
    """
    nu = np.zeros(rows.M.shape[1])
    total, size = 0.0, 0.0
    for j in range(mu.size):
        if mu[j] != 0.0:
            add_row(nu, rows.plus, rows.minus, j, mu[j])
            bound = rows.upper[j] if mu[j] > 0.0 else rows.lower[j]
            total -= bound * mu[j]
            size += abs(bound * mu[j])
    for k in range(nu.size):
        total -= rows.offset[k] * nu[k]
        size += abs(rows.offset[k] * nu[k])
    for c in range(rows.M.shape[0]):
        s, reference = 0.0, 0.0
        for k in range(nu.size):
            s += rows.M[c, k] * nu[k]
            reference += abs(rows.M[c, k] * nu[k])
        if abs(s) > 1e-12 * reference:
            extreme = s * least[c] if s > 0.0 else s * most[c]
            total += extreme
            size += abs(extreme)
    return total > 1e-10 * size


@compiled
def _place(rows, search, alpha):
    """Move the trial point to mu + alpha * direction, and the shifts with it."""
    nu = np.zeros(rows.M.shape[1])
    search.number[_ALPHA] = alpha
    for j in range(search.mu.size):
        trial = search.mu[j] + alpha * search.direction[j]
        # A multiplier that the direction takes to zero must arrive there, not next to it.
        if alpha == 1.0 and abs(trial) <= 1e-15 * abs(search.mu[j]):
            trial = 0.0
        search.trial[j] = trial
        if trial != 0.0:
            add_row(nu, rows.plus, rows.minus, j, trial)
    for c in range(search.shift.size):
        total = 0.0
        for k in range(nu.size):
            total += rows.M[c, k] * nu[k]
        search.shift[c] = total


@compiled
def _next_direction(rows, search, q, D, weight, reach, tolerance):
    """Accept the trial point; aim at the optimum of the quadratic model there."""
    number, count = search.number, search.tally
    if count[_STARTED] == 0:
        count[_STARTED] = 1
        number[_BEST] = np.inf
        number[_DAMPING] = _FIRST_DAMPING
    elif number[_ALPHA] == 1.0:
        number[_DAMPING] = max(0.01 * number[_DAMPING], _LEAST_DAMPING)
    else:
        number[_DAMPING] = min(10.0 * number[_DAMPING], _MOST_DAMPING)
    search.mu[:] = search.trial
    nu = np.zeros(rows.M.shape[1])
    for j in range(search.mu.size):
        if search.mu[j] != 0.0:
            add_row(nu, rows.plus, rows.minus, j, search.mu[j])
    target, slopes, b = np.empty(search.mu.size), np.empty(D.size), np.empty(q.size)
    while True:
        for c in range(slopes.size):
            slopes[c] = max(D[c], number[_DAMPING] * weight[c])
            if count[_HALVINGS] > 0:
                # The bottom of the line is a kink: slopes differ on its two sides, and the larger is the safe one.
                slopes[c] = max(slopes[c], search.slopes[0, c], search.slopes[1, c])
        H = gram(rows.M, slopes)
        precision = tolerance
        for k in range(b.size):
            b[k] = q[k]
            for i in range(b.size):
                b[k] += H[k, i] * nu[i]
            precision = max(precision, 1e-15 * abs(b[k]))
        outcome, count[_ACTIVE], _ = solve_small(
            H, b, rows.plus, rows.minus, rows.lower, rows.upper, precision, target, search.active
        )
        if outcome == CONFLICT:
            search.trial[:] = target
            return INFEASIBLE
        search.direction[:] = target - search.mu
        search.trial[:] = search.mu
        number[_SLOPE_START] = _slope(rows, search, q, True)
        # So near the end the slope is rounding alone, and the step is still right.
        if outcome == SOLVED and (number[_SLOPE_START] < 0.0 or number[_RESIDUAL] <= _NEAR * tolerance):
            break
        if number[_DAMPING] == _MOST_DAMPING:
            return DONE if number[_RESIDUAL] <= _NEGLIGIBLE * tolerance else STALLED
        number[_DAMPING] = min(100.0 * number[_DAMPING], _MOST_DAMPING)
    search.tally[_HALVINGS] = 0
    search.slopes[:] = 0.0
    search.number[_LEFT] = 0.0
    search.number[_RIGHT] = np.inf
    search.number[_SLOPE_LEFT] = search.number[_SLOPE_START]
    _place(rows, search, 1.0)
    # Shifts past the point where every sample rests on a bound teach nothing: start the search this side of it.
    if np.isfinite(reach):
        moved = 0.0
        for c in range(search.shift.size):
            moved = max(moved, abs(search.shift[c]))
        if moved > reach:
            start = np.zeros(nu.size)
            for j in range(search.mu.size):
                add_row(start, rows.plus, rows.minus, j, search.mu[j])
            alpha = 1.0
            for c in range(search.shift.size):
                before = 0.0
                for k in range(start.size):
                    before += rows.M[c, k] * start[k]
                change = abs(search.shift[c] - before)
                if change > reach:
                    alpha = min(alpha, reach / change)
            if alpha < 1.0:
                _place(rows, search, alpha)
    return EVALUATE


@compiled
def advance(rows, search, S, D, weight, least, most, reach, tolerance):
    """Take the sums at `search.shift`; return EVALUATE (wanting them at the new `search.shift`) or an end.

    weight: total weight of each cell; reach: shift beyond which every sample rests on a bound (inf without bounds);
    tolerance: absolute, on rows. On INFEASIBLE, `search.trial` is the contradiction.
    """
    number, count = search.number, search.tally
    q = statistics(rows, S)
    count[_EVALUATIONS] += 1
    residual = _residual(rows, search, q)
    number[_RESIDUAL] = residual
    if residual <= tolerance:
        return DONE
    if count[_STARTED] == 0:
        return _next_direction(rows, search, q, D, weight, reach, tolerance)

    # The best that rounding allows: full steps no longer reduce a residual that is already negligible.
    if residual >= 0.5 * number[_BEST]:
        count[_IDLE] += 1
    number[_BEST] = min(number[_BEST], residual)
    if count[_IDLE] > 3 and residual <= _NEGLIGIBLE * tolerance:
        return DONE
    if count[_EVALUATIONS] > 4 and proves_contradiction(rows, search.trial, least, most):
        return INFEASIBLE
    if count[_EVALUATIONS] > _MOST_EVALUATIONS:
        return STALLED

    if residual <= _NEAR * tolerance or number[_SLOPE_START] >= 0.0:
        return _next_direction(rows, search, q, D, weight, reach, tolerance)
    # Along the line the negated dual is convex: its slope tells on which side of the bottom the trial lies.
    slope, alpha = _slope(rows, search, q, False), number[_ALPHA]
    start = -number[_SLOPE_START]
    if slope > 0.0 and not (alpha == 1.0 and slope <= 0.25 * start and count[_EVALUATIONS] < 30):
        number[_RIGHT], number[_SLOPE_RIGHT] = alpha, slope
        search.slopes[1] = D
    elif slope < -0.25 * start and alpha < (1.0 - 1e-3) * number[_RIGHT] < np.inf:
        number[_LEFT], number[_SLOPE_LEFT] = alpha, slope
        search.slopes[0] = D
    else:
        return _next_direction(rows, search, q, D, weight, reach, tolerance)
    count[_HALVINGS] += 1
    left, right = number[_LEFT], number[_RIGHT]
    if right - left <= 1e-15 * right:
        return STALLED
    drop = number[_SLOPE_RIGHT] - number[_SLOPE_LEFT]
    share = -number[_SLOPE_LEFT] / drop if drop > 0.0 else 0.5
    if count[_HALVINGS] % 2 == 0:  # every other time by half: a secant may creep past a kink
        share = 0.5
    _place(rows, search, left + min(max(share, 0.01), 0.99) * (right - left))
    return EVALUATE


@compiled
def place_at(rows, search, mu):
    """Put the search at given multipliers, found elsewhere."""
    search.mu[:] = mu
    search.direction[:] = 0.0
    _place(rows, search, 1.0)
    search.tally[_ACTIVE] = 0
    for j in range(mu.size):
        if mu[j] != 0.0 and search.tally[_ACTIVE] < search.active.size:
            search.active[search.tally[_ACTIVE]] = j
            search.tally[_ACTIVE] += 1


@compiled
def restart(search):
    """Go on from the multipliers reached, after the rows' bounds were moved."""
    search.tally[_STARTED] = 0
    search.tally[_HALVINGS] = 0
    search.tally[_IDLE] = 0
    search.tally[_EVALUATIONS] = 0


@compiled
def factor_rows(H, rows, candidates):
    """Cholesky factor of the Gram matrix of rows, leaving out those that depend on others; and which remain."""
    L, used = np.zeros((candidates.size, candidates.size)), np.zeros(candidates.size, dtype=np.int64)
    filled = 0
    for a in range(candidates.size):
        j = candidates[a]
        own = row_gram(H, rows.plus, rows.minus, j, j)
        rest = own
        for b in range(filled):
            total = row_gram(H, rows.plus, rows.minus, j, used[b])
            for e in range(b):
                total -= L[filled, e] * L[b, e]
            L[filled, b] = total / L[b, b]
            rest -= L[filled, b] * L[filled, b]
        if own > 0.0 and rest > 1e-12 * own:
            L[filled, filled] = np.sqrt(rest)
            used[filled] = j
            filled += 1
    return L, used[:filled]


@compiled
def solve_active(rows, active, slopes, sums):
    """A'v per cell, v = (A D A')^+ A sums, over the active rows A = R M'."""
    G, K = rows.M.shape
    correction = np.zeros(G)
    if active.size == 0:
        return correction
    q = np.zeros(K)
    for c in range(G):
        for k in range(K):
            q[k] += rows.M[c, k] * sums[c]
    L, used = factor_rows(gram(rows.M, slopes), rows, active)
    x = np.zeros(used.size)
    for a in range(used.size):
        x[a] = row_value(q, rows.plus, rows.minus, used[a])
    forward(L, used.size, x)
    backward(L, used.size, x)
    nu = np.zeros(K)
    for a in range(used.size):
        add_row(nu, rows.plus, rows.minus, used[a], x[a])
    for c in range(G):
        for k in range(K):
            correction[c] += rows.M[c, k] * nu[k]
    return correction
