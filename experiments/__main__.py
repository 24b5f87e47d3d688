"""`python -m experiments NAME [--profile PROFILE] [--resume | --replace] [--jobs N] [--folder FOLDER]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments import NAMES, RESULTS
from experiments.interrupts import interruptible, raise_if_interrupted

PROFILES = (
    "`paper`: as published; `large`: with the larger network (loan); `medium`: less of it (synthetic, fairface, "
    "celeba); `quick`: only to see that it runs"
)


def main(arguments: list[str] | None = None) -> int:
    """Run an experiment, or write the table of claims anew."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description="Run an experiment of the paper.")
    parser.add_argument("name", choices=[*NAMES, "claims"], help="claims: only write the table of claims anew")
    parser.add_argument("--profile", default="paper", help=PROFILES)
    parser.add_argument("--resume", action="store_true", help="go on with what is there")
    parser.add_argument("--replace", action="store_true", help="begin anew where there is something")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where results are kept")
    chosen = parser.parse_args(arguments)
    try:
        with interruptible():
            return _carry_out(chosen)
    except KeyboardInterrupt:
        begin = " if a unit was finished; --replace begins anew" if chosen.replace else ""
        print(f"Interrupted; --resume goes on from here{begin}.", file=sys.stderr)
        return 130


def _carry_out(chosen: argparse.Namespace) -> int:
    from experiments.runner import refresh_claims, run  # takes seconds, which can be interrupted, too
    from fairlayer.errors import FairlayerError

    raise_if_interrupted()
    try:
        if chosen.name == "claims":
            refresh_claims(chosen.folder)
        else:
            options = {name: getattr(chosen, name) for name in ("resume", "replace", "jobs", "folder")}
            print(run(chosen.name, chosen.profile, **options))
    except FairlayerError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
