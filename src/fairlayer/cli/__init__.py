"""The command `fairlayer`: one module per command, each of which imports what is slow only when it runs."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; what `fairlayer` on a terminal calls."""
    from fairlayer.cli.interrupts import ending_in_one_line

    with ending_in_one_line():
        try:
            from fairlayer.cli.app import app
        except ImportError as error:
            if error.name not in ("typer", "rich"):
                raise
            print("fairlayer: the command line needs typer and rich: pip install 'fairlayer[cli]'.", file=sys.stderr)
            sys.exit(2)
        app(prog_name="fairlayer")
