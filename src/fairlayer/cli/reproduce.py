"""`fairlayer reproduce`: the paper's experiments."""

from __future__ import annotations

import importlib
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fairlayer.cli import checkout
from fairlayer.errors import InputError


class Profile(StrEnum):
    """How much of an experiment to run."""

    PAPER = "paper"
    LARGE = "large"
    MEDIUM = "medium"
    QUICK = "quick"


def reproduce(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="An experiment: employee, loan, synthetic, fairface, celeba or beyond."),
    ],
    profile: Annotated[
        Profile,
        typer.Option(
            help="`paper`: as published. `large`: with the larger network (loan). `medium`: less of it (synthetic, "
            "fairface, celeba). `quick`: only to see that it runs."
        ),
    ] = Profile.PAPER,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an earlier run.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Start over, replacing earlier results.")] = False,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="How many processes run at a time.")] = 2,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where results are kept; experiments/results of the checkout by default."),
    ] = None,
) -> int:
    """Run an experiment of the paper and set its results beside the published ones.

    Needs a checkout of the repository. Data are found as for `fairlayer datasets`.

    `fairlayer reproduce loan --profile quick`
    """
    root = checkout.find("experiments")
    known = _names(root)
    if name not in known:
        raise InputError(f"There is no experiment {name!r}; there are {', '.join(known)}.")
    flags = ["--resume"] * resume + ["--replace"] * replace
    place = [] if folder is None else ["--folder", str(folder.absolute())]  # it runs in the folder of the checkout
    options = ["--profile", profile.value, "--jobs", str(jobs), *place, *flags]
    return checkout.run(root, ["-m", "experiments", name, *options])


def _names(root: Path) -> tuple[str, ...]:
    """The experiments of a checkout."""
    sys.path.insert(0, str(root))
    try:
        return importlib.import_module("experiments").NAMES
    finally:
        sys.path.remove(str(root))
