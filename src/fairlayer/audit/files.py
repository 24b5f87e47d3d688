"""A table of any size -> tally, by grouped sums that DuckDB takes of a file, or of the blocks of a dataset.

Sums are taken in integers: every term is scaled by a power of two to fit 62 bits, rounded, and added without further
error. So the result depends neither on the order of rows nor on who adds up which of them, and a mean is off by at most
2^-62 of the largest term. Memory does not grow with the number of rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairlayer.audit.samples import Samples, read_samples
from fairlayer.audit.tally import (
    BINS,
    CHANGE_BINS,
    CHANGE_SUMS,
    SUMS,
    Entries,
    Tally,
    cells_of,
    decision_threshold,
    reach_of,
)
from fairlayer.errors import InputError
from fairlayer.intervals import Range
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.tables.entries import MISSING, Attribute, label, number, text
from fairlayer.tables.sql_cells import CellCode, refuse_missing
from fairlayer.tables.table import MOST_LABELS, Table, Totals

PARTS = 4096  # of a range in which the median is looked for
ROLES = {"y": "prediction", "t": "target", "w": "weight", "z": "raw"}


class AuditedTable:
    """A table whose columns have roles, as samples that are never in memory together."""

    def __init__(self, table: Table, rules: ConstraintSet, groups: Any, roles: Mapping[str, Any]):
        """groups: names of columns; roles: the columns of prediction, target, weight and raw, None for no such."""
        self.table, self.rules = table, rules
        groups = _read_groups(groups)
        if roles["prediction"] is None:
            names = list(table.columns)[:20]
            raise InputError(f"prediction is missing: name the column of predictions, one of {names}.")
        for argument, name in [*(("groups", name) for name in groups), *roles.items()]:
            if name is not None and not isinstance(name, str):
                raise InputError(f"{argument} must name a column of the file; got {type(name).__name__}.")
            if name is not None:
                table.require(name, argument)
        self.numbers: dict[str, str] = {letter: roles[role] for letter, role in ROLES.items() if roles[role]}
        self.ranges, self.targets, self.rows = self._profile()
        # Everything that cells depend on, as the code of a row.
        self.code = CellCode(table, rules.constraints, roles["target"])
        attributes = [Attribute(name) for name in groups]
        labels = table.distinct({one.column: one.label(table.columns[one.column]) for one in attributes}, MOST_LABELS)
        for attribute in attributes:
            known = labels[attribute.column]
            self.code.add_group(attribute, known, _whole_numbers(known))

    def _profile(self) -> tuple[dict[str, Range], str | None, int]:
        """The range of every quantity, what targets are, and how many rows there are; nothing may be missing."""
        target = self.numbers.get("t")
        values = {letter: number(name) for letter, name in self.numbers.items()}
        ranged = {letter: letter for letter in values}
        asked = {"n": "count(*)"} | {f"n_{letter}": f"count({letter})" for letter in values}
        if target is not None:
            values["target"], ranged["r"] = text(target), "y - t"
            asked |= {"n_target": "count(target)", "beyond": "count_if(t <> 0 AND t <> 1)"}
        elif self.rules.needs_targets is not None:
            raise InputError(f"target is missing: {self.rules.needs_targets} compares with it; name its column.")
        if "z" in values:
            ranged["c"] = "y - z"
        for letter, sql in ranged.items():
            asked |= {f"low_{letter}": f"min({sql})", f"high_{letter}": f"max({sql})"}
        rows = f"(SELECT {', '.join(f'{sql} AS {name}' for name, sql in values.items())} FROM data)"
        found = {name: column[0] for name, column in self.table.totals(Totals(asked, rows=rows)).items()}
        n, kind = int(found["n"]), None
        if n == 0:
            raise InputError(f"{self.table.title} has no rows: there is nothing to audit.")
        if target is not None:
            refuse_missing(f"column {target!r}", n - int(found["n_target"]), n)
            kind = "classes" if int(found["n_t"]) < n else "numeric" if int(found["beyond"]) else "binary"
        if kind == "classes":
            ranged = {letter: sql for letter, sql in ranged.items() if letter not in "tr"}
        for letter, name in self.numbers.items():
            if letter in ranged:
                refuse_missing(f"column {name!r}", n - int(found[f"n_{letter}"]), n)
        ranges = {letter: Range(float(found[f"low_{letter}"]), float(found[f"high_{letter}"])) for letter in ranged}
        if "w" in ranges and (ranges["w"].low < 0 or ranges["w"].high <= 0):
            raise InputError(f"column {self.numbers['w']!r} must hold weights of at least 0, and not all of them 0.")
        return ranges, kind, n

    def tally(self, threshold: float | None) -> Tally:
        """In one pass over the table besides those for profile, code and median, and two more for raw outputs."""
        threshold = decision_threshold(threshold, self.targets, self.ranges["y"])
        self._define(threshold)
        found = self._entries("bin", SUMS[self.targets])
        codes = np.unique(found.cell)
        # Constraints look at one sample of each code, as they do at samples in memory.
        groups, features, targets = self.code.meanings(codes)
        met = Samples(np.zeros(len(codes)), groups, targets, self.targets, features or None)
        grid, of_code = cells_of(met.columns(self.rules), len(codes))

        def of_cells(entries: Entries) -> Entries:
            return Entries(of_code[np.searchsorted(codes, entries.cell)], entries.bin, entries.sums)

        raw = changes = None
        if "z" in self.ranges:
            raw = of_cells(self._entries("raw_bin", ("w",)))
            changes = of_cells(self._entries("step", CHANGE_SUMS, {"lowest": "min(c)", "highest": "max(c)"}))
        return Tally(grid, of_cells(found), self.ranges, self.targets, threshold, raw, changes)

    def _define(self, threshold: float | None) -> None:
        """Make rows of all quantities, and the parameters that they take."""
        at = math.inf if threshold is None else float(threshold)
        if self.table.columns[self.numbers["y"]] == "FLOAT":  # a decision is made in the type of the score
            at = float(np.float32(at))
        reach = reach_of(self.ranges)
        self.parameters: dict[str, Any] = {**self.code.parameters, "threshold": at, "low": reach.low}
        self.parameters["per_bin"] = BINS / reach.width if reach.width > 0 else 0.0

        def bin_of(letter: str) -> str:
            return f"CAST(least(greatest(floor(({letter} - $low) * $per_bin), 0), {BINS - 1}) AS INTEGER)"

        values = {"code": self.code.sql} | {one: number(self.numbers[one]) for one in "ytwz" if one in self.ranges}
        more = {"d": "CAST(y >= $threshold AS DOUBLE)", "bin": bin_of("y")}
        more |= {"r": "y - t"} if "t" in values else {}
        if "z" in values:
            self.parameters["per_change"] = CHANGE_BINS / (self.ranges["c"].magnitude or 1.0)
            more |= {"c": "y - z", "a": "abs(y - z)", "x": "CAST(y <> z AS DOUBLE)", "raw_bin": bin_of("z")}
            more["f"] = "CAST((y >= $threshold) <> (z >= $threshold) AS DOUBLE)"
            more["step"] = f"CAST(sign(y - z) * least(ceil(abs(y - z) * $per_change), {CHANGE_BINS}) AS INTEGER)"
        inner = ", ".join(f"{sql} AS {name}" for name, sql in values.items())
        outer = ", ".join(f"{sql} AS {name}" for name, sql in more.items())
        self.quantities = f"(SELECT *, {outer} FROM (SELECT {inner} FROM data))"
        self.parameters["median"] = self._median()
        self.quantities = f"(SELECT *, CAST(y > $median AS DOUBLE) AS m FROM {self.quantities})"

    def _entries(self, step: str, sums: Sequence[str], ends: Mapping[str, str] | None = None) -> Entries:
        """Counts, ends and sums, which are taken in integers, by code and by the number that `step` names."""
        # Weights that are all 1 are no factors; sums that are equal without them are taken only once.
        factors = {name: name if "w" in self.numbers else name.replace("w", "") for name in sums}
        scales = {spelled: self._scale(spelled) for spelled in factors.values() if spelled}
        asked = {"sum_": "count(*)", **(ends or {})}
        asked |= {f"sum_{s}": f"sum(CAST({' * '.join(s)} * $scale_{s} AS BIGINT))" for s in scales}
        known = self.parameters | {f"scale_{spelled}": scale for spelled, scale in scales.items()}
        found = self.table.totals(Totals(asked, {"code": "code", "step": step}, self.quantities), known)
        added = {"": found["sum_"].astype(np.float64)} | {end: found[end] for end in ends or ()}
        added |= {name: found[f"sum_{s}"].astype(np.float64) / scales.get(s, 1.0) for name, s in factors.items()}
        return Entries(found["code"], found["step"].astype(np.int64), added)

    def _scale(self, factors: str) -> float:
        """The power of two that takes the product of these quantities to 62 bits."""
        sizes = {letter: known.magnitude for letter, known in self.ranges.items()}
        sizes["a"] = sizes.get("c", 0.0)
        exponent = math.frexp(math.prod(sizes.get(letter, 1.0) for letter in factors))[1]  # others are 0 or 1
        return 2.0 ** min(62 - exponent, 1000)

    def _median(self) -> float:
        """Of all outputs. The range that holds it is cut into ever narrower parts, until the part has one value."""
        ends = {"n": "count(*)", "low": "min(y)", "high": "max(y)"}
        ranks, (low, high) = [(self.rows - 1) // 2, self.rows // 2], self.ranges["y"]
        part = f"CAST(least(greatest(floor((y - $least) * $per_part), 0), {PARTS - 1}) AS INTEGER)"
        while low < high:
            known = self.parameters | {"least": low, "most": high, "per_part": PARTS / (high - low)}
            asked = Totals(ends, {"part": part}, self.quantities, "y BETWEEN $least AND $most")
            found = self.table.totals(asked, known)
            order = np.argsort(found["part"])
            counts, lows, highs = (found[name][order] for name in ends)
            reached = counts.cumsum()
            first, last = np.searchsorted(reached, ranks, side="right").tolist()
            if first != last:  # the last of one part and the first of the next
                return 0.5 * float(highs[first] + lows[last])
            ranks = [rank - int(reached[first] - counts[first]) for rank in ranks]
            low, high = float(lows[first]), float(highs[first])
        return low

    def sample(self, rows: int, seed: int) -> Samples:
        """At most so many rows as samples in memory: all of them, or a random sample."""
        asked = {letter: number(name) for letter, name in self.numbers.items()}
        if self.targets == "classes":
            asked["t"] = label(self.numbers["t"], self.table.columns[self.numbers["t"]])
        asked |= {f"g{j}": digit.sql for j, digit in enumerate(self.code.groups.values())}
        asked |= {f"f{j}": digit.value for j, digit in enumerate(self.code.features.values())}
        found = self.table.sample(asked, rows, self.rows, seed, self.code.parameters)
        groups = {
            name: np.array(digit.meaning, dtype=object)[found[f"g{j}"]]
            for j, (name, digit) in enumerate(self.code.groups.items())
        }
        features = {name: np.asarray(found[f"f{j}"]) for j, name in enumerate(self.code.features)}
        return read_samples(found["y"], groups, found.get("t"), features or None, found.get("w"), found.get("z"))


def _read_groups(groups: Any) -> tuple[str, ...]:
    names = [groups] if isinstance(groups, str) else [] if groups is None or isinstance(groups, Mapping) else groups
    if not len(names) or not all(isinstance(name, str) for name in names):
        raise InputError(f"groups must name columns of the file, for instance groups=['sex']; got {groups!r}.")
    return tuple(dict.fromkeys(names))


def _whole_numbers(labels: Sequence[str]) -> list[Any]:
    """Labels of text that are all whole numbers, as numbers: then they are those of arrays."""
    whole = all(entry == MISSING or re.fullmatch("0|-?[1-9][0-9]{0,17}", entry) for entry in labels)
    return [int(entry) if whole and entry != MISSING else entry for entry in labels]
