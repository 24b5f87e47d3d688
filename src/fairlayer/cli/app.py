"""The commands put together, and how errors end: one line that says what to do, and exit code 2."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fairlayer.cli import audit, bench, datasets, demo, fit, predict, project, reproduce, stream
from fairlayer.errors import FairlayerError

EPILOG = (
    "Exit codes: 0 the constraints are satisfied, 1 they are violated, 2 the command could not be carried out. "
    "`fairlayer COMMAND --help` explains a command."
)


class Commands(TyperGroup):
    """Commands whose errors are one line each."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command; its return value is the exit code."""
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except Exception as error:
            line = sentence(error)
            if line is None:  # 1 would say that constraints are violated
                traceback.print_exc()
                line = "this is a fault of the program: please report it with what stands above."
            print(f"fairlayer: {line}", file=sys.stderr)
            code = 2
        sys.exit(code or 0)


def sentence(error: Exception) -> str | None:
    """What a user is told of an error; None for one that is a fault of the program."""
    if isinstance(error, FairlayerError):
        text = str(error)
    elif hasattr(error, "format_message"):  # of the option parser
        text = error.format_message()
        context = getattr(error, "ctx", None)
        if context is not None and "--help" not in text:
            text = f"{text if text.endswith('?') else text.rstrip('.') + '.'} See `{context.command_path} --help`."
    elif isinstance(error, typer.Abort):
        text = "interrupted."
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    else:
        return None
    return " ".join(text.split())


app = typer.Typer(
    name="fairlayer",
    cls=Commands,
    help="Models and scores whose group means (or residuals, or odds) agree within a tolerance, provably.",
    epilog=EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from fairlayer import __version__

        print(f"fairlayer {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _common(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


app.command()(fit.fit)
app.command()(predict.predict)
app.command()(audit.audit)
app.command()(project.project)
app.add_typer(stream.commands, name="stream")
app.command()(datasets.datasets)
app.command()(demo.demo)
app.command()(reproduce.reproduce)
app.command()(bench.bench)
