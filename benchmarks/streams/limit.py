"""How well a stream can be kept at all: a policy that knows the distribution and the length, but not what comes next.

For one attribute of two groups, samples one at a time, no box. Dynamic programming over the samples yet to come: the
state is the pooled gap times the number of samples, the cost to go a table over the corridor between the tolerances.
Each sample is moved to where its own change and the cost to go from there are least together. The table takes the
shares of the groups for exact, so that the policy is near the best one, not the best.
"""

from functools import lru_cache

import numpy as np

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


def _move(start: np.ndarray, per_unit: np.ndarray, wall: float, to_go: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where in the corridor the cost is least, and that cost, from each start: it is convex along the corridor."""
    last = to_go.size - 1

    def cost(i: np.ndarray) -> np.ndarray:
        """Of moving to a point of the corridor, and of all that follows."""
        return (((2.0 * i / last - 1.0) * wall - start) / per_unit) ** 2 + to_go[i]

    low, high = np.zeros(start.shape, np.int64), np.full(start.shape, last)
    for _ in range(last.bit_length()):
        middle = np.minimum((low + high) // 2, last - 1)
        falls = (cost(middle) > cost(middle + 1)) & (low < high)
        low, high = np.where(falls, middle + 1, low), np.where(falls, high, np.minimum(middle, high))
    least = cost(low)
    # Between the points, by the parabola through three of them.
    left, right = cost(np.maximum(low - 1, 0)), cost(np.minimum(low + 1, last))
    curvature = left - 2.0 * least + right
    inside = (low > 0) & (low < last) & (curvature > 0.0)
    curvature = np.where(inside, curvature, 1.0)
    at = low + np.where(inside, 0.5 * (left - right) / curvature, 0.0)
    least = least - np.where(inside, (left - right) ** 2 / (8.0 * curvature), 0.0)
    return (2.0 * at / last - 1.0) * wall, least


def _costs_to_go(
    samples: int, share: float, gap: float, tolerance: float, nodes: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """By samples so far and place in the corridor. Outputs are normal about means that are `gap` apart."""
    table = np.zeros((samples + 1, POINTS))
    per_unit = np.array([-1.0 / (1.0 - share), 1.0 / share])[:, None, None]
    middle = np.array([-gap * share, gap * (1.0 - share)])[:, None, None]
    chance = np.array([1.0 - share, share])[:, None] * weights
    for t in range(samples - 1, 0, -1):
        place = np.linspace(-1.0, 1.0, POINTS)[:, None] * tolerance * t
        start = place + per_unit * (middle + nodes)  # groups, points, nodes
        cost = _move(start, np.broadcast_to(per_unit, start.shape), tolerance * (t + 1), table[t + 1])[1]
        table[t] = np.einsum("gpn,gn->p", cost, chance)
    return table


def _emit(z: np.ndarray, group: np.ndarray, tolerance: float, table: np.ndarray) -> np.ndarray:
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
            moved, _ = _move(np.array(start), np.array(per_unit), tolerance * (t + 1), table[t + 1])
            emitted[t] += (float(moved) - start) / per_unit
        total[mine] += emitted[t]
    return emitted
