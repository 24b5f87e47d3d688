"""Rate parity against brute force: every case of few samples of one attribute, random ones of overlapping attributes.

The judge of overlapping attributes is that of the tests, `tests/decisions/brute.py`, which tries every pattern of
decisions in rational arithmetic.
"""

import importlib
import sys
from argparse import Namespace
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

from fairlayer import RateParity, project
from records import Target, write_settings

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "decisions"))
brute = importlib.import_module("brute")

MOST = 12  # samples up to which every case of one attribute is tried
MOST_OVERLAPPING, DRAWN = 10, 60  # samples of overlapping attributes, and how many batches of each size and form

PAGE = """# Rate parity against brute force

One attribute: {cases:,} cases, all sizes of up to three groups and all numbers of yeses up to {most} samples, nine
tolerances and ratios. {wrong} differ in cost from the best numbers of yeses, or break a rate.

Overlapping attributes: {drawn:,} random batches of 2 to {most_overlapping} samples, two or three attributes with a
tolerance or ratio each: plain, within a class of the target, within each class, with weights. {failed} break a rate, or
cost more than the cheapest of all patterns of decisions (with weights, more than that and the gap that is stated).
"""


def main(args: Namespace) -> list[Target]:
    """Count what is wrong."""
    most, most_overlapping = (6, 5) if args.quick else (MOST, MOST_OVERLAPPING)
    cases, wrong = brute_force(most, args.seed)
    print(f"  {cases:,} cases of one attribute, {wrong} of them wrong", flush=True)
    drawn, failed = overlapping(most_overlapping, args.seed)
    print(f"  {drawn:,} batches of overlapping attributes, {failed} of them wrong", flush=True)
    found = {"cases": cases, "wrong": wrong, "most": most}
    found |= {"drawn": drawn, "failed": failed, "most_overlapping": most_overlapping}
    (args.results / "rates_exact.md").write_text(PAGE.format(**found))
    write_settings(args.results / "rates_exact.json", args, **found)
    return [
        Target("rates: cases of one attribute that differ from brute force", wrong, 0),
        Target("rates: batches of overlapping attributes that differ from brute force", failed, 0),
    ]


def brute_force(most: int, seed: int) -> tuple[int, int]:
    """All cases of one attribute, and how many are wrong."""
    tried, wrong = 0, 0
    rng = np.random.default_rng(seed)
    for n in range(1, most + 1):
        for size in groups_of(n):
            groups = np.repeat(np.arange(len(size)), size)
            counts = np.array(list(product(*(range(each + 1) for each in size))))
            allowed = [np.array([keeps(one, size, rule) for one in counts.tolist()]) for rule in brute.RULES]
            for number, yeses in enumerate(counts.tolist()):
                yes = np.concatenate([np.arange(each) < k for each, k in zip(size, yeses, strict=True)])
                z = np.where(yes, 0.5 + 0.5 * rng.random(n), 0.5 * rng.random(n))
                z = np.round(z, 1) if number % 2 else z
                cost = sum(table(z[groups == g])[counts[:, g]] for g in range(len(size)))
                for rule, kept in zip(brute.RULES, allowed, strict=True):
                    value = project(z, groups, RateParity(rule[0], ratio=rule[1])).value
                    said = [int((value[groups == g] >= 0.5).sum()) for g in range(len(size))]
                    spent, best = float(((value - z) ** 2).sum()), float(cost[kept].min())
                    tried += 1
                    wrong += not (keeps(said, size, rule) and abs(spent - best) <= 1e-9 * best + 1e-14)
    return tried, wrong


def overlapping(most: int, seed: int) -> tuple[int, int]:
    """Random batches of overlapping attributes, and how many are wrong."""
    tried, failed = 0, 0
    rng = np.random.default_rng(seed)
    for n, form, _ in product(range(2, most + 1), brute.FORMS, range(DRAWN)):
        case = brute.overlapping(rng, n, form)
        asked = [
            RateParity(rule[0], ratio=rule[1], over=name, given=case.given)
            for name, rule in zip(case.groups, case.rules, strict=True)
        ]
        solution = project(case.z, case.groups, asked, targets=case.targets, weights=case.weights)
        reason = case.wrong(solution.value, solution.optimality_gap)
        if reason:
            print(f"  n = {n}, {form}: {reason}", flush=True)
        tried, failed = tried + 1, failed + bool(reason)
    return tried, failed


def groups_of(n: int) -> Iterator[tuple[int, ...]]:
    """Sizes of one, two and three groups."""
    yield (n,)
    yield from ((a, n - a) for a in range(1, n))
    yield from ((a, b, n - a - b) for a in range(1, n) for b in range(a, n - a) if n - a - b >= b)


def keeps(yeses: list[int], size: tuple[int, ...], rule: tuple[float | None, float | None]) -> bool:
    """Whether rates keep a tolerance or a ratio, in fractions."""
    return brute.keeps([Fraction(k, n) for k, n in zip(yeses, size, strict=True)], *rule)


def table(z: np.ndarray) -> np.ndarray:
    """What 0, 1, 2, ... yeses cost a group."""
    own = np.sort(z)[::-1]
    to_yes = np.maximum(0.5 - own, 0.0) ** 2
    to_no = np.where(own >= 0.5, (own - np.nextafter(0.5, 0)) ** 2, 0.0)
    return np.array([to_yes[:k].sum() + to_no[k:].sum() for k in range(len(own) + 1)])
