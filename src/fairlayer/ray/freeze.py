"""`freeze` of a dataset: shifts fitted with some of its rows, and what the other rows say of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fairlayer.binding.block_sums import OUTPUT, BlockSums
from fairlayer.constraints import Constraint
from fairlayer.errors import InputError
from fairlayer.frozen.certificate import Certificate, Compared
from fairlayer.frozen.freeze import check_freeze
from fairlayer.frozen.frozen import Frozen
from fairlayer.frozen.shifts import mean_ranges
from fairlayer.intervals import Moments
from fairlayer.layer import FairLayer
from fairlayer.ray.dataset import DatasetTable, add_up
from fairlayer.ray.project import Bound, Problem, Protected
from fairlayer.tables import blocks

FIT, CERTIFY = 0, 1  # parts of the rows


def freeze(
    dataset: Any,
    score: str,
    protected: Protected,
    constraints: Sequence[Constraint] | Constraint,
    bounds: Any = None,
    *,
    target: str | None = None,
    confidence: float | None = 0.95,
    certify: float = 0.5,
    targets_within: tuple[float, float] | None = None,
    seed: int = 0,
) -> Frozen:
    """Solve the projection of a dataset and keep its shifts: the `Frozen` that `fairlayer.freeze` gives of arrays.

    Columns are named as for `project`; labels of groups are text. confidence: of the certificate, for which a share
    `certify` of the rows, drawn at random, is kept; None for no certificate, and shifts from the whole dataset. Which
    rows are drawn depends on the seed and on how the dataset is divided into blocks; the shifts of the whole do not.
    targets_within: the range targets can have, which certificates about residuals need.
    """
    layer = FairLayer(constraints, bounds)
    if layer.rules.about_decisions:
        raise InputError(
            "constraints compare rates of decisions: their thresholds need all scores in memory. Pass a sample of the "
            "rows to fairlayer.freeze."
        )
    check_freeze(layer, confidence, False, None, targets_within)
    if confidence is not None and not 0.0 < certify < 1.0:
        raise InputError(f"certify must lie between 0 and 1; got {certify}.")
    table, whole = DatasetTable(dataset), confidence is None
    problem = Problem(table, score, protected, constraints, bounds, target, None if whole else seed, certify)
    labels = {name: tuple(digit.meaning) for name, digit in problem.cells.code.groups.items()}
    _, used = layer.rules.groupings(tuple(labels))
    frozen = Frozen(layer, {name: labels[name] for name in labels if name in used})
    everything = problem.bind()
    fit = everything if whole else problem.bind(FIT)
    nu, plan = problem.solve(fit).facts.nu, fit.system.view.plan
    total, places = plan.totals(fit.system.weight), frozen.places(plan)
    frozen.seen.zero_()
    frozen.seen.numpy()[places] = total > 0
    frozen.shifts.numpy()[places] = np.where(total > 0, nu / np.where(total > 0, total, 1.0), 0.0)
    if confidence is not None:
        fitted = int(fit.system.weight.sum())
        frozen.certificate = _statement(problem, everything, frozen, confidence, targets_within, fitted)
    return frozen.eval()


def _statement(
    problem: Problem,
    bound: Bound,
    frozen: Frozen,
    confidence: float,
    targets_within: tuple[float, float] | None,
    fitted: int,
) -> Certificate:
    """What can be said of the population from rows that had no part in the fit. fitted: rows that had."""
    view, compared = bound.system.view, Compared.of(bound.system.view, problem.rules)
    residual, shift = view.plan.residual, _shift_of_codes(problem, frozen)
    moments, kept = np.zeros((3, len(residual))), 0
    for kind in sorted(set(residual.tolist())):
        own, kept = _moments(problem, bound, shift, kind)
        moments = np.where(residual == kind, own, moments)
    ends = mean_ranges(problem.box, residual, targets_within)
    return Certificate(confidence, fitted, kept, compared.bounds(Moments(*moments, *ends), False, confidence))


def _moments(problem: Problem, bound: Bound, shift: np.ndarray, residual: bool) -> tuple[np.ndarray, int]:
    """(3, K) counts, means and variances of outputs, or of residuals, among the rows to certify with; and these."""
    plan, box = bound.system.view.plan, problem.box
    known = {"shift": shift, "lo": box.lowest, "hi": box.highest, "residual": residual, "part": CERTIFY}
    total = [BlockSums(problem.cells.code.size), BlockSums(problem.cells.code.size)]
    add_up(total, problem.kept, blocks.moments, "moments to certify with", **known)
    first, second = (sums.regrouped(bound.cell_of_code, len(bound.system.weight)) for sums in total)
    n = plan.totals(first.rows.astype(np.float64))
    mean, square = (plan.totals(sums.sums(OUTPUT)[0]) / np.maximum(n, 1.0) for sums in (first, second))
    return np.stack([n, mean, np.maximum(square - mean**2, 0.0)]), int(total[0].rows.sum())


def _shift_of_codes(problem: Problem, frozen: Frozen) -> np.ndarray:
    """The frozen shift of every code."""
    groups, features, _ = problem.cells.code.meanings(np.arange(problem.cells.code.size))
    codes = frozen.encode({name: groups[str(name)] for name in frozen.labels}, features, "unshifted")
    return (frozen.membership(codes) @ frozen.shifts).numpy()
