"""The ledger: the projection with all that was emitted before as an offset.

After the next batch the pooled mean of group k is (what it was emitted before + what it is emitted now) / (counts of
both): affine in the batch. So a stream is the same projection, for any batch size down to 1. For mean parity it is
always feasible: emitting the overall mean m for every sample cannot widen any gap, whatever arrives (the group means
of one attribute lie on both sides of m, or at most their own range away from it). Where rounding or other constraints
leave no exact solution, that is the fallback, and after it the least violation.
"""

from __future__ import annotations

import numpy as np

from fairlayer.binding.exact_sums import UNIT
from fairlayer.binding.rows import COEFFICIENT, DIFFERENCE, EACH, KIND, LOWER, RATIO, UPPER
from fairlayer.compiled import compiled
from fairlayer.solve.twofold import times
from fairlayer.stream.cell_sums import COUNT, RAW, TARGET, TOTAL

# Places in a history: of each statistic, its weight so far, its sum in two parts, and a bound on the error of that.
_WEIGHT, _HIGH, _LOW, _DOUBT = range(4)


@compiled(inline=True)
def add_exactly(high, low, more):
    """high + low += more: the low part takes what the high one cannot hold, and is rounded itself."""
    total = high + more
    part = total - high
    return total, low + ((high - (total - part)) + (more - part))


@compiled(inline=True)
def _add(value, c, place, sums, error):
    """Add to the sum of a cell that begins at `place`, of outputs or of targets, and to the bound on its error."""
    high, low = add_exactly(sums[c, place], sums[c, place + 1], value)
    sums[c, place], sums[c, place + 1] = high, low
    error[c, 0 if place == TOTAL else 1] += UNIT * abs(low)


@compiled
def add_sums(values, cell, place, sums, error):
    """Add values to the sums of their cells that begin at `place`."""
    for i in range(values.size):
        _add(values[i], cell[i], place, sums, error)


@compiled
def number_table(table, start, width, number, cell):
    """The number of each row's cell, where all of a table's labels were met before; False if not.

    number: of each combination of labels, of which column j has width[j] from start[j] on; -1 where not met.
    """
    n, k = table.shape
    for i in range(n):
        at = 0
        for j in range(k):
            digit = table[i, j] - start[j]
            if digit < 0 or digit >= width[j]:
                return False
            at = at * width[j] + digit
        if number[at] < 0:
            return False
        cell[i] = number[at]
    return True


@compiled
def localised(cell, size):
    """The cells of a batch: which they are, the place of each sample's among them, and how many samples each has."""
    place = np.zeros(size, dtype=np.int32) - 1
    found = np.empty(cell.size, dtype=np.int64)
    local = np.empty(cell.size, dtype=np.int32)
    count = np.zeros(cell.size)
    filled = 0
    for i in range(cell.size):
        if place[cell[i]] < 0:
            place[cell[i]] = filled
            found[filled] = cell[i]
            filled += 1
        local[i] = place[cell[i]]
        count[local[i]] += 1.0
    return found[:filled].copy(), local, count[:filled].copy()


@compiled
def history(start, statistic, share, residual, sums, error):
    """(4, K) what each statistic has so far: weight, sum in two parts (of residuals, outputs less targets), doubt."""
    so_far = np.zeros((4, residual.size))
    for c in range(sums.shape[0]):
        for e in range(start[c], start[c + 1]):
            k, m = statistic[e], share[e]
            so_far[_WEIGHT, k] += m * sums[c, COUNT]
            high, low = add_exactly(so_far[_HIGH, k], so_far[_LOW, k], m * sums[c, TOTAL])
            low += m * sums[c, TOTAL + 1]
            doubt = m * error[c, 0] + UNIT * abs(low)
            if residual[k]:
                high, low = add_exactly(high, low, -m * sums[c, TARGET])
                low -= m * sums[c, TARGET + 1]
                doubt += m * error[c, 1] + UNIT * abs(low)
            so_far[_HIGH, k], so_far[_LOW, k] = high, low
            so_far[_DOUBT, k] += doubt
    return so_far


@compiled
def target_sums(targets, local, size):
    """The sum of a batch's targets in each of its cells: in two parts, and a bound on the error."""
    sums = np.zeros((size, 3))
    for i in range(targets.size):
        c = local[i]
        sums[c, 0], sums[c, 1] = add_exactly(sums[c, 0], sums[c, 1], targets[i])
        sums[c, 2] += UNIT * abs(sums[c, 1])
    return sums


