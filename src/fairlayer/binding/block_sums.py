"""Exact sums of the cells of blocks of samples: what every pass over a table is made of.

A table too large for memory is taken block by block: chunks of a file, blocks of a dataset that many workers hold. The
sums of a block are whole numbers (`exact_sums`), so blocks add up to the same sums, to the bit, however a table is
divided and in whatever order its blocks come. Nothing here needs PyTorch: workers load little.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fairlayer.binding.exact_sums import LIMBS, accumulate, carry, round_sums

OUTPUT, ABSOLUTE = 0, 1  # places of sums: of outputs, and of their absolute values
_NO_WEIGHTS = np.empty(0)
_MOST_ROWS = 2**30  # that limbs take in before they are carried


class BlockSums:
    """Sums over the samples met so far, by cell, of the outputs y = clip(z - shift[cell], lo, hi).

    absolute: whether to take the sums of |y|, too.
    """

    def __init__(self, cells: int, absolute: bool = False):
        self.limbs = np.zeros((2 if absolute else 1, cells, LIMBS), dtype=np.int64)
        self.rows = np.zeros(cells, dtype=np.int64)
        self.free = np.zeros(cells, dtype=np.int64)  # samples that no bound holds: the sum of slopes
        self.moved = np.zeros((1, LIMBS), dtype=np.int64)  # the sum of |y - z|
        self.changed = 0  # samples whose output is not z
        self.largest = 0.0  # change
        self.low, self.high = math.inf, -math.inf  # the least and the greatest z
        self._uncarried = 0

    def add(self, z: np.ndarray, cell: np.ndarray, shift: np.ndarray, lo: float, hi: float) -> None:
        """Take in a block: (n,) float64 outputs and the int32 cell of each."""
        if self._uncarried + len(z) > _MOST_ROWS:
            self._carry()
        self._uncarried += len(z)
        raw = z - shift[cell]
        y = np.clip(raw, lo, hi)
        change = np.abs(y - z)
        self.rows += np.bincount(cell, minlength=len(self.rows))
        self.free += np.bincount(cell[y == raw], minlength=len(self.rows))
        accumulate(y, cell, _NO_WEIGHTS, self.limbs[OUTPUT])
        if len(self.limbs) > ABSOLUTE:
            accumulate(np.abs(y), cell, _NO_WEIGHTS, self.limbs[ABSOLUTE])
        moved = change[y != z]
        accumulate(moved, np.zeros(len(moved), dtype=np.int32), _NO_WEIGHTS, self.moved)
        self._widen(len(moved), change.max(initial=0.0), z.min(initial=math.inf), z.max(initial=-math.inf))

    def merge(self, other: BlockSums) -> None:
        """Take in the sums of other blocks, which came as a message."""
        self.limbs += other.limbs
        self.rows += other.rows
        self.free += other.free
        self.moved += other.moved
        self._widen(other.changed, other.largest, other.low, other.high)

    def regrouped(self, number: np.ndarray, cells: int) -> BlockSums:
        """The same of cells that are made of several of these; number: of the cell that each becomes a part of."""
        self._carry()
        found = BlockSums(cells, len(self.limbs) > ABSOLUTE)
        present = np.flatnonzero(self.rows)
        for place in range(len(self.limbs)):
            np.add.at(found.limbs[place], number[present], self.limbs[place, present])
        np.add.at(found.rows, number[present], self.rows[present])
        np.add.at(found.free, number[present], self.free[present])
        found.moved += self.moved
        found._widen(self.changed, self.largest, self.low, self.high)
        return found

    def sums(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Sums of the cells as floats, each rounded once, and a bound on what that leaves out."""
        sums, error = np.zeros((2, len(self.rows)))
        round_sums(self.limbs[place], sums, error)
        return sums, error

    def _widen(self, changed: int, largest: float, low: float, high: float) -> None:
        self.changed += changed
        self.largest = max(self.largest, largest)
        self.low, self.high = min(self.low, low), max(self.high, high)

    def _carry(self) -> None:
        carry(self.limbs.reshape(-1, LIMBS))
        carry(self.moved)
        self._uncarried = 0

    def __getstate__(self) -> dict[str, Any]:
        """Only cells that have samples, and only limbs that are in use, are sent."""
        self._carry()
        present = np.flatnonzero(self.rows)
        limbs = self.limbs[:, present]
        used = np.flatnonzero(limbs.any(axis=(0, 1)))
        first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
        return {
            "shape": self.limbs.shape,
            "present": present,
            "first": first,
            "limbs": np.ascontiguousarray(limbs[:, :, first:last]),
            "rows": self.rows[present],
            "free": self.free[present],
            "moved": self.moved,
            "rest": (self.changed, self.largest, self.low, self.high),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        places, cells, _ = state["shape"]
        BlockSums.__init__(self, cells, places > ABSOLUTE)
        present, limbs, first = state["present"], state["limbs"], state["first"]
        self.limbs[:, present, first : first + limbs.shape[2]] = limbs
        self.rows[present], self.free[present], self.moved = state["rows"], state["free"], state["moved"]
        self._widen(*state["rest"])
