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

from fairlayer.audit.file_profile import FileProfile, Roles
from fairlayer.audit.samples import AuditSamples, cells_of, columns_of, read_samples
from fairlayer.audit.tally import (
    BINS,
    CHANGE_BINS,
    CHANGE_SUMS,
    OUTPUT_SUMS,
    TARGET_SUMS,
    CellTally,
    ChangeTally,
    decision_threshold,
)
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.tables.duckdb_table import MISSING, label, number
from fairlayer.tables.sql_cells import CellCode
from fairlayer.tables.table import Table, Totals

MOST_LISTED = 1_000_000  # different outputs among which one is looked for in memory
PARTS = 4096  # of a range in which one of more is looked for


def code_cells(table: Table, roles: Roles, facts: FileProfile, rules: ConstraintSet) -> CellCode:
    """Everything that cells depend on, as the code of a row."""
    code = CellCode(table, rules.constraints, roles.target, every_class=facts.targets == "binary")
    for name, known in code.labels(roles.groups).items():
        code.add_labels(name, known, _whole_numbers(known))
    return code


def _whole_numbers(labels: Sequence[str]) -> list[Any]:
    """Labels of text that are all whole numbers, as numbers: then they are those of arrays."""
    whole = all(entry == MISSING or re.fullmatch("0|-?[1-9][0-9]{0,17}", entry) for entry in labels)
    return [int(entry) if whole and entry != MISSING else entry for entry in labels]


def tally_table(
    table: Table, facts: FileProfile, code: CellCode, rules: ConstraintSet, threshold: float | None
) -> CellTally:
    """One pass over the table besides those for profile, code and median, and two more for raw outputs."""
    sums = OUTPUT_SUMS + (TARGET_SUMS if facts.targets in ("binary", "numeric") else ())
    threshold = decision_threshold(threshold, facts.targets, facts.ranges["y"])
    quantities, scales = _Quantities(facts, code, threshold), facts.scales(sums)
    found = table.totals(quantities.grouped({"bin": "bin"}, quantities.sums(scales)), quantities.parameters)
    codes, position = np.unique(found["code"], return_inverse=True)
    # Constraints look at one sample of each code, as they do at samples in memory.
    groups, features, targets = code.meanings(codes)
    numbers = targets if facts.targets in ("binary", "numeric") else None
    met = AuditSamples(np.zeros(len(codes)), groups, targets, numbers, facts.targets, features or None, None, None)
    columns, of_code = cells_of(columns_of(met, rules), len(codes))
    cell = of_code[position.reshape(-1)]
    # In the order of cells and bins, as samples in memory are counted: then sums round alike, too.
    order = np.lexsort((found["bin"], cell))
    added = {**quantities.scaled(found, scales), **_above_median(table, quantities, facts, found)}
    return CellTally(
        attributes=tuple(key for key in columns if key[0] == "group"),
        columns=columns,
        cell=cell[order],
        bin=found["bin"][order].astype(np.int64),
        count=found["n"][order].astype(np.int64),
        sums={name: values[order] for name, values in added.items()},
        outputs=facts.ranges["y"],
        residuals=facts.residuals,
        reach=facts.reach,
        targets=facts.targets,
        threshold=threshold,
        changes=_changes(table, quantities, facts, codes, of_code) if "z" in facts.ranges else None,
    )