@compiled
def pooled_rows(start, statistic, share, residual, so_far, cells, count, targets, first, family):
    """The rows after the batch, as functions of the sums of its cells: the parts of `Rows`.

    Rows that the batch cannot move are left out; where some of a family already exceed its bound, the bound is theirs.
    """
    K, size = residual.size, 0
    weight, here, doubt = so_far[_WEIGHT].copy(), np.zeros(K, dtype=np.bool_), so_far[_DOUBT].copy()
    high, low = so_far[_HIGH].copy(), so_far[_LOW].copy()
    for a in range(cells.size):
        for e in range(start[cells[a]], start[cells[a] + 1]):
            k, m = statistic[e], share[e]
            here[k] = True
            size += 1
            weight[k] += m * count[a]
            if residual[k]:
                high[k], low[k] = add_exactly(high[k], low[k], -m * targets[a, 0])
                low[k] -= m * targets[a, 1]
                doubt[k] += m * targets[a, 2] + UNIT * abs(low[k])
    local_start, local_statistic = np.zeros(cells.size + 1, dtype=np.int64), np.empty(size, dtype=np.int64)
    value, offset, present = np.empty(size), np.zeros(K), np.zeros(K, dtype=np.bool_)
    at = 0
    for a in range(cells.size):
        for e in range(start[cells[a]], start[cells[a] + 1]):
            local_statistic[at] = statistic[e]
            value[at] = share[e] / weight[statistic[e]]
            at += 1
        local_start[a + 1] = at
    for k in range(K):
        if weight[k] > 0.0:
            offset[k] = -(high[k] + low[k]) / weight[k]
            doubt[k] = doubt[k] / weight[k] + 4.0 * UNIT * abs(offset[k])
    bounds = family.copy()
    for f in range(first.size - 1):
        moved, lowest, highest, off = False, np.inf, -np.inf, 0.0
        for k in range(first[f], first[f + 1]):
            moved = moved or here[k]
            if weight[k] > 0.0:
                off = max(off, doubt[k])
                if not here[k]:
                    lowest, highest = min(lowest, -offset[k]), max(highest, -offset[k])
        for k in range(first[f], first[f + 1]):
            present[k] = moved and weight[k] > 0.0
        if family[KIND, f] != EACH:
            off *= 2.0
        off = min(off, 0.25 * (family[UPPER, f] - family[LOWER, f]))
        bounds[UPPER, f] -= off
        bounds[LOWER, f] += off
        if family[KIND, f] == DIFFERENCE and highest - lowest > bounds[UPPER, f]:
            bounds[UPPER, f] = (highest - lowest) * (1.0 + 8.0 * UNIT)
            bounds[LOWER, f] = -bounds[UPPER, f]
        if family[KIND, f] == RATIO and family[COEFFICIENT, f] * highest - lowest > bounds[UPPER, f]:
            beyond = family[COEFFICIENT, f] * highest - lowest
            bounds[UPPER, f] = beyond + 8.0 * UNIT * (abs(highest) + abs(lowest))
    return local_start, local_statistic, value, offset, present, bounds


@compiled(inner=True)
def _mean(high, low, weight):
    """A sum in two parts over a weight, rounded once: outputs that are all alike are their mean."""
    mean = (high + low) / weight
    product, rest = times(mean, 0.0, weight, 0.0)
    more = (((high - product) + low) - rest) / weight
    return mean + more if abs(more) < np.inf else mean  # of huge numbers there is no product


@compiled
def pooled_statistics(so_far):
    """(K,) the mean of each statistic now."""
    q = np.zeros(so_far.shape[1])
    for k in range(q.size):
        if so_far[_WEIGHT, k] > 0.0:
            q[k] = _mean(so_far[_HIGH, k], so_far[_LOW, k], so_far[_WEIGHT, k])
    return q


@compiled
def settle(z, out, counted, cell, sums, error, square, width):
    """Enter an emitted batch: counts, and exact sums of what is counted, the outputs themselves or decisions.

    width: outputs of each sample, which follow each other; its change is that of the output that changed most.
    Returns (samples changed, sum, sum of squares and largest of the changes).
    """
    changed, change, square_change, largest, most = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(z.size):
        c, y = cell[i], float(counted[i])
        sums[c, COUNT] += 1.0
        _add(y, c, TOTAL, sums, error)
        square[c] += y * y
        most = max(most, abs(float(out[i]) - float(z[i])))
        if (i + 1) % width == 0:
            changed += 1.0 if most > 0.0 else 0.0
            change += most
            square_change += most * most
            largest = max(largest, most)
            most = 0.0
    return changed, change, square_change, largest


@compiled
def note_raw(raw, value, cell, sums, moments):
    """Enter raw outputs into the sums of their cells, and both into the running moments.

    moments: count, means of raw outputs and of decisions, and sums of their squared deviations and of the products.
    """
    for i in range(raw.size):
        sums[cell[i], RAW] += raw[i]
        moments[0] += 1.0
        step, other = raw[i] - moments[1], value[i] - moments[2]
        moments[1] += step / moments[0]
        moments[2] += other / moments[0]
        moments[3] += step * (raw[i] - moments[1])
        moments[4] += other * (value[i] - moments[2])
        moments[5] += step * (value[i] - moments[2])


@compiled
def note_shares(value, cell, membership, plus, minus, shares):
    """What Lemma 3.1 needs of a batch, for each row between two groups that are both in it.

    shares: of each row, the least and greatest share of its first group in a batch, the largest absolute group mean and
    gap of a batch, and the number of batches that hold both groups.
    """
    G, K = membership.shape
    batch_count, batch_sum = np.zeros(G), np.zeros(G)
    for i in range(cell.size):
        batch_count[cell[i]] += 1.0
        batch_sum[cell[i]] += value[i]
    count, mean = np.zeros(K), np.zeros(K)
    for k in range(K):
        for c in range(G):
            count[k] += membership[c, k] * batch_count[c]
            mean[k] += membership[c, k] * batch_sum[c]
        mean[k] /= max(count[k], 1.0)
    for j in range(plus.size):
        a, b = plus[j], minus[j]
        if b < 0 or count[a] == 0.0 or count[b] == 0.0:
            continue
        share = count[a] / (count[a] + count[b])
        shares[j, 0] = min(shares[j, 0], share)
        shares[j, 1] = max(shares[j, 1], share)
        shares[j, 2] = max(shares[j, 2], abs(mean[a]), abs(mean[b]))
        shares[j, 3] = max(shares[j, 3], abs(mean[a] - mean[b]))
        shares[j, 4] += 1.0
