"""Problems that are hard for their size: many labels that overlap, decisions over several attributes, many classes."""

from argparse import Namespace
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairlayer import MeanParity, RateParity, project
from measure import OtherWork, busy, milliseconds
from records import Target, figure, markdown_table, write_csv, write_settings

TITLE = """# Hard for their size

One call of `project` on scores that differ between groups; medians over different batches, in ms on the clock and of
processor time.

"""
COLUMNS = ("problem", "ms", "processor_ms", "worst_ms", "statuses")


def scores(rng: np.random.Generator, n: int, attributes: int, labels: int) -> tuple[Tensor, np.ndarray]:
    """Scores between 0 and 1, and (n, attributes) labels that they depend on."""
    groups = rng.integers(0, labels, (n, attributes))
    logits = rng.normal(size=n) + (groups * rng.normal(0.0, 0.4, attributes)).sum(axis=1)
    return torch.from_numpy(1.0 / (1.0 + np.exp(-logits))), groups


def intersection(rng: np.random.Generator) -> Callable[[], Any]:
    """Six attributes of three labels within 1e-3, all their combinations within 1e-4."""
    z, groups = scores(rng, 5000, 6, 3)
    rules = [MeanParity(1e-3), MeanParity(1e-4, over=tuple(range(6)), name="combinations")]
    return lambda: project(z, groups, rules, bounds=(0.0, 1.0))


def rates(n: int, attributes: int, labels: int) -> Callable[[np.random.Generator], Callable[[], Any]]:
    """Rates of decisions within 0.02."""

    def draw(rng: np.random.Generator) -> Callable[[], Any]:
        z, groups = scores(rng, n, attributes, labels)
        return lambda: project(z, groups, RateParity(0.02 if n > 1000 else 0.05), bounds=(0.0, 1.0))

    return draw


def classes(rng: np.random.Generator) -> Callable[[], Any]:
    """50 classes of 20 people, two attributes of five labels."""
    z, groups = rng.dirichlet(np.ones(50), 20), rng.integers(0, 5, (20, 2))
    return lambda: project(torch.from_numpy(z), groups, MeanParity(0.002), discrepancy="entropy", simplex=True)


# what, how to draw it, ms at most
CASES = (
    ("means, 5,000 people, six attributes of three labels and their intersection", intersection, 2000.0),
    ("rates, 256 people, two attributes of two labels", rates(256, 2, 2), 3.0),
    ("rates, 256 people, three attributes of two labels", rates(256, 3, 2), 10.0),
    ("rates, 5,000 people, three attributes of 20 labels", rates(5000, 3, 20), 5000.0),
    ("rates, 5,000 people, two attributes of 40 labels", rates(5000, 2, 40), 5000.0),
    ("classes, 50 of 20 people, two attributes of five labels", classes, 1000.0),
)


def main(args: Namespace) -> list[Target]:
    """Time; write hard.csv, .json and .md."""
    rows, targets = [], []
    for what, draw, limit in CASES:
        row = measure(what, draw, 3 if args.quick or limit > 100 else 50, args.seed)
        rows.append(row)
        targets.append(Target(f"hard: {what}, ms", row["ms"], limit, busy=busy(row["other_cores"])))
    write_csv(args.results / "hard.csv", rows)
    lines = [(row["problem"], *(figure(row[name]) for name in COLUMNS[1:4]), row["statuses"]) for row in rows]
    (args.results / "hard.md").write_text(TITLE + markdown_table(COLUMNS, lines) + "\n")
    write_settings(args.results / "hard.json", args)
    return targets


def measure(what: str, draw: Callable, repeats: int, seed: int) -> dict[str, Any]:
    """Times over batches that differ."""
    others, wall, processor, statuses = OtherWork(), [], [], set()
    for repeat in range(-1, repeats):
        call = draw(np.random.default_rng([seed, repeat + 1]))
        start = process_time()
        spent, solution = milliseconds(call)
        if repeat >= 0:
            wall.append(spent)
            processor.append(1e3 * (process_time() - start))
            statuses.add(solution.status.name)
    times = {"ms": median(wall), "processor_ms": median(processor), "worst_ms": max(wall)}
    return {"problem": what, **times, "statuses": " ".join(sorted(statuses)), "other_cores": others.cores()}