class _Quantities:
    """The file as rows of quantities, and queries over them."""

    def __init__(self, facts: FileProfile, code: CellCode, threshold: float | None):
        self.facts = facts
        width = facts.reach.width
        self.parameters: dict[str, Any] = {
            **code.parameters,
            "threshold": math.inf if threshold is None else float(threshold),
            "low": facts.reach.low,
            "per_bin": BINS / width if width > 0 else 0.0,
        }
        numbers = {letter: name for letter, name in facts.numbers.items() if letter in facts.ranges}
        values = [f"{number(name)} AS {letter}" for letter, name in numbers.items()]
        more = ["CAST(y >= $threshold AS DOUBLE) AS d", f"{_bin_sql('y')} AS bin"]
        more += ["y - t AS r"] if "t" in numbers else []
        if "z" in numbers:
            more += ["y - z AS c", "abs(y - z) AS a", "CAST(y <> z AS DOUBLE) AS x", f"{_bin_sql('z')} AS raw_bin"]
            more += ["CAST((y >= $threshold) <> (z >= $threshold) AS DOUBLE) AS f"]
        values.append(f"{code.sql} AS code")
        self.rows = f"(SELECT *, {', '.join(more)} FROM (SELECT {', '.join(values)} FROM data))"

    def grouped(self, by: Mapping[str, str], sums: Mapping[str, str], where: str = "") -> Totals:
        """Counts and sums by cell and by one thing more."""
        return Totals({"n": "count(*)", **sums}, {"code": "code", **by}, self.rows, where)

    def sums(self, scales: Mapping[str, float]) -> dict[str, str]:
        """SQL of sums in integers."""
        asked = {}
        for spelled, scale in scales.items():
            if spelled:
                self.parameters[f"scale_{spelled}"] = scale
                asked[f"sum_{spelled}"] = f"sum(CAST({' * '.join(spelled)} * $scale_{spelled} AS BIGINT))"
        return asked

    def scaled(self, found: Mapping[str, np.ndarray], scales: Mapping[str, float]) -> dict[str, np.ndarray]:
        """The sums, under all their names."""
        sums = {s: found[f"sum_{s}"].astype(np.float64) / scale for s, scale in scales.items() if s}
        sums[""] = found["n"].astype(np.float64)
        known = OUTPUT_SUMS + TARGET_SUMS + CHANGE_SUMS
        return {name: sums[self.facts.spelled(name)] for name in known if self.facts.spelled(name) in sums}


def _bin_sql(letter: str) -> str:
    return f"CAST(least(greatest(floor(({letter} - $low) * $per_bin), 0), {BINS - 1}) AS INTEGER)"


