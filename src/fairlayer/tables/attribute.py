"""A protected attribute of a table: a column, and the cut points that make groups of one that holds numbers.

Cut points are written the same way everywhere: `age=30,50` makes three groups, below 30, from 30 to below 50, and from
50 on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from fairlayer.errors import InputError
from fairlayer.tables.entries import MISSING, group_label, number


@dataclass(frozen=True)
class Attribute:
    """A protected attribute: a column, and the cut points that make groups of it where it holds numbers."""

    column: str
    cuts: tuple[float, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups that the cut points make, in their order."""
        if not self.cuts:
            return ()
        inner = [f"{low:g} to {high:g}" for low, high in pairwise(self.cuts)]
        return (f"below {self.cuts[0]:g}", *inner, f"{self.cuts[-1]:g} or more")

    def label(self, kind: str) -> str:
        """SQL of the group of a row, `missing` where it has no entry. kind: DuckDB's type of the column."""
        if not self.cuts:
            return group_label(self.column, kind)
        value, (*inner, last) = number(self.column), self.groups
        below = zip(self.cuts, inner, strict=True)
        cases = " ".join(f"WHEN {value} < '{cut!r}'::DOUBLE THEN '{group}'" for cut, group in below)
        return f"CASE WHEN {value} IS NULL THEN '{MISSING}' {cases} ELSE '{last}' END"


def read_cuts(text: str, option: str) -> tuple[float, ...]:
    """Cut points in increasing order."""
    try:
        cuts = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option}: {text!r} are not cut points: give numbers, such as 30,50.") from None
    if any(not math.isfinite(cut) for cut in cuts) or any(a >= b for a, b in pairwise(cuts)):
        raise InputError(f"{option}: cut points must be finite and increase; got {text}.")
    return cuts
