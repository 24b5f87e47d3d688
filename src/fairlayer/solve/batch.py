"""A batch of independent problems with rows of their own, each a matrix over its outputs, in one compiled call."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import torch

from fairlayer.binding.exact_sums import UNIT
from fairlayer.binding.rows import COEFFICIENT, EACH, KIND, LOWER, UPPER, Rows
from fairlayer.compiled import compiled
from fairlayer.solve.certify import all_hold, all_tight
from fairlayer.solve.dense import (
    HI,
    LO,
    MISSED,
    NU,
    RIGHT,
    SHARE,
    SHIFT,
    SLOPE,
    VALUE,
    Y,
    Z,
    fill_gram,
    find_output,
    is_near,
    new_room,
    row_values,
    rows_hold,
    solve_held,
    weighed_rows,
)
from fairlayer.solve.loops import solve_into
from fairlayer.solve.newton import DONE
from fairlayer.solve.sides import FEW
from fairlayer.solve.smooth import SQUARED

_SHARE = 64  # problems, fewer than which are not worth a thread of their own


def by_threads(problems: int, work: Callable[..., None], *arguments: Any) -> None:
    """Have compiled work on problems, work(first, last, ...), done by as many threads as torch uses."""
    threads = min(torch.get_num_threads(), problems // _SHARE)
    if threads <= 1:
        work(0, problems, *arguments)
        return
    ends = [problems * share // threads for share in range(threads + 1)]
    # Threads of one call: a pool would be lost in processes that are forked later.
    others = [Thread(target=work, args=(*part, *arguments)) for part in pairwise(ends[1:])]
    for thread in others:
        thread.start()
    work(0, ends[1], *arguments)
    for thread in others:
        thread.join()


class Matrices(NamedTuple):
    """Rows lower <= A y <= upper of every problem; what is the same for all is there once."""

    A: np.ndarray  # (B or 1, m, n)
    lower: np.ndarray  # (B or 1, m)
    upper: np.ndarray  # (B or 1, m)
    weight: np.ndarray  # (n,) of the outputs, or empty where all are 1
    lo: np.ndarray  # (n,) or (1,)
    hi: np.ndarray  # (n,) or (1,)


class Ends(NamedTuple):
    """The ends of the solves."""

    done: np.ndarray  # (B,) whether the output was found, and certainly satisfies the rows
    row: np.ndarray  # (3, B, m) of each: its value, its multiplier, and by how much it may be missed
    free: np.ndarray  # (B, n) whether an output rests on no bound


@compiled(inline=True)
def _problem(matrices, b):
    """Rows and bounds of problem b."""
    A, lower, upper = matrices.A, matrices.lower, matrices.upper
    return A[min(b, A.shape[0] - 1)], lower[min(b, lower.shape[0] - 1)], upper[min(b, upper.shape[0] - 1)]


@compiled(inner=True)
def _new_rows(m, n):
    """Rows over n cells of one output each; their entries and bounds are filled in problem by problem."""
    start, statistic = np.empty(n + 1, dtype=np.int64), np.empty(n * m, dtype=np.int64)
    for c in range(n + 1):
        start[c] = c * m
    for e in range(n * m):
        statistic[e] = e % m
    present, first, no_parts = np.ones(m, np.bool_), np.arange(m + 1), np.empty((0, 0), np.uint32)
    return Rows(start, statistic, np.empty(n * m), np.zeros(m), present, first, np.empty((4, m)), no_parts)


@compiled(inner=True)
def _solve_alone(z, A, lower, upper, weight, lo, hi, unit, out):
    """A problem by the general method: (outcome, multipliers, slopes, missed, values of the rows)."""
    m, n = A.shape
    rows, cell, count = _new_rows(m, n), np.empty(n, dtype=np.int32), np.empty(n)
    for c in range(n):
        cell[c], count[c] = c, 1.0  # every output is its own cell
        for k in range(m):
            rows.value[c * m + k] = A[k, c] / weight[c] if weight.size > 0 else A[k, c]
    for k in range(m):
        rows.family[KIND, k], rows.family[COEFFICIENT, k] = EACH, 1.0
        rows.family[LOWER, k], rows.family[UPPER, k] = lower[k], upper[k]
    cell_weight = weight if weight.size > 0 else count
    ends, begin, end = np.empty(3 * (m + n) + 1), m + 2 * n, 3 * m + 2 * n
    outcome = solve_into(
        SQUARED, z, cell, weight, count, cell_weight, lo, hi, rows, np.empty(0), unit, False, out, ends
    )
    return outcome, ends[:m], ends[m + n : begin], ends[begin : begin + m], ends[begin + m : end]


def new_ends(B: int, m: int, n: int) -> Ends:
    """Room for the ends of B solves with m rows over n outputs."""
    return Ends(np.empty(B, dtype=np.bool_), np.empty((3, B, m)), np.empty((B, n), dtype=np.bool_))


@compiled
def solve_batch(first, last, z, matrices, out, ends):
    """Project the rows of z, (B, n), from `first` to before `last`, into `out`, and note the ends."""
    n, m = z.shape[1], matrices.A.shape[1]
    room, rounded, single = new_room(m, n), out.dtype.type, z.itemsize == 4
    unit = 2.0**-24 if single else UNIT
    weight, lo, hi = matrices.weight, matrices.lo, matrices.hi
    output, row, of_row = room.output, room.row, ends.row
    for c in range(n):
        output[LO, c], output[HI, c] = lo[min(c, lo.size - 1)], hi[min(c, hi.size - 1)]
        output[SHARE, c] = 1.0 / weight[c] if weight.size > 0 else 1.0
    for b in range(first, last):
        A, lower, upper = _problem(matrices, b)
        for c in range(n):
            output[Z, c] = z[b, c]
        found = m <= FEW and find_output(A, lower, upper, unit, room)
        if found:
            for c in range(n):
                raw = float(rounded(output[Z, c] - output[SHIFT, c]))
                y = min(max(raw, output[LO, c]), output[HI, c])
                out[b, c] = y
                output[Y, c] = y
                ends.free[b, c] = y == raw
        # With weights, rows that are aimed inside their bounds may move the heavy with the light.
        if (
            found
            and rows_hold(A, lower, upper, room)
            and (
                (weight.size == 0 and (single or all_tight(lower, upper, row[NU], row[MISSED]))) or is_near(unit, room)
            )
        ):
            ends.done[b], value, nu, missed = True, row[VALUE], row[NU], row[MISSED]
        else:
            outcome, nu, slopes, missed, value = _solve_alone(z[b], A, lower, upper, weight, lo, hi, unit, out[b])
            ends.done[b] = outcome == DONE and all_hold(missed) and weight.size == 0
            ends.done[b] = ends.done[b] and (single or all_tight(lower, upper, nu, missed))
            for c in range(n):
                ends.free[b, c] = slopes[c] > 0.0
        for k in range(m):
            of_row[0, b, k], of_row[1, b, k], of_row[2, b, k] = value[k], nu[k], missed[k]


@compiled
def pull_back_batch(first, last, gradient, matrices, ends, out):
    """Vector-Jacobian products of these projections, into `out`.

    With A the active rows, and D one over the weight of outputs on no bound and 0 of the others, it is g - A'v for the
    former, v = (A D A')^+ A D g.
    """
    n, m = out.shape[1], matrices.A.shape[1]
    room, weight, rounded = new_room(m, n), matrices.weight, out.dtype.type
    output, row = room.output, room.row
    for b in range(first, last):
        A, lower, upper = _problem(matrices, b)
        for c in range(n):
            share = 1.0 / weight[c] if weight.size > 0 else 1.0
            output[SLOPE, c] = share if ends.free[b, c] else 0.0
            output[Z, c] = output[SLOPE, c] * gradient[b, c]
        row_values(A, output[Z], row[VALUE])
        fill_gram(A, room)
        size = 0
        for k in range(m):
            row[NU, k] = 0.0
            if ends.row[1, b, k] != 0.0 or lower[k] == upper[k]:
                room.held[size], row[RIGHT, size] = k, row[VALUE, k]
                size += 1
        for a in range(solve_held(size, room)):
            row[NU, room.held[a]] = row[RIGHT, a]
        weighed_rows(A, row[NU], output[SHIFT])
        for c in range(n):
            out[b, c] = rounded(gradient[b, c] - output[SHIFT, c]) if ends.free[b, c] else rounded(0.0)
