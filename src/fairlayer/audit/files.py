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

from fairlayer.audit.profile import Profile
from fairlayer.audit.samples import Samples, cells_of, columns_of, read_samples
from fairlayer.audit.tally import (
    BINS,
    CHANGE_BINS,
    CHANGE_SUMS,
    OUTPUT_SUMS,
    TARGET_SUMS,
    Entries,
    Tally,
    decision_threshold,
)
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.tables.entries import MISSING, Attribute, label, number
from fairlayer.tables.sql_cells import CellCode
from fairlayer.tables.table import MOST_LABELS, Table, Totals

PARTS = 4096  # of a range in which the median is looked for


def code_cells(table: Table, profile: Profile, rules: ConstraintSet) -> CellCode:
    """Everything that cells depend on, as the code of a row."""
    code = CellCode(table, rules.constraints, profile.target, every_class=profile.targets == "binary")
    attributes = [Attribute(name) for name in profile.groups]
    labels = table.distinct({one.column: one.label(table.columns[one.column]) for one in attributes}, MOST_LABELS)
    for attribute in attributes:
        known = labels[attribute.column]
        code.add_group(attribute, known, _whole_numbers(known))
    return code


def _whole_numbers(labels: Sequence[str]) -> list[Any]:
    """Labels of text that are all whole numbers, as numbers: then they are those of arrays."""
    whole = all(entry == MISSING or re.fullmatch("0|-?[1-9][0-9]{0,17}", entry) for entry in labels)
    return [int(entry) if whole and entry != MISSING else entry for entry in labels]


def tally_table(table: Table, profile: Profile, code: CellCode, rules: ConstraintSet, threshold: float | None) -> Tally:
    """One pass over the table besides those for profile, code and median, and two more for raw outputs."""
    threshold = decision_threshold(threshold, profile.targets, profile.ranges["y"])
    quantities = _Quantities(table, profile, code, threshold)
    sums = OUTPUT_SUMS + (TARGET_SUMS if profile.targets in ("binary", "numeric") else ())
    found, added = quantities.totals({"bin": "bin"}, sums)
    added |= _above_median(quantities, found, added["w"])
    codes = np.unique(found["code"])
    # Constraints look at one sample of each code, as they do at samples in memory.
    groups, features, targets = code.meanings(codes)
    met = Samples(np.zeros(len(codes)), groups, targets, profile.targets, features or None)
    columns, of_code = cells_of(columns_of(met, rules), len(codes))

    def entries(bins: str, found: Mapping[str, np.ndarray], sums: Mapping[str, np.ndarray]) -> Entries:
        # In the order of cells and bins, as samples in memory are counted: then sums round alike, too.
        cell, step = of_code[np.searchsorted(codes, found["code"])], found[bins].astype(np.int64)
        order = np.lexsort((step, cell))
        kept = {name: np.asarray(values, dtype=np.float64)[order] for name, values in sums.items()}
        return Entries(cell[order], step[order], found["n"][order].astype(np.int64), kept)

    raw = changes = None
    if "z" in profile.ranges:
        quantities.parameters["per_change"] = CHANGE_BINS / (profile.largest_change or 1.0)
        step = f"CAST(sign(c) * least(ceil(a * $per_change), {CHANGE_BINS}) AS INTEGER)"
        moved, ends = quantities.totals({"step": step}, CHANGE_SUMS, also={"lowest": "min(c)", "highest": "max(c)"})
        changes = entries("step", moved, ends | {end: moved[end] for end in ("lowest", "highest")})
        raw = entries("raw_bin", *quantities.totals({"raw_bin": "raw_bin"}, ("w",)))
    return Tally(
        attributes=tuple(key for key in columns if key[0] == "group"),
        columns=columns,
        entries=entries("bin", found, added),
        outputs=profile.ranges["y"],
        residuals=profile.residuals,
        reach=profile.reach,
        targets=profile.targets,
        threshold=threshold,
        raw=raw,
        changes=changes,
    )


