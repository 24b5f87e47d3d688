"""The account of a stream: its numbers, cell by cell and in all. Everything that must survive a crash.

Sums are kept in two floats, the second holding what the first rounds off, so that a million small batches leave no
error behind.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

from fairlayer.stream.score_sketch import BINS

COUNT, TOTAL, TARGET, RAW = 0, 1, 3, 5  # places in a cell's sums; a sum's second part follows its first
SUMS = 6  # numbers that make a cell's sums; of raw outputs, which no promise rests on, there is one part
EARLY = 200.0  # decisions after which a stream counts as no longer young
RING = 256  # recent raw outputs kept per cell, for the leader

Fields = dict[str, tuple[int, ...]]  # of each cell: name -> shape of one cell's entry
_LEDGER: Fields = {
    # How many were emitted, their sum in two parts, the sum of their targets, where known, in two parts, and the sum of
    # the raw outputs they were made from. Where a stream is about decisions, it is these that are summed, as 0 and 1.
    "sums": (SUMS,),
    "error": (2,),  # bounds on what rounding did to the sums of outputs and of targets
    "square": (),  # sum of squares of what was emitted
}
# Raw outputs before the latest block, and in it: count, mean, sum of squared deviations; when to look for drift.
_PAST: Fields = {"past": (3, 3)}
OUTPUT_FIELDS: Fields = {
    **_LEDGER,
    "ring": (RING,),  # the last raw outputs
    "ring_count": (),  # how many there ever were
    **_PAST,
}
DECISION_FIELDS: Fields = {
    **_LEDGER,
    "off": (),  # how far the fair table is off the counts, see fair_rounding.py
    "near": (2, BINS),  # raw scores by their distance from the threshold, see score_sketch.py
    "weight": (),  # of all these
    **_PAST,
}
# In all: name -> initial value.
NUMBERS: dict[str, float] = {
    "batches": 0.0,
    "samples": 0.0,
    "changed": 0.0,  # samples whose output differs from the raw one
    "change": 0.0,  # sum of absolute changes
    "square_change": 0.0,
    "largest_change": 0.0,
    "excess": 0.0,  # largest amount by which tolerances had to give way
    "led_at": 0.0,  # samples when the leader was last solved
    "taught": 0.0,  # samples of the warm start
    "overruled": 0.0,  # decisions that the ledger took against the leader's threshold
    "level": -1.0,  # the rate within all ranges of the fair table
    "distance": 0.0,  # the unit of distances from the threshold
    "multiplier": 0.0,  # of Algorithm 1
    "largest_multiplier": 0.0,
    "soft_steps": 0.0,
    "judged": 0.0,  # samples in batches whose gap is defined
    "weighted_gap": 0.0,  # sum over batches of size times gap
    "accumulated_excess": 0.0,  # sum over soft steps of size times (gap - tolerance)
}


class CellSums:
    """Arrays by cell, and numbers in all."""

    def __init__(self, fields: Fields) -> None:
        self.cells: dict[str, np.ndarray] = {name: np.zeros((0, *shape)) for name, shape in fields.items()}
        self.numbers = dict(NUMBERS)
        self.price: dict[str, float] = {}  # the leader's, by statistic
        self.largest: list[float] = []  # largest pooled gap so far, by constraint
        # Of raw outputs and decisions, early ones and later ones: see kernels.note_raw
        self.moments = np.zeros((2, 6))
        self.shares: dict[str, list[float]] = {}  # by row, for Lemma 3.1: see certificate.py

    def __len__(self) -> int:
        return len(self.cells["sums"])

    @property
    def count(self) -> np.ndarray:
        """(G,) how many were emitted."""
        return self.cells["sums"][:, COUNT]

    @property
    def total(self) -> np.ndarray:
        """(G,) sum of what was emitted."""
        return self.cells["sums"][:, TOTAL] + self.cells["sums"][:, TOTAL + 1]

    def grow(self, size: int) -> None:
        """Make room for cells up to `size`."""
        more = size - len(self)
        if more > 0:
            for name, array in self.cells.items():
                self.cells[name] = np.concatenate([array, np.zeros((more, *array.shape[1:]))])

    def to_bytes(self, book: dict[str, Any]) -> bytes:
        """Book and account as one block: a header in JSON, then the arrays."""
        header = json.dumps(
            {
                "book": book,
                "numbers": self.numbers,
                "price": self.price,
                "largest": self.largest,
                "moments": self.moments.tolist(),
                "shares": self.shares,
                "cells": len(self),
            }
        ).encode()
        return struct.pack("<q", len(header)) + header + b"".join(a.tobytes() for a in self.cells.values())

    @classmethod
    def from_bytes(cls, block: bytes, fields: Fields) -> tuple[CellSums, dict[str, Any]]:
        """What `to_bytes` gave: an account, and the book's data."""
        (length,) = struct.unpack_from("<q", block)
        header = json.loads(block[8 : 8 + length])
        numbers = np.frombuffer(block[8 + length :], dtype=np.float64)
        account, at = cls(fields), 0
        for name, shape in fields.items():
            size = header["cells"] * int(np.prod(shape))
            account.cells[name] = numbers[at : at + size].reshape(header["cells"], *shape).copy()
            at += size
        account.numbers = {**NUMBERS, **header["numbers"]}
        account.moments = np.array(header["moments"])
        account.price, account.largest, account.shares = header["price"], header["largest"], header["shares"]
        return account, header["book"]
