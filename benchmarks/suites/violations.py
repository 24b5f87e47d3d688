"""Random problems in great number: is any row or bound ever broken, any problem left unsolved, any answer not optimal?

Every problem is feasible by construction, so that an error, a relaxed answer, or one that is rounded where the dtype
could have met the tolerance, counts as a failure. A problem is a function of the seed and its number. Rows are
evaluated with sums that are rounded once (`math.fsum`) for all problems, and in rational arithmetic for a sample of
them and for every case of doubt; a second sample is compared with an interior-point solver.

Then come problems made to break the promise (`outliers.py`): one sample up to 1e12 times the rest, mixed scales, and
weights over 12 decades.

The judges are those of the tests: `tests/formulas.py`, `tests/exact.py`, `tests/oracle.py` and `tests/duality.py`.
"""

import importlib
import math
import os
import sys
import time
from argparse import Namespace
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import outliers
from fairlayer import (
    ConditionalParity,
    EqualizedOdds,
    EqualizedResiduals,
    FairlayerError,
    MeanParity,
    ResidualMean,
    Solution,
    Status,
    project,
)
from records import Target, markdown_table, write_settings

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
formulas = importlib.import_module("formulas")
oracle = importlib.import_module("oracle")
judges = importlib.import_module("judge")

PROBLEMS, IN_RATIONALS, COMPARED, OUTLIERS = 100_000, 2_000, 2_000, 20_000
LIMIT = {torch.float64: 1e-8, torch.float32: 1e-5}
DOUBT = 2.0**-50  # relative: nearer to its bound than this, a row is evaluated in rational arithmetic
LISTED = 100  # failures written out
SHARE = 500  # problems that a process takes at a time


class Found(NamedTuple):
    """What became of ordinary problems."""

    tally: Counter[str]
    failures: list[dict[str, Any]]
    errors: dict[torch.dtype, list[float]]  # distances to the optimum of another solver


