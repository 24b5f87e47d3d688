"""`fairlayer bench`: the benchmarks."""

from __future__ import annotations

from fairlayer.cli import checkout
from fairlayer.errors import InputError


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
    root = checkout.find("benchmarks")
    known = sorted(path.stem for path in (root / "benchmarks" / "suites").glob("[!_]*.py"))
    for name in suite or ():
        if name not in known:
            raise InputError(f"There is no suite {name!r}; there are {', '.join(known)}.")
    options = [*(["--quick"] if quick else []), "--seed", str(seed)]
    if sizes:
        options += ["--sizes", *map(str, sizes)]
    return checkout.run(root, ["benchmarks/run.py", *(suite or ()), *options])
