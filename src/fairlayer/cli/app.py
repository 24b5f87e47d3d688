"""The commands put together, and how errors end: one line that says what to do, and exit code 2."""

from __future__ import annotations

import importlib
import os
import sys
import time
import traceback
from typing import Annotated, Any

import typer

from fairlayer.cli import EXIT_CODE, audit, checkout, demo, fit, interrupts, predict, project, stream
from fairlayer.cli.commands import Command, Group, described
from fairlayer.cli.terminal import say
from fairlayer.errors import FairlayerError, InputError
from fairlayer.nearest import nearest

EPILOG = (
    "Exit codes: 0 the constraints are satisfied, 1 they are violated, 2 the command could not be carried out, 130 it "
    "was interrupted. `fairlayer COMMAND --help` explains a command."
)


class Commands(Group):
    """Commands whose errors are one line each."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command; its return value is the exit code."""
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except Exception as error:
            interrupts.check()  # the error may be what became of one
            line = sentence(error)
            if line is None:  # 1 would say that constraints are violated
                traceback.print_exc()
                line = "this is a fault of the program: please report it with what stands above."
            print(f"fairlayer: {line}", file=sys.stderr)
            code = 2
        if code == EXIT_CODE:  # what the option parser makes of one
            interrupts.check()
        sys.exit(code or 0)


def sentence(error: Exception) -> str | None:
    """What a user is told of an error; None for one that is a fault of the program."""
    if isinstance(error, FairlayerError):
        text = str(error)
    elif hasattr(error, "format_message"):  # of the option parser
        text = _option_error(error)
    elif isinstance(error, typer.Abort):
        text = "interrupted."
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    else:
        return None
    return " ".join(text.split())


def _option_error(error: Any) -> str:
    """What the option parser has to say, with where to read on."""
    context = getattr(error, "ctx", None)
    text = error.format_message()
    if context is None:
        return text
    if hasattr(error, "possibilities"):  # an option that is not there
        known = [name for parameter in context.command.get_params(context) for name in parameter.opts]
        near = nearest(error.option_name.lstrip("-"), [name[2:] for name in known if name.startswith("--")])
        text = f"There is no option {error.option_name}." + (f" Did you mean --{near}?" if near else "")
    ended = text if text.endswith("?") else text.rstrip(".") + "."
    return f"{ended} See `{context.command_path} --help`."


app = typer.Typer(
    name="fairlayer",
    cls=Commands,
    help="Models and scores whose group means (or residuals, or odds) agree within a tolerance, provably.",
    epilog=EPILOG,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from fairlayer import __version__

        print(f"fairlayer {__version__}")
        raise typer.Exit


def _import(module: str) -> None:
    """What a user has added, in the working folder as well."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        importlib.import_module(module)
    except Exception as error:
        raise InputError(f"--import: {module} cannot be imported ({error}): correct the name, or its code.") from error


@app.callback(invoke_without_command=True)
def _common(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a Python module first, such as one with a constraint of your own. It is looked for in the "
            "working folder too. The option may be given more than once.",
        ),
    ] = None,
) -> None:
    for module in modules or ():
        _import(module)
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


def warm_up() -> int:
    """Compile everything that layers and streams run, so that the first batch is as quick as any other.

    It is kept on disk and done once per installation: run this where an image is built.

    `fairlayer warm-up`
    """
    from fairlayer.warm import warm_up as compile_everything

    began = time.perf_counter()
    compile_everything()
    say(f"Everything is compiled ({time.perf_counter() - began:.0f} s).")
    return 0


for command in (
    *(fit.fit, predict.predict, audit.audit, project.project),
    *(demo.demo, checkout.reproduce, checkout.bench, warm_up),
):
    app.command(cls=Command)(described(command))
app.add_typer(stream.commands, name="stream")  # groups of commands come last
