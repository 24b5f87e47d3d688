"""Projection of points on the simplex: class probabilities whose group means are compared class by class.

    min sum_i w_i d(y_i, z_i)    s.t.    max_k q_kj - min_k q_kj <= 2 t_fj  for every family f and class j,

y_i on the simplex, q_kj = sum_c M_ck S_cj - o_kj the mean of class j in group k, where a stream has what was emitted
before in the offset o. With multipliers nu_kj, which add up to zero in every family and class, the inner minimum
separates by sample, given the shifts s_c = sum_k M_ck nu_k of its cell:

    relative entropy    y_j = z_j exp(-s_j) / sum_l z_l exp(-s_l)         slope  diag(y) - y y'
    squared             y = the point of the simplex nearest to z - s     slope  diag(1_A) - 1_A 1_A' / |A|

with A the support of y. The dual is smooth but for the norm sum t |nu|. Each Newton step (simplex_step.py) minimises
its quadratic model and that norm together, and is taken as far as the dual improves. One pass over the samples
(simplex_passes.py) takes the sums S and the sums D of the slopes.
"""

from __future__ import annotations

import numpy as np

from fairlayer.binding.exact_sums import UNIT
from fairlayer.compiled import compiled
from fairlayer.solve.simplex_passes import ENTROPY, gather, measure, slopes_times, spread
from fairlayer.solve.simplex_step import EQUAL, center, gram, guess, interior, settle, solve_active

SOLVED, UNSOLVED = 0, 1
_MOST_STEPS, _MOST_HALVINGS = 80, 40
_REACH_ENTROPY, _REACH_SQUARED = 30.0, 4.0  # of shifts in one step
_NOTHING = 1e-10  # of the largest multiplier
_PATIENCE = 15  # steps before a guess is no longer trusted
_STIFFEST = 1e6  # what the model is stiffened by, in units of the rows, beyond which no step is left
_STALLED = 5  # steps without progress after which rounding is all that is left


@compiled
def pull_back(kind, z, cell, weight, share, rows, y, gram, side, family, gradient, out):
    """Fill `out` (n, d), the gradient with respect to z. y: the responses; gradient: with respect to them."""
    start, statistic, entry = rows
    (n, d), G, K = y.shape, start.size - 1, family.size
    total, correction = np.empty((G, d)), np.zeros((G, d))
    slopes_times(kind, y, cell, weight, share, gradient, correction, out, total)
    b = gather(start, statistic, entry, total, K).reshape(K * d)
    nu, half, middle = np.zeros((K, d)), np.zeros(K * d), np.empty(K * d)
    for _ in range(2):  # again, for what the ridge has left
        solve_active(gram, b, half, family, side, nu.reshape(K * d), middle)
    spread(start, statistic, entry, nu, correction)
    slopes_times(kind, y, cell, weight, share, gradient, correction, out, total)
    if kind == ENTROPY:  # the sensitivity to z is the slope over z
        for i in range(n):
            for j in range(d):
                out[i, j] /= z[i, j]


@compiled(inner=True)
def _dual(kind, z, cell, weight, share, offset, nu, shift, S, D):
    """What is minimised over the multipliers, without its norm; fills the sums S and D."""
    value = -measure(kind, z, cell, weight, share, shift, S, D)
    for k in range(nu.shape[0]):
        for j in range(nu.shape[1]):
            value += nu[k, j] * offset[k, j]
    return value


