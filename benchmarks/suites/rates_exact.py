"""Rate parity against brute force: random batches of one to three attributes, and larger ones against a programme.

The judge is that of the tests, `tests/decisions/brute.py`: it tries every pattern of decisions, in rational arithmetic
where that matters, or solves an integer programme over samples.
"""

import importlib
import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path

import numpy as np

from records import Target, write_settings

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "decisions"))
brute = importlib.import_module("brute")

BATCHES = 20_000
LARGER = 50  # every so many batches, one of 15 to 40 samples
SHOWN = 10

PAGE = """# Rate parity against brute force

{batches:,} random batches of 2 to 10 samples, and one in {larger} of 15 to 40: one to three attributes with a tolerance
or ratio each, weights, bounds that forbid some decisions, classes of the target, scores of one or two digits (ties),
float16, bfloat16, float32 and float64. {wrong} answers are wrong: break a rate, cost more than the cheapest of all
patterns of decisions (and the gap that is stated), turn a decision without need, call feasible what is not or the
reverse, name tolerances that are infeasible, or end in an unnamed error.
"""


def main(args: Namespace) -> list[Target]:
    """Count what is wrong."""
    batches = 300 if args.quick else BATCHES
    found: Counter[str] = Counter()
    for number in range(batches):
        rng = np.random.default_rng([args.seed, number])
        n = int(rng.integers(15, 41)) if number % LARGER == LARGER - 1 else int(rng.integers(2, 11))
        try:
            reason = brute.draw(rng, n).judge()
        except Exception as error:  # anything that is raised and not expected is a finding
            reason = f"raises {type(error).__name__}: {error}"
        if reason:
            found["wrong"] += 1
            if found["wrong"] <= SHOWN:
                print(f"  batch {number}: {reason}", flush=True)
    print(f"  {batches:,} batches, {found['wrong']} of them wrong", flush=True)
    figures = {"batches": batches, "wrong": found["wrong"], "larger": LARGER}
    (args.results / "rates_exact.md").write_text(PAGE.format(**figures))
    write_settings(args.results / "rates_exact.json", args, **figures)
    return [Target("rates: batches that differ from brute force", found["wrong"], 0)]
