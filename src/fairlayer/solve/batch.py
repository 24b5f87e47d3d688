"""A batch of independent problems with rows of their own, each a matrix over its outputs, in one compiled call."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import torch

from fairlayer.binding.rows import COEFFICIENT, EACH, KIND, LOWER, UPPER, Rows
from fairlayer.compiled import compiled
from fairlayer.solve.loops import pull_back, solve_loops
from fairlayer.solve.newton import DONE

_SHARE = 64  # problems, fewer than which are not worth a thread of their own


def by_threads(problems: int, work: Callable[..., None], *arguments: Any) -> None:
    """Have compiled work on problems, work(first, last, ...), done by as many threads as torch uses."""
    threads = max(1, min(torch.get_num_threads(), problems // _SHARE))
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
    kind: int | None  # the discrepancy, of smooth.py
    weight: np.ndarray  # (n,) of the outputs, or empty where all are 1
    lo: np.ndarray  # (n,) or (1,)
    hi: np.ndarray  # (n,) or (1,)


class Ends(NamedTuple):
    """The ends of the solves."""

    outcome: np.ndarray  # (B,)
    nu: np.ndarray  # (B, m) multipliers of the rows
    shift: np.ndarray  # (B, n)
    slopes: np.ndarray  # (B, n)
    missed: np.ndarray  # (B, m)
    value: np.ndarray  # (B, m) of the rows


@compiled(inner=True)
def _new_rows(m, n):
    """Rows over n cells of one output each; their entries and bounds are filled in problem by problem."""
    start, statistic = np.empty(n + 1, dtype=np.int64), np.empty(n * m, dtype=np.int64)
    first, present = np.empty(m + 1, dtype=np.int64), np.empty(m, dtype=np.bool_)
    for c in range(n + 1):
        start[c] = c * m
    for e in range(n * m):
        statistic[e] = e % m
    for k in range(m + 1):
        first[k] = k
    for k in range(m):
        present[k] = True
    return Rows(
        start, statistic, np.empty(n * m), np.zeros(m), present, first, np.empty((4, m)), np.empty((0, 0), np.int32)
    )


@compiled(inner=True)
def _fill(rows, matrices, b):
    """Problem b."""
    A, lower, upper, weight = matrices.A, matrices.lower, matrices.upper, matrices.weight
    a, low, high = min(b, A.shape[0] - 1), min(b, lower.shape[0] - 1), min(b, upper.shape[0] - 1)
    m, n = A.shape[1], A.shape[2]
    for c in range(n):
        for k in range(m):
            rows.value[c * m + k] = A[a, k, c] / weight[c] if weight.size > 0 else A[a, k, c]
    for k in range(m):
        rows.family[KIND, k], rows.family[COEFFICIENT, k] = EACH, 1.0
        rows.family[LOWER, k], rows.family[UPPER, k] = lower[low, k], upper[high, k]


@compiled(inline=True)
def _alone(n):
    """Every output its own cell: numbers of the cells, and one sample in each."""
    cell, count = np.empty(n, dtype=np.int32), np.empty(n)
    for i in range(n):
        cell[i], count[i] = i, 1.0
    return cell, count


def new_ends(B: int, m: int, n: int) -> Ends:
    """Room for the ends of B solves with m rows over n outputs."""
    outcome, of_rows, of_outputs = np.empty(B, dtype=np.int64), np.empty((3, B, m)), np.empty((2, B, n))
    return Ends(outcome, of_rows[0], *of_outputs, *of_rows[1:])


@compiled
def solve_batch(first, last, z, matrices, unit, out, ends):
    """Project the rows of z, (B, n), from `first` to before `last`, into `out`, and note the ends."""
    n, m = z.shape[1], matrices.A.shape[1]
    rows, (cell, count) = _new_rows(m, n), _alone(n)
    cell_weight = matrices.weight if matrices.weight.size > 0 else count
    nothing = np.empty(0)
    for b in range(first, last):
        _fill(rows, matrices, b)
        outcome, nu, shift, slopes, missed, value, _ = solve_loops(
            matrices.kind,
            z[b],
            cell,
            matrices.weight,
            count,
            cell_weight,
            matrices.lo,
            matrices.hi,
            rows,
            nothing,
            unit,
            False,
            out[b],
        )
        ends.outcome[b] = outcome
        for k in range(m):
            ends.nu[b, k], ends.missed[b, k], ends.value[b, k] = nu[k], missed[k], value[k]
            if outcome == DONE and not missed[k] <= 0.0:
                ends.outcome[b] = -1
        for i in range(n):
            ends.shift[b, i], ends.slopes[b, i] = shift[i], slopes[i]


@compiled
def pull_back_batch(first, last, gradient, z, matrices, ends, out):
    """Vector-Jacobian products of these projections, into `out`."""
    n, m = z.shape[1], matrices.A.shape[1]
    rows, (cell, _) = _new_rows(m, n), _alone(n)
    for b in range(first, last):
        _fill(rows, matrices, b)
        pull_back(
            matrices.kind, gradient[b], z[b], cell, matrices.weight, matrices.lo, matrices.hi, ends.shift[b],
            ends.slopes[b], rows, ends.nu[b], z.itemsize == 4, out[b],
        )  # fmt: skip
