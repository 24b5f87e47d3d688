"""How good the answers of a worker are, judged by one scorer for all, in float64."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import affine
import problems
import reference
from affine import AffineCase
from peers.worker import Request
from problems import Case

COLUMNS = ("gap_violation", "box_violation", "output_error", "gradient_error", "checked")


def score(request: Request) -> dict[str, Any]:
    """Worst figures over the outputs a worker kept.

    `output_error` is the largest difference from the reference, `gradient_error` the norm of the
    difference over the norm of the reference's gradient.
    """
    worst: dict[str, Any] = dict.fromkeys(COLUMNS, 0.0)
    checked = 0
    with np.load(Path(request.outputs)) as kept:
        numbers = [int(name.removeprefix("y")) for name in kept.files if name.startswith("y")]
        for number in numbers:
            problem = request.problem(number)
            if int(kept[f"fingerprint{number}"]) != problem.fingerprint():
                raise ValueError("the worker drew another problem from the same seed")
            y, gradient = (kept[f"{name}{number}"].astype(np.float64) for name in ("y", "gradient"))
            seed = request.seed if request.fixed else None
            try:
                truth = _reference(request.case, request.seed + number, seed)
            except (ArithmeticError, np.linalg.LinAlgError):
                continue  # degenerate, as some tiny batches with many attributes are: no unique gradient
            checked += 1
            if isinstance(request.case, AffineCase):
                beyond = affine.row_violation(y, problem, request.case), affine.box_violation(y)
            else:
                beyond = (
                    problems.gap_violation(y, problem, request.case),
                    problems.box_violation(y, request.case),
                )
            figures = {
                "gap_violation": beyond[0],
                "box_violation": beyond[1],
                "output_error": np.abs(y - truth.y).max(),
                "gradient_error": np.linalg.norm(gradient - truth.gradient) / np.linalg.norm(truth.gradient),
            }
            for name, value in figures.items():
                worst[name] = float(np.maximum(worst[name], value))  # keeps a NaN, which max() may lose
    return {**worst, "checked": checked}


@lru_cache(maxsize=32)
def _reference(case: Case | AffineCase, seed: int, fixed_seed: int | None) -> reference.Reference:
    """Shared by the peers of one size, which solve the same problems one after the other."""
    problem = case.make(seed, fixed_seed)
    if isinstance(case, AffineCase):
        each = [
            reference.solve(*one, case.tolerance, affine.BOX)
            for one in zip(problem.z, problem.A, problem.weights, strict=True)
        ]
        return reference.Reference(np.stack([one.y for one in each]), np.stack([one.gradient for one in each]))
    box = (0.0, 1.0) if case.box else None
    return reference.solve(problem.z, problems.rows(problem.groups), problem.weights, case.tolerance, box)
