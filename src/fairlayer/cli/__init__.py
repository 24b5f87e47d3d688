"""The command `fairlayer`: a module for each command, which imports what is slow only when it runs."""

import sys


def main() -> None:
    """Run the command line; the entry point of `fairlayer`."""
    from fairlayer.cli.interrupts import ending_in_one_line

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
