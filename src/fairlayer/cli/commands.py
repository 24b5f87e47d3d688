"""What commands and groups of commands have in common: help without types of flags, and near suggestions."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

from fairlayer.errors import InputError
from fairlayer.nearest import nearest


def _without_types_of_flags(parameters: list[Any]) -> list[Any]:
    """Parameters as help shows them: an option that takes no value needs no word for one."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


class Command(TyperCommand):
    """A command whose flags are shown as such."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Arguments and options."""
        return _without_types_of_flags(super().get_params(ctx))


class Group(TyperGroup):
    """Commands under one name; a command that is not there is one line, with the nearest one that is."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Options of all commands together."""
        return _without_types_of_flags(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = nearest(args[0], self.commands)
            remedy = f"Did you mean {near!r}?" if near else f"There are {', '.join(self.commands)}."
            raise InputError(f"There is no command {args[0]!r}. {remedy}")
        return super().resolve_command(ctx, args)
