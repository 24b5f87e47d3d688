"""Options that several commands share, and what they mean: protected attributes and constraints.

Tolerances are written the same way everywhere: `0.02` for every protected attribute by itself, or for what --over
names; `sex=0.02,race=0.05` for some, each with its own; `race+sex=0.05` for their intersections. For a column of text
`town=A|B,C` makes two regions, {A, B} and {C}; for a column of numbers, cut points do (see `tables/attribute.py`). What
has no option of its own is written as in Python: `--constraint 'MeanParity(0.02, over="sex")'`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fairlayer.errors import InputError
from fairlayer.nearest import nearest
from fairlayer.tables.attribute import Attribute, read_cuts
from fairlayer.tables.table_io import Source

if TYPE_CHECKING:
    from fairlayer.constraints import Condition, GroupConstraint

MOST_VALUES = 20  # of a column whose values are regions of their own

MEANS = ("parity", "ratio", "odds", "residuals", "residual_mean", "conditional")  # options that compare means
RATES = ("rate", "rate_ratio")  # those that compare rates of decisions

Grouping = str | tuple[str, ...]  # an attribute, or several whose intersections are compared

SHARED = """
--protected COLUMN: A protected attribute, or several: `sex,race`. The option may be given more than once. A name that
has commas in it is taken whole. `age=30,50` makes groups of a column of numbers by cut points: below 30, 30 to 50, 50
and above.
--target COLUMN: The actual outcome. It is needed for --odds, --residuals and --residual-mean, and where --constraint
looks at targets.
--bounds LO HI: Keep outputs between LO and HI; `-inf` and `inf` are open sides.
--facts FILE: A JSON file with what only people know, for the model card: `name`, `version`, `intended use`, `contact`
and so on.
STORE: The SQLite file or postgresql:// URL that the stream is kept in.
--name NAME: The name of the stream; not needed where the store holds only one.
"""


def read_attributes(texts: Sequence[str], source: Source) -> list[Attribute]:
    """What --protected names."""

    def is_one(text: str) -> bool:
        column, _, cuts = text.rpartition("=")
        return text in source.columns or (column in source.columns and all(map(_is_number, cuts.split(","))))

    attributes = []
    for part in split_list(texts, is_one):
        column, cuts = _split_column(part, source, "--protected")
        attributes.append(Attribute(column, () if cuts is None else read_cuts(cuts, "--protected")))
    names = [attribute.column for attribute in attributes]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--protected names {name!r} twice.")
    return attributes


def split_list(texts: Iterable[str], is_one: Callable[[str], bool]) -> list[str]:
    """What an option lists between commas. A part that is one thing with the commas in it is taken whole."""
    found = []
    for text in texts:
        parts = text.split(",")
        while parts:
            joined = ((size, ",".join(parts[:size])) for size in range(len(parts), 0, -1))
            whole = ((size, one) for size, text in joined for one in (text, text.strip()) if is_one(one))
            size, one = next(whole, (1, parts[0].strip()))
            found.append(one)
            parts = parts[size:]
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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
    """The constraint options as they were given.

    Constraints, at least one:
    --parity TOL: Mean parity: the group means of the output differ by at most TOL. TOL is a number such as `0.02`, or
    one for each attribute, `sex=0.02,race=0.05`.
    --ratio R: Ratio parity: the mean output of every group is at least R times that of any other, such as `0.8`.
    --rate TOL: Rate parity: the rates of yes decisions differ by at most TOL, where an output of --threshold or more is
    a yes.
    --rate-ratio R: Rate parity by ratio: the rate of yes decisions of every group is at least R times that of any
    other; `0.8` is the four-fifths rule.
    --given CLASS: Compare rates of decisions only among rows of this target: `1` for equal opportunity, `each` for
    every class. For --rate and --rate-ratio.
    --odds TOL[:CUTS]: Equalized odds: the same among rows with the same target, for each class. Where the target is a
    number, give cut points: `0.05:20,40`.
    --residuals TOL: Equalized residuals: the group means of output minus target differ by at most TOL, so that all
    groups are over- or underestimated alike.
    --residual-mean TOL: Residual mean: the mean of output minus target is at most TOL in every group, above or below 0,
    so that no group is over- or underestimated.
    --conditional TOL:COLUMN[=CUTS]: Mean parity within parts of a column: `0.05:age=30,50` by cut points of a column of
    numbers, `0.05:town` for each value of a column of text, `0.05:town=A|B,C` for some. The option may be given more
    than once.
    --threshold P: An output of P or more is a yes; 0.5 by default. For --rate and --rate-ratio.
    --constraint CONSTRAINT: Any constraint, written as in Python: `'MeanParity(0.02, over="sex")'`. The option may be
    given more than once. `fairlayer --import MODULE` makes constraints of your own known.
    --over GROUPS: Compare these groups where a tolerance does not name any: `race+sex` for the intersections of both,
    `race+sex,age` for those and for age by itself. A name that has commas in it is taken whole.
    By default every protected attribute is compared by itself.
    """

    parity: str | None = None
    ratio: str | None = None
    rate: str | None = None
    rate_ratio: str | None = None
    given: str | None = None
    odds: str | None = None
    residuals: str | None = None
    residual_mean: str | None = None
    conditional: list[str] | None = None
    threshold: float | None = None
    constraint: list[str] | None = None
    over: list[str] | None = None

    def __post_init__(self) -> None:
        if not self._given(*MEANS, *RATES) and not self.constraint:
            raise InputError(
                "No constraint is given: add for instance --parity 0.05, or see --ratio, --rate, --rate-ratio, --odds, "
                "--residuals, --residual-mean and --constraint."
            )
        if self.given is not None and not self._given(*RATES):
            raise InputError("--given is for rates of decisions: add --rate or --rate-ratio, or leave it out.")
        _ = self.written  # mistakes in it are told at once
        for text in self.conditional or ():
            if not text.partition(":")[2]:
                raise InputError(f"--conditional: {text!r} names no column; write for instance 0.05:age=30,50.")

    def _given(self, *names: str) -> list[str]:
        """Those of the options that were given."""
        return [f"--{name.replace('_', '-')}" for name in names if getattr(self, name) not in (None, [])]

    @cached_property
    def written(self) -> list[GroupConstraint]:
        """What --constraint says."""
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

    def check_target(self, target: str | None, what: str) -> None:
        """Refuse to do without targets where they are needed."""
        options = self._given("given", "odds", "residuals", "residual_mean")
        options += [f"--constraint {type(c).__name__}" for c in self.written if c.needs_targets]
        if options and target is None:
            raise InputError(f"{options[0]} compares {what} with the actual outcomes: add --target COLUMN.")

    def check_kinds(self) -> None:
        """Refuse rates of decisions beside means, which cannot be kept together."""
        means, rates = self._given(*MEANS), self._given(*RATES)
        for constraint in self.written:
            kind = rates if constraint.quantity == "decision" else means
            kind.append(f"--constraint {type(constraint).__name__}")
        if means and rates:
            raise InputError(
                f"{rates[0]} is about decisions and {means[0]} about means: what one moves changes what the other "
                "needs, so they cannot be kept together. Leave one out; `fairlayer audit` measures both."
            )

    @property
    def by_target(self) -> str:
        """The option that compares rows of like target, which is unknown when predicting; "" for none."""
        if self.odds is not None:
            return "--odds"
        if self.given == "each":
            return "--given each"
        return next((f"--constraint {type(c).__name__}" for c in self.written if not c.serves_unknown_targets), "")

    def check_threshold(self, required: str | None = None) -> None:
        """Refuse a threshold that nothing would be decided by. required: a target that holds numbers, if it does."""
        decides = self._given(*RATES)
        if self.threshold is not None and not decides:
            raise InputError("--threshold is for rates of decisions: add --rate or --rate-ratio, or leave it out.")
        if self.threshold is None and decides and required is not None:
            raise InputError(f"--rate: {required} holds numbers: add --threshold P, from which on an output is a yes.")

    def option_of(self, condition: Condition) -> str:
        """The option that names a feature."""
        return "--constraint" if any(condition in c.conditions for c in self.written) else "--conditional"

    def constraints(
        self, table: Any, attributes: Sequence[Attribute], classes: Mapping[str, int] | None = None
    ) -> list[GroupConstraint]:
        """The constraints; `table` has `source`, `is_number(column)` and `values(column, most)` of its columns.

        classes: the numbers that stand for classes of the target, where it is not taken as it is.
        """
        from fairlayer import constraints as kinds

        names = [attribute.column for attribute in attributes]
        listed = split_list(self.over or (), lambda text: _is_group(text, names))
        over = [_read_group(part, names, "--over") for part in listed] or None
        made: list[GroupConstraint] = []

        def add(kind: Any, text: str | None, option: str, **options: Any) -> None:
            for groups, number in _tolerances(text, names, option):
                try:
                    made.append(kind(number, over=groups or over, **options))
                except InputError as error:
                    raise InputError(f"{option}: {error}") from error

        threshold = 0.5 if self.threshold is None else self.threshold
        decided = {"threshold": threshold, "given": _read_class(self.given, classes)}

        add(kinds.MeanParity, self.parity, "--parity")
        add(kinds.RatioParity, self.ratio, "--ratio")
        if any(number >= 1.0 for _, number in _tolerances(self.rate, names, "--rate")):
            raise InputError(f"--rate: rates never differ by more than 1; got {self.rate}. Write 0.02 for 2 percent.")
        add(kinds.RateParity, self.rate, "--rate", **decided)
        add(lambda r, **more: kinds.RateParity(ratio=r, **more), self.rate_ratio, "--rate-ratio", **decided)
        if self.odds is not None:
            number, _, cuts = self.odds.partition(":")
            regions = intervals(read_cuts(cuts, "--odds")) if cuts else None
            add(kinds.EqualizedOdds, number, "--odds", regions=regions)
        add(kinds.EqualizedResiduals, self.residuals, "--residuals")
        add(kinds.ResidualMean, self.residual_mean, "--residual-mean")
        for text in self.conditional or ():
            number, _, rest = text.partition(":")
            tolerances = _tolerances(number, names, "--conditional")  # before the column: its mistakes are told first
            column, regions = _regions(rest, table)
            for groups, tolerance in tolerances:
                made.append(kinds.ConditionalParity(tolerance, over=groups or over, regions={column: regions}))
        for constraint in self.written:
            made.append(constraint if over is None or constraint.over is not None else replace(constraint, over=over))
            try:
                made[-1].groupings(names)
            except InputError as error:
                raise InputError(f"--constraint: {error} List it in --protected as well.") from error
        return made

    def conditional_columns(self, source: Source) -> list[str]:
        """The columns within whose parts groups are compared."""
        named = [_split_column(text.partition(":")[2], source, "--conditional")[0] for text in self.conditional or ()]
        conditions = [condition for constraint in self.written for condition in constraint.conditions]
        return named + [source.check(str(c.name), "--constraint") for c in conditions if c.source == "feature"]


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


def _read_class(text: str | None, classes: Mapping[str, int] | None) -> Any:
    """A class of the target: the number that stands for it, or itself, a number where it reads as one."""
    if text is None or text == "each":
        return text
    if classes is not None:
        if text not in classes:
            raise InputError(
                f"--given: {text!r} is not a class of the target: name one of {', '.join(classes)}, or each."
            )
        return classes[text]
    if not _is_number(text):
        return text
    number = float(text)
    return int(number) if number.is_integer() else number


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


def _split_column(text: str, source: Source, option: str) -> tuple[str, str | None]:
    """COLUMN[=CUTS]; the name itself may hold an equals sign."""
    if text in source.columns or "=" not in text:
        return source.check(text, option), None
    column, _, cuts = text.rpartition("=")
    return source.check(column, option), cuts


def _regions(text: str, table: Any) -> tuple[str, list[Any]]:
    """A column and the regions of it."""
    column, cuts = _split_column(text, table.source, "--conditional")
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
