"""What commands have in common: their options are described in their docstrings, in the words that help shows.

    DATA: A CSV or Parquet file of any size.
    --output, -o FILE: Where to write the table.

    Training:
    --epochs N >= 1: The most passes over the data.

Above are an argument, an option with its two names and what it takes, a heading, and an option that takes numbers from
1 on. `described` makes of a function with such a docstring what typer takes for a command.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum, StrEnum
from functools import wraps
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from fairlayer.cli.options import SHARED
from fairlayer.errors import InputError
from fairlayer.nearest import nearest

_ENTRY = re.compile(
    r"(?P<names>(?:-[\w-]+(?:, )?)*) ?(?P<takes>[A-Z[]\S*(?: [A-Z]+)?)?(?: >= (?P<least>\d+))?: (?P<words>.+)"
)


def described(function: Callable[..., int]) -> Callable[..., int]:
    """A function as typer takes it. A parameter that is a dataclass stands for its fields, an option each.

    An option that the function has by itself, with words of its own, is read into both.
    """
    signature = inspect.signature(function, eval_str=True)
    prose, options = read_options(function.__doc__ or "")
    options = {**read_options(SHARED)[1], **options}
    parameters: list[inspect.Parameter] = []
    composed: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        kind = parameter.annotation
        if is_dataclass(kind):
            composed[parameter.name] = kind
            options = {**read_options(kind.__doc__ or "")[1], **options}
            hints = get_type_hints(kind)
            parts = [parameter.replace(name=f.name, default=f.default, annotation=hints[f.name]) for f in fields(kind)]
            parameters += [part for part in parts if part.name not in signature.parameters]
        else:
            parameters.append(parameter)
    asked = [
        one.replace(kind=one.KEYWORD_ONLY, annotation=Annotated[_choices(one.annotation), options[one.name]])
        for one in parameters
    ]

    @wraps(function)
    def run(**given: Any) -> int:
        given = {name: value.value if isinstance(value, Enum) else value for name, value in given.items()}
        made = {name: kind(**{f.name: given[f.name] for f in fields(kind)}) for name, kind in composed.items()}
        return function(**made, **{name: given[name] for name in given if name in signature.parameters})

    run.__doc__ = prose
    run.__signature__ = signature.replace(parameters=asked)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in asked}
    return run


def read_options(text: str) -> tuple[str, dict[str, Any]]:
    """A docstring up to its options, and these, as typer knows them, by the names of their parameters."""
    lines = inspect.cleandoc(text).splitlines()
    first = next((i for i, line in enumerate(lines) if _ENTRY.match(line)), len(lines))
    first -= first > 0 and lines[first - 1].endswith(":")
    panel: str | None = None
    found: list[dict[str, Any]] = []
    for before, line in zip(["", *lines[first:]], lines[first:], strict=False):
        if entry := _ENTRY.match(line):
            found.append({**entry.groupdict(), "panel": panel})
        elif line.endswith(":") and not before:
            panel = line[:-1]
        elif line:
            found[-1]["words"] += f" {line}"
    return "\n".join(lines[:first]).rstrip(), dict(map(_option, found))


def _option(entry: dict[str, Any]) -> tuple[str, Any]:
    names, takes = entry["names"].split(", ") if entry["names"] else [], entry["takes"]
    more = {"rich_help_panel": entry["panel"]} if entry["panel"] else {}
    more |= {"min": int(entry["least"])} if entry["least"] else {}
    if not names:
        return re.sub(r"\W", "", takes).lower(), typer.Argument(metavar=takes, help=entry["words"], **more)
    return names[0][2:].replace("-", "_"), typer.Option(*names, metavar=takes, help=entry["words"], **more)


def _choices(kind: Any) -> Any:
    """A type as typer knows it, which has choices in enumerations."""
    if get_origin(kind) is Literal:
        return StrEnum("Choice", {word: word for word in get_args(kind)})
    literal = next((one for one in get_args(kind) if get_origin(one) is Literal), None)
    return kind if literal is None else _choices(literal) | None


class _PlainFlags:
    """In help an option that takes no value has no word for one."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Arguments and options."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


class Command(_PlainFlags, TyperCommand):
    """A command."""


class Group(_PlainFlags, TyperGroup):
    """Commands under one name; a command that is not there is one line, with the nearest one that is."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = nearest(args[0], self.commands)
            remedy = f"Did you mean {near!r}?" if near else f"There are {', '.join(self.commands)}."
            raise InputError(f"There is no command {args[0]!r}. {remedy}")
        return super().resolve_command(ctx, args)