def main(args: Namespace) -> list[Target]:
    """Solve and judge; write violations.json and violations.md."""
    problems = getattr(args, "problems", None) or (500 if args.quick else PROBLEMS)
    start = time.perf_counter()
    found = Found(Counter(), [], {dtype: [] for dtype in LIMIT})
    attacked = outliers.Attacked(0, Counter(), [], 0.0, 0.0)
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), outliers.alone) as processes:
        ordinary = [processes.submit(solve, args.seed, numbers, problems) for numbers in _shares(problems)]
        others = [
            processes.submit(outliers.attack, args.seed, numbers)
            for numbers in _shares(problems * OUTLIERS // PROBLEMS)
        ]
        for part in ordinary:
            tally, failures, errors = part.result()
            found.tally.update(tally)
            found.failures.extend(failures)
            for dtype in LIMIT:
                found.errors[dtype].extend(errors[dtype])
        for hard in others:
            attacked = attacked.with_more(hard.result())
    return report(args, problems, found, time.perf_counter() - start, attacked)


def _shares(problems: int) -> list[range]:
    return [range(begin, min(begin + SHARE, problems)) for begin in range(0, problems, SHARE)]


def solve(seed: int, numbers: range, problems: int) -> Found:
    """Solve and judge some of the ordinary problems."""
    tally: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []
    errors: dict[torch.dtype, list[float]] = {dtype: [] for dtype in LIMIT}
    for number in numbers:
        in_rationals = number % max(problems // IN_RATIONALS, 1) == 0
        compared = number % max(problems // COMPARED, 1) == 0
        problem, dtype, about = draw(seed, number)
        try:
            solution = project(torch.tensor(problem.z, dtype=dtype), **problem.arguments())
        except FairlayerError as error:
            verdict = f"failed: {type(error).__name__}"
        else:
            verdict = judge(problem, dtype, solution, in_rationals)
            tally["evaluated in rational arithmetic"] += in_rationals
            if compared and solution.satisfied and about["kind"] != "offset":
                error = optimality_error(problem, solution, tally)
                if error is not None:
                    errors[dtype].append(error)
                    if error > LIMIT[dtype]:
                        failures.append({"number": number, "verdict": f"not optimal: {error:.1e}", **about})
        tally[verdict] += 1
        if verdict.startswith(("broken", "failed")):
            failures.append({"number": number, "verdict": verdict, **about})
    return Found(tally, failures, errors)


def judge(problem: Any, dtype: torch.dtype, solution: Solution, in_rationals: bool) -> str:
    """What is to be said of an answer, in one line of the tally."""
    y = solution.value.double().numpy()
    lo, hi = problem.box()
    if (y < lo).any() or (y > hi).any():
        return "broken: bounds"
    if solution.satisfied:
        if not rows_hold(problem, y, in_rationals):
            return "broken: rows"
        return f"solved: {solution.status.name}"
    if solution.status is Status.ROUNDED:
        if problem.rows[0].upper == 0:
            return "tolerance 0: ROUNDED"
        fine = judges.is_fine(problem, y, dtype)
        return "finer than the dtype: ROUNDED" if fine else "failed: ROUNDED without need"
    return f"failed: {solution.status.name}"


def rows_hold(problem: Any, y: np.ndarray, in_rationals: bool) -> bool:
    """Whether every row holds: by sums rounded once where that decides, in rational arithmetic otherwise."""
    if not in_rationals and problem.weights is None:
        value_of = {}
        scale = np.abs(y).max()
        for row in problem.rows:
            for statistic in (row.plus, row.minus):
                if statistic is not None and id(statistic) not in value_of:
                    value_of[id(statistic)] = _mean(statistic, y)
                    if statistic.targets is not None:
                        scale = max(scale, np.abs(statistic.targets).max())
        margins = [
            row.upper - abs(value_of[id(row.plus)] - (value_of[id(row.minus)] if row.minus is not None else 0.0))
            for row in problem.rows
        ]
        if min(margins, default=1.0) > DOUBT * scale:
            return True
    return max(formulas.exact_violations(problem.rows, y), default=0) <= 0


def _mean(statistic: Any, y: np.ndarray) -> float:
    here = y[statistic.support]
    if statistic.targets is not None:
        return math.fsum(np.concatenate([here, -statistic.targets[statistic.support]]).tolist()) / len(here)
    return math.fsum(here.tolist()) / len(here)


def optimality_error(problem: Any, solution: Solution, tally: Counter) -> float | None:
    """Largest distance to the optimum, relative to the spread of z; None where the oracle has no answer to trust."""
    spread = np.ptp(problem.z)
    if spread == 0 or len(problem.rows) * len(problem.z) > 500_000:
        return None
    try:
        optimum = oracle.project_reference(problem)
    except ArithmeticError:
        tally["oracle without an answer"] += 1
        return None
    return float(np.abs(solution.value.double().numpy() - optimum).max() / spread)


KINDS = {"normal": 0.5, "saturated": 0.15, "ties": 0.1, "on the bounds": 0.05, "offset": 0.08, "scaled": 0.12}
BOUNDS = {"none": 0.4, "box": 0.4, "wide": 0.04, "lower": 0.05, "upper": 0.05, "per sample": 0.06}
CONSTRAINTS = {
    "parity": 0.8,
    "intersection": 0.04,
    "residuals": 0.04,
    "residual mean": 0.04,
    "odds": 0.04,
    "regions": 0.04,
}


def draw(seed: int, number: int) -> tuple[Any, torch.dtype, dict[str, Any]]:
    """Problem `number` of a seed: its arguments, its dtype, and what it is like."""
    rng = np.random.default_rng([seed, number])
    kind, box, constraint = (rng.choice(list(table), p=list(table.values())) for table in (KINDS, BOUNDS, CONSTRAINTS))
    dtype = (torch.float64, torch.float32)[rng.integers(2)]
    n = round(2 * 2500 ** rng.random())  # 2 to 5000, as many between 2 and 100 as between 50 and 2500
    k = int(rng.integers(1, 9))
    groups = _attributes(rng, n, k)
    scale = 10 ** rng.uniform(-6, 6) if kind == "scaled" else 1.0
    offset = 10 ** rng.uniform(2, 8 if dtype == torch.float64 else 4) if kind == "offset" else 0.0
    z = rng.normal(size=n) * (100 if kind == "saturated" else 1) + groups @ rng.normal(size=k) * rng.choice([0, 0.3, 1])
    if kind == "ties":
        z = np.round(2 * z) / 2
    if kind == "on the bounds":
        z = z.clip(0, 1)
    z = offset + scale * z
    tolerance = 0.0 if rng.random() < 0.05 else scale * 10 ** rng.uniform(-5, 0)
    middle = offset + 0.5 * scale
    bounds = {
        "none": None,
        "box": (middle - 0.5 * scale, middle + 0.5 * scale),
        "wide": (middle - 1e3 * scale, middle + 1e3 * scale),
        "lower": (middle - 0.5 * scale, None),
        "upper": (None, middle + 0.5 * scale),
        # A constant is within all of them, so that parity is always possible.
        "per sample": (middle - scale * rng.uniform(0.1, 1, n), middle + scale * rng.uniform(0.1, 1, n)),
    }[box]
    targets = middle + scale * rng.uniform(-0.09, 0.09, n)  # within all bounds: outputs equal to them are feasible
    data: dict[str, Any] = {}
    if constraint == "odds":
        targets = rng.integers(0, 3, n)
    if constraint in ("odds", "residuals", "residual mean"):
        data["targets"] = targets
    if constraint == "regions":
        data["features"] = {"x": rng.normal(size=n)}
    declared = {
        "parity": lambda: MeanParity(tolerance),
        "intersection": lambda: MeanParity(tolerance, over=(0, k - 1) if k > 1 else 0),
        "residuals": lambda: EqualizedResiduals(tolerance),
        "residual mean": lambda: ResidualMean(tolerance),
        "odds": lambda: EqualizedOdds(tolerance),
        "regions": lambda: ConditionalParity(tolerance, regions={"x": [(None, 0.0), (-0.5, 1.0)]}),
    }[constraint]()
    weights = rng.uniform(0.5, 2.0, n) if rng.random() < 0.05 else None
    z = torch.tensor(z, dtype=dtype).double().numpy()
    problem = formulas.Problem(z, [declared], torch.tensor(groups), bounds, weights=weights, **data)
    about = {
        "n": n,
        "attributes": k,
        "kind": str(kind),
        "bounds": str(box),
        "constraint": str(constraint),
        "tolerance": tolerance,
        "dtype": str(dtype).removeprefix("torch."),
        "weighted": weights is not None,
    }
    return problem, dtype, about


def _attributes(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    """(n, k) labels; most attributes binary, some of up to 14 values, with groups of very unequal size."""
    columns = []
    for _ in range(k):
        values = int(rng.integers(3, 15)) if rng.random() < 0.25 else 2
        columns.append(rng.choice(values, n, p=rng.dirichlet(np.full(values, 10 ** rng.uniform(-0.5, 1)))))
    return np.stack(columns, axis=1)


def report(args: Namespace, problems: int, found: Found, seconds: float, attacked: outliers.Attacked) -> list[Target]:
    """Write what was found, and give the figures that have a limit."""
    tally, failures, errors = found
    broken = sum(count for verdict, count in tally.items() if verdict.startswith("broken"))
    failed = sum(count for verdict, count in tally.items() if verdict.startswith("failed"))
    worst = {str(dtype).removeprefix("torch."): max(each, default=0.0) for dtype, each in errors.items()}
    compared = {str(dtype).removeprefix("torch."): len(each) for dtype, each in errors.items()}
    write_settings(
        args.results / "violations.json",
        args,
        problems=problems,
        seconds=round(seconds, 1),
        tally=dict(sorted(tally.items())),
        compared_with_oracle=compared,
        largest_optimality_error=worst,
        failures=failures[:LISTED],
        outliers={
            "problems": attacked.problems,
            "tally": dict(sorted(attacked.tally.items())),
            "slowest_seconds": round(attacked.slowest, 3),
            "furthest_beyond_optimum": attacked.furthest,
            "failures": attacked.failures[:LISTED],
        },
    )
    lines = [
        "# Violations",
        "",
        f"{problems:,} random problems, feasible by construction. Seed {args.seed}; {seconds:.0f} s on "
        f"{os.cpu_count()} cores, with those of the second table.",
        "",
        markdown_table(("verdict", "problems"), [(verdict, f"{count:,}") for verdict, count in sorted(tally.items())]),
        "",
        "Largest distance to the optimum of an interior-point solver, relative to the spread of z: "
        + "; ".join(f"{name} {worst[name]:.1e} over {compared[name]:,} problems" for name in worst)
        + ". Problems with an offset are left out: there the rounding of z itself is larger.",
        "",
    ]
    lines += _listed(failures, f"suites.violations.draw({args.seed}, number)")
    lines += [
        "## Outliers, mixed scales, weights over 12 decades",
        "",
        f"{attacked.problems:,} random problems, feasible by construction. Every status was judged in rational "
        "arithmetic, every distance by weak duality with 120 digits. The slowest problem took "
        f"{attacked.slowest:.2g} s of processor time. Where all rows hold, the answer is at most "
        f"{attacked.furthest:.1e} further than the optimum and the rounding of its outputs, relative to the optimum.",
        "",
        markdown_table(("verdict", "problems"), [(v, f"{count:,}") for v, count in sorted(attacked.tally.items())]),
        "",
        *_listed(attacked.failures, f"outliers.draw({args.seed}, number)"),
    ]
    (args.results / "violations.md").write_text("\n".join(lines))
    return [
        Target(f"broken rows or bounds in {problems:,} problems", broken, 0),
        Target(f"problems left unsolved of {problems:,}", failed, 0),
        *(
            Target(f"optimality error, {str(d).removeprefix('torch.')}", max(errors[d], default=0.0), LIMIT[d])
            for d in LIMIT
        ),
        Target(f"false statuses in {attacked.problems:,} problems with outliers", attacked.count("false"), 0),
        Target(f"problems with outliers left unsolved of {attacked.problems:,}", attacked.count("failed"), 0),
        Target("seconds of the slowest problem with outliers", attacked.slowest, outliers.SECONDS),
    ]


def _listed(failures: list[dict[str, Any]], again: str) -> list[str]:
    if not failures:
        return []
    columns = list(failures[0])
    return [
        f"The first {min(LISTED, len(failures))} failures of {len(failures)}:",
        "",
        markdown_table(columns, [[failure[name] for name in columns] for failure in failures[:LISTED]]),
        "",
        f"`{again}` makes the problem again.",
        "",
    ]
