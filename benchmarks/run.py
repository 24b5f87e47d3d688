"""Run the benchmarks: `./dev bench [SUITE ...] [--quick] [--sizes N ...]`; every suite when none is named.

A suite is a module of `benchmarks/suites/` with `main(args) -> list[Target]`: it writes what it measured
to `args.results` and returns the figures that have a limit. Adding the file adds the suite.
"""

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # experiments: data sets, and the methods to compare with
import suites
from records import save_targets, targets_table

SUITES = sorted(module.name for module in pkgutil.iter_modules(suites.__path__))


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="SUITE", help=f"any of: {', '.join(SUITES)}")
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats: does it run?")
    parser.add_argument("--sizes", nargs="+", type=int, metavar="N", help="batch sizes in place of the usual")
    parser.add_argument(
        "--peers", nargs="+", metavar="TEXT", help="only peers (in the suite adult: methods) whose name contains a TEXT"
    )
    parser.add_argument("--problems", type=int, metavar="N", help="random problems of the violations suite")
    parser.add_argument("--seed", type=int, default=20_000)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args(argv)
    if unknown := set(args.names) - set(SUITES):
        parser.error(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    args.results = args.results.resolve()
    args.results.mkdir(parents=True, exist_ok=True)
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    for name in args.names or SUITES:
        print(f"== {name}", flush=True)
        targets = importlib.import_module(f"suites.{name}").main(args)
        if targets:
            save_targets(args.results, name, targets)
        print(targets_table(targets), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
