"""Options that several commands share, and what they mean: protected attributes and constraints.

Cut points are written the same way everywhere: `age=30,50` makes three groups (or regions) of a column of numbers,
below 30, from 30 to below 50, and from 50 on. For a column of text `town=A|B,C` makes two regions, {A, B} and {C}.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlayer.errors import InputError
from fairlayer.tables.table_io import Source

if TYPE_CHECKING:
    from fairlayer.constraints import GroupConstraint

MOST_VALUES = 20  # of a column whose values are regions of their own
CONSTRAINTS = "Constraints, at least one"

Protected = Annotated[
    list[str],
    typer.Option(
        "--protected",
        metavar="COLUMN",
        help="A protected attribute; give the option once for each. `age=30,50` makes groups of a column of numbers "
        "by cut points: below 30, 30 to 50, 50 and above.",
    ),
]
Parity = Annotated[
    str | None,
    typer.Option(
        "--parity",
        metavar="TOL",
        rich_help_panel=CONSTRAINTS,
        help="Mean parity: the group means of the output differ by at most TOL.",
    ),
]
Odds = Annotated[
    str | None,
    typer.Option(
        "--odds",
        metavar="TOL[:CUTS]",
        rich_help_panel=CONSTRAINTS,
        help="Equalized odds: the same among rows of like target, for each class. Where the target is a number, give "
        "cut points: `0.05:20,40`.",
    ),
]
Residuals = Annotated[
    str | None,
    typer.Option(
        "--residuals",
        metavar="TOL",
        rich_help_panel=CONSTRAINTS,
        help="Equalized residuals: the group means of output less target differ by at most TOL.",
    ),
]
Conditional = Annotated[
    list[str] | None,
    typer.Option(
        "--conditional",
        metavar="TOL:COLUMN[=CUTS]",
        rich_help_panel=CONSTRAINTS,
        help="Mean parity within parts of a column: `0.05:age=30,50` by cut points of a column of numbers, "
        "`0.05:town` for each value of a column of text, `0.05:town=A|B,C` for some. May be given more than once.",
    ),
]
Bounds = Annotated[
    tuple[float, float] | None,
    typer.Option("--bounds", metavar="LO HI", help="Keep outputs between LO and HI; `-inf` and `inf` are open sides."),
]


Facts = Annotated[
    Path | None,
    typer.Option(
        "--facts",
        metavar="FILE",
        help="A JSON file with what only people know, for the model card: `name`, `version`, `intended use`, `contact` "
        "and so on.",
    ),
]


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


def read_attributes(texts: Sequence[str], source: Source) -> list[Attribute]:
    """What --protected names."""
    attributes = []
    for text in texts:
        if text in source.columns or "=" not in text:
            attributes.append(Attribute(source.check(text, "--protected")))
        else:
            column, _, cuts = text.rpartition("=")
            attributes.append(Attribute(source.check(column, "--protected"), read_cuts(cuts, "--protected")))
    names = [attribute.column for attribute in attributes]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--protected names {name!r} twice.")
    return attributes


def read_cuts(text: str, option: str) -> tuple[float, ...]:
    """Cut points in increasing order."""
    try:
        cuts = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option}: {text!r} are not cut points: give numbers, such as 30,50.") from None
    if any(not math.isfinite(cut) for cut in cuts) or any(a >= b for a, b in pairwise(cuts)):
        raise InputError(f"{option}: cut points must be finite and increase; got {text}.")
    return cuts


def read_bounds(bounds: tuple[float, float] | None) -> tuple[float | None, float | None] | None:
    """(lo, hi) with None for an open side."""
    if bounds is None:
        return None
    low, high = bounds
    if math.isnan(low) or math.isnan(high) or low >= high:
        raise InputError(f"--bounds: LO must be below HI; got {low:g} {high:g}.")
    return (low if low > -math.inf else None), (high if high < math.inf else None)


@dataclass(frozen=True)
class Wanted:
    """The constraint options as they were given."""

    parity: str | None = None
    odds: str | None = None
    residuals: str | None = None
    conditional: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.parity is None and self.odds is None and self.residuals is None and not self.conditional:
            raise InputError("No constraint is given: add for instance --parity 0.05, or see --odds, --residuals.")
        for text in self.conditional:
            if not text.partition(":")[2]:
                raise InputError(f"--conditional: {text!r} names no column; write for instance 0.05:age=30,50.")

    @property
    def needs_target(self) -> str | None:
        """An option that compares outputs with targets."""
        return "--odds" if self.odds is not None else "--residuals" if self.residuals is not None else None

    def constraints(self, table: Any) -> list[GroupConstraint]:
        """The constraints; `table` has `source`, `is_number(column)` and `values(column, most)` of its columns."""
        from fairlayer.constraints import ConditionalParity, EqualizedOdds, EqualizedResiduals, MeanParity

        made: list[GroupConstraint] = []
        if self.parity is not None:
            made.append(MeanParity(_tolerance(self.parity, "--parity")))
        if self.odds is not None:
            number, _, cuts = self.odds.partition(":")
            regions = intervals(read_cuts(cuts, "--odds")) if cuts else None
            made.append(EqualizedOdds(_tolerance(number, "--odds"), regions=regions))
        if self.residuals is not None:
            made.append(EqualizedResiduals(_tolerance(self.residuals, "--residuals")))
        for text in self.conditional:
            number, _, rest = text.partition(":")
            tolerance = _tolerance(number, "--conditional")
            column, regions = _regions(rest, table)
            made.append(ConditionalParity(tolerance, regions={column: regions}))
        return made

    def conditional_columns(self, source: Source) -> list[str]:
        """The columns that --conditional names."""
        return [_split_column(text.partition(":")[2], source)[0] for text in self.conditional]


def _tolerance(value: str, option: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise InputError(f"{option}: the tolerance {value!r} is not a number.") from None
    if not math.isfinite(number) or number < 0:
        raise InputError(f"{option}: the tolerance must be a finite number, at least 0; got {value}.")
    return number


def intervals(cuts: Sequence[float]) -> list[tuple[float | None, float | None]]:
    """The parts of a line between cut points, each with its lower end."""
    return list(zip((None, *cuts), (*cuts, None), strict=True))


def _split_column(text: str, source: Source) -> tuple[str, str]:
    """COLUMN[=CUTS]; the name itself may hold an equals sign."""
    if text in source.columns or "=" not in text:
        return source.check(text, "--conditional"), ""
    column, _, cuts = text.rpartition("=")
    return source.check(column, "--conditional"), cuts


def _regions(text: str, table: Any) -> tuple[str, list[Any]]:
    """A column and the regions of it."""
    column, cuts = _split_column(text, table.source)
    if table.is_number(column):
        if not cuts:
            raise InputError(
                f"--conditional: {column} holds numbers: give cut points, such as {column}={table.quartiles(column)}."
            )
        return column, intervals(read_cuts(cuts, "--conditional"))
    if cuts:
        chosen = [frozenset(part.split("|")) for part in cuts.split(",")]
        listed = [value for region in chosen for value in region]
        known = set(table.values(column, None))
        for value in listed:
            if value not in known:
                raise InputError(f"--conditional: {column} has no value {value!r}.")
            if listed.count(value) > 1:
                raise InputError(f"--conditional: {column} {value!r} is in more than one part.")
        return column, chosen
    values = table.values(column, MOST_VALUES)
    if len(values) > MOST_VALUES:
        raise InputError(
            f"--conditional: {column} has more than {MOST_VALUES} values: name those to compare within, such as "
            f"{column}={values[0]}|{values[1]},{values[2]}."
        )
    return column, [frozenset([value]) for value in values]
