"""The simulator: the real stream under a deterministic scheduler with injected faults, seed by seed.

    python tests/stream/simulate.py [--seeds 10000] [--first 0] [--workers 2]
    python tests/stream/simulate.py --seed 123          # one seed again, step by step

Prints every seed that breaks an invariant; the same seed breaks it again, in the same way.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time

from simulator.world import Result, World


def simulate(seed: int) -> Result:
    """One seed."""
    return World(seed).run()


def _without_trace(seed: int) -> Result:
    result = simulate(seed)
    result.trace = []
    return result


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="only this one, with all that happened")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    args = parser.parse_args(argv)
    if args.seed is not None:
        result = simulate(args.seed)
        print(*result.trace, sep="\n")
        print(result)
        return int(result.broken is not None)
    began = time.monotonic()
    seeds = range(args.first, args.first + args.seeds)
    steps = faults = entries = 0
    broken = []
    with multiprocessing.get_context("fork").Pool(args.workers) as pool:
        for done, result in enumerate(pool.imap_unordered(_without_trace, seeds, chunksize=16), 1):
            steps, faults, entries = steps + result.steps, faults + result.faults, entries + result.entries
            if result.broken:
                broken.append(result)
                print(f"seed {result.seed}: {result.broken}", flush=True)
            if done % 1000 == 0:
                print(f"   {done} seeds, {len(broken)} broken, {time.monotonic() - began:.0f} s", flush=True)
    print(
        f"{args.seeds} seeds, {steps} steps, {faults} faults, {entries} entries: {len(broken)} broken, "
        f"{time.monotonic() - began:.0f} s"
    )
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
