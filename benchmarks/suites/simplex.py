"""Class probabilities: how much slower than the squared layer with one output, how much faster than cvxpylayers; and
random problems in great number: is any row ever broken, any output off the simplex, any problem left unsolved?

Every problem is feasible, as equal probabilities for everyone are, and its rows are evaluated in rational arithmetic by
the judge of the tests (`tests/class_oracle.py`).
"""

import importlib
import sys
from argparse import Namespace
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairlayer import ConditionalParity, EqualizedOdds, FairLayer, MeanParity, Solution, Status, project
from judged import Drawn, attack, cvxpylayers_time, report
from measure import OtherWork, busy, milliseconds
from problems import TOLERANCE, Case, make, rows
from records import Target

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
class_oracle = importlib.import_module("class_oracle")

N, CLASSES, KINDS = 2000, (2, 4, 10, 30, 100), ("entropy", "squared")
PEER_SIZES = ((16, 4), (256, 4), (2000, 4))  # samples and classes
LIMIT = {4: 6.0}  # of classes over the squared layer with one output
TITLE = """# Class probabilities

Forward + `sum().backward()` of weighted outputs, float32, 2 attributes, new groups in every call, tolerance a tenth of
1 / d; beside it the squared layer with one output and the box [0, 1] on the same groups. Ratios are medians over
neighbouring calls. cvxpylayers: the same problem in float64, by Clarabel, the problem built once; for relative entropy
in its exponential cone.

"""


def main(args: Namespace) -> list[Target]:
    """Time and judge; write simplex.csv, .json and .md."""
    torch.set_num_threads(1)
    cases = [(n, d) for n in args.sizes or (N,) for d in (CLASSES[:2] if args.quick else CLASSES)]
    cases += [case for case in (PEER_SIZES[:1] if args.quick else PEER_SIZES) if case not in cases]
    timed = [compare(n, d, args) for n, d in sorted(cases)]
    targets = report(args, "simplex", TITLE, timed, attack(args, drawn))
    for row in timed:
        doubt, where = busy(row["other_cores"]), f"{row['classes']} classes, n = {row['n']}"
        for kind in KINDS:
            if row["n"] == N and row["classes"] in LIMIT:
                what = f"simplex, {kind} over squared with one output, forward + backward, {where}"
                targets.append(Target(what, row[f"{kind} / one output"], LIMIT[row["classes"]], busy=doubt))
            if row[f"cvxpylayers, {kind}_ms"] is not None:
                ratio = row[f"{kind}_ms"] / row[f"cvxpylayers, {kind}_ms"]
                targets.append(Target(f"simplex, {kind} over cvxpylayers, {where}", ratio, 1.0, busy=doubt))
    return targets


def compare(n: int, d: int, args: Namespace) -> dict[str, Any]:
    """Times on the same batches, in turn."""
    work = OtherWork()
    one = FairLayer([MeanParity(TOLERANCE)], (0.0, 1.0))
    layers = {kind: FairLayer([MeanParity(0.1 / d)], None, kind, simplex=True) for kind in KINDS}
    times: dict[str, list[float]] = {name: [] for name in ("one", *KINDS)}
    for repeat in range(-2, 3 if args.quick or d > 10 else 40):
        groups, raw, P, direction = batch(n, d, args.seed + repeat + 2)
        for name, layer in {"one": one, **layers}.items():
            z = (raw if name == "one" else P).clone().requires_grad_()
            spent, _ = milliseconds(step, layer, z, groups, torch.ones(()) if name == "one" else direction)
            if repeat >= 0:
                times[name].append(spent)
    row: dict[str, Any] = {"n": n, "classes": d, "one_output_ms": median(times["one"])}
    for kind in KINDS:
        row[f"{kind}_ms"] = median(times[kind])
    for kind in KINDS:
        row[f"{kind} / one output"] = median(a / b for a, b in zip(times[kind], times["one"], strict=True))
    for kind in KINDS:
        row[f"cvxpylayers, {kind}_ms"] = peer_time(n, d, kind, args) if (n, d) in PEER_SIZES else None
    return {**row, "other_cores": work.cores()}


