"""The command `fairlayer`: one module per command, each of which imports what is slow only when it runs."""

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
        try:
            from fairlayer.cli.app import app
        except ImportError as error:
            if error.name not in ("typer", "rich"):
                raise
            print("fairlayer: the command line needs typer and rich: pip install 'fairlayer[cli]'.", file=sys.stderr)
            sys.exit(2)
        app(prog_name="fairlayer")
