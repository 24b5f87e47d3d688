"""How well a stream can be kept at all: a policy that knows the distribution and the length, but not what comes next.

For one attribute of two groups, samples one at a time, no box. Dynamic programming over the samples yet to come: the
state is the pooled gap times the number of samples, the cost to go a table over the corridor between the tolerances.
Each sample is moved to where its own change and the cost to go from there are least together. The table takes the
shares of the groups for exact, so that the policy is near the best one, not the best.
"""

from functools import lru_cache

import numpy as np
from numba import njit

from streams.methods import Run
from streams.scenarios import SPREAD, WIDE, Scenario

SHARE = 0.2  # of the second group
POINTS = 401  # of the corridor
LONGEST = 20_000  # samples for which so many points are enough: twice as many change costs by 0.1 %
NODES = 12  # of the quadrature over a normal output


def limit(scenario: Scenario) -> Run:
    z, groups = scenario.draw()
    table = _table(scenario.samples, scenario.tolerance)
    return Run("knows distribution and length", scenario, _emit(z, groups[:, 0], scenario.tolerance, table))


def can(scenario: Scenario) -> bool:
    """Whether the stream is of the kind that this is for, and short enough for the points of the corridor."""
    kind = (scenario.batch, scenario.attributes, scenario.box, scenario.drifts)
    return kind == (1, 1, False, False) and scenario.samples <= LONGEST


@lru_cache(maxsize=1)
def _table(samples: int, tolerance: float) -> np.ndarray:
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    scale = SPREAD * WIDE  # of outputs within a group, and between the groups
    return _costs_to_go(samples, SHARE, scale, tolerance, scale * nodes, weights / weights.sum())


@njit(cache=True)
def _cost(i, start, per_unit, wall, to_go):
    """Of moving to a point of the corridor, and of all that follows."""
    place = (2.0 * i / (to_go.size - 1) - 1.0) * wall
    return ((place - start) / per_unit) ** 2 + to_go[i]


@njit(cache=True)
def _move(start, per_unit, wall, to_go):
    """Where in the corridor the cost is least, and that cost: it is convex along it."""
    low, high = 0, to_go.size - 1
    while low < high:
        middle = (low + high) // 2
        here = _cost(middle, start, per_unit, wall, to_go)
        if here <= _cost(middle + 1, start, per_unit, wall, to_go):
            high = middle
        else:
            low = middle + 1
    at, least_cost = float(low), _cost(low, start, per_unit, wall, to_go)
    if 0 < low < to_go.size - 1:  # between the points, by the parabola through three of them
        left = _cost(low - 1, start, per_unit, wall, to_go)
        right = _cost(low + 1, start, per_unit, wall, to_go)
        curvature = left - 2.0 * least_cost + right
        if curvature > 0.0:
            at += 0.5 * (left - right) / curvature
            least_cost -= (left - right) ** 2 / (8.0 * curvature)
    return (2.0 * at / (to_go.size - 1) - 1.0) * wall, least_cost


@njit(cache=True)
def _costs_to_go(samples, share, gap, tolerance, nodes, weights):
    """By samples so far and place in the corridor. Outputs are normal about means that are `gap` apart."""
    table = np.zeros((samples + 1, POINTS))
    for t in range(samples - 1, 0, -1):
        for i in range(POINTS):
            place = (2.0 * i / (POINTS - 1) - 1.0) * tolerance * t
            for group in range(2):
                per_unit = 1.0 / share if group else -1.0 / (1.0 - share)
                middle = gap * (1.0 - share) if group else -gap * share
                chance = share if group else 1.0 - share
                for node, weight in zip(nodes, weights):  # noqa: B905
                    start = place + per_unit * (middle + node)
                    table[t, i] += chance * weight * _move(start, per_unit, tolerance * (t + 1), table[t + 1])[1]
    return table


@njit(cache=True)
def _emit(z, group, tolerance, table):
    emitted = z.copy()
    count, total = np.zeros(2), np.zeros(2)
    for t in range(z.size):
        mine, other = group[t], 1 - group[t]
        count[mine] += 1.0
        if count[other] > 0.0:
            sign = 1.0 if mine else -1.0
            per_unit = sign * (t + 1) / count[mine]
            gap = sign * ((total[mine] + z[t]) / count[mine] - total[other] / count[other])
            start = gap * (t + 1)
            emitted[t] += (_move(start, per_unit, tolerance * (t + 1), table[t + 1])[0] - start) / per_unit
        total[mine] += emitted[t]
    return emitted
