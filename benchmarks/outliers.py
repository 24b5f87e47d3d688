"""Random problems made to break the promise, for the suite `violations`.

One sample up to 1e12 times the rest, samples of very different sizes, weights over 12 decades, tolerances down to 0,
few and many groups, attributes that overlap. All are feasible by construction. What is claimed is judged with nothing
to trust: statuses by rational arithmetic, distances by weak duality (`tests/duality.py`).
"""

import importlib
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fairlayer import EqualizedOdds, EqualizedResiduals, FairlayerError, MeanParity, ResidualMean, project

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
formulas = importlib.import_module("formulas")
duality = importlib.import_module("duality")
judges = importlib.import_module("judge")

SECONDS = 2.0  # of processor time, the most that a problem may take
RELATIVE = 1e-6  # how much further than the optimum an answer may be, besides the rounding of its outputs


class Verdict(NamedTuple):
    """What is to be said of one answer."""

    text: str  # one line of the tally; begins with "false" or "failed" where it is a failure
    seconds: float
    excess: float  # distance beyond the optimum's and the rounding of the outputs, relative to the optimum's


def draw(seed: int, number: int) -> tuple[Any, torch.dtype, dict[str, Any]]:
    """Problem `number` of a seed: its arguments, its dtype, and what it is like."""
    rng = np.random.default_rng([seed, number, 12])
    dtype = (torch.float64, torch.float32)[rng.integers(2)]
    n = round(4 * 100 ** rng.random())  # 4 to 400
    most = int(rng.choice([2, 3, 8, 40], p=[0.5, 0.2, 0.2, 0.1]))
    k = int(rng.integers(1, 5)) if most < 40 else int(rng.integers(1, 3))
    groups = np.stack([rng.integers(0, rng.integers(2, most + 1), n) for _ in range(k)], axis=1)
    scale = 10 ** rng.uniform(-6, 6)
    z = rng.normal(size=n) + 0.5 * groups[:, 0]
    mixed, weighted, outlier = rng.random() < 0.25, rng.random() < 0.5, rng.random() < 0.7
    if mixed:
        z *= 10 ** rng.uniform(-4, 4, n)
    factor = 10 ** rng.uniform(0, 12) if outlier else 1.0
    z[rng.integers(n)] *= factor
    box = str(rng.choice(["none", "box", "lower", "per sample"], p=[0.4, 0.35, 0.1, 0.15]))
    bounds = {
        "none": None,
        "box": (0.0, scale),
        "lower": (0.0, None),
        "per sample": (scale * rng.uniform(-1.0, 0.3, n), scale * rng.uniform(0.7, 2.0, n)),
    }[box]
    tolerance = 0.0 if rng.random() < 0.1 else scale * 10 ** rng.uniform(-8, 0)
    kind = str(
        rng.choice(["parity", "intersection", "residuals", "residual mean", "odds"], p=[0.6, 0.1, 0.1, 0.1, 0.1])
    )
    constraint: Any = {
        "parity": lambda: MeanParity(tolerance),
        "intersection": lambda: MeanParity(tolerance, over=tuple(range(k))),
        "residuals": lambda: EqualizedResiduals(tolerance),
        "residual mean": lambda: ResidualMean(tolerance),
        "odds": lambda: EqualizedOdds(tolerance),
    }[kind]()
    targets: Any = None
    if kind == "odds":
        targets = rng.integers(0, 3, n)
    elif kind.startswith("residual"):  # within all bounds, in any dtype: outputs equal to them are feasible
        targets = (scale * rng.uniform(0.35, 0.65, n)).astype(np.float32).astype(np.float64)
    weights = 10 ** rng.uniform(-6, 6, n) if weighted else None
    z = torch.tensor(scale * z, dtype=dtype).double().numpy()
    problem = formulas.Problem(z, [constraint], torch.tensor(groups), bounds, targets, None, weights)
    about = {
        "n": n,
        "attributes": k,
        "labels": most,
        "outlier": f"{factor:.0e}",
        "mixed": mixed,
        "bounds": box,
        "constraint": kind,
        "tolerance": f"{tolerance / scale:.0e}",
        "dtype": str(dtype).removeprefix("torch."),
        "weighted": weighted,
    }
    return problem, dtype, about


def judge(problem: Any, dtype: torch.dtype) -> Verdict:
    """Solve one problem, and say what is to be said of the answer."""
    z = torch.tensor(problem.z, dtype=dtype)
    start = time.process_time()
    try:
        solution = project(z, **problem.arguments())
        satisfied = solution.satisfied
    except FairlayerError as error:
        return Verdict(f"failed: {type(error).__name__}", time.process_time() - start, 0.0)
    seconds = time.process_time() - start
    if seconds > SECONDS:
        return Verdict(f"failed: more than {SECONDS:g} s", seconds, 0.0)
    y = solution.value.double().numpy()
    lo, hi = problem.box()
    holds = max(formulas.exact_violations(problem.rows, y), default=0) <= 0
    if (y < lo).any() or (y > hi).any() or holds != satisfied:
        return Verdict(f"false: {solution.status.name}", seconds, 0.0)
    if not satisfied:
        fine = solution.status.name == "ROUNDED" and judges.is_fine(problem, y, dtype)
        return Verdict("finer than the dtype: ROUNDED" if fine else f"failed: {solution.status.name}", seconds, 0.0)
    optimum = duality.least_distance(problem, solution.multipliers)
    reached = duality.distance(problem, y) - duality.rounding_norm(problem, y, dtype)
    beyond = reached - optimum
    excess = max(beyond, 0.0) / optimum if optimum > 0 else 0.0 if beyond <= 0 else np.inf
    bounded = solution.status.name == "BOUNDED"  # says itself that it is not the nearest, and by how much at most
    text = f"solved: {solution.status.name}"
    if bounded and max(reached, 0.0) ** 2 > optimum**2 + solution.optimality_gap:
        text = "false: BOUNDED, further than it says"
    elif not bounded and excess > RELATIVE:
        text = f"false: {solution.status.name}, not optimal"
    return Verdict(text, seconds, 0.0 if bounded else excess)


class Attacked(NamedTuple):
    """What became of the problems with outliers."""

    problems: int
    tally: Counter[str]
    failures: list[dict[str, Any]]
    slowest: float  # seconds of processor time
    furthest: float  # distance beyond the optimum's and the rounding of outputs, relative

    def count(self, word: str) -> int:
        """Verdicts that begin with a word."""
        return sum(count for verdict, count in self.tally.items() if verdict.startswith(word))

    def with_more(self, other: "Attacked") -> "Attacked":
        """Both together."""
        return Attacked(
            self.problems + other.problems,
            self.tally + other.tally,
            self.failures + other.failures,
            max(self.slowest, other.slowest),
            max(self.furthest, other.furthest),
        )


def alone() -> None:
    """One thread for each process."""
    torch.set_num_threads(1)


def attack(seed: int, numbers: range) -> Attacked:
    """Solve and judge problems with outliers, mixed scales and weights over 12 decades."""
    tally: Counter[str] = Counter()
    failures, slowest, furthest = [], 0.0, 0.0
    for number in numbers:
        problem, dtype, about = draw(seed, number)
        verdict = judge(problem, dtype)
        tally[verdict.text] += 1
        slowest, furthest = max(slowest, verdict.seconds), max(furthest, verdict.excess)
        if verdict.text.startswith(("false", "failed")):
            failures.append({"number": number, "verdict": verdict.text, **about})
    return Attacked(len(numbers), tally, failures, slowest, furthest)
