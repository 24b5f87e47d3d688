"""Why no output exists, and how far the rows must give way. Called only when the solver finds a contradiction.

Whether rows can hold depends on the cell sums S alone, each of which can take any value between its extremes. Every two
statistics of a family satisfy their row if and only if there is a number c below all of them that the greatest does not
exceed by too much. So the smallest uniform widening e of all rows is a linear programme in S, one c for each family
that compares its statistics, and e, whatever the number of samples: with q = M'S - offset,

    minimise e >= 0    subject to    lower - e <= q_k <= upper + e                 for statistics of their own,
                                     c_f <= q_k,  ratio q_k <= c_f + upper + e     for those that family f compares,
                                     least <= S <= most.

Its multipliers say which statistics stand in the way, and in which direction. A programme's solver works with absolute
tolerances, so every family is measured in units of its own numbers, every cell sum from the nearer of its extremes, and
e is looked for level by level.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy  # whose parts load when they are used

from fairlayer.arrays import as_numpy
from fairlayer.problem.bounds import Box
from fairlayer.problem.rows import EACH, Rows
from fairlayer.problem.system import System

_NEXT_LEVEL = 1e-6  # of a level of excess: the one that is looked at after it
_NEGLIGIBLE = 1e-7  # of a level: an excess that is rounding alone, or belongs to a lower level
_MOST_SPREAD = 8  # steps from a row to those that share its cells, whose outputs move with its own
_PROGRAMME, _ROUNDING = 1e-9, 1e-14  # of a linear programme's numbers, and of those they are differences of


def cell_extremes(system: System, box: Box) -> tuple[np.ndarray, np.ndarray]:
    """The least and the most that each cell sum can be within the bounds."""
    return _extreme(system, box.lo), _extreme(system, box.hi)


def _extreme(system: System, side: np.ndarray) -> np.ndarray:
    if len(side) == 1:
        return common_extreme(system.weight, float(side[0]))
    values = weighted_bounds(side, system.weights)
    return np.bincount(as_numpy(system.cell), weights=values, minlength=len(system.weight))


def weighted_bounds(side: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(n,) bounds of samples in float64, times their weights where there are any."""
    values = side.astype(np.float64)
    # What has no weight adds nothing, even where its bound is infinite.
    return np.where(weights > 0, values, 0.0) * weights if len(weights) else values


def common_extreme(weight: np.ndarray, bound: float) -> np.ndarray:
    """(G,) the cell sums of samples that are all at the same bound."""
    if np.isfinite(bound):
        with np.errstate(over="ignore"):  # a sum past the range of floats is as good as an open one
            return weight * bound
    return np.where(weight > 0, bound, 0.0)


