"""The options that commands share, and how attributes, bounds and constraints are read from them.

`fit`, `audit` and `project` take the same constraints: every field of `ConstraintOptions` is an option.

A tolerance is `0.02` for every protected attribute by itself (or for what --over names), `sex=0.02,race=0.05` for each
its own, and `race+sex=0.05` for their intersections. Regions of a column are cut points where it holds numbers
(`age=30,50`), and values where it holds text: `town=A|B,C` makes two regions, {A, B} and {C}.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlayer.errors import InputError
from fairlayer.nearest import nearest
from fairlayer.tables.entries import Attribute, read_cuts
from fairlayer.tables.table_io import Source

if TYPE_CHECKING:
    from fairlayer.constraints import Condition, GroupConstraint

MOST_VALUES = 20  # of a column whose values are regions of their own

Grouping = str | tuple[str, ...]  # an attribute, or several whose intersections are compared


def option(metavar: str | None, text: str, *names: str, panel: str | None = None, least: int | None = None) -> Any:
    """An option: what it takes, a sentence on what it does, and the heading of help that it stands under."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, min=least)


_rule = partial(option, panel="Constraints, at least one")
_tol = partial(_rule, "TOL")

Data = Annotated[Path, typer.Argument(metavar="DATA", help="A CSV or Parquet file with one row per sample.")]
Protected = Annotated[
    list[str],
    option(
        "COLUMN",
        "A protected attribute, or several: `sex,race`. The option may be given more than once. A name that contains "
        "commas is taken whole. `age=30,50` groups a column of numbers: below 30, 30 to 50, 50 or more.",
    ),
]
Target = Annotated[
    str | None, option("COLUMN", "The actual outcome, for constraints that need it, such as --odds and --residuals.")
]
Bounds = Annotated[
    tuple[float, float] | None, option("LO HI", "Keep outputs between LO and HI. Use `-inf` or `inf` for no limit.")
]
Facts = Annotated[
    Path | None,
    option("FILE", "A JSON file with more facts for the model card: `name`, `version`, `intended use`, `contact` ..."),
]


