"""The leader of a stream of class probabilities: a shift of every cell and class.

As for one output, the stream is taken to go on as it has been for a tenth as long again, and the projection of that
future, on the simplex and with the ledger as its offset, gives the prices of groups in every class.
"""

from __future__ import annotations

import numpy as np

from fairlayer.binding.bounds import Box
from fairlayer.compiled import compiled
from fairlayer.solve.class_driver import Found, aim
from fairlayer.solve.class_rows import by_class, class_problem, spread_multipliers
from fairlayer.stream.cell_sums import RING
from fairlayer.stream.leader import Leader


@compiled
def coming_points(ring, ring_count, past, future, classes):
    """The samples expected: the rings of each cell's classes, moved to their means, weighted to last until the horizon.

    No probability falls to less than half of itself. Returns (points, cells, weights, weight of each cell and class).
    """
    G, d = ring_count.size // classes, classes
    size, seen, mass, mean = 0, 0.0, np.zeros(G), np.zeros((G, d))
    for c in range(G):
        size += min(int(ring_count[c * d]), RING)
        for j in range(d):  # a drift may have been found in some classes, and the rest forgotten of these
            before, block = past[c * d + j, 0], past[c * d + j, 1]
            known = before[0] + block[0]
            if known > 0.0:
                mean[c, j] = (before[0] * before[1] + block[0] * block[1]) / known
            mass[c] = max(mass[c], known)
        seen += mass[c]
    z, cell, weight = np.empty((size, d)), np.empty(size, dtype=np.int32), np.empty(size)
    cell_weight = np.zeros(G * d)
    at = 0
    for c in range(G):
        kept = min(int(ring_count[c * d]), RING)
        if kept == 0:
            continue
        own = future * mass[c] / seen
        for j in range(d):
            cell_weight[c * d + j] = own
            middle = ring[c * d + j, :kept].mean()
            for i in range(kept):
                z[at + i, j] = max(ring[c * d + j, i] + (mean[c, j] - middle), 0.5 * ring[c * d + j, i])
        for i in range(kept):
            z[at + i] /= z[at + i].sum()
            cell[at + i], weight[at + i] = c, own / kept
        at += kept
    return z, cell, weight, cell_weight


class ClassLeader(Leader):
    """The leader of one stream of class probabilities."""

    margin = 0.8  # more than for one output: several classes may make a repair necessary

    def resolve(self, box: Box) -> None:
        """Find the prices anew: project what is expected, with the ledger as an offset."""
        cells, plan, classes = self.account.cells, self.book.plan, self.book.width
        future = self.horizon()
        z, cell, weights, weight = coming_points(cells["ring"], cells["ring_count"], cells["past"], future, classes)
        if not len(z) or not len(plan.kind):
            return
        rows, some = self.rows_ahead(weight, future)
        ahead = by_class(rows, classes, 1, weight > 0.0)
        problem = class_problem(self.kind, z, cell, weights, ahead)
        found = Found.nothing(len(weight) // classes, len(ahead.family), classes)
        if not len(ahead.family) or aim(problem, problem.half, found):
            self.set_prices(spread_multipliers(found.nu, float(weights.sum()), ahead, len(some)) / some)