def statistic_scale(
    rows: Rows, absolute: np.ndarray, weight: np.ndarray, extremes: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """(K,) the size of the numbers that each statistic is made of and compared with.

    absolute, weight: (G,) sums of |y| and of weights by cell; extremes: what the sums of cells can be. To satisfy one
    row the outputs of its cells may have to move by its whole size. Other statistics of these cells then reach that
    size too, as far as the bounds let outputs go.
    """
    bounds = [np.where(np.isfinite(side), np.abs(side), 0.0) for side in (rows.lower, rows.upper)]
    own = np.maximum(*bounds)[rows.statistic_family]
    scale = np.maximum(rows.sizes(absolute), own)
    cell, size = rows.entry_cell, np.abs(rows.value)
    total = np.bincount(rows.statistic, weights=size * weight[cell], minlength=len(scale))
    apart = np.where(weight > 0, extremes[1] - extremes[0], 0.0) / np.where(weight > 0, weight, 1.0)
    for _ in range(_MOST_SPREAD):
        of_output = (scale / np.where(total > 0, total, 1.0))[rows.statistic]
        reach = np.zeros(len(weight))
        np.maximum.at(reach, cell, np.where(size > 0, of_output, 0.0))
        reach = np.minimum(reach, apart) * weight
        wider = np.bincount(rows.statistic, weights=size * reach[cell], minlength=len(scale))
        if (wider <= 2.0 * scale).all():
            break
        scale = np.maximum(scale, wider)
    return np.maximum(scale, max(1e-13 * float(scale.max(initial=0.0)), 1e-300))


def least_excess(
    rows: Rows, least: np.ndarray, most: np.ndarray, scale: np.ndarray, yielding: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """The smallest amount by which all rows must be widened to be feasible, and what stands in the way.

    It is 0 where rounding alone may have made it, or where no programme ends, as its numbers lie too far apart. scale:
    (K,) the size of the numbers that each statistic is made of; yielding: (F,) the families that may give way, all if
    None. The second is (K,): positive for statistics that would have to be lower, negative for those that would have to
    be higher.

    A linear programme is exact to some nine digits of its largest numbers. So an excess is looked for among the largest
    statistics first, and where there is none to speak of, some decades further down.
    """
    family = rows.statistic_family
    nearer = np.where(np.isfinite(least), least, np.where(np.isfinite(most), most, 0.0))
    sides = _sides(rows, rows.totals(nearer) - rows.offset)
    between = rows.totals(np.where(most > least, most - least, 0.0), absolute=True)
    far = np.maximum(*(np.where(np.isfinite(side), np.abs(side), 0.0) for side in sides))
    size = np.maximum(np.minimum(between + far, scale), 1e-15 * scale)
    unit = np.maximum.reduceat(size, rows.first[:-1])[family]  # every family in units of its own numbers
    units = unit[rows.present]
    level, lowest = float(units.max(initial=0.0)) or 1.0, float(units.min(initial=np.inf))
    found: tuple[float, np.ndarray] = (0.0, np.zeros(len(family)))
    while True:
        answer = _excess_at(rows, least, most, sides, np.maximum(unit, 10.0 * _NEXT_LEVEL * level), level, yielding)
        found = found if answer is None else answer  # what was found further up is as near as can be
        if answer is None or found[0] > _NEGLIGIBLE * level or level * _NEXT_LEVEL < lowest * _NEXT_LEVEL**0.5:
            break
        level *= _NEXT_LEVEL
    excess, conflict = found
    rounding = (_PROGRAMME * unit + _ROUNDING * scale)[conflict != 0].max(initial=0.0)
    return excess if excess > rounding else 0.0, conflict


def _sides(rows: Rows, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(K,) how far statistics q may rise and fall until they meet their bounds, infinite where there are none.

    The c of a family whose statistics are compared is counted from the greatest of them: what they have in common would
    take its digits.
    """
    family = rows.statistic_family
    greatest = np.maximum.reduceat(np.where(rows.present, q, -np.inf), rows.first[:-1])
    start = np.where((rows.kind == EACH) | ~np.isfinite(greatest), 0.0, greatest)[family]
    lower = np.where(rows.kind == EACH, rows.lower, 0.0)[family]
    return rows.upper[family] + start - np.where(rows.kind == EACH, 1.0, rows.ratio)[family] * q, q - start - lower


def _excess_at(
    rows: Rows,
    least: np.ndarray,
    most: np.ndarray,
    sides: tuple[np.ndarray, np.ndarray],
    unit: np.ndarray,
    level: float,
    yielding: np.ndarray | None,
) -> tuple[float, np.ndarray] | None:
    """The least excess by one linear programme, every cell sum from the nearer of its bounds.

    sides: what `_sides` returns at those sums; unit: (K,) what each statistic is measured in; level: what the excess is
    measured in.
    """
    G, K, F = len(least), len(rows.offset), len(rows.kind)
    family = rows.statistic_family
    # Cell sums in units in which their largest entry is 1, or of what lies between their bounds.
    reach = np.where(np.isfinite(most - least), most - least, np.inf)
    cell = rows.entry_cell
    largest = np.zeros(G)
    np.maximum.at(largest, cell, np.abs(rows.value) / unit[rows.statistic])
    width = 1.0 / np.where(largest > 0, largest, 1.0)
    width = np.where(reach > 0, np.minimum(width, reach), width)
    entries = scipy.sparse.csr_array(
        (rows.value * width[cell] / unit[rows.statistic], (rows.statistic, cell)), shape=(K, G), dtype=np.float64
    )
    kind, ratio = rows.kind[family], rows.ratio[family]
    coefficient = np.where(kind == EACH, 1.0, ratio)
    least_of_family = scipy.sparse.csr_array((np.where(kind == EACH, 0.0, 1.0), (np.arange(K), family)), shape=(K, F))
    above, below = (np.flatnonzero(rows.present & np.isfinite(side)) for side in sides)
    gives_way = np.ones(K) if yielding is None else yielding[family].astype(np.float64)
    to_unit = gives_way[:, None] * level / unit[:, None]  # what one unit of e does for a statistic
    upper_side, lower_side = (
        scipy.sparse.csr_array(-one) for one in (to_unit[above], (to_unit * (kind == EACH)[:, None])[below])
    )
    inequality = scipy.sparse.block_array(
        [
            [(entries * coefficient[:, None])[above], -least_of_family[above], upper_side],
            [-entries[below], least_of_family[below], lower_side],
        ]
    )
    limit = np.concatenate([(sides[0] / unit)[above], (sides[1] / unit)[below]])
    low = np.where(np.isfinite(least), 0.0, -np.inf)
    high = np.where(np.isfinite(most), np.where(np.isfinite(least), reach / width, 0.0), np.inf)
    answer = scipy.optimize.linprog(
        np.concatenate([np.zeros(G + F), [1.0]]),
        A_ub=inequality,
        b_ub=limit,
        bounds=np.column_stack(
            [np.concatenate([low, np.full(F, -np.inf), [0.0]]), np.concatenate([high, np.full(F + 1, np.inf)])]
        ),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if answer.x is None:
        return None
    conflict = np.zeros(K)
    price = np.abs(answer.ineqlin.marginals)
    price[price <= 1e-9] = 0.0
    np.add.at(conflict, above, price[: len(above)])
    np.subtract.at(conflict, below, price[len(above) :])
    return max(float(answer.x[-1]) * level, 0.0), conflict


def widened(
    rows: Rows, excess: float, scale: np.ndarray, yielding: np.ndarray | None = None
) -> Iterator[tuple[float, Rows]]:
    """Rows wider by what makes them feasible and a little, so that the solver has room; ever more until it does."""
    share = 1.0 if yielding is None else yielding.astype(np.float64)
    unit = np.maximum.reduceat(scale, rows.first[:-1])
    for room in (0.0, 1e-13, 1e-12, 1e-11, 1e-10, 1e-8, 1e-6, 1e-4):
        wider = share * (excess * (1.0 + room) + room * unit)
        yield float(np.max(wider, initial=0.0)), rows.between(rows.lower - wider, rows.upper + wider)
