"""Relative entropy and KL: how much slower than the squared discrepancy, how much faster than cvxpylayers; and random
problems in great number: is any row or bound ever broken, any output 0 or 1, any problem left unsolved?

Every problem is feasible by construction, and its rows are evaluated in rational arithmetic by the judges of the tests
(`tests/formulas.py`, `tests/exact.py`).
"""

import importlib
import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairlayer import (
    EqualizedOdds,
    EqualizedResiduals,
    FairLayer,
    MeanParity,
    ResidualMean,
    Solution,
    Status,
    project,
)
from judged import Drawn, attack, cvxpylayers_time, report
from measure import OtherWork, busy, milliseconds
from problems import TOLERANCE, Case, make, rows
from records import Target

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
formulas = importlib.import_module("formulas")

SIZES, PEER_SIZES = (16, 256, 2000, 20_000, 200_000), (16, 256, 2000)
KINDS = ("squared", "entropy", "logits", "kl")
LIMIT = {2000: 2.5}  # of entropy over squared
TITLE = """# Discrepancies

Forward + `sum().backward()`, float32, 2 attributes, new groups in every call, as a table of integers; the squared
discrepancy with the box [0, 1], the others without bounds. Ratios are medians over neighbouring calls. cvxpylayers:
relative entropy with the same rows, by Clarabel's exponential cone, the problem built once.

"""


def main(args: Namespace) -> list[Target]:
    """Time and judge; write discrepancies.csv, .json and .md."""
    torch.set_num_threads(1)
    timed = [compare(n, args) for n in args.sizes or SIZES]
    targets = report(args, "discrepancies", TITLE, timed, attack(args, drawn))
    for row in timed:
        doubt = busy(row["other_cores"])
        if row["n"] in LIMIT:
            what = f"entropy over squared, forward + backward, n = {row['n']}"
            targets.append(Target(what, row["entropy / squared"], LIMIT[row["n"]], busy=doubt))
        if row["cvxpylayers_ms"] is not None:
            what = f"entropy over cvxpylayers, n = {row['n']}"
            targets.append(Target(what, row["entropy_ms"] / row["cvxpylayers_ms"], 1.0, busy=doubt))
    return targets


