"""`fairlayer reproduce`: the paper's experiments."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Literal

from fairlayer.cli import checkout
from fairlayer.errors import InputError


def reproduce(
    name: str,
    profile: Literal["paper", "large", "medium", "quick"] = "paper",
    resume: bool = False,
    replace: bool = False,
    jobs: int = 2,
    folder: Path | None = None,
) -> int:
    """Run an experiment of the paper and set its results beside the published ones.

    Needs a checkout of the repository. Data are found as for `fairlayer datasets`.

    `fairlayer reproduce loan --profile quick`

    NAME: An experiment: employee, loan, synthetic, fairface, celeba or beyond.
    --profile: `paper`: as published. `large`: with the larger network (loan). `medium`: less of it (synthetic,
    fairface, celeba). `quick`: only to see that it runs.
    --resume: Continue an earlier run.
    --replace: Start over, replacing earlier results.
    --jobs N >= 1: How many processes run at a time.
    --folder FOLDER: Where results are kept; experiments/results of the checkout by default.
    """
    root = checkout.find("experiments")
    known = _names(root)
    if name not in known:
        raise InputError(f"There is no experiment {name!r}; there are {', '.join(known)}.")
    flags = ["--resume"] * resume + ["--replace"] * replace
    place = [] if folder is None else ["--folder", str(folder.absolute())]  # it runs in the folder of the checkout
    options = ["--profile", profile, "--jobs", str(jobs), *place, *flags]
    return checkout.run(root, ["-m", "experiments", name, *options])


def _names(root: Path) -> tuple[str, ...]:
    """The experiments of a checkout."""
    sys.path.insert(0, str(root))
    try:
        return importlib.import_module("experiments").NAMES
    finally:
        sys.path.remove(str(root))
