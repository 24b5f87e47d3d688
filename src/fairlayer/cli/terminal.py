"""What a command shows: help, progress and notes on the error stream, results on the output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperCommand, TyperGroup

MOST_SHOWN = 30  # gaps


class _PlainFlags:
    """In help, an option that takes no value shows no word for one."""

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
    """Commands under one name."""


def help_without_command(context: typer.Context) -> None:
    """Show help where no command is named."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


def note(text: str) -> None:
    """Something worth knowing, beside the result."""
    Console(stderr=True, highlight=False, markup=False).print(text, soft_wrap=True)


def say(text: str = "") -> None:
    """A line of the result."""
    Console(highlight=False, markup=False).print(text, soft_wrap=True)


def show_table(header: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """A table of the result; numbers to the right. Verdicts have a colour and a word, never a colour alone."""
    table = Table(title=None if title is None else escape(title), box=box.SIMPLE_HEAD, title_justify="left")
    for column, name in enumerate(header):
        numeric = all(isinstance(row[column], int | float) for row in rows)
        table.add_column(escape(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    Console(highlight=False).print(table)


def show_gaps(names: Sequence[str], gaps: Sequence[float], tolerances: Sequence[float]) -> None:
    """Gaps beside their tolerances, at most `MOST_SHOWN`; those that exceed theirs most, or come nearest, first."""
    rows = sorted(zip(names, gaps, tolerances, strict=True), key=lambda row: row[2] - abs(row[1]))
    if rows:
        show_table(["constraint", "gap", "tolerance"], rows[:MOST_SHOWN])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = escape(str(value))
    colour = {"satisfied": "green", "violated": "red", "undecided": "yellow"}.get(text)
    return f"[{colour}]{text}[/]" if colour else text


@contextmanager
def steps() -> Iterator[Callable[..., None]]:
    """Show which step is under way while the block runs; nothing remains of it, and nothing shows in a pipe.

    The block names each step when it begins, and says how it goes: `detail`.
    """
    with Console(stderr=True).status("Starting") as status:
        step = ""

        def tell(name: str | None = None, detail: str = "") -> None:
            nonlocal step
            step = name or step
            status.update(f"{step} [dim]{detail}")

        yield tell
