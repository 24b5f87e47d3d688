"""Cells in SQL: everything that constraints look at, as one number per row of a table.

Each attribute, each feature with regions and the target is a *digit*: an expression with few values. Digits side by
side make the *code* of a row. A value of a digit is told by something that it stands for: a label, or a number that
lies in the same regions. So constraints are bound to the codes that occur just as they are to samples in memory, and
nothing here asks of what kind they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlayer.constraints import Constraint, Region
from fairlayer.errors import InputError
from fairlayer.problem.bounds import read_bounds
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.families import MOST_CLASSES
from fairlayer.problem.system import bind, less_targets
from fairlayer.tables.entries import Attribute, group_label, label, number
from fairlayer.tables.passes import Shifts, TablePasses, moved, project_passes
from fairlayer.tables.table import Table

MOST_CODES = 1_000_000
_NOWHERE = "\0 in no region"  # stands for all text that no region lists


@dataclass(frozen=True)
class Digit:
    """An expression with values 0 to len(meaning) - 1, and something that each of them stands for."""

    sql: str
    meaning: list[Any]
    value: str  # SQL of what the digit is made of

    def of(self, values: np.ndarray) -> np.ndarray:
        """What values stand for: text as objects, numbers as they are."""
        is_text = any(isinstance(one, str) for one in self.meaning)
        return np.array(self.meaning, dtype=object if is_text else None)[values]


class CellCode:
    """The code of a row, from the file's own columns. Its SQL takes `parameters`."""

    def __init__(self, table: Table, constraints: Sequence[Constraint], target: str | None):
        self.table = table
        self.parameters: dict[str, Any] = {}
        self.groups: dict[str, Digit] = {}
        self.features: dict[str, Digit] = {}
        self.of_target: Digit | None = None
        conditions = [condition for constraint in constraints for condition in constraint.conditions]
        regions: dict[str, list[Region]] = {}
        for condition in conditions:
            if condition.source == "feature":
                regions.setdefault(str(condition.name), []).extend(condition.regions or ())
        for name, listed in regions.items():
            table.require(name, "regions")
            self.features[name] = self._by_regions(name, listed)
        of_target = [condition.regions for condition in conditions if condition.source == "target"]
        if target is not None and None in of_target:
            self.of_target = self._by_class(target)
        elif target is not None and of_target:
            self.of_target = self._by_regions(target, [region for listed in of_target for region in listed or ()])

    @property
    def digits(self) -> list[Digit]:
        """All of them, in the order of their weight in the code."""
        target = [self.of_target] if self.of_target is not None else []
        return [*self.groups.values(), *self.features.values(), *target]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of each digit."""
        return tuple(len(digit.meaning) for digit in self.digits)

    @property
    def size(self) -> int:
        """Number of codes."""
        return int(np.prod(self.shape, dtype=object))

    @property
    def sql(self) -> str:
        """The code of a row."""
        if self.size > MOST_CODES:
            raise InputError(
                f"Attributes and regions have {self.size:,} combinations, more than {MOST_CODES:,}: constrain fewer."
            )
        sql = "0"
        for digit in self.digits:
            sql = f"({sql} * {len(digit.meaning)} + {digit.sql})"
        return f"CAST({sql} AS INTEGER)"

    def meanings(self, codes: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray | None]:
        """Groups, features and targets that codes stand for, an entry for each code."""
        values = iter(np.unravel_index(codes, self.shape))
        groups = {name: digit.of(next(values)) for name, digit in self.groups.items()}
        features = {name: digit.of(next(values)) for name, digit in self.features.items()}
        return groups, features, None if self.of_target is None else self.of_target.of(next(values))

    def parameter(self, value: Any) -> str:
        """SQL that stands for a value."""
        name = f"p{len(self.parameters)}"
        self.parameters[name] = value
        return f"${name}"

    def add_group(self, attribute: Attribute, known: Sequence[Any], meaning: Sequence[Any] | None = None) -> None:
        """Take an attribute for groups. known: its labels; meaning: what they stand for, where not for themselves."""
        value = attribute.label(self.table.columns[attribute.column])
        place = f"(list_position({self.parameter(list(known))}, {value}) - 1)"
        self.groups[attribute.column] = Digit(place, list(known if meaning is None else meaning), value)

    def _by_regions(self, name: str, regions: Sequence[Region]) -> Digit:
        """A digit that tells all regions apart: by listed text, or by the cut points of intervals and numbers."""
        sets = [region for region in regions if isinstance(region, set | frozenset)]
        listed = [entry for region in sets for entry in region]
        if any(isinstance(entry, str) for entry in listed):
            if len(sets) < len(regions):
                raise InputError(
                    f"regions of column {name!r} mix intervals with sets of text: use one constraint for each."
                )
            known = {str(entry): entry for entry in sorted(listed, key=str)}
            value = group_label(name, self.table.columns[name])
            place = f"coalesce(list_position({self.parameter(list(known))}, {value}), 0)"
            return Digit(place, [_NOWHERE, *known.values()], value)
        ends = [end for region in regions if not isinstance(region, set | frozenset) for end in region]
        try:
            values = [float(entry) for entry in listed]
            after = np.nextafter(values, np.inf).tolist()
            cuts = sorted({*(float(end) for end in ends if end is not None), *values, *after})
        except (TypeError, ValueError) as error:
            raise InputError(f"regions of column {name!r}: {error}.") from error
        value = number(name)
        self._refuse_missing(name, value)
        below = [float(np.nextafter(cuts[0], -np.inf))] if cuts else [0.0]
        reached = [f"CAST({value} >= {self.parameter(cut)} AS INTEGER)" for cut in cuts]
        return Digit(f"({' + '.join(reached or ['0'])})", [*below, *cuts], value)

    def _by_class(self, target: str) -> Digit:
        """A digit for each class of the target: numbers where all of them are, else labels."""
        found = self.table.one({"n": "count(*)", "numbers": f"count({number(target)})"})
        numeric = found["n"] == found["numbers"]
        value = number(target) if numeric else label(target, self.table.columns[target])
        self._refuse_missing(target, value)
        known = self.table.distinct({target: value}, MOST_CLASSES)[target]
        if len(known) > MOST_CLASSES:
            raise InputError(
                f"Column {target!r} has more than {MOST_CLASSES} values, too many to be classes: give cut points, such "
                "as --odds 0.05:20,40 or regions=[(None, 0.5), (0.5, None)]."
            )
        return Digit(f"(list_position({self.parameter(known)}, {value}) - 1)", known, value)

    def _refuse_missing(self, name: str, value: str) -> None:
        found = self.table.one({"n": "count(*)", "known": f"count({value})"})
        refuse_missing(f"column {name!r}", found["n"] - found["known"], found["n"])


def refuse_missing(what: str, missing: int, n: int) -> None:
    """An error where entries are missing, or are no numbers where numbers are needed."""
    if missing:
        raise InputError(
            f"{what} has {missing:,} of {n:,} entries that are missing or not finite numbers: leave these rows out, or "
            "fill them in."
        )


class ScoredTable:
    """A table whose scores are projected: SQL of the score and of the code of its cell, and constraints bound to them.

    arguments: what errors call the arguments score, target and protected, which options of a command are, too.
    """

    def __init__(
        self,
        table: Table,
        score: str,
        attributes: Sequence[Attribute],
        constraints: Sequence[Constraint] | Constraint,
        target: str | None = None,
        bounds: Any = None,
        arguments: tuple[str, str, str] = ("score", "target", "protected"),
    ):
        self.table, self.score, self.bounds = table, score, bounds
        self.rules = ConstraintSet(constraints)
        of_score, of_target, of_groups = arguments
        if self.rules.matrices:
            name = type(self.rules.matrices[0]).__name__
            raise InputError(f"{name} is about single outputs, not about groups: leave it out.")
        if self.rules.needs_targets is not None and target is None:
            raise InputError(f"{of_target} is missing: {self.rules.needs_targets} compares with it; name its column.")
        self.rules.check_bounds(read_bounds(bounds, 1, np.float64).lowest)
        self.takes_residuals = any(one.quantity == "residual" for one in self.rules.constraints)
        full = {table.require(score, of_score): of_score}
        if target is not None and table.require(target, of_target) and self.takes_residuals:
            full.setdefault(target, of_target)
        table.check_numbers(full, {one.column: of_groups for one in attributes if one.cuts})
        self.code = CellCode(table, self.rules.constraints, target)
        labels = table.check_groups(attributes, of_groups)
        for attribute in attributes:
            self.code.add_group(attribute, labels[attribute.column])
        # What a pass takes from every row, in SQL: the score, the code and, where it is needed, the target.
        self.values = {"z": number(score), "code": self.code.sql}
        self.values |= {"t": number(str(target))} if self.takes_residuals else {}

    def bind(self) -> None:
        """Keep `values`, and bind the constraints to them, by one sample for each code that occurs, of its weight."""
        self.kept: Any = self.table.keep(self.values, self.code.parameters)
        passes = TablePasses(self.kept)
        codes = passes.code
        if not len(codes):
            raise InputError(f"{self.table.title} has no rows: there is nothing to compare.")
        groups, features, targets = self.code.meanings(codes)
        if targets is None and self.takes_residuals:
            targets = np.zeros(len(codes))  # their sums are put in below
        system = bind(self.rules, len(codes), groups=groups, features=features, targets=targets, weights=passes.n)
        if not system.view.names:
            raise InputError(f"{self.table.title} has nothing to compare: every comparison has one group only.")
        cell, cells = np.asarray(system.cell), len(system.weight)
        if self.takes_residuals:
            found = TablePasses(self.kept, "t").grouped(cell, cells).sums(np.zeros(cells), -np.inf, np.inf)
            stated = system.rows.between(*system.stated)
            rows = less_targets(stated, system.view.plan, found.outputs, found.error)
            system = system._replace(rows=rows, targets=None)
        self.system, self.passes = system, passes.grouped(cell, cells)
        self.cell_of_code = np.zeros(self.code.size, dtype=np.int32)
        self.cell_of_code[codes] = cell

    def project(self) -> Shifts:
        """The projection of what was bound."""
        return project_passes(self.passes, self.system, self.bounds)

    def moved(self, shifts: Shifts) -> tuple[str, dict[str, Any]]:
        """SQL of the moved score, from the columns of the table, and its parameters."""
        of_row = f"list_extract($shift, {self.code.sql} + 1)"
        sql = moved(self.values["z"], of_row, shifts.lo, shifts.hi)
        return sql, {**self.code.parameters, "shift": shifts.shift[self.cell_of_code].tolist()}
