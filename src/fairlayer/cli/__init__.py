"""The command `fairlayer`: a module for each command or two, which import what is slow only when they run."""

import sys

INTERRUPTED = "fairlayer: interrupted; nothing was written."
EXIT_CODE = 130  # of what was interrupted: 128 and the number of the signal, as shells say it


def main() -> None:
    """Run the command line; what `fairlayer` on a terminal calls."""
    try:
        from fairlayer.cli.interrupts import ending_in_one_line
    except KeyboardInterrupt:  # before anybody watches for it
        print(INTERRUPTED, file=sys.stderr)
        sys.exit(EXIT_CODE)
    with ending_in_one_line():
        from fairlayer.extras import MissingExtraError, needs

        try:
            with needs("The command line", "typer", "rich"):
                import rich  # noqa: F401
                import typer  # noqa: F401
        except MissingExtraError as error:
            print(error, file=sys.stderr)
            sys.exit(2)
        from fairlayer.cli.app import app

        app(prog_name="fairlayer")