def batch(n: int, d: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Groups, outputs, class probabilities that differ between the groups, and weights of a loss."""
    problem = make(Case(n, 2, True), seed)
    groups, raw = torch.tensor(problem.groups), torch.tensor(problem.z)
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, d, generator=generator) + groups.float() @ torch.randn(2, d, generator=generator)
    return groups, raw, torch.softmax(logits, dim=1), torch.randn(n, d, generator=generator)


def step(layer: Callable, z: Tensor, groups: Tensor, direction: Tensor) -> None:
    (layer(z, groups) * direction).sum().backward()


def peer_time(n: int, d: int, kind: str, args: Namespace) -> float:
    """The same problem by cvxpylayers, rows a parameter."""
    import cvxpy as cp

    y, raw, A = cp.Variable((n, d)), cp.Parameter((n, d)), cp.Parameter((2, n))
    cost = cp.sum(cp.kl_div(y, raw)) if kind == "entropy" else cp.sum_squares(y - raw)
    within = [A @ y <= 0.1 / d, -(A @ y) <= 0.1 / d, cp.sum(y, axis=1) == 1, y >= 0]
    batches = (batch(n, d, args.seed + repeat) for repeat in range(2 if args.quick or n > 1000 else 4))
    given = (([P.double().requires_grad_(), torch.tensor(rows(groups.numpy()))], w) for groups, _, P, w in batches)
    return cvxpylayers_time(cp.Problem(cp.Minimize(cost), within), [raw, A], y, given)


def drawn(seed: int, number: int) -> Drawn:
    """A random problem, how to solve it and how to judge the answer."""
    z, arguments, masks, about = draw(seed, number)
    verdict = partial(judge, masks=masks, weights=arguments.get("weights"), about=about)
    return partial(project, z, simplex=True, **arguments), verdict, about


def judge(solution: Solution, masks: Any, weights: Any, about: dict[str, Any]) -> str:
    """What is to be said of an answer, in one line of the tally."""
    y, d = solution.value.double().numpy(), about["classes"]
    rounding = torch.finfo(about["dtype"]).eps
    if (y < 0).any() or (about["kind"] == "entropy" and (y == 0).any()):
        return "broken: an entry at 0 or below"
    if np.abs(y.sum(axis=1) - 1.0).max() > 2 * d * rounding:
        return "broken: a row that does not add up to 1"
    if solution.status is Status.ROUNDED:
        return "finer than the dtype: ROUNDED" if about["tolerance"] < 8 * rounding else "failed: ROUNDED without need"
    if not solution.satisfied:
        return f"failed: {solution.status.name}"
    if class_oracle.largest_gap(y, masks, weights) > Fraction(about["tolerance"]):
        return "broken: rows"
    return f"solved: {solution.status.name}"


def draw(seed: int, number: int) -> tuple[Tensor, dict[str, Any], list[list[np.ndarray]], dict[str, Any]]:
    """A random problem, and the samples of every group of each of its families."""
    rng = np.random.default_rng([seed, number])
    kind, dtype = str(rng.choice(KINDS)), (torch.float64, torch.float32)[int(rng.integers(2))]
    n, d, k = int(np.exp(rng.uniform(np.log(2), np.log(200)))), int(rng.integers(2, 8)), int(rng.integers(1, 4))
    groups = np.stack([rng.integers(0, rng.integers(2, 5), n) for _ in range(k)], axis=1)
    logits = np.exp(rng.uniform(-2, 1.5)) * rng.standard_normal((n, d)) + groups @ rng.normal(size=(k, d))
    weight = np.exp(logits - logits.max(axis=1, keepdims=True))
    if kind == "squared" and rng.random() < 0.3:  # corners, as trees have them
        weight = (weight == weight.max(axis=1, keepdims=True)).astype(float)
    z = torch.tensor(weight / weight.sum(axis=1, keepdims=True)).to(dtype)
    if kind == "entropy":
        z = z.clamp(min=torch.finfo(dtype).tiny)
    tolerance = float(10.0 ** rng.uniform(-6, -0.5))
    notion = str(rng.choice(["parity", "intersection", "odds", "conditional"]))
    arguments: dict[str, Any] = {"groups": groups, "discrepancy": kind}
    masks = [[column == label for label in np.unique(column)] for column in groups.T]
    if notion == "parity":
        arguments["constraints"] = [MeanParity(tolerance)]
    elif notion == "intersection":
        masks = [[(groups == one).all(axis=1) for one in np.unique(groups, axis=0)]]
        arguments["constraints"] = [MeanParity(tolerance, over=tuple(range(k)))]
    else:
        of = rng.integers(0, 2, n) if notion == "odds" else rng.uniform(size=n)
        parts = [of == 0, of == 1] if notion == "odds" else [of < 0.5, of >= 0.5]
        masks = [[mask & part for mask in family] for part in parts for family in masks]
        arguments |= {"targets": of} if notion == "odds" else {"features": {"x": of}}
        split = ConditionalParity(tolerance, regions={"x": [(None, 0.5), (0.5, None)]})
        arguments["constraints"] = [EqualizedOdds(tolerance) if notion == "odds" else split]
    if rng.random() < 0.2:
        arguments["weights"] = rng.uniform(0.2, 5.0, n)
    about = {"kind": kind, "dtype": dtype, "n": n, "classes": d, "notion": notion, "tolerance": tolerance}
    return z, arguments, masks, about
