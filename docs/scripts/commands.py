"""The command reference: what `--help` says of every command, from the same objects."""

from collections.abc import Iterator
from typing import Any

from pages import Page, cell

INTRODUCTION = """# Command line

What `fairlayer --help` and `fairlayer COMMAND --help` say, on one page. The [guide](../guide/commands.md) shows the
commands at work.
"""


def application() -> Any:
    """The command line as a tree of commands."""
    from typer.main import get_command

    from fairlayer.cli.app import app

    return get_command(app)


def commands(root: Any, path: str = "fairlayer") -> Iterator[tuple[str, Any]]:
    """Every command and group of commands that is not hidden, with the words that call it."""
    yield path, root
    for name, command in getattr(root, "commands", {}).items():
        if not command.hidden:
            yield from commands(command, f"{path} {name}")


def parameters(command: Any) -> list[Any]:
    """The arguments and options of a command that are not hidden."""
    return [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]


def commands_page() -> Page:
    """The whole reference."""
    parts = [INTRODUCTION, *(_describe(path, command) for path, command in commands(application()))]
    return Page("reference/commands.md", "Commands", "\n\n".join(parts) + "\n")


def record(command: Any, parameter: Any) -> tuple[str, str]:
    """How `--help` writes a parameter, and what it says of it."""
    return parameter.get_help_record(_context(command))


def _describe(path: str, command: Any) -> str:
    usage = " ".join([path, *command.collect_usage_pieces(_context(command))])
    parts = [f"## `{path}`", f"```text\n{usage}\n```", (command.help or "").strip(), (command.epilog or "").strip()]
    for kind in ("argument", "option"):
        listed = [record(command, p) for p in parameters(command) if p.param_type_name == kind]
        if listed:
            lines = [f"| `{name}` | {_marked(meaning)} |" for name, meaning in listed]
            parts.append("\n".join([f"| {kind} | meaning |", "| --- | --- |", *lines]))
    return "\n\n".join(part for part in parts if part)


def _context(command: Any) -> Any:
    return command.make_context(command.name, [], resilient_parsing=True)


def _marked(text: str) -> str:
    """Help text as a cell of a table: code between backticks stays code, all else is plain."""
    parts = text.split("`")
    return "`".join(part if number % 2 else cell(part) for number, part in enumerate(parts)).strip()
