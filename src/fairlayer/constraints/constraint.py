"""What a constraint is: a declaration that describes itself, with nothing of the data in it.

Every constraint is affine in the outputs. Notation: y_i is the output and t_i the target of sample i, w_i its weight
(1 by default), and for a set of samples g

    mean(y | g) = sum of w_i y_i over g / sum of w_i over g.

A constraint says which *quantity* the mean is taken of, which *groups* have one, within which *conditions*, and how the
means are *compared*. That is all that the rest of the library knows of it: a new constraint is one class.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch

from fairlayer.constraints.plain_data import Name, from_plain, to_plain
from fairlayer.constraints.regions import Condition
from fairlayer.errors import InputError

Over = Name | tuple[Name, ...] | list[Any] | None
Quantity = Literal["output", "residual", "decision"]
Comparison = Literal["difference", "ratio", "each"]

_CHOICES = {"quantity": ("output", "residual", "decision"), "comparison": ("difference", "ratio", "each")}
_KINDS: dict[str, type[Constraint]] = {}  # by name: all that data and commands can name


def _check_choices(declared: Any, kind: str) -> None:
    """Refuse a quantity or comparison that there is not, of a constraint or of its class. kind: how to name it."""
    for attribute, choices in _CHOICES.items():
        value = getattr(declared, attribute, choices[0])
        if not isinstance(value, property | Field) and value not in choices:
            raise InputError(f"{kind} has {attribute} {value!r}: it must be one of {choices}.")


class Constraint:
    """Something that outputs must satisfy. The `needs_...` say what a batch must bring.

    There are `Affine`, and `GroupConstraint` with all that derive from it.
    """

    needs_groups: ClassVar[bool] = False
    needs_targets: ClassVar[bool] = False
    needs_features: ClassVar[bool] = False
    quantity: ClassVar[Quantity] = "output"  # what means are taken of
    name: str | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _check_choices(cls, cls.__name__)
        _KINDS[cls.__name__] = cls

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What tells the parts of a batch apart within which groups are compared; none for all of it."""
        return ()

    @property
    def key(self) -> Any:
        """What the rows depend on, apart from the data and the tolerance."""
        return self

    def to_data(self) -> dict[str, Any]:
        """Its kind and its settings, as JSON has them; `read_constraint` makes it anew."""
        return {"kind": type(self).__name__, **{name: to_plain(value, name) for name, value in self.settings().items()}}

    def words(self) -> str:
        """The constraint as Python would write it."""
        return repr(self)

    def settings(self) -> dict[str, Any]:
        """What it was made with."""
        raise TypeError(f"{type(self).__name__} does not say what it was made with.")