class _Quantities:
    """The table as rows of quantities, and totals over them."""

    def __init__(self, table: Table, profile: Profile, code: CellCode, threshold: float | None):
        self.table, self.profile = table, profile
        width, at = profile.reach.width, math.inf if threshold is None else float(threshold)
        if table.columns[profile.numbers["y"]] == "FLOAT":  # a decision is made in the type of the score
            at = float(np.float32(at))
        self.parameters: dict[str, Any] = {**code.parameters, "threshold": at, "low": profile.reach.low}
        self.parameters["per_bin"] = BINS / width if width > 0 else 0.0
        numbers = {letter: name for letter, name in profile.numbers.items() if letter in profile.ranges}
        values = [f"{number(name)} AS {letter}" for letter, name in numbers.items()]
        more = ["CAST(y >= $threshold AS DOUBLE) AS d", f"{_bin_sql('y')} AS bin"]
        more += ["y - t AS r"] if "t" in numbers else []
        if "z" in numbers:
            more += ["y - z AS c", "abs(y - z) AS a", "CAST(y <> z AS DOUBLE) AS x", f"{_bin_sql('z')} AS raw_bin"]
            more += ["CAST((y >= $threshold) <> (z >= $threshold) AS DOUBLE) AS f"]
        values.append(f"{code.sql} AS code")
        self.rows = f"(SELECT *, {', '.join(more)} FROM (SELECT {', '.join(values)} FROM data))"

    def totals(
        self, by: Mapping[str, str], sums: Sequence[str], where: str = "", also: Mapping[str, str] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Counts, and what is asked for also, by cell and by one thing more; and the sums, taken in integers."""
        # Weights that are all 1 are no factors; sums that are equal without them are taken only once.
        factors = {name: name if "w" in self.profile.numbers else name.replace("w", "") for name in sums}
        scales = {spelled: self.profile.scale(spelled) for spelled in factors.values() if spelled}
        self.parameters |= {f"scale_{spelled}": scale for spelled, scale in scales.items()}
        asked = {f"sum_{s}": f"sum(CAST({' * '.join(s)} * $scale_{s} AS BIGINT))" for s in scales}
        query = Totals({"n": "count(*)", **(also or {}), **asked}, {"code": "code", **by}, self.rows, where)
        found = self.table.totals(query, self.parameters)
        order = np.lexsort([found[name] for name in (*by, "code")])  # an engine gives them in any
        found = {name: values[order] for name, values in found.items()}
        added = {spelled: found[f"sum_{spelled}"].astype(np.float64) / scale for spelled, scale in scales.items()}
        added[""] = found["n"].astype(np.float64)
        return found, {name: added[spelled] for name, spelled in factors.items()}


def _bin_sql(letter: str) -> str:
    return f"CAST(least(greatest(floor(({letter} - $low) * $per_bin), 0), {BINS - 1}) AS INTEGER)"


def _above_median(
    quantities: _Quantities, found: Mapping[str, np.ndarray], weight: np.ndarray
) -> dict[str, np.ndarray]:
    """How much of every entry lies above the median. Only rows of the bins that hold it are looked at again."""
    counts = np.bincount(found["bin"], weights=found["n"], minlength=BINS).cumsum().astype(int)
    ranks = [(int(counts[-1]) - 1) // 2, int(counts[-1]) // 2]
    first, last = np.searchsorted(counts, ranks, side="right").tolist()  # the same bin, as a rule
    within = f"bin BETWEEN {first} AND {last}"
    before = int(counts[first - 1]) if first else 0
    middle = _ranked(quantities, within, [rank - before for rank in ranks])
    quantities.parameters["median"] = 0.5 * sum(middle)
    above, some = quantities.totals({"bin": "bin"}, ("w",), f"{within} AND y > $median")
    sums = {name: np.where(found["bin"] > last, total, 0.0) for name, total in (("m", found["n"]), ("wm", weight))}
    places = found["code"].astype(np.int64) * BINS + found["bin"]  # which are sorted
    at = np.searchsorted(places, above["code"].astype(np.int64) * BINS + above["bin"])
    sums["m"][at], sums["wm"][at] = above["n"], some["w"]
    return sums


def _ranked(quantities: _Quantities, where: str, ranks: list[int]) -> list[float]:
    """The outputs that have these ranks, one after the other at most, among the rows that meet a condition.

    The range that holds them is cut into ever narrower parts, until the part has one value.
    """
    known, ends = dict(quantities.parameters), {"n": "count(*)", "low": "min(y)", "high": "max(y)"}
    part = "0"
    while True:
        found = quantities.table.totals(Totals(ends, {"part": part}, quantities.rows, where), known)
        order = np.argsort(found["part"])
        counts, low, high = (found[name][order] for name in ends)
        reached = counts.cumsum()
        first, last = np.searchsorted(reached, ranks, side="right").tolist()
        if first != last:  # the last of one part and the first of the next
            return [float(high[first]), float(low[last])]
        if low[first] == high[first]:
            return [float(low[first])] * len(ranks)
        ranks = [rank - int(reached[first] - counts[first]) for rank in ranks]
        known |= {"low_y": float(low[first]), "high_y": float(high[first])}
        known["per_part"] = PARTS / (known["high_y"] - known["low_y"])
        part = f"CAST(least(greatest(floor((y - $low_y) * $per_part), 0), {PARTS - 1}) AS INTEGER)"
        where = "y BETWEEN $low_y AND $high_y"


def sample_table(table: Table, profile: Profile, code: CellCode, rows: int, seed: int) -> Samples:
    """At most `rows` rows as samples in memory: all of them, or a random sample."""
    asked = {letter: number(name) for letter, name in profile.numbers.items()}
    if profile.targets == "classes":
        asked["t"] = label(profile.numbers["t"], table.columns[profile.numbers["t"]])
    asked |= {f"g{j}": digit.sql for j, digit in enumerate(code.groups.values())}
    asked |= {f"f{j}": digit.value for j, digit in enumerate(code.features.values())}
    found = table.sample(asked, rows, profile.rows, seed, code.parameters)
    return read_samples(
        found["y"],
        {
            name: np.array(digit.meaning, dtype=object)[found[f"g{j}"]]
            for j, (name, digit) in enumerate(code.groups.items())
        },
        found.get("t"),
        {name: np.asarray(found[f"f{j}"]) for j, name in enumerate(code.features)} or None,
        found.get("w"),
        found.get("z"),
    )
