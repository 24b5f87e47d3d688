"""The state of a stream: its numbers, cell by cell and in all. Everything that must survive a crash.

What was emitted (the ledger) and what was learned of raw outputs (by the leader) are kept apart. Sums are kept in two
floats, the second holding what the first rounds off, so that a million small batches leave no error behind.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

_MOMENTS = [("count", "f8"), ("mean", "f8"), ("deviations", "f8")]
# Structs of core/native/ledger.hpp, field by field.
CELL = np.dtype(
    [("count", "f8"), ("total", "f8", 2), ("target", "f8", 2), ("raw", "f8"), ("total_error", "f8"),
     ("target_error", "f8"), ("square", "f8"), ("rounding", "f8")]
)  # fmt: skip
PAST = np.dtype([("before", _MOMENTS), ("latest", _MOMENTS), ("next_look", "f8"), ("known", "f8")])
RECORDED = 6  # numbers of a cell that the log holds: its count and sums
RECENT = 256  # numbers kept of recent raw outputs of a cell: a ring of them, or a sketch of scores
EARLY = 200  # decisions after which a stream counts as no longer young
_ARRAYS: tuple[tuple[np.dtype[Any], tuple[int, ...]], ...] = ((CELL, ()), (PAST, ()), (np.dtype("f8"), (RECENT,)))


@dataclass
class Totals:
    """Numbers of a whole stream."""

    batches: int = 0
    samples: int = 0
    changed: float = 0.0  # samples whose output differs from the raw one
    change: float = 0.0  # sum of absolute changes
    square_change: float = 0.0
    largest_change: float = 0.0
    excess: float = 0.0  # largest amount by which tolerances had to give way
    led_at: int = 0  # samples when the leader was last solved
    taught: int = 0  # samples of the warm start
    overruled: int = 0  # decisions that the ledger took against the leader's threshold
    level: int = -1  # the rate within all ranges of the fair table, see core/native/decision_ledger.cpp
    distance: float = 0.0  # the unit of distances from the threshold
    multiplier: float = 0.0  # of Algorithm 1
    largest_multiplier: float = 0.0
    soft_steps: int = 0
    judged: int = 0  # samples in batches whose gap is defined
    weighted_gap: float = 0.0  # sum over batches of size times gap
    accumulated_excess: float = 0.0  # sum over soft steps of size times (gap - tolerance)


class State:
    """Arrays by cell, and numbers in all."""

    def __init__(self) -> None:
        self._set_cells([np.zeros((0, *shape), dtype) for dtype, shape in _ARRAYS])
        self.totals = Totals()
        self.price: dict[str, float] = {}  # the leader's, by statistic
        self.largest: list[float] = []  # largest pooled gap so far, by constraint
        self.agreement = np.zeros((2, 6))  # of raw and emitted outputs, early and later: Agreement of ledger.cpp

    def _set_cells(self, arrays: list[np.ndarray]) -> None:
        self._arrays = self.cells, self.past, self.recent = arrays
        # The same memory as the core takes it, a row of numbers for each cell.
        self.cell_rows, self.past_rows = (a.view("f8").reshape(len(a), a.dtype.itemsize // 8) for a in arrays[:2])

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def count(self) -> np.ndarray:
        """(G,) how many were emitted."""
        return self.cells["count"]

    @property
    def total(self) -> np.ndarray:
        """(G,) sum of what was emitted."""
        return self.cells["total"].sum(axis=1)

    def grow(self, size: int) -> None:
        """Make room for cells up to `size`."""
        more = size - len(self)
        if more > 0:
            self._set_cells([np.concatenate([a, np.zeros((more, *a.shape[1:]), a.dtype)]) for a in self._arrays])

    def to_bytes(self, index: dict[str, Any]) -> bytes:
        """Everything as one block: a header in JSON, then the arrays. index: plain data that goes with it."""
        header = {
            "index": index,
            "totals": vars(self.totals),
            "price": self.price,
            "largest": self.largest,
            "agreement": self.agreement.tolist(),
            "cells": len(self),
        }
        text = json.dumps(header).encode()
        return b"".join([struct.pack("<q", len(text)), text, *(array.tobytes() for array in self._arrays)])

    @classmethod
    def from_bytes(cls, block: bytes) -> tuple[State, dict[str, Any]]:
        """What `to_bytes` was given."""
        (length,) = struct.unpack_from("<q", block)
        header, at, arrays = json.loads(block[8 : 8 + length]), 8 + length, []
        for dtype, shape in _ARRAYS:
            count = header["cells"] * math.prod(shape)
            arrays.append(np.frombuffer(block, dtype, count, at).reshape(-1, *shape).copy())
            at += arrays[-1].nbytes
        state = cls()
        state._set_cells(arrays)
        state.totals = Totals(**header["totals"])
        state.agreement = np.array(header["agreement"])
        state.price, state.largest = header["price"], header["largest"]
        return state, header["index"]