@dataclass(frozen=True)
class ConstraintOptions:
    """The constraint options as they were given."""

    parity: Annotated[str | None, _tol("Group means differ by at most TOL: `0.02`, or `sex=0.02,race=0.05`.")] = None
    ratio: Annotated[str | None, _rule("R", "Every group mean is at least R times that of any other group.")] = None
    rate: Annotated[str | None, _tol("Rates of yes decisions differ by at most TOL; see --threshold.")] = None
    rate_ratio: Annotated[
        str | None, _rule("R", "Every rate of yes is at least R times any other; `0.8` is the four-fifths rule.")
    ] = None
    given: Annotated[str | None, _rule("CLASS", "Compare rates among rows with this target; `each` for all.")] = None
    odds: Annotated[
        str | None,
        _rule(
            "TOL[:CUTS]",
            "Group means differ by at most TOL among rows with the same target. For a target of numbers, give cut "
            "points: `0.05:20,40`.",
        ),
    ] = None
    residuals: Annotated[str | None, _tol("Group means of output minus target differ by at most TOL.")] = None
    residual_mean: Annotated[str | None, _tol("Group means of output minus target lie within TOL of 0.")] = None
    conditional: Annotated[
        list[str] | None,
        _rule(
            "TOL:COLUMN[=CUTS]",
            "Group means differ by at most TOL within parts of a column: `0.05:age=30,50` for numbers, `0.05:town` or "
            "`0.05:town=A|B,C` for text. The option may be given more than once.",
        ),
    ] = None
    threshold: Annotated[float | None, _rule("P", "An output of P or more is a yes; the default is 0.5.")] = None
    constraint: Annotated[
        list[str] | None,
        _rule(
            "CONSTRAINT",
            "Any constraint, written as in Python: `'MeanParity(0.02, over=\"sex\")'`. The option may be given more "
            "than once. `fairlayer --import MODULE` loads constraints of your own.",
        ),
    ] = None
    over: Annotated[
        list[str] | None,
        _rule(
            "GROUPS",
            "Compare these groups where a tolerance names none: `race+sex` for intersections, `race+sex,age` for those "
            "and for age. By default, every protected attribute is compared by itself.",
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.given is not None and not self._about_rates:
            raise InputError("--given is for rates of decisions: add --rate or --rate-ratio, or leave it out.")

    @property
    def _about_rates(self) -> bool:
        return self.rate is not None or self.rate_ratio is not None

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

        def add(kind: Any, option: str, text: str | None, **more: Any) -> None:
            for groups, number in _tolerances(text, names, option):
                try:
                    made.append((option, kind(number, over=groups or over, **more)))
                except InputError as error:
                    raise InputError(f"{option}: {error}") from error

        if any(number >= 1.0 for _, number in _tolerances(self.rate, names, "--rate")):
            raise InputError(f"--rate: rates never differ by more than 1; got {self.rate}. Write 0.02 for 2 percent.")
        decided = {"threshold": 0.5 if self.threshold is None else self.threshold}
        decided["given"] = _read_class(self.given, classes)
        add(kinds.MeanParity, "--parity", self.parity)
        add(kinds.RatioParity, "--ratio", self.ratio)
        add(kinds.RateParity, "--rate", self.rate, **decided)
        add(lambda r, **more: kinds.RateParity(ratio=r, **more), "--rate-ratio", self.rate_ratio, **decided)
        if self.odds is not None:
            number, _, cuts = self.odds.partition(":")
            add(kinds.EqualizedOdds, "--odds", number, regions=_intervals(cuts, "--odds") if cuts else None)
        add(kinds.EqualizedResiduals, "--residuals", self.residuals)
        add(kinds.ResidualMean, "--residual-mean", self.residual_mean)
        for text in self.conditional or ():
            number, _, rest = text.partition(":")
            _tolerances(number, names, "--conditional")  # mistakes in it are reported before those in the column
            add(kinds.ConditionalParity, "--conditional", number, regions=_regions(rest, table))
        for words in self.constraint or ():
            constraint = _read_constraint(words, table.source)
            if constraint.over is None and over is not None:
                constraint = replace(constraint, over=over)
            try:
                constraint.groupings(names)
            except InputError as error:
                raise InputError(f"--constraint: {error} List it in --protected as well.") from error
            made.append((f"--constraint {type(constraint).__name__}", constraint))
        if not made:
            raise InputError(
                "No constraint is given: add for instance --parity 0.05, or see --ratio, --rate, --rate-ratio, --odds, "
                "--residuals, --residual-mean and --constraint."
            )
        return Constraints(tuple(made))

    def check_threshold(self, numbers: str | None = None) -> None:
        """Refuse a threshold that nothing is decided by, and its absence where numbers, a target, have no usual one."""
        if self.threshold is not None and not self._about_rates:
            raise InputError("--threshold is for rates of decisions: add --rate or --rate-ratio, or leave it out.")
        if self.threshold is None and self._about_rates and numbers is not None:
            raise InputError(f"--rate: {numbers} holds numbers: add --threshold P. An output of P or more is a yes.")


def with_constraints(command: Callable[..., int]) -> Callable[..., int]:
    """A command whose parameter `asked`, a `ConstraintOptions`, is given as one option for each of its fields."""
    added = inspect.signature(ConstraintOptions, eval_str=True).parameters

    @wraps(command)
    def called(**given: Any) -> int:
        return command(asked=ConstraintOptions(**{name: given.pop(name) for name in added}), **given)

    parameters: list[inspect.Parameter] = []
    for own in inspect.signature(command, eval_str=True).parameters.values():
        parameters += added.values() if own.name == "asked" else [own]
    named = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    called.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in named}
    return called


@dataclass(frozen=True)
class Constraints:
    """Constraints, each with the option that asked for it."""

    named: tuple[tuple[str, GroupConstraint], ...]

    def __iter__(self) -> Any:
        return (constraint for _, constraint in self.named)

    @property
    def conditions(self) -> list[tuple[Condition, str]]:
        """The conditions of all constraints, each with the option that states it."""
        return [(one, text.partition(" ")[0]) for text, constraint in self.named for one in constraint.conditions]

    @property
    def features(self) -> list[str]:
        """The columns within whose parts groups are compared."""
        return [str(condition.name) for condition, _ in self.conditions if condition.source == "feature"]

    def option(self, applies: Callable[[GroupConstraint], bool]) -> str:
        """The option of the first constraint that something applies to; "" for none."""
        return next((option for option, constraint in self.named if applies(constraint)), "")

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


def read_attributes(texts: Sequence[str], source: Source) -> list[Attribute]:
    """The attributes that --protected names."""

    def is_one(text: str) -> bool:
        column, _, cuts = text.rpartition("=")
        return text in source.columns or (column in source.columns and all(map(is_number, cuts.split(","))))

    attributes: dict[str, Attribute] = {}
    for part in split_list(texts, is_one):
        column, cuts = split_column(part, source, "--protected")
        if column in attributes:
            raise InputError(f"--protected names {column!r} twice.")
        attributes[column] = Attribute(column, () if cuts is None else read_cuts(cuts, "--protected"))
    return list(attributes.values())


def read_bounds(bounds: tuple[float, float] | None) -> tuple[float | None, float | None] | None:
    """(lo, hi) with None for an open side."""
    if bounds is None:
        return None
    low, high = bounds
    if not low < high:
        raise InputError(f"--bounds: LO must be below HI; got {low:g} {high:g}.")
    return (low if low > -math.inf else None), (high if high < math.inf else None)


def split_list(texts: Iterable[str], is_one: Callable[[str], bool]) -> list[str]:
    """The entries that an option lists between commas. An entry that contains commas itself is taken whole."""
    found = []
    for text in texts:
        parts = text.split(",")
        while parts:
            joined = ((size, ",".join(parts[:size])) for size in range(len(parts), 0, -1))
            known = ((size, one) for size, text in joined for one in (text, text.strip()) if is_one(one))
            size, one = next(known, (1, parts[0].strip()))
            found.append(one)
            parts = parts[size:]
    return found


def split_column(text: str, source: Source, option: str) -> tuple[str, str | None]:
    """COLUMN[=CUTS]; the name itself may contain an equals sign."""
    if text in source.columns or "=" not in text:
        return source.check(text, option), None
    column, _, cuts = text.rpartition("=")
    return source.check(column, option), cuts


def is_number(text: str) -> bool:
    """Whether a text spells a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _tolerances(text: str | None, names: Sequence[str], option: str) -> list[tuple[Grouping | None, float]]:
    """The tolerances in `0.02` or `sex=0.02,race+sex=0.05`, each with the groups that it is for (None for all)."""
    if text is None:
        return []
    if "=" not in text:
        return [(None, _tolerance(text, option))]
    made: dict[Grouping, float] = {}

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
        grouping = _read_group(groups, names, option)
        if grouping in made:
            raise InputError(f"{option} has two tolerances for {groups!r}.")
        made[grouping] = _tolerance(number, option)
    return list(made.items())


def _tolerance(value: str, option: str) -> float:
    if not is_number(value):
        raise InputError(f"{option}: the tolerance {value!r} is not a number.")
    return float(value)


def _read_constraint(words: str, source: Source) -> Any:
    """A constraint that is written as in Python."""
    from fairlayer.constraints import read_constraint

    try:
        constraint: Any = read_constraint(words)
    except InputError as error:
        raise InputError(f"--constraint: {error}") from error
    if not constraint.needs_groups:
        raise InputError(f"--constraint: {words!r} is about single outputs, not groups: use fairlayer.project.")
    for condition in constraint.conditions:
        if condition.source == "feature":
            source.check(str(condition.name), "--constraint")
    return constraint


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


def _intervals(text: str, option: str) -> list[tuple[float | None, float | None]]:
    """The parts of a line between cut points, each with its lower end."""
    cuts = read_cuts(text, option)
    return list(zip((None, *cuts), (*cuts, None), strict=True))


def _regions(text: str, table: Any) -> dict[str, list[Any]]:
    """The regions of a column, by its name."""
    column, cuts = split_column(text, table.source, "--conditional")
    if table.is_number(column):
        if not cuts:
            raise InputError(
                f"--conditional: {column} holds numbers: give cut points, such as {column}={table.quartiles(column)}."
            )
        return {column: _intervals(cuts, "--conditional")}
    values = table.values(column, None if cuts else MOST_VALUES)
    if cuts:
        parts = split_list([cuts], lambda part: set(values).issuperset(part.split("|")))
        chosen = [frozenset(part.split("|")) for part in parts]
        listed = [value for region in chosen for value in region]
        for value in listed:
            if value not in values:
                raise InputError(f"--conditional: {column} has no value {value!r}.")
            if listed.count(value) > 1:
                raise InputError(f"--conditional: {column} {value!r} is in more than one part.")
        return {column: chosen}
    if len(values) > MOST_VALUES:
        raise InputError(
            f"--conditional: {column} has more than {MOST_VALUES} values: name those to compare within, such as "
            f"{column}={values[0]}|{values[1]},{values[2]}."
        )
    return {column: [frozenset([value]) for value in values]}