@compiled
def solve_simplex(kind, z, cell, weight, share, rows, offset, family, half, nu, side, shift, S, D, H):
    """Find the multipliers nu (K, d), to start from as given; how it ended, and how far the rows are from their bounds.

    rows: where the entries of each cell start, the statistic of each and its value; offset: (K, d); family: (K,) of
    each statistic, in order; half: (K d,) how far each statistic may be from the middle of its family and class, half
    the tolerance as a rule. Fills side (K d,), which rows are active and where, the shifts (G, d), sums S and D at
    them, and the Gram matrix H.
    """
    start, statistic, entry = rows
    (K, d), m = nu.shape, half.size
    flat, x, trial = nu.reshape(m), np.empty(m), np.empty((K, d))
    noise = UNIT * (16.0 + np.sqrt(float(z.shape[0])))
    spread(start, statistic, entry, nu, shift)
    value = _dual(kind, z, cell, weight, share, offset, nu, shift, S, D)
    least, stalled, outcome, known, beyond = np.inf, 0, UNSOLVED, False, np.inf
    scale, reach = 0.0, _REACH_ENTROPY if kind == ENTROPY else _REACH_SQUARED
    for e in range(entry.size):
        scale = max(scale, abs(entry[e]))
    # A sample at a corner of the simplex has no slope: a little is put in its place.
    base = 0.0 if kind == ENTROPY else 1e-7 * scale
    lift, trusted = base, True
    for step in range(_MOST_STEPS):
        if step == _PATIENCE:  # rows settled on lead round in circles: they are searched for
            known, trusted = False, False
        q = (gather(start, statistic, entry, S, K) - offset).reshape(m)
        low, high = np.full((K, d), np.inf), np.full((K, d), -np.inf)
        beyond, between, norm, size = 0.0, 0.0, 0.0, 0.0
        for v in range(m):
            f, j = family[v // d], v % d
            low[f, j], high[f, j] = min(low[f, j], q[v] + half[v]), max(high[f, j], q[v] - half[v])
            beyond = max(beyond, high[f, j] - low[f, j])
            between += half[v] * abs(flat[v]) - flat[v] * q[v]
            norm += half[v] * abs(flat[v])
            size += abs(flat[v])
        gram(start, statistic, entry, D, H)
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
        if not known and trusted and lift == base:  # none are known: from a guess, which settling corrects
            guess(q, half, family, side)
            known = True
        known = known and settle(H, b, half, family, side, x)
        searched = not known
        if searched:
            x[:] = flat
            interior(H, b, half, family, x, side)
            inner = x.copy()
            known = settle(H, b, half, family, side, x)
            if not known:
                x[:] = inner
        center(family, d, x)
        decrease = norm
        for v in range(m):
            decrease += q[v] * (x[v] - flat[v]) - half[v] * abs(x[v])
        if not searched and not decrease > -1e-12 * (1.0 + norm):  # settled on the wrong rows
            known, trusted = False, False
            continue
        if not decrease > -np.inf:
            break
        for v in range(m):
            trial[v // d, v % d] = x[v] - flat[v]
        spread(start, statistic, entry, trial, shift)
        furthest = max(np.abs(shift).max(), 1e-300)
        length, before, taken = min(1.0, reach / furthest), value + norm, False
        for _ in range(_MOST_HALVINGS):
            after = 0.0
            for v in range(m):
                trial[v // d, v % d] = flat[v] + length * (x[v] - flat[v])
                after += half[v] * abs(trial[v // d, v % d])
            spread(start, statistic, entry, trial, shift)
            value = _dual(kind, z, cell, weight, share, offset, trial, shift, S, D)
            after += value
            if after <= before - 1e-4 * length * decrease + 1e-13 * (1.0 + abs(before)):
                taken = True
                break
            length *= 0.5
        if not taken:  # settled on the wrong rows, or the model is too good to be true: search, in shorter steps
            known, trusted = False, False
            if searched:
                lift = max(10.0 * lift, 1e-3 * scale)
            if lift > _STIFFEST * scale:
                break
            spread(start, statistic, entry, nu, shift)
            value = _dual(kind, z, cell, weight, share, offset, nu, shift, S, D)
            continue
        flat[:] = trial.reshape(m)
        # Where the model is good for short steps only, make it stiffer, so that the next is short of itself.
        lift = max(10.0 * lift, 1e-4 * scale) if length < 0.1 else base if lift < 1e-6 * scale else 0.1 * lift
    if outcome != SOLVED:  # sums were last taken elsewhere
        spread(start, statistic, entry, nu, shift)
        measure(kind, z, cell, weight, share, shift, S, D)
        gram(start, statistic, entry, D, H)
    # Which rows the derivative holds fast: those whose multipliers are not 0.
    largest = np.abs(flat).max()
    for v in range(m):
        free = half[v] > EQUAL and abs(flat[v]) <= _NOTHING * largest
        side[v] = 0 if free else 1 if flat[v] >= 0.0 else -1
    return outcome, beyond
