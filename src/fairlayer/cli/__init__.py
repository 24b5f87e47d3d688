"""The command `fairlayer`: one module per command, each of which imports what is slow only when it runs."""

from __future__ import annotations

import sys

from fairlayer.extras import MissingExtraError, needs


def main() -> None:
    """Run the command line; what `fairlayer` on a terminal calls."""
    from fairlayer.cli.interrupts import ending_in_one_line

    with ending_in_one_line():
        try:
            with needs("The command line", "typer", "rich"):
                import rich  # noqa: F401
                import typer  # noqa: F401
        except MissingExtraError as error:
            print(error, file=sys.stderr)
            sys.exit(2)
        from fairlayer.cli.app import app

        app(prog_name="fairlayer")
