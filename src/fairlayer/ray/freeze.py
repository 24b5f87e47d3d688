"""`freeze` of a dataset: shifts fitted with some of its rows, and what the other rows say of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fairlayer.constraints import Constraint
from fairlayer.errors import InputError
from fairlayer.frozen.certificate import Certificate, Compared
from fairlayer.frozen.freeze import check_freeze
from fairlayer.frozen.frozen import Frozen
from fairlayer.frozen.shifts import mean_ranges
from fairlayer.intervals import Moments
from fairlayer.layer import FairLayer
from fairlayer.ray.project import Protected, scored
from fairlayer.tables.dataset import DatasetTable
from fairlayer.tables.entries import quote
from fairlayer.tables.moved_sql import moved
from fairlayer.tables.passes import TablePasses
from fairlayer.tables.scored import Bound, ScoredTable

FIT, CERTIFY = (f"{quote('part')} = {part}" for part in (0, 1))  # parts of the rows


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
    table = DatasetTable(dataset)
    cells = scored(table, score, protected, constraints, bounds, target)
    share = 0.0 if confidence is None else certify
    kept = table.keep(cells.values, cells.code.parameters, seed, share)
    labels = {name: tuple(digit.meaning) for name, digit in cells.code.groups.items()}
    _, used = layer.rules.groupings(tuple(labels))
    frozen = Frozen(layer, {name: labels[name] for name in labels if name in used})
    fit = cells.bind(kept, "" if confidence is None else FIT)
    nu, plan = fit.solve(bounds).facts.nu, fit.system.view.plan
    total, places = plan.totals(fit.system.weight), frozen.places(plan)
    frozen.seen.zero_()
    frozen.seen.numpy()[places] = total > 0
    frozen.shifts.numpy()[places] = np.where(total > 0, nu / np.where(total > 0, total, 1.0), 0.0)
    if confidence is not None:
        fitted = int(fit.system.weight.sum())
        frozen.certificate = _statement(cells, cells.bind(kept), frozen, confidence, targets_within, fitted)
    return frozen.eval()


def _statement(
    cells: ScoredTable,
    bound: Bound,
    frozen: Frozen,
    confidence: float,
    targets_within: tuple[float, float] | None,
    fitted: int,
) -> Certificate:
    """What can be said of the population from rows that had no part in the fit. fitted: rows that had."""
    residual, compared = bound.system.view.plan.residual, Compared.of(bound.system.view, cells.rules)
    moments, kept = np.zeros((3, len(residual))), 0
    for kind in sorted(set(residual.tolist())):
        own, kept = _moments(cells, bound, frozen, kind)
        moments = np.where(residual == kind, own, moments)
    ends = mean_ranges(cells.box, residual, targets_within)
    return Certificate(confidence, fitted, kept, compared.bounds(Moments(moments[0], moments[1], moments[2], *ends), rates=False, confidence=confidence))


def _moments(cells: ScoredTable, bound: Bound, frozen: Frozen, residual: bool) -> tuple[np.ndarray, int]:
    """(3, K) counts, means and variances of outputs, or of residuals, among the rows to certify with; and these."""
    plan, (lo, hi) = bound.system.view.plan, (cells.box.lowest, cells.box.highest)
    passes = TablePasses(bound.passes.table, "z", CERTIFY)
    groups, features, _ = cells.code.meanings(passes.code)
    codes = frozen.encode({name: groups[str(name)] for name in frozen.labels}, features, "unshifted")
    shift = (frozen.membership(codes) @ frozen.shifts).numpy()
    value, most = moved(quote("z"), "shift", lo, hi), passes.magnitude(shift, lo, hi).max(initial=0.0)
    if residual:
        value = f"({value} - {quote('t')})"
        most += np.abs(TablePasses(bound.passes.table, "t", CERTIFY).extent()).max()
    sums = passes.exact({"y": value}, shift, most)[0], passes.exact({"y": f"{value} * {value}"}, shift, most**2)[0]
    cell, size = bound.cell_of_code[passes.code], len(bound.system.weight)
    n, first, second = (plan.totals(np.bincount(cell, values, size)) for values in (passes.n, *sums))
    mean, square = first / np.maximum(n, 1.0), second / np.maximum(n, 1.0)
    return np.stack([n, mean, np.maximum(square - mean**2, 0.0)]), int(passes.n.sum())
