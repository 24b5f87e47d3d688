"""The ledger: the projection with all that was emitted before as an offset.

After the next batch the pooled mean of group k is (what it was emitted before + what it is emitted now) / (counts of
both): affine in the batch. So a stream is the same projection, for any batch size down to 1. For mean parity it is
always feasible: emitting the overall mean m for every sample cannot widen any gap, whatever arrives (the group means
of one attribute lie on both sides of m, or at most their own range away from it). Where rounding or other constraints
leave no exact solution, that is the fallback, and after it the least violation.
"""

from __future__ import annotations

import numpy as np

from fairlayer.binding.cells import count_cells, exact_sums
from fairlayer.binding.rows import Rows
from fairlayer.compiled import compiled
from fairlayer.solve.certify import all_hold, shortfalls
from fairlayer.solve.fused import largest_magnitude, reach_and_magnitude, solve_fused
from fairlayer.stream.cell_sums import COUNT, TARGET, TOTAL


@compiled
def add_exactly(high, low, more):
    """high + low += more, without rounding: the low part takes what the high one cannot hold."""
    total = high + more
    part = total - high
    return total, low + ((high - (total - part)) + (more - part))


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
def history(membership, residual, sums, k):
    """What a statistic has so far: its weight, and its sum in two parts; of residuals, outputs less targets."""
    weight, high, low = 0.0, 0.0, 0.0
    for c in range(sums.shape[0]):
        m = membership[c, k]
        if m != 0.0:
            weight += m * sums[c, COUNT]
            high, low = add_exactly(high, low, m * sums[c, TOTAL])
            low += m * sums[c, TOTAL + 1]
            if residual[k]:
                high, low = add_exactly(high, low, -m * sums[c, TARGET])
                low -= m * sums[c, TARGET + 1]
    return weight, high, low


@compiled
def target_sums(targets, cell, size):
    """The sum of a batch's targets in each cell, in two parts."""
    sums = np.zeros((size, 2))
    for i in range(targets.size):
        c = cell[i]
        sums[c, 0], sums[c, 1] = add_exactly(sums[c, 0], sums[c, 1], targets[i])
    return sums


@compiled
def pooled_rows(membership, residual, sums, batch_count, batch_target, plus, minus, lower, upper):
    """The rows after the batch, as functions of its cell sums; only those the batch can move, and which they are."""
    G, K = membership.shape
    M, constant = np.zeros((G, K)), np.zeros(K)
    here = np.zeros(K, dtype=np.bool_)
    for k in range(K):
        weight, high, low = history(membership, residual, sums, k)
        for c in range(G):
            m = membership[c, k]
            if m != 0.0 and batch_count[c] > 0.0:
                here[k] = True
                weight += m * batch_count[c]
                if residual[k]:
                    high, low = add_exactly(high, low, -m * batch_target[c, 0])
                    low -= m * batch_target[c, 1]
        if weight > 0.0:
            constant[k] = -(high + low) / weight
            for c in range(G):
                M[c, k] = membership[c, k] / weight
    moved = np.empty(plus.size, dtype=np.int64)
    size = 0
    for j in range(plus.size):
        if here[plus[j]] or (minus[j] >= 0 and here[minus[j]]):
            moved[size] = j
            size += 1
    moved = moved[:size]
    return Rows(M, constant, plus[moved], minus[moved], lower[moved], upper[moved]), moved


@compiled
def with_batch_rows(rows, membership, residual, batch_count, batch_target, plus, minus, lower, upper):
    """`rows`, followed by those of the batch alone: the same differences, of means within it."""
    G, K = membership.shape
    M, constant = np.zeros((G, 2 * K)), np.zeros(2 * K)
    M[:, :K], constant[:K] = rows.M, rows.offset
    here = np.zeros(K, dtype=np.bool_)
    for k in range(K):
        weight, high, low = 0.0, 0.0, 0.0
        for c in range(G):
            m = membership[c, k]
            if m != 0.0 and batch_count[c] > 0.0:
                weight += m * batch_count[c]
                if residual[k]:
                    high, low = add_exactly(high, low, m * batch_target[c, 0])
                    low += m * batch_target[c, 1]
        if weight > 0.0:
            here[k] = True
            constant[K + k] = (high + low) / weight
            for c in range(G):
                M[c, K + k] = membership[c, k] / weight
    kept = np.empty(plus.size, dtype=np.int64)
    size = 0
    for j in range(plus.size):
        if here[plus[j]] and (minus[j] < 0 or here[minus[j]]):
            kept[size] = j
            size += 1
    kept = kept[:size]
    return Rows(
        M,
        constant,
        np.concatenate((rows.plus, plus[kept] + K)),
        np.concatenate((rows.minus, np.where(minus[kept] < 0, minus[kept], minus[kept] + K))),
        np.concatenate((rows.lower, lower[kept])),
        np.concatenate((rows.upper, upper[kept])),
    )


