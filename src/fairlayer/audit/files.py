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
from fairlayer.tables.attribute import Attribute
from fairlayer.tables.entries import MISSING, label, number
from fairlayer.tables.sql_cells import CellCode
from fairlayer.tables.table import MOST_LABELS, Table, Totals

MOST_LISTED = 1_000_000  # different outputs among which one is looked for in memory
PARTS = 4096  # of a range in which one of more is looked for


def code_cells(table: Table, roles: Roles, facts: FileProfile, rules: ConstraintSet) -> CellCode:
    """Everything that cells depend on, as the code of a row."""
    code = CellCode(table, rules.constraints, roles.target, every_class=facts.targets == "binary")
    attributes = [Attribute(name) for name in roles.groups]
    labels = table.distinct({one.column: one.label(table.columns[one.column]) for one in attributes}, MOST_LABELS)
    for attribute in attributes:
        known = labels[attribute.column]
        code.add_group(attribute, known, _whole_numbers(known))
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
    quantities = _Quantities(table, facts, code, threshold)
    found, added = quantities.totals({"bin": "bin"}, sums)
    added |= _above_median(quantities, facts.rows, found, added["w"])
    codes, position = np.unique(found["code"], return_inverse=True)
    # Constraints look at one sample of each code, as they do at samples in memory.
    groups, features, targets = code.meanings(codes)
    met = AuditSamples(np.zeros(len(codes)), groups, targets, facts.targets, features or None, None, None)
    columns, of_code = cells_of(columns_of(met, rules), len(codes))
    cell = of_code[position.reshape(-1)]
    # In the order of cells and bins, as samples in memory are counted: then sums round alike, too.
    order = np.lexsort((found["bin"], cell))
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
        changes=_changes(quantities, facts, codes, of_code) if "z" in facts.ranges else None,
    )


class _Quantities:
    """The file as rows of quantities, and totals over them."""

    def __init__(self, table: Table, facts: FileProfile, code: CellCode, threshold: float | None):
        self.table, self.facts = table, facts
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

    def totals(
        self, by: Mapping[str, str], sums: Sequence[str], where: str = "", also: Mapping[str, str] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Counts, and what is asked for also, by cell and by one thing more; and the sums, taken in integers."""
        # Weights that are all 1 are no factors; sums that are equal without them are taken only once.
        factors = {name: name if "w" in self.facts.numbers else name.replace("w", "") for name in sums}
        scales = {spelled: self.facts.scale(spelled) for spelled in factors.values() if spelled}
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
    quantities: _Quantities, rows: int, found: Mapping[str, np.ndarray], weight: np.ndarray
) -> dict[str, np.ndarray]:
    """How much of every entry lies above the median. Only rows of the bins that hold it are looked at again."""
    counts = np.bincount(found["bin"], weights=found["n"], minlength=BINS).cumsum()
    ranks = [(rows - 1) // 2, rows // 2]
    first, last = np.searchsorted(counts, ranks, side="right").tolist()  # the same bin, as a rule
    within = f"bin BETWEEN {first} AND {last}"
    before = int(counts[first - 1]) if first else 0
    middle = _ranked(quantities, within, [rank - before for rank in ranks], int(counts[last]) - before)
    quantities.parameters["median"] = 0.5 * sum(middle)
    above, some = quantities.totals({"bin": "bin"}, ("w",), f"{within} AND y > $median")
    place = {key: e for e, key in enumerate(zip(found["code"].tolist(), found["bin"].tolist(), strict=True))}
    at = np.array([place[key] for key in zip(above["code"].tolist(), above["bin"].tolist(), strict=True)], dtype=int)
    sums = {name: np.where(found["bin"] > last, total, 0.0) for name, total in (("m", found["n"]), ("wm", weight))}
    sums["m"][at], sums["wm"][at] = above["n"], some["w"]
    return sums


def _ranked(quantities: _Quantities, where: str, ranks: Sequence[int], rows: int) -> list[float]:
    """The outputs that have these ranks, one after the other at most, among the rows that meet a condition."""
    table = quantities.table
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


def _changes(quantities: _Quantities, facts: FileProfile, codes: np.ndarray, of_code: np.ndarray) -> ChangeTally:
    """The changes by cell, and the raw outputs."""
    quantities.parameters["per_change"] = CHANGE_BINS / (facts.largest_change or 1.0)
    step = f"CAST(sign(c) * least(ceil(a * $per_change), {CHANGE_BINS}) AS INTEGER)"
    ends = {"lowest": "min(c)", "highest": "max(c)"}
    found, sums = quantities.totals({"step": step}, CHANGE_SUMS, also=ends)
    raw, raw_sums = quantities.totals({"raw_bin": "raw_bin"}, ("w",))
    return ChangeTally(
        cell=of_code[np.searchsorted(codes, found["code"])],
        bin=found["step"].astype(np.int64),
        count=found["n"].astype(np.int64),
        lowest=np.asarray(found["lowest"], dtype=np.float64),
        highest=np.asarray(found["highest"], dtype=np.float64),
        sums=sums,
        raw_cell=of_code[np.searchsorted(codes, raw["code"])],
        raw_bin=raw["raw_bin"].astype(np.int64),
        raw_weight=raw_sums["w"],
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
