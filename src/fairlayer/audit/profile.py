"""What must be known of a table before sums are taken: which column is what, its range, and that nothing is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fairlayer.audit.tally import MOST_GROUPS, check_cells, reach_of
from fairlayer.binding.conditions import MOST_CLASSES
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.errors import InputError
from fairlayer.intervals import Range
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
        for j, name in enumerate(self.groups):
            if int(found[f"labels_{j}"]) > 2 * MOST_GROUPS:  # an estimate; the exact number is checked later
                raise InputError(
                    f"groups names column {name!r}, which has about {int(found[f'labels_{j}']):,} different entries, "
                    f"more than {MOST_GROUPS}: it looks like a number or a name. Make groups of it, or leave it out."
                )
        check_cells(int(found["cells"]) // 2)  # an estimate as well

    def _asked(self) -> Totals:
        labels = [f"g{j}" for j in range(len(self.groups))]
        asked = {"n": "count(*)", "cells": f"approx_count_distinct(hash({', '.join(labels)}))"}
        asked |= {f"labels_{j}": f"approx_count_distinct({label})" for j, label in enumerate(labels)}
        for letter in self.numbers:
            asked |= {f"n_{letter}": f"count({letter})", f"low_{letter}": f"min({letter})"}
            asked[f"high_{letter}"] = f"max({letter})"
        values = [f"{number(name)} AS {letter}" for letter, name in self.numbers.items()]
        values += [f"{text(name)} AS g{j}" for j, name in enumerate(self.groups)]
        if self.target is not None:
            asked |= {"low_r": "min(y - t)", "high_r": "max(y - t)", "n_target": "count(target)"}
            asked |= {"beyond": "count_if(t <> 0 AND t <> 1)", "classes": "approx_count_distinct(target)"}
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
        numeric = int(found["n_t"]) == self.rows
        for constraint in rules.constraints:
            if not numeric and constraint.quantity == "residual":
                raise InputError(
                    f"column {self.target!r} holds entries that are not numbers, of which {rules.needs_targets} "
                    "cannot take residuals."
                )
            for condition in constraint.conditions:
                if condition.source != "target":
                    continue
                if not numeric and any(isinstance(region, tuple) for region in condition.regions or ()):
                    raise InputError(
                        f"column {self.target!r} holds entries that are not numbers, of which there are no intervals: "
                        "leave regions out for one per class."
                    )
                if condition.regions is None and found["classes"] > 2 * MOST_CLASSES:
                    raise InputError(
                        f"column {self.target!r} has about {int(found['classes']):,} values, too many to be classes: "
                        "give intervals of the target, for instance regions=[(None, 0.5), (0.5, None)]."
                    )
        return "classes" if not numeric else "numeric" if int(found["beyond"]) else "binary"

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
