"""The leader of a stream of decisions: a threshold for every cell, so that the ledger seldom has to overrule.

Overruling is dear, for it hits whoever comes, however far their score is from the threshold. So what was decided so far
is made up for by moving thresholds: the stream is taken to go on as it has been for a tenth as long again, and the
thresholds are found that bring all rates, those decided and those to come, into their ranges at the least squared
change. As for means, the leader aims inside the tolerance by some standard deviations of the pooled gap.

Moving a score across its threshold costs the square of its distance, so the last one moved says what a change of a
cell's rate costs. Each group has a price; the prices of its groups add up to what a cell pays at most, and its
threshold is moved by the root of that. One attribute after the other, prices are found that put its rates into the best
range, given the prices of the others.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fairlayer.binding.bounds import Box
from fairlayer.compiled import compiled
from fairlayer.stream.cell_index import CellIndex
from fairlayer.stream.cell_sums import CellSums
from fairlayer.stream.leader import Leader, note_blocks
from fairlayer.stream.score_sketch import cumulated, fade, note_scores, share_above

ROUNDS = 3  # through the attributes, in one solve
HALVINGS = 16  # of the interval that the upper end of a range is looked for in
CLOSE = 1e-6  # to a rate that is aimed at
MARGIN = 0.7  # as for means, but overruling a decision is dearer than repairing a mean
FORGOTTEN = 0.25  # of the scores since a drift: what those before it still count together


@compiled(inline=True)
def signed_root(x):
    """The root of a number's size, with its sign."""
    return math.sqrt(x) if x >= 0.0 else -math.sqrt(-x)


@compiled
def _rate(shares, unit, members, price, rest, future, count, yes):
    """The rate of a group of cells, decided and to come, at a price of its own besides the rest."""
    for c in members:
        if future[c] > 0.0:
            count += future[c]
            yes += future[c] * share_above(shares, c, signed_root(rest[c] + price), unit)
    return yes / count


@compiled
def _price(shares, unit, members, target, start, rest, future, count, yes):
    """The price at which a group has the rate `target`, or comes nearest to it; looked for from `start` on."""
    far = unit * 2.0**16
    y = min(max(signed_root(start), -far), far)
    value = _rate(shares, unit, members, y * abs(y), rest, future, count, yes) - target
    if abs(value) <= CLOSE:
        return start
    step = max(0.125 * abs(y), unit * 2.0**-8)
    left = right = y
    at_left = at_right = value
    while value > 0.0 and right < far:  # rates fall with the price
        left, at_left = right, at_right
        right = min(right + step, far)
        at_right = value = _rate(shares, unit, members, right * abs(right), rest, future, count, yes) - target
        step *= 3.0
    while value < 0.0 and at_left < 0.0 and left > -far:
        right, at_right = left, at_left
        left = max(left - step, -far)
        at_left = value = _rate(shares, unit, members, left * abs(left), rest, future, count, yes) - target
        step *= 3.0
    if at_left <= 0.0 or at_right >= 0.0:  # out of reach
        y = left if at_left <= 0.0 else right
        return y * abs(y)
    side = 0
    for _ in range(30):
        y = (left * at_right - right * at_left) / (at_right - at_left)
        value = _rate(shares, unit, members, y * abs(y), rest, future, count, yes) - target
        if abs(value) <= CLOSE or right - left <= 1e-9 * unit:
            break
        if value > 0.0:
            left, at_left = y, value
            if side == 1:
                at_right *= 0.5
            side = 1
        else:
            right, at_right = y, value
            if side == -1:
                at_left *= 0.5
            side = -1
    return y * abs(y)