@dataclass(frozen=True, eq=False)
class GroupConstraint(Constraint):
    """Common to all fairness constraints: a tolerance, the groups compared, and a name for messages.

    over: None for every attribute by itself; a name for that attribute; a tuple of names for their intersection; a
    list of these for several.
    """

    tolerance: Any
    over: Over = None
    name: str | None = None

    title: ClassVar[str]  # its name in rows, where it was given none
    comparison: ClassVar[Comparison] = "difference"  # of every two groups, or their ratio; or each group by itself
    needs_groups: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not hasattr(cls, "title"):
            cls.title = cls.__name__

    def __post_init__(self) -> None:
        self._check_declaration()
        is_tensor = isinstance(self.tolerance, torch.Tensor)
        value = self.tolerance.detach() if is_tensor else self.tolerance
        number = read_number(value, "tolerance", "finite number, at least 0", lambda tolerance: tolerance >= 0.0)
        object.__setattr__(self, "tolerance", self.tolerance if is_tensor else number)

    def _check_declaration(self) -> None:
        """Refuse what the class says of itself where nothing could be made of it."""
        kind = type(self).__name__
        _check_choices(self, kind)
        if self.quantity == "decision" and not hasattr(self, "threshold"):
            raise InputError(f'{kind} has quantity "decision" and no threshold: give it one, such as threshold = 0.5.')
        if (self.quantity, self.comparison) in (("residual", "ratio"), ("decision", "each")):
            raise InputError(
                f"{kind} has quantity {self.quantity!r}, which does not go with comparison {self.comparison!r}: "
                'outputs are compared in every way, residuals by "difference" or "each", and decisions by "difference" '
                'or "ratio".'
            )
        if self.comparison == "ratio":
            if not hasattr(self, "ratio") or self.tolerance:
                raise InputError(
                    f'{kind} has comparison "ratio": derive it from RatioParity, or from RateParity for decisions, '
                    f"which have a ratio and no tolerance; got tolerance={self.tolerance!r}."
                )
            read_ratio(self.ratio)

    @property
    def needs_targets(self) -> bool:  # type: ignore[override]
        """Where residuals are compared, or a condition looks at the target."""
        return self.quantity == "residual" or any(condition.source == "target" for condition in self.conditions)

    @property
    def needs_features(self) -> bool:  # type: ignore[override]
        """Where a condition looks at a feature."""
        return any(condition.source == "feature" for condition in self.conditions)

    @property
    def always_feasible(self) -> bool:
        """Whether equal outputs for everyone satisfy it, whatever was emitted before."""
        return self.comparison != "each" and self.quantity == "output" and not self.conditions

    @property
    def serves_unknown_targets(self) -> bool:
        """Whether what it asks for can be kept by a function of groups alone, for samples whose target is unknown."""
        return not any(condition.source == "target" for condition in self.conditions)

    @property
    def allowed(self) -> float:
        """The largest gap it allows: its tolerance. Of a ratio, whose gaps are shares of the larger mean, 1 - ratio."""
        return 1.0 - self.coefficient if self.comparison == "ratio" else float(self.tolerance)

    def allowing(self, gap: float) -> GroupConstraint:
        """This constraint with another largest gap."""
        changed: dict[str, Any] = {"ratio": 1.0 - gap} if self.comparison == "ratio" else {"tolerance": gap}
        return replace(self, **changed)

    @property
    def coefficient(self) -> float:
        """What the greater mean is multiplied by where it is compared with the lesser one: its ratio, if it has one."""
        return self.ratio if self.comparison == "ratio" else 1.0  # type: ignore[attr-defined]

    def words(self) -> str:
        """The constraint as Python would write it, without what is left at its default."""
        settings = self.settings()
        first = settings.pop(next(iter(settings)))  # the tolerance, or the ratio that stands in its place
        given = [f"{name}={value!r}" for name, value in settings.items() if value is not None]
        return f"{type(self).__name__}({', '.join([*([] if first is None else [f'{float(first):g}']), *given])})"

    @cached_property
    def key(self) -> str:
        """Everything but the tolerance."""
        return json.dumps({name: value for name, value in self.to_data().items() if name != "tolerance"})

    def settings(self) -> dict[str, Any]:
        """The fields."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def groupings(self, names: Sequence[Name]) -> list[tuple[Name, ...]]:
        """The groupings compared, each a tuple of attributes to intersect, given the attributes there are."""
        if self.over is None:
            return [(name,) for name in names]
        wanted = self.over if isinstance(self.over, list) else [self.over]
        groupings = [entry if isinstance(entry, tuple) else (entry,) for entry in wanted]
        if not groupings or not all(groupings):
            raise InputError(f"over is {self.over!r}, which names no attribute: name some, or pass None for all.")
        for name in (name for grouping in groupings for name in grouping):
            if name not in names:
                raise InputError(f"over names attribute {name!r}, which groups does not have; it has {list(names)}.")
        return groupings


del _KINDS["GroupConstraint"]  # which is none by itself


def read_number(value: Any, what: str, needed: str, fits: Callable[[float], bool]) -> float:
    """A finite number that fits, as a float; refuse anything else."""
    try:
        number = float(value) if math.isfinite(value) else math.nan
    except (TypeError, ValueError, RuntimeError, OverflowError):
        number = math.nan
    if not fits(number):
        raise InputError(f"{what} must be one {needed}; got {value!r}.")
    return number


def read_ratio(value: Any) -> float:
    """A number above 0 and at most 1."""
    return read_number(value, "ratio", "number above 0 and at most 1, such as 0.8", lambda ratio: 0.0 < ratio <= 1.0)


def as_written(number: float) -> Fraction:
    """The decimal that a tolerance or a ratio was written as: 0.8 is four fifths, not the nearest binary fraction."""
    return Fraction(repr(float(number)))


def read_constraint(data: Any) -> Constraint:
    """A constraint from its data, or from words such as 'MeanParity(0.05, over="sex")'."""
    if isinstance(data, str):
        return _from_words(data)
    try:
        settings = {name: from_plain(value) for name, value in data.items() if name != "kind"}
        kind = data["kind"]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"this is not the data of a constraint: {data!r} ({error}).") from error
    return _make(kind, (), settings)


def _from_words(words: str) -> Constraint:
    form = f"write a constraint as in Python, such as MeanParity(0.05); there are {', '.join(sorted(_KINDS))}"
    try:
        call = ast.parse(words.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise SyntaxError("no call of a constraint")
        arguments = [ast.literal_eval(argument) for argument in call.args]
        settings = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError(f"{words!r} cannot be read as a constraint ({error}): {form}.") from error
    if call.func.id not in _KINDS:
        raise InputError(f"{words!r} names no constraint: {form}.")
    return _make(call.func.id, arguments, settings)


def _make(kind: Any, arguments: Sequence[Any], settings: dict[str, Any]) -> Constraint:
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InputError(f"there is no constraint {kind!r}; there are {', '.join(sorted(_KINDS))}.")
    try:
        return _KINDS[kind](*arguments, **settings)
    except TypeError as error:
        raise InputError(f"{kind} cannot be made with {[*arguments]} and {settings}: {error}.") from error
