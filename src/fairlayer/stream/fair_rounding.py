"""The ledger of decisions: yes and no, one at a time, as the rounding of a table that is fair to the last digit.

Beside the yeses P of every cell there is always a *fair table*: numbers v, not whole, within half a decision of P in
every cell, such that the rates that v gives to the groups of each attribute lie within a range that its constraint
admits (a width of at most the tolerance; or ends in the given ratio), and one rate q lies within all these ranges.

Such a table can be kept for ever. Whoever comes next adds q to v in their cell, which moves no rate out of its range;
and of yes and no, one leaves P within half a decision of v there. So a group of L cells with N decisions is always
within L / (2 N) of a fair rate. The leader's wish is granted wherever some fair table is near the counts it leads to;
otherwise it is overruled.

All of this is in whole numbers: rates and tables in units of 2^-30, tolerances rounded down and ratios up to them. It
is exact up to 2^31 decisions.
"""

from __future__ import annotations

import numpy as np

from fairlayer.binding.rows import RATIO
from fairlayer.compiled import compiled
from fairlayer.stream.cell_sums import COUNT, TOTAL

UNITS = 1 << 30  # of 1
HALF = UNITS // 2
SWEEPS = 12  # in search of a fair table


def limit_units(kind: np.ndarray, ratio: np.ndarray, tolerance: np.ndarray) -> np.ndarray:
    """(F,) what each family admits, in units: the width of a range of rates, or the ratio of its ends."""
    width = np.floor(np.minimum(tolerance, 1.0) * UNITS)  # exact: a power of two takes no digit away
    return np.where(kind == RATIO, np.ceil(ratio * UNITS), width).astype(np.int64)


@compiled(inline=True)
def _admits(kind, limit, low, high):
    """Whether rates from low to high may stand beside each other."""
    return low * UNITS >= limit * high if kind == RATIO else high - low <= limit


