"""One small problem with a matrix of rows of its own, by guesses: which outputs rest on a bound, which rows are held.

Given both, the multipliers solve one linear system, and the solution says which guesses were wrong. A few rounds are
enough as a rule. Nothing is promised: where they are not, or rows depend on each other, the answer is no, and the
general method of `newton` is asked instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairlayer.binding.exact_sums import UNIT
from fairlayer.compiled import compiled
from fairlayer.solve.active_set import backward, forward
from fairlayer.solve.certify import likely_move, tolerance_of

_MOST_ROUNDS, _MOST_GUESSES = 16, 24  # 2 or 3 rounds in practice, of 1 to 3 guesses each
_PATIENCE = 3  # guesses that need not be better than those before
_DEPENDENT = 1e-12  # a row whose squared distance to the span of the others is this small a share of its own
_MOST = 1e300  # of sums and multipliers: the rest of float64's range is left to differences
_LEAST = 1e-290  # more than products lose below the range of normal numbers; not below it, where all is slow

# Places in Room.row: multipliers, their change, values of the rows, their tolerance, where the rows are aimed at, the
# right side of the linear system, and by how much each row may be missed.
NU, _CHANGE, VALUE, _TOLERANCE, _LOW, _HIGH, RIGHT, MISSED = range(8)
# Places in Room.output: what is given, the shift, the output, and its slope, 0 on a bound. SHARE: 1 over the weight.
Z, LO, HI, SHARE, SHIFT, Y, SLOPE, _LINE = range(8)


class Room(NamedTuple):
    """Memory for one problem after another."""

    row: np.ndarray  # (8, m)
    output: np.ndarray  # (8, n)
    gram: np.ndarray  # (m, m)
    factor: np.ndarray  # (m, m)
    side: np.ndarray  # (m,) of the rows: 1 where held at its upper bound, -1 at its lower, 0 where free
    held: np.ndarray  # (m,) the rows that are


@compiled(inner=True)
def new_room(m, n):
    """Room for problems of m rows over n outputs."""
    side, held = np.zeros(m, dtype=np.int64), np.zeros(m, dtype=np.int64)
    return Room(np.zeros((8, m)), np.zeros((8, n)), np.zeros((m, m)), np.zeros((m, m)), side, held)


@compiled(reorder=True, small=True, borrows=True)
def _dot(a, b):
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@compiled(small=True, borrows=True)
def row_values(A, of_output, values):
    """A times a number of each output."""
    for k in range(values.size):
        values[k] = _dot(A[k], of_output)


@compiled(small=True, borrows=True)
def weighed_rows(A, of_row, of_output):
    """A' times a number of each row."""
    for c in range(of_output.size):
        of_output[c] = 0.0
    for k in range(of_row.size):
        amount, row = of_row[k], A[k]
        if amount != 0.0:
            for c in range(of_output.size):
                of_output[c] += amount * row[c]


@compiled(small=True, borrows=True)
def _evaluate(A, room):
    """Outputs, slopes and values of the rows at the multipliers."""
    output = room.output
    z, lo, hi, share = output[Z], output[LO], output[HI], output[SHARE]
    shift, of_output, slope = output[SHIFT], output[Y], output[SLOPE]
    weighed_rows(A, room.row[NU], shift)
    for c in range(z.size):
        shift[c] *= share[c]
        raw = z[c] - shift[c]
        y = min(max(raw, lo[c]), hi[c])
        of_output[c] = y
        slope[c] = share[c] if y == raw else 0.0
    row_values(A, of_output, room.row[VALUE])


@compiled(small=True, borrows=True)
def fill_gram(A, room):
    """A diag(slopes) A'."""
    line, slope, H = room.output[_LINE], room.output[SLOPE], room.gram
    for k in range(H.shape[0]):
        row = A[k]
        for c in range(line.size):
            line[c] = slope[c] * row[c]
        for i in range(k + 1):
            H[k, i] = H[i, k] = _dot(line, A[i])


