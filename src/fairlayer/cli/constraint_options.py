"""The options that say which constraints to keep, the same for `fit`, `audit` and `project`.

A tolerance is `0.02` for every protected attribute by itself (or for what --over names), `sex=0.02,race=0.05` for each
its own, and `race+sex=0.05` for their intersections. Regions of a column are cut points where it holds numbers
(`age=30,50`), and values where it holds text: `town=A|B,C` makes two regions, {A, B} and {C}.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fairlayer.cli.options import is_number, option, split_column, split_list
from fairlayer.errors import InputError
from fairlayer.nearest import nearest
from fairlayer.tables.entries import Attribute, read_cuts
from fairlayer.tables.table_io import Source

if TYPE_CHECKING:
    from fairlayer.constraints import Condition, GroupConstraint

MOST_VALUES = 20  # of a column whose values are regions of their own

Grouping = str | tuple[str, ...]  # an attribute, or several whose intersections are compared


_option = partial(option, panel="Constraints, at least one")
Parity = Annotated[str | None, _option("TOL", "Group means differ by at most TOL: `0.02`, or `sex=0.02,race=0.05`.")]
Ratio = Annotated[str | None, _option("R", "The mean output of every group is at least R times that of any other.")]
Rate = Annotated[str | None, _option("TOL", "Rates of yes decisions differ by at most TOL; see --threshold.")]
RateRatio = Annotated[str | None, _option("R", "Every rate of yes is at least R times any other; `0.8`: four fifths.")]
Given = Annotated[str | None, _option("CLASS", "Compare rates among rows with this target; `each` for every class.")]
Odds = Annotated[
    str | None,
    _option(
        "TOL[:CUTS]",
        "Group means differ by at most TOL among rows with the same target. For a target of numbers, give cut points: "
        "`0.05:20,40`.",
    ),
]
Residuals = Annotated[str | None, _option("TOL", "Group means of output minus target differ by at most TOL.")]
ResidualMean = Annotated[str | None, _option("TOL", "Every group mean of output minus target is in -TOL to TOL.")]
Conditional = Annotated[
    list[str] | None,
    _option(
        "TOL:COLUMN[=CUTS]",
        "Group means differ by at most TOL within parts of a column: `0.05:age=30,50` for numbers, `0.05:town` or "
        "`0.05:town=A|B,C` for text. The option may be given more than once.",
    ),
]
Threshold = Annotated[float | None, _option("P", "An output of P or more is a yes, for rates; 0.5 by default.")]
Constraint = Annotated[
    list[str] | None,
    _option(
        "CONSTRAINT",
        "Any constraint, written as in Python: `'MeanParity(0.02, over=\"sex\")'`. The option may be given more than "
        "once. `fairlayer --import MODULE` loads constraints of your own.",
    ),
]
Over = Annotated[
    list[str] | None,
    _option(
        "GROUPS",
        "Compare these groups where a tolerance names none: `race+sex` for intersections, `race+sex,age` for those and "
        "for age. By default, every protected attribute is compared by itself.",
    ),
]


@dataclass(frozen=True)
class ConstraintOptions:
    """The constraint options as they were given."""

    parity: str | None = None
    ratio: str | None = None
    rate: str | None = None
    rate_ratio: str | None = None
    given: str | None = None
    odds: str | None = None
    residuals: str | None = None
    residual_mean: str | None = None
    conditional: Sequence[str] | None = None
    threshold: float | None = None
    constraint: Sequence[str] | None = None
    over: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.given is not None and self.rate is None and self.rate_ratio is None:
            raise InputError("--given is for rates of decisions: add --rate or --rate-ratio, or leave it out.")
        for text in self.conditional or ():
            if not text.partition(":")[2]:
                raise InputError(f"--conditional: {text!r} names no column: write for instance 0.05:age=30,50.")

    def columns(self, source: Source) -> list[str]:
        """The columns within whose parts groups are compared."""
        named = [split_column(text.partition(":")[2], source, "--conditional")[0] for text in self.conditional or ()]
        conditions = [condition for constraint in self._written() for condition in constraint.conditions]
        return named + [source.check(str(c.name), "--constraint") for c in conditions if c.source == "feature"]

    def read(
        self, table: Any, attributes: Sequence[Attribute], classes: Mapping[str, int] | None = None
    ) -> Constraints:
        """The constraints; `table` has `source`, `is_number(column)` and `values(column, most)` of its columns.

        classes: the numbers that stand for classes of the target, where it is not taken as it is.
        """
        from fairlayer import constraints as kinds

        names = [attribute.column for attribute in attributes]
        listed = split_list(self.over or (), lambda text: _is_group(text, names))
        over = [_read_group(part, names, "--over") for part in listed] or None
        made: list[tuple[str, GroupConstraint]] = []

        def add(kind: Any, text: str | None, option: str, **more: Any) -> None:
            for groups, number in _tolerances(text, names, option):
                try:
                    made.append((option, kind(number, over=groups or over, **more)))
                except InputError as error:
                    raise InputError(f"{option}: {error}") from error

        if any(number >= 1.0 for _, number in _tolerances(self.rate, names, "--rate")):
            raise InputError(f"--rate: rates never differ by more than 1; got {self.rate}. Write 0.02 for 2 percent.")
        threshold = 0.5 if self.threshold is None else self.threshold
        decided = {"threshold": threshold, "given": _read_class(self.given, classes)}
        add(kinds.MeanParity, self.parity, "--parity")
        add(kinds.RatioParity, self.ratio, "--ratio")
        add(kinds.RateParity, self.rate, "--rate", **decided)
        add(lambda r, **more: kinds.RateParity(ratio=r, **more), self.rate_ratio, "--rate-ratio", **decided)
        if self.odds is not None:
            number, _, cuts = self.odds.partition(":")
            add(kinds.EqualizedOdds, number, "--odds", regions=intervals(read_cuts(cuts, "--odds")) if cuts else None)
        add(kinds.EqualizedResiduals, self.residuals, "--residuals")
        add(kinds.ResidualMean, self.residual_mean, "--residual-mean")
        for text in self.conditional or ():
            number, _, rest = text.partition(":")
            _tolerances(number, names, "--conditional")  # mistakes in it are reported before those in the column
            column, regions = _regions(rest, table)
            add(kinds.ConditionalParity, number, "--conditional", regions={column: regions})
        for constraint in self._written():
            chosen = constraint if over is None or constraint.over is not None else replace(constraint, over=over)
            try:
                chosen.groupings(names)
            except InputError as error:
                raise InputError(f"--constraint: {error} List it in --protected as well.") from error
            made.append((f"--constraint {type(chosen).__name__}", chosen))
        if not made:
            raise InputError(
                "No constraint is given: add for instance --parity 0.05, or see --ratio, --rate, --rate-ratio, --odds, "
                "--residuals, --residual-mean and --constraint."
            )
        return Constraints(tuple(made))

    def check_threshold(self, numbers: str | None = None) -> None:
        """Refuse a threshold that nothing is decided by, and its absence where numbers, a target, have no usual one."""
        decides = self.rate is not None or self.rate_ratio is not None
        if self.threshold is not None and not decides:
            raise InputError("--threshold is for rates of decisions: add --rate or --rate-ratio, or leave it out.")
        if self.threshold is None and decides and numbers is not None:
            raise InputError(f"--rate: {numbers} holds numbers: add --threshold P. An output of P or more is a yes.")

    def _written(self) -> list[GroupConstraint]:
        """The constraints of --constraint."""
        from fairlayer.constraints import read_constraint

        made: list[Any] = []
        for words in self.constraint or ():
            try:
                made.append(read_constraint(words))
            except InputError as error:
                raise InputError(f"--constraint: {error}") from error
            if not made[-1].needs_groups:
                raise InputError(f"--constraint: {words!r} is about single outputs, not groups: use fairlayer.project.")
        return made


@dataclass(frozen=True)
class Constraints:
    """Constraints, each with the option that asked for it."""

    named: tuple[tuple[str, GroupConstraint], ...]

    def __iter__(self) -> Any:
        return (constraint for _, constraint in self.named)

    def option(self, applies: Callable[[GroupConstraint], bool]) -> str:
        """The option of the first constraint that something applies to; "" for none."""
        return next((option for option, constraint in self.named if applies(constraint)), "")

    def option_of(self, condition: Condition) -> str:
        """The option that names the column of a condition."""
        return self.option(lambda constraint: condition in constraint.conditions).partition(" ")[0]

    @property
    def about_decisions(self) -> str:
        """The first option that compares rates of decisions; "" for none."""
        return self.option(lambda constraint: constraint.quantity == "decision")

    def check_target(self, target: str | None, what: str) -> None:
        """Refuse to do without targets where they are needed."""
        option = self.option(lambda constraint: constraint.needs_targets)
        if option and target is None:
            raise InputError(f"{option} compares {what} with the actual outcomes: add --target COLUMN.")

    def check_kinds(self) -> None:
        """Refuse rates of decisions beside means, which cannot be kept together."""
        rates, means = self.about_decisions, self.option(lambda constraint: constraint.quantity != "decision")
        if rates and means:
            raise InputError(
                f"{rates} is about decisions and {means} about means: what one moves changes what the other needs, so "
                "they cannot be kept together. Leave one out; `fairlayer audit` measures both."
            )


def _tolerances(text: str | None, names: Sequence[str], option: str) -> list[tuple[Grouping | None, float]]:
    """What `0.02` or `sex=0.02,race+sex=0.05` says: tolerances, and the groups that each is for (None for all)."""
    if text is None:
        return []
    if "=" not in text:
        return [(None, _tolerance(text, option))]
    made: list[tuple[Grouping | None, float]] = []

    def is_one(part: str) -> bool:
        groups, _, number = part.rpartition("=")
        return "," not in number and _is_group(groups, names)

    for part in split_list([text], is_one):
        groups, equals, number = part.rpartition("=")
        if not equals:
            raise InputError(
                f"{option}: {part!r} does not say which groups it is for: write {names[0]}={part}, or {part} alone "
                "for all."
            )
        if groups in [found for found, _ in made]:
            raise InputError(f"{option} has two tolerances for {groups!r}.")
        made.append((_read_group(groups, names, option), _tolerance(number, option)))
    return made


def _tolerance(value: str, option: str) -> float:
    number = float(value) if is_number(value) else None
    if number is None:
        raise InputError(f"{option}: the tolerance {value!r} is not a number.")
    if not math.isfinite(number) or number < 0:
        raise InputError(f"{option}: the tolerance must be a finite number, at least 0; got {value}.")
    return number


def _read_class(text: str | None, classes: Mapping[str, int] | None) -> Any:
    """A class of the target: the number that stands for it, or itself, a number where it reads as one."""
    if text is None or text == "each":
        return text
    if classes is None:
        number = float(text) if is_number(text) else text
        return int(number) if isinstance(number, float) and number.is_integer() else number
    if text not in classes:
        raise InputError(f"--given: {text!r} is not a class of the target: name one of {', '.join(classes)}, or each.")
    return classes[text]


def _is_group(text: str, names: Sequence[str]) -> bool:
    return text in names or all(part.strip() in names for part in text.split("+"))


def _read_group(text: str, names: Sequence[str], option: str) -> Grouping:
    """`race`, or `race+sex` for the intersections of both."""
    found = [text.strip()] if text.strip() in names else [part.strip() for part in text.split("+")]
    for name in found:
        if name not in names:
            near = nearest(name, names)
            remedy = f"Did you mean {near!r}?" if near else f"Protected are {', '.join(map(repr, names))}."
            raise InputError(f"{option}: {name!r} is not a protected attribute. {remedy}")
        if found.count(name) > 1:
            raise InputError(f"{option}: {text!r} names {name!r} twice.")
    return found[0] if len(found) == 1 else tuple(found)


def intervals(cuts: Sequence[float]) -> list[tuple[float | None, float | None]]:
    """The parts of a line between cut points, each with its lower end."""
    return list(zip((None, *cuts), (*cuts, None), strict=True))


def _regions(text: str, table: Any) -> tuple[str, list[Any]]:
    """A column and the regions of it."""
    column, cuts = split_column(text, table.source, "--conditional")
    if table.is_number(column):
        if not cuts:
            raise InputError(
                f"--conditional: {column} holds numbers: give cut points, such as {column}={table.quartiles(column)}."
            )
        return column, intervals(read_cuts(cuts, "--conditional"))
    if cuts:
        known = set(table.values(column, None))
        parts = split_list([cuts], lambda part: known.issuperset(part.split("|")))
        chosen = [frozenset(part.split("|")) for part in parts]
        listed = [value for region in chosen for value in region]
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
