"""A file -> tally, by grouped sums that DuckDB takes while it reads: memory does not grow with the number of rows.

Sums are taken in integers: every term is scaled by a power of two to fit 62 bits, rounded, and added without further
error. So the result depends neither on the order of rows nor on the number of threads, and a mean is off by at most
2^-62 of the largest term.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fairlayer.audit.file_profile import Facts, Roles
from fairlayer.audit.samples import Samples, read_samples, refuse_missing
from fairlayer.audit.tally import (
    BINS,
    CHANGE_BINS,
    CHANGE_SUMS,
    CLASS,
    OUTPUT_SUMS,
    TARGET_SUMS,
    ChangeTally,
    Tally,
    check_cells,
    check_labels,
    decision_threshold,
)
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.groups import Column, read_column
from fairlayer.constraints import ConditionalParity, EqualizedOdds, GroupConstraint, Key, Region
from fairlayer.errors import InputError
from fairlayer.tables.duckdb_table import MISSING, Table, number, quote, text

_PLAIN_TYPES = ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")


class Part(NamedTuple):
    """One of the columns that cells depend on: SQL of what to group by, one expression or a pattern of several."""

    name: str
    expressions: list[str]


def tally_file(table: Table, roles: Roles, facts: Facts, rules: ConstraintSet, threshold: float | None) -> Tally:
    """One pass over the file besides that for the facts, one for each feature, and two more for raw outputs."""
    parts, parameters = _parts(table, roles, rules, facts)
    sums = OUTPUT_SUMS + (TARGET_SUMS if facts.targets in ("binary", "numeric") else ())
    threshold = decision_threshold(threshold, facts.targets, facts.ranges["y"])
    source, scales = _Source(facts, parts, threshold, parameters), facts.scales(sums)
    found = table.query(source.grouped("bin", "count(*) AS n", *source.sums(scales)), source.parameters)
    columns, codes = _columns(table, parts, found)
    cells, cell = np.unique(codes, axis=0, return_inverse=True)
    check_labels(columns)
    check_cells(len(cells))
    # In the order of cells and bins, as samples in memory are counted: then sums round alike, too.
    order = np.lexsort((found["bin"], cell.reshape(-1)))
    return Tally(
        attributes=tuple(("group", name) for name in roles.groups),
        columns={key: Column(c.name, cells[:, j], c.labels) for j, (key, c) in enumerate(columns.items())},
        cell=cell.reshape(-1)[order],
        bin=found["bin"][order].astype(np.int64),
        count=found["n"][order].astype(np.int64),
        sums={name: values[order] for name, values in source.scaled(found, scales).items()},
        outputs=facts.ranges["y"],
        residuals=facts.residuals,
        reach=facts.reach,
        targets=facts.targets,
        threshold=threshold,
        changes=None if roles.raw is None else _changes(table, source, facts, parts),
    )


class _Source:
    """The file as rows of quantities, and queries over them."""

    def __init__(self, facts: Facts, parts: Mapping[Key, Part], threshold: float | None, parameters: Any):
        self.facts = facts
        width = facts.reach.width
        self.parameters: dict[str, Any] = {
            **parameters,
            "threshold": math.inf if threshold is None else float(threshold),
            "low": facts.reach.low,
            "per_bin": BINS / width if width > 0 else 0.0,
        }
        numbers = {letter: name for letter, name in facts.numbers.items() if letter in facts.ranges}
        values = [f"{number(name)} AS {letter}" for letter, name in numbers.items()]
        keys = [f"{sql} AS {alias}" for alias, sql in _aliases(parts)]
        more = ["CAST(y >= $threshold AS DOUBLE) AS d", f"{_bin_sql('y')} AS bin"]
        more += ["y - t AS r"] if "t" in numbers else []
        if "z" in numbers:
            more += ["y - z AS c", "abs(y - z) AS a", "CAST(y <> z AS DOUBLE) AS x", f"{_bin_sql('z')} AS raw_bin"]
            more += ["CAST((y >= $threshold) <> (z >= $threshold) AS DOUBLE) AS f"]
        self.rows = f"(SELECT *, {', '.join(more)} FROM (SELECT {', '.join(values + keys)} FROM data))"
        self.keys = [alias for alias, _ in _aliases(parts)]

    def grouped(self, by: str, *sums: str) -> str:
        """A query for sums by cell and by one thing more."""
        return f"SELECT {', '.join([*self.keys, by, *sums])} FROM {self.rows} GROUP BY ALL"

    def sums(self, scales: Mapping[str, float]) -> list[str]:
        """SQL of sums in integers."""
        asked = []
        for spelled, scale in scales.items():
            if spelled:
                self.parameters[f"scale_{spelled}"] = scale
                term = " * ".join(spelled)
                asked.append(f"sum(CAST({term} * $scale_{spelled} AS BIGINT)) AS sum_{spelled}")
        return asked

    def scaled(self, found: Mapping[str, np.ndarray], scales: Mapping[str, float]) -> dict[str, np.ndarray]:
        """The sums, under all their names."""
        sums = {s: found[f"sum_{s}"].astype(np.float64) / scale for s, scale in scales.items() if s}
        sums[""] = found["n"].astype(np.float64)
        known = OUTPUT_SUMS + TARGET_SUMS + CHANGE_SUMS
        return {name: sums[self.facts.spelled(name)] for name in known if self.facts.spelled(name) in sums}


def _bin_sql(letter: str) -> str:
    return f"CAST(least(greatest(floor(({letter} - $low) * $per_bin), 0), {BINS - 1}) AS INTEGER)"


def _aliases(parts: Mapping[Key, Part]) -> list[tuple[str, str]]:
    return [(f"k{i}_{j}", sql) for i, part in enumerate(parts.values()) for j, sql in enumerate(part.expressions)]


def _parts(table: Table, roles: Roles, rules: ConstraintSet, facts: Facts) -> tuple[dict[Key, Part], dict[str, Any]]:
    """What cells depend on, and the parameters of its SQL."""
    parts: dict[Key, Part] = {("group", name): Part(name, [_label_sql(table, name)]) for name in roles.groups}
    parameters: dict[str, Any] = {}
    for constraint in rules.constraints:
        if isinstance(constraint, ConditionalParity):
            for name, regions in constraint.regions.items():
                table.require(str(name), "regions")
                value = feature_sql(str(name), regions)
                _check_feature(table, str(name), value)
                parts["region", constraint.key, name] = _pattern(str(name), value, regions, parameters)
        elif isinstance(constraint, EqualizedOdds):
            assert roles.target is not None
            value = text(roles.target) if facts.targets == "classes" else number(roles.target)
            key = constraint.column_keys[0]
            if constraint.regions is None:
                parts[key] = Part(roles.target, [value])
            else:
                parts[key] = _pattern(roles.target, value, constraint.regions, parameters)
        elif not isinstance(constraint, GroupConstraint) or constraint.column_keys:
            raise InputError(f"{type(constraint).__name__} cannot be audited in a file: pass its columns as arrays.")
    if facts.targets == "binary":
        assert roles.target is not None
        parts[CLASS] = Part("class", [number(roles.target)])
    return parts, parameters


def _label_sql(table: Table, name: str) -> str:
    """A label as it is where its type is one of numbers that count, as text otherwise."""
    kind = table.types[name]
    return quote(name) if kind in (*_PLAIN_TYPES, "FLOAT", "DOUBLE") else text(name)


def feature_sql(name: str, regions: Sequence[Region]) -> str:
    """A feature as numbers, or as text where a region is a set of text."""
    return text(name) if _are_text(regions) else number(name)


def _are_text(regions: Sequence[Region]) -> bool:
    return any(isinstance(v, str) for region in regions if isinstance(region, set | frozenset) for v in region)


def _check_feature(table: Table, name: str, value: str) -> None:
    found = table.query(f"SELECT count(*) AS n, count({value}) AS known FROM data")
    refuse_missing(f"column {name!r}", int(found["n"][0] - found["known"][0]), int(found["n"][0]))


def _pattern(name: str, value: str, regions: Sequence[Region], parameters: dict[str, Any]) -> Part:
    """Membership of every region, whose ends and members are parameters."""
    as_text = _are_text(regions)

    def parameter(content: Any) -> str:
        alias = f"region_{len(parameters)}"
        try:
            parameters[alias] = str(content) if as_text else float(content)
        except (TypeError, ValueError) as error:
            raise InputError(f"regions of column {name!r}: {content!r} is no number.") from error
        return f"${alias}"

    expressions = []
    for region in regions:
        if isinstance(region, set | frozenset):
            listed = ", ".join(parameter(entry) for entry in sorted(region, key=str))
            expressions.append(f"({value} IN ({listed}))" if listed else "false")
            continue
        low, high = region
        if as_text:
            raise InputError(
                f"regions of column {name!r} mix intervals with sets of text: use one constraint for each."
            )
        sides = [f"{value} >= {parameter(low)}"] if low is not None else []
        sides += [f"{value} < {parameter(high)}"] if high is not None else []
        expressions.append(f"({' AND '.join(sides)})" if sides else "true")
    return Part(name, expressions)


def _columns(table: Table, parts: Mapping[Key, Part], found: Mapping[str, np.ndarray]) -> tuple[dict, np.ndarray]:
    """Columns with labels, over the rows of a result; and their codes side by side."""
    columns: dict[Key, Column] = {}
    for i, (key, part) in enumerate(parts.items()):
        values = [found[f"k{i}_{j}"] for j in range(len(part.expressions))]
        if key[0] == "group":
            labels = labels_of(values[0], table.is_csv)
            columns[key] = read_column(part.name, labels, len(labels))  # type: ignore[assignment]
            if columns[key].labels is None:
                known, codes = np.unique(columns[key].values, return_inverse=True)
                columns[key] = Column(part.name, codes.reshape(-1), tuple(known.tolist()))
        elif key == CLASS:
            columns[key] = Column(part.name, np.asarray(values[0]).astype(np.int64), (0.0, 1.0))
        elif key == ("odds",):
            classes, codes = np.unique(np.asarray(values[0]), return_inverse=True)
            columns[key] = Column(part.name, codes.reshape(-1), tuple(classes.tolist()))
        else:
            pattern = np.stack([np.asarray(value).astype(bool) for value in values], axis=1)
            patterns, codes = np.unique(pattern, axis=0, return_inverse=True)
            columns[key] = Column(part.name, codes.reshape(-1), tuple(map(tuple, patterns.tolist())))
    return columns, np.stack([np.asarray(column.values) for column in columns.values()], axis=1)


def labels_of(values: np.ndarray, as_text: bool) -> np.ndarray:
    """Labels from a result, a missing one a label of its own; of text that is all whole numbers, the numbers."""
    missing = np.ma.getmaskarray(values)
    labels = np.ma.getdata(values)
    if labels.dtype.kind == "f":
        missing = missing | np.isnan(labels)
    if as_text and all(_is_whole(label) for label in set(labels[~missing].tolist())):
        labels = np.array([int(label) if not gone else 0 for label, gone in zip(labels, missing, strict=True)])
    if not missing.any():
        return labels
    labels = labels.astype(object)
    labels[missing] = MISSING
    return labels


def _is_whole(label: str) -> bool:
    return re.fullmatch("0|-?[1-9][0-9]{0,17}", label) is not None


def _changes(table: Table, source: _Source, facts: Facts, parts: Mapping[Key, Part]) -> ChangeTally:
    """The changes by cell, and the raw outputs."""
    source.parameters["per_change"] = CHANGE_BINS / (facts.largest_change or 1.0)
    scales = facts.scales(CHANGE_SUMS)
    step = f"CAST(sign(c) * least(ceil(a * $per_change), {CHANGE_BINS}) AS INTEGER) AS step"
    asked = ("count(*) AS n", "min(c) AS lowest", "max(c) AS highest", *source.sums(scales))
    found = table.query(source.grouped(step, *asked), source.parameters)
    weight = facts.scales(("w",))
    raw = table.query(source.grouped("raw_bin", "count(*) AS n", *source.sums(weight)), source.parameters)
    return ChangeTally(
        cell=_locate(table, parts, found),
        bin=found["step"].astype(np.int64),
        count=found["n"].astype(np.int64),
        lowest=np.asarray(found["lowest"], dtype=np.float64),
        highest=np.asarray(found["highest"], dtype=np.float64),
        sums=source.scaled(found, scales),
        raw_cell=_locate(table, parts, raw),
        raw_bin=raw["raw_bin"].astype(np.int64),
        raw_weight=source.scaled(raw, weight)["w"],
    )


def _locate(table: Table, parts: Mapping[Key, Part], found: Mapping[str, np.ndarray]) -> np.ndarray:
    """The cell of each row of a result. Every result has all cells, so that their order is the same."""
    return np.unique(_columns(table, parts, found)[1], axis=0, return_inverse=True)[1].reshape(-1)


def sample_file(table: Table, roles: Roles, facts: Facts, rules: ConstraintSet, rows: int, seed: int) -> Samples:
    """At most `rows` rows as samples in memory: all of them in their order, or a random sample."""
    asked = {letter: number(name) for letter, name in facts.numbers.items()}
    if facts.targets == "classes":
        asked["t"] = text(str(roles.target))
    asked |= {f"g{j}": _label_sql(table, name) for j, name in enumerate(roles.groups)}
    regions: dict[str, list[Region]] = {}
    for constraint in rules.constraints:
        if isinstance(constraint, ConditionalParity):
            for name, listed in constraint.regions.items():
                regions.setdefault(str(name), []).extend(listed)
    asked |= {f"f{j}": feature_sql(name, listed) for j, (name, listed) in enumerate(regions.items())}
    # The seed and the number are integers of ours: DuckDB takes no parameters here.
    some = f" USING SAMPLE reservoir({int(rows)} ROWS) REPEATABLE ({int(seed)})" if facts.rows > rows else ""
    found = table.query(f"SELECT {', '.join(f'{sql} AS {alias}' for alias, sql in asked.items())} FROM data{some}")
    return read_samples(
        found["y"],
        {name: labels_of(found[f"g{j}"], table.is_csv) for j, name in enumerate(roles.groups)},
        found.get("t"),
        {name: np.asarray(found[f"f{j}"]) for j, name in enumerate(regions)} or None,
        found.get("w"),
        found.get("z"),
    )