@compiled(small=True, borrows=True)
def rows_hold(A, lower, upper, room):
    """Values of the rows of the output in twice the precision, and whether all certainly hold.

    As in certify.py, by how much each may be missed is its value and a bound on the error of this computation.
    """
    y, values, missed = room.output[Y], room.row[VALUE], room.row[MISSED]
    hold = True
    for k in range(missed.size):
        row, high, low, size = A[k], 0.0, 0.0, 0.0
        for c in range(y.size):
            part = row[c] * y[c]
            total = high + part
            back = total - high
            low += (high - (total - back)) + (part - back)
            high = total
            size += abs(part)
        q = high + low
        doubt = UNIT * (4.0 * size + 3.0 * abs(q)) + y.size * _LEAST
        missed[k] = max(q - upper[k], lower[k] - q) + doubt * (1.0 + 1e-9)
        values[k] = q
        hold = hold and missed[k] <= 0.0  # what is no number is not known to hold
    return hold


@compiled(small=True, borrows=True)
def solve_held(size, room):
    """Solve for the first `size` rows that are held, in place; how many remain without those that depend on others."""
    H, L, held, x = room.gram, room.factor, room.held, room.row[RIGHT]
    kept = 0
    for j in range(size):
        k = held[j]
        rest = H[k, k]
        for a in range(kept):
            total = H[k, held[a]]
            for e in range(a):
                total -= L[kept, e] * L[a, e]
            L[kept, a] = total / L[a, a]
            rest -= L[kept, a] * L[kept, a]
        if rest > _DEPENDENT * H[k, k]:
            L[kept, kept] = np.sqrt(rest)
            held[kept], x[kept] = k, x[j]
            kept += 1
    forward(L, kept, x)
    backward(L, kept, x)
    return kept


@compiled(small=True, borrows=True)
def _solve_guess(room):
    """The change of multipliers that takes rows where their sides say, and those without a side to zero.

    False where rows depend on each other.
    """
    row, H, side, held = room.row, room.gram, room.side, room.held
    change, x = row[_CHANGE], row[RIGHT]
    size = 0
    for k in range(side.size):
        change[k] = 0.0 if side[k] != 0 else -row[NU, k]
    for k in range(side.size):
        if side[k] != 0:
            held[size] = k
            x[size] = row[VALUE, k] - (row[_HIGH, k] if side[k] > 0 else row[_LOW, k])
            for i in range(side.size):
                x[size] -= H[k, i] * change[i]
            size += 1
    if solve_held(size, room) < size:
        return False
    for a in range(size):
        change[held[a]] = x[a]
    return True


@compiled(small=True, borrows=True)
def _better_side(k, room):
    """The side of a row by the last guess."""
    row, now = room.row, room.side[k]
    low, high, tolerance = row[_LOW, k], row[_HIGH, k], row[_TOLERANCE, k]
    if now == 0:
        value = row[VALUE, k] - _dot(room.gram[k], row[_CHANGE])
        now = 1 if value > high + tolerance else -1 if value < low - tolerance else 0
    elif (row[NU, k] + row[_CHANGE, k]) * now <= 0.0 and low < high:
        now = 0
    return now


@compiled(small=True, borrows=True)
def _step(room):
    """The change of multipliers to the optimum for outputs that rest on bounds as they do now; False if not found.

    All sides that prove wrong are changed at once, as long as fewer and fewer do; otherwise the last of them alone, so
    that guesses do not go round in circles (Murty's rule; Judice and Pires, Computers & OR 21, 1994).
    """
    side, nu = room.side, room.row[NU]
    fewest, patience = side.size + 1, _PATIENCE
    for _ in range(_MOST_GUESSES):
        if not _solve_guess(room):
            return False
        wrong, last = 0, 0
        for k in range(side.size):
            room.held[k] = _better_side(k, room)
            if room.held[k] != side[k]:
                wrong, last = wrong + 1, k
        if wrong == 0:
            for k in range(side.size):
                if not abs(nu[k] + room.row[_CHANGE, k]) <= _MOST:
                    return False
            return True
        if wrong < fewest:
            fewest, patience = wrong, _PATIENCE
        else:
            patience -= 1
        for k in range(side.size):
            if patience >= 0 or k == last:
                side[k] = room.held[k]
    return False


