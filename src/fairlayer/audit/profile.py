"""What must be known of a table before sums are taken: which column is what, its range, and that nothing is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fairlayer.audit.tally import reach_of
from fairlayer.errors import InputError
from fairlayer.intervals import Range
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.tables.entries import number, text
from fairlayer.tables.sql_cells import refuse_missing
from fairlayer.tables.table import Table, Totals


class Profile:
    """Roles of columns, ranges of numbers, and what targets are."""

    def __init__(self, table: Table, rules: ConstraintSet, groups: Any, roles: Mapping[str, Any]):
        """groups: names of columns; roles: the columns of prediction, target, weight and raw, None for no such."""
        self.groups = _read_groups(groups)
        if roles["prediction"] is None:
            names = list(table.columns)[:20]
            raise InputError(f"prediction is missing: name the column of predictions, one of {names}.")
        for argument, name in [*(("groups", name) for name in self.groups), *roles.items()]:
            if name is not None and not isinstance(name, str):
                raise InputError(f"{argument} must name a column of the file; got {type(name).__name__}.")
            if name is not None:
                table.require(name, argument)
        self.target = roles["target"]
        letters = {"y": "prediction", "t": "target", "w": "weight", "z": "raw"}
        self.numbers: dict[str, str] = {letter: roles[role] for letter, role in letters.items() if roles[role]}
        found = {name: values[0] for name, values in table.totals(self._asked()).items()}
        self.rows = int(found["n"])
        if self.rows == 0:
            raise InputError(f"{table.title} has no rows: there is nothing to audit.")
        self.targets = self._kind_of_targets(found, rules)
        self.ranges: dict[str, Range] = {}
        for letter, name in self.numbers.items():
            if letter != "t" or self.targets != "classes":
                refuse_missing(f"column {name!r}", self.rows - int(found[f"n_{letter}"]), self.rows)
                self.ranges[letter] = Range(float(found[f"low_{letter}"]), float(found[f"high_{letter}"]))
        if "w" in self.ranges and (self.ranges["w"].low < 0 or self.ranges["w"].high <= 0):
            raise InputError(f"column {roles['weight']!r} must hold weights of at least 0, and not all of them 0.")
        self.residuals = Range(float(found["low_r"]), float(found["high_r"])) if "t" in self.ranges else None
        self.largest_change = float(found["largest_change"]) if "z" in self.ranges else 0.0
        self.reach = reach_of(self.ranges["y"], self.ranges.get("z"))

    def _asked(self) -> Totals:
        asked = {"n": "count(*)"}
        for letter in self.numbers:
            asked |= {f"n_{letter}": f"count({letter})", f"low_{letter}": f"min({letter})"}
            asked[f"high_{letter}"] = f"max({letter})"
        values = [f"{number(name)} AS {letter}" for letter, name in self.numbers.items()]
        if self.target is not None:
            asked |= {"low_r": "min(y - t)", "high_r": "max(y - t)", "n_target": "count(target)"}
            asked["beyond"] = "count_if(t <> 0 AND t <> 1)"
            values.append(f"{text(self.target)} AS target")
        if "z" in self.numbers:
            asked["largest_change"] = "max(abs(y - z))"
        return Totals(asked, rows=f"(SELECT {', '.join(values)} FROM data)")

    def _kind_of_targets(self, found: Mapping[str, Any], rules: ConstraintSet) -> str | None:
        if self.target is None:
            if rules.needs_targets is not None:
                raise InputError(f"target is missing: {rules.needs_targets} compares with it; name its column.")
            return None
        refuse_missing(f"column {self.target!r}", self.rows - int(found["n_target"]), self.rows)
        if int(found["n_t"]) < self.rows:
            return "classes"
        return "numeric" if int(found["beyond"]) else "binary"

    def scale(self, factors: str) -> float:
        """The power of two that takes the product of these quantities to 62 bits."""
        size = {letter: known.magnitude for letter, known in self.ranges.items()}
        size |= {"r": self.residuals.magnitude if self.residuals else 0.0, "d": 1.0, "x": 1.0, "f": 1.0}
        size |= {"c": self.largest_change, "a": self.largest_change}
        exponent = math.frexp(math.prod(size[letter] for letter in factors))[1]
        return 2.0 ** min(62 - exponent, 1000)


def _read_groups(groups: Any) -> tuple[str, ...]:
    names = [groups] if isinstance(groups, str) else [] if groups is None or isinstance(groups, Mapping) else groups
    if not len(names) or not all(isinstance(name, str) for name in names):
        raise InputError(f"groups must name columns of the file, for instance groups=['sex']; got {groups!r}.")
    return tuple(dict.fromkeys(names))