@compiled
def leader_shift(membership, price):
    """The leader's shift of each cell: the sum of its statistics' prices."""
    G, K = membership.shape
    shift = np.zeros(G)
    for c in range(G):
        for k in range(K):
            shift[c] += membership[c, k] * price[k]
    return shift


@compiled
def ledger_step(
    z, cell, lo, hi, unit, targets, sums, membership, residual, plus, minus, lower, upper, shift, each_batch, out
):  # fmt: skip
    """Emit one batch into `out`: the leader's shift, then the nearest outputs that keep the pooled rows.

    targets: of the batch, or empty; residual: which statistics they are taken from.
    each_batch: keep the batch's own rows too.
    Returns (outcome, whether all rows hold, multipliers of all rows, the rows moved, extremes of cell sums).
    """
    n, G = z.size, sums.shape[0]
    batch_count = count_cells(cell, G)
    batch_target = target_sums(targets, cell, G)
    rows, moved = pooled_rows(membership, residual, sums, batch_count, batch_target, plus, minus, lower, upper)
    if each_batch:
        rows = with_batch_rows(rows, membership, residual, batch_count, batch_target, plus, minus, lower, upper)
    led = np.empty(n)
    for i in range(n):
        led[i] = z[i] - shift[cell[i]]
    low, high = float(lo[0]), float(hi[0])
    least, most = np.zeros(G), np.zeros(G)
    for c in range(G):
        if batch_count[c] > 0.0:
            least[c], most[c] = batch_count[c] * low, batch_count[c] * high
    extent = largest_magnitude(led)
    reach, magnitude = reach_and_magnitude(-extent, extent, low, high)
    empty = np.empty(0)
    end = solve_fused(
        led, cell, empty, batch_count, batch_count, lo, hi, least, most, reach, magnitude, unit, rows, out
    )
    multipliers = np.zeros(plus.size)
    for a in range(moved.size):
        multipliers[moved[a]] = end[1][a]
    return end[0], all_hold(end[5]), multipliers, rows, least, most


@compiled
def constant_step(cell, value, rows, out):
    """Emit one value for all; whether the rows hold then."""
    for i in range(out.size):
        out[i] = value
    G = rows.M.shape[0]
    S, error = np.zeros(G), np.zeros(G)
    exact_sums(out, cell, np.empty(0), S, error)
    return all_hold(shortfalls(rows, S, error))


@compiled
def settle(z, out, cell, sums, square, ring, ring_count, past):
    """Enter an emitted batch: counts, exact sums, and what the leader learns from.

    Returns (samples changed, sum, sum of squares and largest of the changes).
    """
    changed, change, square_change, largest = 0.0, 0.0, 0.0, 0.0
    size = ring.shape[1]
    for i in range(z.size):
        c, y, raw = cell[i], float(out[i]), float(z[i])
        sums[c, COUNT] += 1.0
        sums[c, TOTAL], sums[c, TOTAL + 1] = add_exactly(sums[c, TOTAL], sums[c, TOTAL + 1], y)
        square[c] += y * y
        learn(ring, ring_count, past, size, c, raw)
        difference = abs(y - raw)
        changed += 1.0 if difference > 0.0 else 0.0
        change += difference
        square_change += difference * difference
        largest = max(largest, difference)
    return changed, change, square_change, largest


@compiled
def learn(ring, ring_count, past, size, c, raw):
    """One raw output for the leader: into the ring of its cell, and into the running mean of the current block."""
    ring[c, int(ring_count[c]) % size] = raw
    ring_count[c] += 1.0
    block = past[c, 1]
    block[0] += 1.0
    step = raw - block[1]
    block[1] += step / block[0]
    block[2] += step * (raw - block[1])


@compiled
def pooled_gaps(membership, residual, sums, plus, minus):
    """Value of each row now."""
    q = np.zeros(residual.size)
    for k in range(q.size):
        weight, high, low = history(membership, residual, sums, k)
        if weight > 0.0:
            q[k] = (high + low) / weight
    gaps = np.empty(plus.size)
    for j in range(plus.size):
        gaps[j] = q[plus[j]] - (q[minus[j]] if minus[j] >= 0 else 0.0)
    return gaps


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