def compare(n: int, args: Namespace) -> dict[str, Any]:
    """Times of all discrepancies on the same batches, in turn."""
    case, work = Case(n, 2, True), OtherWork()
    layers = {
        kind: FairLayer([MeanParity(TOLERANCE)], (0.0, 1.0) if kind == "squared" else None, kind) for kind in KINDS
    }
    repeats = 5 if args.quick else max(30, min(300, 2_000_000 // n))
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for repeat in range(-3, repeats):
        problem = make(case, args.seed + repeat + 3)
        groups, raw = torch.tensor(problem.groups), torch.tensor(problem.z)
        for kind, layer in layers.items():
            z = inputs(kind, raw)
            spent, _ = milliseconds(step, layer, z, groups)
            if repeat >= 0:
                times[kind].append(spent)
    row: dict[str, Any] = {"n": n, **{f"{kind}_ms": median(times[kind]) for kind in KINDS}}
    for kind in KINDS[1:]:
        row[f"{kind} / squared"] = median(a / b for a, b in zip(times[kind], times["squared"], strict=True))
    row["cvxpylayers_ms"] = peer_time(case, args) if n in PEER_SIZES else None
    return {**row, "other_cores": work.cores()}


def inputs(kind: str, raw: Tensor) -> Tensor:
    """What a discrepancy takes, made of outputs about 1/2."""
    z = {"squared": raw, "logits": 4.0 * raw - 2.0, "entropy": torch.sigmoid(4.0 * raw - 2.0)}
    return (z[kind] if kind in z else torch.nn.functional.softplus(raw)).clone().requires_grad_()


def step(layer: Callable, z: Tensor, groups: Tensor) -> None:
    layer(z, groups).sum().backward()


def peer_time(case: Case, args: Namespace) -> float:
    """The same problem in relative entropy by cvxpylayers, rows a parameter."""
    import cvxpy as cp

    y, raw, against, A = cp.Variable(case.n), cp.Parameter(case.n), cp.Parameter(case.n), cp.Parameter((case.k, case.n))
    cost = cp.sum(cp.kl_div(y, raw)) + cp.sum(cp.kl_div(1 - y, against))
    problem = cp.Problem(cp.Minimize(cost), [A @ y <= case.tolerance, -(A @ y) <= case.tolerance])

    def given(seed: int) -> tuple[list[Tensor], Tensor]:
        batch = make(case, seed)
        z = inputs("entropy", torch.tensor(batch.z).double())
        return [z, 1 - z, torch.tensor(rows(batch.groups))], torch.ones(())

    repeats = 2 if args.quick or case.n > 1000 else 6
    return cvxpylayers_time(problem, [raw, against, A], y, (given(args.seed + repeat) for repeat in range(repeats)))


def drawn(seed: int, number: int) -> Drawn:
    """A random problem, how to solve it and how to judge the answer."""
    problem, options, about = draw(seed, number)
    z = torch.tensor(problem.z, dtype=about["dtype"])
    return partial(project, z, **problem.arguments(), **options), partial(judge, problem, about), about


def judge(problem: Any, about: dict[str, Any], solution: Solution) -> str:
    """What is to be said of an answer, in one line of the tally."""
    y = solution.value.double().numpy()
    lo, hi = problem.box()
    if (y < lo).any() or (y > hi).any():
        return "broken: bounds"
    if (y <= 0).any() or (about["kind"] != "kl" and (y >= 1).any()):
        return "broken: an output at the end of its interval"
    if solution.status is Status.ROUNDED:
        rounding = torch.finfo(about["dtype"]).eps * y.max()
        return "finer than the dtype: ROUNDED" if about["tolerance"] < 8 * rounding else "failed: ROUNDED without need"
    if not solution.satisfied:
        return f"failed: {solution.status.name}"
    if max(formulas.exact_violations(problem.rows, y), default=0) > 0:
        return "broken: rows"
    return f"solved: {solution.status.name}"


def draw(seed: int, number: int) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A random problem that some output satisfies: a constant, or the targets."""
    rng = np.random.default_rng([seed, number])
    kind, dtype = str(rng.choice(KINDS[1:])), (torch.float64, torch.float32)[int(rng.integers(2))]
    n, k = int(np.exp(rng.uniform(np.log(2), np.log(300)))), int(rng.integers(1, 4))
    groups = np.stack([rng.integers(0, rng.integers(2, 7), n) for _ in range(k)], axis=1)
    raw = np.exp(rng.uniform(-2, 2)) * rng.standard_normal(n) + rng.uniform(0, 3) * groups[:, 0] + rng.normal()
    z = {"kl": lambda: np.exp(raw + 3 * rng.normal()), "logits": lambda: raw}.get(
        kind, lambda: 1 / (1 + np.exp(-raw))
    )()
    edge = torch.finfo(dtype).eps
    z = z if kind == "logits" else np.clip(z, edge, np.inf if kind == "kl" else 1 - edge)
    # One number that is within all bounds, and that all means can be near.
    middle = float(np.median(z)) if kind == "kl" else 0.5
    tolerance = middle * 10.0 ** rng.uniform(-6, -0.7)
    bounds = {
        "none": lambda: None,
        "box": lambda: (0.0, None if kind == "kl" else 1.0),
        "inner": lambda: (0.8 * middle, 1.2 * middle),
        "per sample": lambda: (middle * rng.uniform(-0.5, 0.9, n), middle * rng.uniform(1.1, 2.5, n)),
    }
    side, notion = (
        str(rng.choice(list(bounds))),
        str(rng.choice(["parity", "intersection", "odds", "residuals", "means"])),
    )
    targets = middle * rng.uniform(0.9, 1.1, n)
    constraints = {
        "parity": lambda: [MeanParity(tolerance)],
        "intersection": lambda: [MeanParity(tolerance, over=tuple(range(k)))],
        "odds": lambda: [EqualizedOdds(tolerance)],
        "residuals": lambda: [EqualizedResiduals(tolerance)],
        "means": lambda: [ResidualMean(tolerance, over=0)],
    }[notion]()
    problem = formulas.Problem(
        torch.tensor(z).to(dtype).double().numpy(),
        constraints,
        {j: groups[:, j] for j in range(k)},
        bounds[side](),
        rng.integers(0, 2, n) if notion == "odds" else targets if notion in ("residuals", "means") else None,
        weights=rng.uniform(0.2, 5.0, n) if rng.random() < 0.2 else None,
    )
    about = {"kind": kind, "dtype": dtype, "n": n, "bounds": side, "notion": notion, "tolerance": tolerance}
    return problem, {"discrepancy": kind}, about
