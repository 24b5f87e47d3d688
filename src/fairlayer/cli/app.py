"""The commands put together, and how errors end: one line that says what to do, and exit code 2."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from fairlayer.cli import EXIT_CODE, raise_interrupt, stream
from fairlayer.cli.audit import audit
from fairlayer.cli.fit import fit
from fairlayer.cli.predict import predict
from fairlayer.cli.project import project
from fairlayer.errors import FairlayerError, InputError


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


class Main(Group):
    """All commands; errors are one line each."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command; its return value is the exit code."""
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except Exception as error:
            raise_interrupt()  # the error may be what became of an interrupt
            line = sentence(error)
            if line is None:  # exit code 1 would say that constraints are violated
                traceback.print_exc()
                line = "this is a fault of the program: please report it with the text above."
            print(f"fairlayer: {line}", file=sys.stderr)
            code = 2
        if code == EXIT_CODE:  # what the option parser makes of one
            raise_interrupt()
        sys.exit(code or 0)


def sentence(error: Exception) -> str | None:
    """What to tell the user of an error; None for a fault of the program."""
    if isinstance(error, FairlayerError):
        text = str(error)
    elif hasattr(error, "format_message"):  # from the option parser
        text = error.format_message().replace("Value error, ", "")
        if (context := getattr(error, "ctx", None)) is not None:
            text = text if text.endswith(("?", ")")) else f"{text.rstrip('.')}."
            text += f" See `{context.command_path} --help`."
    elif isinstance(error, typer.Abort):
        text = "interrupted."
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    else:
        return None
    return " ".join(text.split())


def _show_version(wanted: bool) -> None:
    if wanted:
        from fairlayer import __version__

        print(f"fairlayer {__version__}")
        raise typer.Exit


def _show_help(context: typer.Context) -> None:
    """Show help where no command is named."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


def _start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a Python module first, such as one with a constraint of your own. The working folder is "
            "searched too. The option may be given more than once.",
        ),
    ] = None,
) -> None:
    if modules and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for module in modules or ():
        try:
            importlib.import_module(module)
        except Exception as error:
            raise InputError(
                f"--import: {module} cannot be imported ({error}): correct the name, or its code."
            ) from error
    _show_help(context)


app = typer.Typer(
    name="fairlayer",
    cls=Main,
    help="Models and scores that provably keep group-fairness constraints: group means, residuals, odds or rates of "
    "decisions agree within a tolerance.",
    epilog="Exit codes: 0 the constraints are kept, 1 they are violated, 2 the command could not be carried out, 130 "
    "it was interrupted. `fairlayer COMMAND --help` explains a command.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback(invoke_without_command=True)(_start)
for command in (fit, predict, audit, project):
    app.command(cls=Command)(command)
streams = typer.Typer(
    name="stream",
    cls=Group,
    help="Inspect streams of decisions: what was guaranteed, what was decided, and whether the record was changed. The "
    "store is only read; it holds the settings of its streams.",
)
streams.callback(invoke_without_command=True)(_show_help)
for command in (stream.list_, stream.show, stream.verify, stream.certificate, stream.export):
    streams.command(command.__name__.strip("_"), cls=Command)(command)
app.add_typer(streams)
