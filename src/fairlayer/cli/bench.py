"""`fairlayer bench`: the benchmarks."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlayer.cli import checkout
from fairlayer.errors import InputError


def bench(
    suites: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SUITE]...", help="A suite to run, such as floor or scaling. All are run where none is named."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Take small sizes and few repeats, to see that it runs.")
    ] = False,
    sizes: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="A batch size in place of the usual ones. May be given more than once."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the random problems.")] = 20_000,
) -> int:
    """Run the benchmarks; what they measure is written to benchmarks/results/.

    Needs a checkout of the repository.

    `fairlayer bench floor --quick`
    """
    root = checkout.find("benchmarks")
    known = sorted(path.stem for path in (root / "benchmarks" / "suites").glob("[!_]*.py"))
    for name in suites or ():
        if name not in known:
            raise InputError(f"There is no suite {name!r}; there are {', '.join(known)}.")
    options = [*(["--quick"] if quick else []), "--seed", str(seed)]
    if sizes:
        options += ["--sizes", *map(str, sizes)]
    return checkout.run(root, ["benchmarks/run.py", *(suites or ()), *options])