def _above_median(
    table: Table, quantities: _Quantities, facts: FileProfile, found: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """How much of every entry lies above the median. Only rows of the bin that holds it are looked at again."""
    weight = facts.scales(("w",))
    counts = np.bincount(found["bin"], weights=found["n"], minlength=BINS).cumsum()
    ranks = [(facts.rows - 1) // 2, facts.rows // 2]
    bins = np.searchsorted(counts, ranks, side="right").tolist()
    median = 0.5 * sum(_middle(table, quantities, ranks, bins, counts))
    within = f"bin BETWEEN {int(bins[0])} AND {int(bins[1])} AND y > $median"
    asked = quantities.grouped({"bin": "bin"}, quantities.sums(weight), within)
    above = table.totals(asked, {**quantities.parameters, "median": median})
    n = found["n"].astype(np.float64)
    totals = {"m": n, "wm": quantities.scaled(found, weight)["w"] if "w" in facts.numbers else n}
    some = {"m": above["n"].astype(np.float64)}
    some["wm"] = quantities.scaled(above, weight)["w"] if "w" in facts.numbers else some["m"]
    place = {key: e for e, key in enumerate(zip(found["code"].tolist(), found["bin"].tolist(), strict=True))}
    at = np.array([place[key] for key in zip(above["code"].tolist(), above["bin"].tolist(), strict=True)], dtype=int)
    sums = {}
    for name, total in totals.items():
        sums[name] = np.where(found["bin"] > bins[1], total, 0.0)
        sums[name][at] = some[name]
    return sums


def _middle(
    table: Table, quantities: _Quantities, ranks: Sequence[int], bins: Sequence[int], counts: np.ndarray
) -> list[float]:
    """The outputs of these ranks. counts: how many are in each bin or below it."""
    values = []
    if bins[0] == bins[1]:  # as a rule
        before = int(counts[bins[0] - 1]) if bins[0] else 0
        places = [rank - before for rank in ranks]
        return _ranked(table, quantities, f"bin = {int(bins[0])}", places, int(counts[bins[0]]) - before)
    for rank, at in zip(ranks, bins, strict=True):
        before = int(counts[at - 1]) if at else 0
        values += _ranked(table, quantities, f"bin = {int(at)}", [rank - before], int(counts[at]) - before)
    return values


def _ranked(table: Table, quantities: _Quantities, where: str, ranks: Sequence[int], rows: int) -> list[float]:
    """The outputs that have these ranks, one after the other at most, among the rows that meet a condition."""
    known = quantities.parameters
    while rows > MOST_LISTED:
        found = table.totals(Totals({"low": "min(y)", "high": "max(y)"}, {}, quantities.rows, where), known)
        low, high = float(found["low"][0]), float(found["high"][0])
        if low == high:
            return [low] * len(ranks)
        # Narrower bins, of which the first holds the least and the last the greatest value.
        known = {**known, "least": low, "per_part": PARTS / (high - low)}
        part = f"CAST(least(greatest(floor((y - $least) * $per_part), 0), {PARTS - 1}) AS INTEGER)"
        asked = Totals({"n": "count(*)", "low": "min(y)", "high": "max(y)"}, {"part": part}, quantities.rows, where)
        found = table.totals(asked, known)
        order = np.argsort(found["part"])
        counts = found["n"][order].cumsum()
        at = np.searchsorted(counts, ranks, side="right").tolist()
        if at[0] != at[-1]:  # the last of one bin and the first of the next
            return [float(found["high"][order][at[0]]), float(found["low"][order][at[-1]])]
        before = int(counts[at[0] - 1]) if at[0] else 0
        ranks, rows = [rank - before for rank in ranks], int(counts[at[0]]) - before
        known |= {f"{end}_y": float(found[end][order][at[0]]) for end in ("low", "high")}
        where = "y BETWEEN $low_y AND $high_y"
    found = table.totals(Totals({"n": "count(*)"}, {"y": "y"}, quantities.rows, where), known)
    order = np.argsort(found["y"])
    at = np.searchsorted(found["n"][order].cumsum(), ranks, side="right")
    return [float(value) for value in found["y"][order][at]]


def _changes(
    table: Table, quantities: _Quantities, facts: FileProfile, codes: np.ndarray, of_code: np.ndarray
) -> ChangeTally:
    """The changes by cell, and the raw outputs."""
    quantities.parameters["per_change"] = CHANGE_BINS / (facts.largest_change or 1.0)
    scales = facts.scales(CHANGE_SUMS)
    step = f"CAST(sign(c) * least(ceil(a * $per_change), {CHANGE_BINS}) AS INTEGER)"
    asked = {"lowest": "min(c)", "highest": "max(c)", **quantities.sums(scales)}
    found = table.totals(quantities.grouped({"step": step}, asked), quantities.parameters)
    weight = facts.scales(("w",))
    raw = table.totals(quantities.grouped({"raw_bin": "raw_bin"}, quantities.sums(weight)), quantities.parameters)
    return ChangeTally(
        cell=of_code[np.searchsorted(codes, found["code"])],
        bin=found["step"].astype(np.int64),
        count=found["n"].astype(np.int64),
        lowest=np.asarray(found["lowest"], dtype=np.float64),
        highest=np.asarray(found["highest"], dtype=np.float64),
        sums=quantities.scaled(found, scales),
        raw_cell=of_code[np.searchsorted(codes, raw["code"])],
        raw_bin=raw["raw_bin"].astype(np.int64),
        raw_weight=quantities.scaled(raw, weight)["w"],
    )


def sample_table(table: Table, facts: FileProfile, code: CellCode, rows: int, seed: int) -> AuditSamples:
    """At most `rows` rows as samples in memory: all of them, or a random sample."""
    asked = {letter: number(name) for letter, name in facts.numbers.items()}
    if facts.targets == "classes":
        asked["t"] = label(facts.numbers["t"], table.columns[facts.numbers["t"]])
    asked |= {f"g{j}": digit.sql for j, digit in enumerate(code.groups.values())}
    asked |= {f"f{j}": digit.value for j, digit in enumerate(code.features.values())}
    found = table.sample(asked, rows, facts.rows, seed, code.parameters)
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
