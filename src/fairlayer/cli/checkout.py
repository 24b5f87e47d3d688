"""`fairlayer reproduce` and `fairlayer bench`: they need the repository.

Experiments and benchmarks are not part of the installed package.
"""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

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

    Needs a checkout of the repository. Data are read from the folder that FAIRLAYER_DATA names.

    `fairlayer reproduce loan --profile quick`

    NAME: An experiment: employee, loan, synthetic, fairface, celeba or beyond.
    --profile: `paper`: as published. `large`: with the larger network (loan). `medium`: less of it (synthetic,
    fairface, celeba). `quick`: only to see that it runs.
    --resume: Continue an earlier run.
    --replace: Start over, replacing earlier results.
    --jobs N >= 1: How many processes run at a time.
    --folder FOLDER: Where results are kept; experiments/results of the checkout by default.
    """
    root = find("experiments")
    known = _experiments(root)
    if name not in known:
        raise InputError(f"There is no experiment {name!r}; there are {', '.join(known)}.")
    flags = ["--resume"] * resume + ["--replace"] * replace
    place = [] if folder is None else ["--folder", str(folder.absolute())]  # it runs in the folder of the checkout
    options = ["--profile", profile, "--jobs", str(jobs), *place, *flags]
    return run(root, ["-m", "experiments", name, *options])


def bench(
    suite: list[str] | None = None, quick: bool = False, sizes: list[int] | None = None, seed: int = 20_000
) -> int:
    """Run the benchmarks; what they measure is written to benchmarks/results/.

    Needs a checkout of the repository.

    `fairlayer bench floor --quick`

    [SUITE]...: A suite to run, such as floor or scaling. All are run where none is named.
    --quick: Take small sizes and few repeats, to see that it runs.
    --sizes N: A batch size in place of the usual ones. May be given more than once.
    --seed N >= 0: Seed of the random problems.
    """
    root = find("benchmarks")
    known = sorted(path.stem for path in (root / "benchmarks" / "suites").glob("[!_]*.py"))
    for name in suite or ():
        if name not in known:
            raise InputError(f"There is no suite {name!r}; there are {', '.join(known)}.")
    options = [*["--quick"] * quick, "--seed", str(seed)]
    if sizes:
        options += ["--sizes", *map(str, sizes)]
    return run(root, ["benchmarks/run.py", *(suite or ()), *options])


def find(folder: str) -> Path:
    """The checkout that has a folder: that of this package's source, or one that the current folder lies in."""
    here = Path.cwd()
    places = [Path(__file__).resolve().parents[3], here, *here.parents]
    for place in places:
        if (place / folder).is_dir() and (place / "src" / "fairlayer").is_dir():
            return place
    raise InputError(
        f"The folder {folder}/ is part of the repository, not of the installed package: clone the repository, and run "
        "this command inside it."
    )


def _experiments(root: Path) -> tuple[str, ...]:
    """The experiments of a checkout."""
    sys.path.insert(0, str(root))
    try:
        return importlib.import_module("experiments").NAMES
    finally:
        sys.path.remove(str(root))


def run(root: Path, arguments: Sequence[str]) -> int:
    """Run Python in the checkout, on this terminal; who asks this process to stop asks the other, which says how."""
    with subprocess.Popen([sys.executable, *arguments], cwd=root) as process:
        wishes = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(wish, lambda number, _: process.send_signal(number)) for wish in wishes]
        try:
            code = process.wait()
            return code if code >= 0 else 128 - code  # ended by a signal: as a shell says it
        finally:
            for wish, handler in zip(wishes, before, strict=True):
                signal.signal(wish, handler)