@compiled(small=True, borrows=True)
def _slope(room, ahead):
    """Slope of the negated dual along the last change, ahead of the multipliers or behind them."""
    row, total = room.row, 0.0
    for k in range(room.side.size):
        change, nu = row[_CHANGE, k], row[NU, k]
        if change != 0.0:
            above = nu > 0.0 or (nu == 0.0 and (change > 0.0) == ahead)
            total += change * ((row[_HIGH, k] if above else row[_LOW, k]) - row[VALUE, k])
    return total


@compiled(small=True, borrows=True)
def _move(A, room, share):
    """Move the multipliers by a share of the last change."""
    row, side = room.row, room.side
    for k in range(side.size):
        row[NU, k] += share * row[_CHANGE, k]
        if share == 1.0 and side[k] == 0:
            row[NU, k] = 0.0
    _evaluate(A, room)


@compiled(small=True, borrows=True)
def _is_optimal(room):
    """Whether every row is within its tolerance of where its multiplier says that it is."""
    row, side = room.row, room.side
    for k in range(side.size):
        above, below = row[VALUE, k] - row[_HIGH, k], row[_LOW, k] - row[VALUE, k]
        breach = abs(above) if side[k] > 0 else abs(below) if side[k] < 0 else max(above, below)
        if not breach <= row[_TOLERANCE, k]:
            return False
    return True


@compiled(small=True, borrows=True)
def _aim(A, lower, upper, unit, room):
    """Tolerances, and bounds moved inside by what rounding the output may move a row; False where rows all but hold."""
    row, size = room.row, room.output[_LINE]
    for c in range(size.size):
        size[c] = abs(room.output[Y, c])
    near = True
    for k in range(lower.size):
        scale = 0.0
        for c in range(size.size):
            scale += abs(A[k, c]) * size[c]
        tolerance = tolerance_of(float(size.size), scale, lower[k], upper[k])
        margin = min(likely_move(unit, scale, tolerance), 0.125 * (upper[k] - lower[k]))
        row[_TOLERANCE, k], row[_LOW, k], row[_HIGH, k] = tolerance, lower[k] + margin, upper[k] - margin
        near = near and row[MISSED, k] <= 16.0 * tolerance
    return not near  # only rational arithmetic can tell whether they do


@compiled(inner=True, borrows=True)
def find_output(A, lower, upper, unit, room):
    """Whether the output was found: shifts, and what they make of z but for the rounding to its dtype.

    unit: relative rounding error of that.
    """
    row, side, output = room.row, room.side, room.output
    largest, most = 0.0, 1.0
    for c in range(output.shape[1]):
        largest += abs(output[Z, c])
        most = max(most, 1.0 / output[SHARE, c])
    for k in range(side.size):
        row[NU, k] = 0.0
        side[k] = 0 if lower[k] < upper[k] else 1  # an equality is held in any case
    _evaluate(A, room)
    if not largest * most * output.shape[1] <= _MOST:  # or it is no number
        return False
    if rows_hold(A, lower, upper, room):
        return True
    if not _aim(A, lower, upper, unit, room):
        return False
    for _ in range(_MOST_ROUNDS):
        fill_gram(A, room)
        if not _step(room):
            return False
        start = _slope(room, True)
        _move(A, room, 1.0)
        if _is_optimal(room):
            return True
        end = _slope(room, False)
        if end > -0.25 * start:  # far past the bottom: back to where the slope would be zero if it were straight
            _move(A, room, max(start / (end - start), -0.9))
            for k in range(side.size):
                if lower[k] < upper[k]:
                    side[k] = 1 if row[NU, k] > 0.0 else -1 if row[NU, k] < 0.0 else 0
    return False