@compiled
def solve_prices(shares, unit, group, first, coefficient, width, future, count, yes, price):
    """Find the price of every group, in place: of each family, rates between coefficient * top - width and top."""
    G, F = group.shape
    K = price.size
    order, begin = np.empty((F, G), dtype=np.int64), np.zeros((F, K + 1), dtype=np.int64)
    for f in range(F):  # the cells of each group
        order[f] = np.argsort(group[:, f], kind="mergesort")
        for c in range(G):
            begin[f, group[c, f] + 1] += 1
        for k in range(K):
            begin[f, k + 1] += begin[f, k]
    rest, total = np.empty(G), count.copy()
    for c in range(G):
        for f in range(F):
            total[group[c, f]] += future[c]
    free, wanted = np.zeros(K), np.zeros(K)
    for _ in range(ROUNDS if F > 1 else 1):
        moved = 0.0
        for f in range(F):
            for c in range(G):
                rest[c] = 0.0
                for other in range(F):
                    if other != f:
                        rest[c] += price[group[c, other]]
            least, most = np.inf, -np.inf
            for k in range(first[f], first[f + 1]):
                if total[k] > 0.0:
                    members = order[f, begin[f, k] : begin[f, k + 1]]
                    free[k] = _rate(shares, unit, members, 0.0, rest, future, count[k], yes[k])
                    least, most = min(least, free[k]), max(most, free[k])
            bottom, top = (least + width[f]) / coefficient[f], most
            if not bottom < top:  # all in range by themselves
                for k in range(first[f], first[f + 1]):
                    moved = max(moved, abs(price[k]))
                    price[k] = 0.0
                continue
            for k in range(first[f], first[f + 1]):
                wanted[k] = price[k]
            for _ in range(HALVINGS):
                high = 0.5 * (bottom + top)
                low = coefficient[f] * high - width[f]
                push = 0.0  # what raising the range would save, and what it would cost
                for k in range(first[f], first[f + 1]):
                    if total[k] > 0.0 and (free[k] > high or free[k] < low):
                        members = order[f, begin[f, k] : begin[f, k + 1]]
                        target = high if free[k] > high else low
                        wanted[k] = _price(shares, unit, members, target, wanted[k], rest, future, count[k], yes[k])
                        push += (1.0 if free[k] > high else coefficient[f]) * total[k] * wanted[k]
                    else:
                        wanted[k] = 0.0
                if push > 0.0:
                    bottom = high
                else:
                    top = high
            for k in range(first[f], first[f + 1]):
                moved = max(moved, abs(signed_root(wanted[k]) - signed_root(price[k])))
                price[k] = wanted[k]
        if moved <= 1e-3 * unit:
            break


@compiled
def _coming(near, weight, past, future):
    """(G,) how many samples of each cell are to come. Cells that drifted forget what was before it."""
    seen, coming = 0.0, np.zeros(weight.size)
    for c in range(weight.size):
        coming[c] = past[c, 0, 0] + past[c, 1, 0]
        seen += coming[c]
        if weight[c] > coming[c]:
            fade(near, weight, c, FORGOTTEN * coming[c] / weight[c])
    return coming * (future / max(seen, 1.0))


class ThresholdLeader(Leader):
    """The leader of a stream of decisions: what it finds are thresholds."""

    margin = MARGIN

    def __init__(self, book: CellIndex, account: CellSums, threshold: float):
        super().__init__(book, account)
        self.threshold = threshold
        self._thresholds: tuple[Any, np.ndarray] = None, np.zeros(0)

    def thresholds(self) -> np.ndarray:
        """Of each cell."""
        shift = self.shift()
        if self._thresholds[0] is not shift:
            self._thresholds = shift, self.threshold + np.copysign(np.sqrt(np.abs(shift)), shift)
        return self._thresholds[1]

    def learn(self, raw: np.ndarray, cell: np.ndarray) -> None:
        """Take note of raw scores."""
        cells, numbers = self.account.cells, self.account.numbers
        unit = numbers["distance"]
        numbers["distance"] = note_scores(raw, cell, self.threshold, cells["near"], cells["weight"], unit)
        note_blocks(raw, cell, cells["past"])

    def resolve(self, box: Box) -> None:
        """Find the prices anew: the least change of what is expected, with the ledger as an offset."""
        account, plan = self.account, self.book.plan
        cells, unit = account.cells, account.numbers["distance"]
        horizon = self.horizon()
        if unit == 0.0 or not len(plan.kind):
            return
        future = _coming(cells["near"], cells["weight"], cells["past"], horizon)
        count, yes = plan.totals(account.count), plan.totals(account.total)
        width = self.aims(count, horizon)
        price = self.prices()
        group = plan.statistic.reshape(plan.size, len(plan.kind))
        shares = cumulated(cells["near"], cells["weight"])
        solve_prices(shares, unit, group, plan.first, plan.ratio, width, future, count, yes, price)
        self.set_prices(price)