@compiled
def _counts_are_fair(first, kind, limit, count, yes):
    """Whether the rates of the groups are within bounds as they are."""
    for f in range(kind.size):
        low, high = UNITS, 0
        for k in range(first[f], first[f + 1]):
            if count[k] > 0:
                low = min(low, (UNITS * yes[k]) // count[k])
                high = max(high, -((-UNITS * yes[k]) // count[k]))
        if not _admits(kind[f], limit[f], low, high):
            return False
    return True


@compiled
def _near_one_range(kind, limit, count, yes, middle, off):
    """A fair table whose cells, too, are in one range: the rate of all, or -1 where there is none.

    With one attribute, whose groups are the cells, it is found wherever there is one.
    """
    low, high = UNITS, 0
    for c in range(count.size):
        if count[c] > 0:
            low = min(low, (UNITS * (2 * yes[c] + 1)) // (2 * count[c]))
            high = max(high, -((-UNITS * (2 * yes[c] - 1)) // (2 * count[c])))
    if high <= low:
        low = high = min(max(middle, high), low)
    for f in range(kind.size):
        if not _admits(kind[f], limit[f], low, high):
            return -1
    for c in range(count.size):
        whole = UNITS * yes[c]
        off[c] = min(max(whole, low * count[c]), high * count[c]) - whole
    return min(max(middle, low), high)


@compiled
def _near_ranges(group, first, kind, limit, count, yes, cells, cell_count, off):
    """A fair table of overlapping attributes, looked for by moving one attribute's rates into a range after another's.

    Cells without decisions stay at 0: half a decision is promised only for each of the others.
    Returns whether one was found: what it is off the counts is then in `off`.
    """
    F, occupied = group.shape[1], np.flatnonzero(cell_count)
    low, high = np.zeros(F, dtype=np.int64), np.zeros(F, dtype=np.int64)
    for f in range(F):
        least, most = UNITS, 0  # ends that leave room for a range with every group within reach of it
        for k in range(first[f], first[f + 1]):
            if count[k] > 0:
                least = min(least, (UNITS * (2 * yes[k] + cells[k])) // (2 * count[k]))
                most = max(most, -((-UNITS * (2 * yes[k] - cells[k])) // (2 * count[k])))
        highest = (least * UNITS) // limit[f] if kind[f] == RATIO else least + limit[f]
        if highest < most:
            return False
        high[f] = min((most + highest) // 2, UNITS)
        low[f] = -((-limit[f] * high[f]) // UNITS) if kind[f] == RATIO else max(high[f] - limit[f], 0)
    off[:] = 0
    K = count.size
    total, up, down = np.empty(K, dtype=np.int64), np.empty(K), np.empty(K)
    for _ in range(SWEEPS + 1):
        fair = True
        for f in range(F):
            begin, end = first[f], first[f + 1]
            for k in range(begin, end):
                total[k], up[k], down[k] = UNITS * yes[k], 0.0, 0.0
            for c in occupied:
                k = group[c, f]
                total[k] += off[c]
                up[k] += HALF - off[c]
                down[k] += HALF + off[c]
            for k in range(begin, end):
                bottom, top = low[f] * count[k], high[f] * count[k]
                inside = bottom <= total[k] and total[k] <= top
                fair = fair and inside
                inwards = (top - bottom) // 64  # a little beyond the end, or the sweeps would only ever approach it
                total[k] = 0 if inside else min(max(total[k], bottom + inwards), top - inwards) - total[k]
            for c in occupied:
                move = total[group[c, f]]
                if move > 0:
                    share = int(move * ((HALF - off[c]) / max(up[group[c, f]], 1.0)))
                    off[c] = min(off[c] + share, HALF)
                elif move < 0:
                    share = int(move * ((HALF + off[c]) / max(down[group[c, f]], 1.0)))
                    off[c] = max(off[c] + share, -HALF)
        if fair:
            return True
    return False


@compiled
def decide(wanted, cell, group, first, kind, limit, sums, off, level, decided):
    """Decide a batch one by one, in order: as wanted where a fair table is near, otherwise the other way.

    group: (G, F) the group of each cell in each family. off: (G,) how far the fair table is off the counts, in units;
    level: the rate that lies in all its ranges, -1 before the first decision. Returns (overruled, level).
    """
    G, F = group.shape
    K = first[F]
    cell_count, cell_yes = sums[:, COUNT].astype(np.int64), sums[:, TOTAL].astype(np.int64)
    count, yes, cells = np.zeros(K, dtype=np.int64), np.zeros(K, dtype=np.int64), np.zeros(K, dtype=np.int64)
    kept, found = off.astype(np.int64), np.empty(G, dtype=np.int64)
    samples, all_yes = cell_count.sum(), cell_yes.sum()
    for c in range(G):
        for f in range(F):
            k = group[c, f]
            count[k] += cell_count[c]
            yes[k] += cell_yes[c]
            cells[k] += 1 if cell_count[c] > 0 else 0
    overruled = 0
    for i in range(cell.size):
        c = cell[i]
        for f in range(F):
            count[group[c, f]] += 1
            cells[group[c, f]] += 1 if cell_count[c] == 0 else 0
        cell_count[c] += 1
        samples += 1
        for attempt in range(2):
            answer = int(wanted[i]) if attempt == 0 else 1 - int(wanted[i])
            cell_yes[c] += answer
            all_yes += answer
            for f in range(F):
                yes[group[c, f]] += answer
            middle = (UNITS * all_yes) // samples
            if _counts_are_fair(first, kind, limit, count, yes):
                found[:] = 0
                there = middle
            else:
                there = _near_one_range(kind, limit, cell_count, cell_yes, middle, found)
                if (
                    there < 0
                    and F > 1
                    and _near_ranges(group, first, kind, limit, count, yes, cells, cell_count, found)
                ):
                    there = (UNITS * all_yes + found.sum()) // samples
            if there >= 0:
                kept[:] = found
                level = there
                break
            moved = kept[c] + level - UNITS * answer
            if abs(moved) <= HALF:  # of one of the two this is always so
                kept[c] = moved
                break
            cell_yes[c] -= answer
            all_yes -= answer
            for f in range(F):
                yes[group[c, f]] -= answer
        decided[i] = answer
        overruled += 1 if answer != int(wanted[i]) else 0
    off[:] = kept
    return overruled, level
