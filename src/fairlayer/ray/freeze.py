"""`freeze` of a dataset: shifts fitted with some of its rows, and what the other rows say of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fairlayer.constraints import Constraint
from fairlayer.errors import InputError
from fairlayer.frozen.confidence import Certificate, Compared, Mean, interval_of, prefers_bernstein
from fairlayer.frozen.freeze import check_freeze
from fairlayer.frozen.frozen import Frozen
from fairlayer.frozen.shifts import mean_range
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
        frozen.certificate = _statement(cells, cells.bind(kept), frozen, confidence, targets_within)
    return frozen.eval()


class _Moments(NamedTuple):
    """Of the groups that constraints compare, (K,) each."""

    rows: int  # in all
    n: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


def _statement(
    cells: ScoredTable, bound: Bound, frozen: Frozen, confidence: float, targets_within: tuple[float, float] | None
) -> Certificate:
    """What can be said of the population from rows that had no part in the fit."""
    plan, compared = bound.system.view.plan, Compared.of(bound.system.view, cells.rules)
    kinds = sorted(set(plan.residual.tolist()))
    found = {(kind, part): _moments(cells, bound, frozen, kind, part) for kind in kinds for part in (FIT, CERTIFY)}
    groups = compared.groups.tolist()
    delta = (1.0 - confidence) / max(1, len(groups))  # both sides of every mean hold together
    names = np.array(frozen.group_names(), dtype=object)[frozen.places(plan)]
    means = {}
    for k in groups:
        kind = bool(plan.residual[k])
        lo, hi = mean_range(cells.box, kind, targets_within)
        fit, other = found[kind, FIT], found[kind, CERTIFY]
        spread = float(fit.variance[k]) / (hi - lo) ** 2 if fit.n[k] > 1 else 0.25
        n, mean = int(other.n[k]), float(other.mean[k])
        bernstein = prefers_bernstein(n, spread, delta)
        sides = interval_of(n, mean, float(other.variance[k]) / (hi - lo) ** 2, lo, hi, delta, bernstein)
        means[k] = Mean(str(names[k]), n, mean, *sides)
    fitted, kept = (found[kinds[0], part].rows for part in (FIT, CERTIFY))
    return Certificate(confidence, fitted, kept, compared.bounds(means), tuple(means.values()))


def _moments(cells: ScoredTable, bound: Bound, frozen: Frozen, residual: bool, part: str) -> _Moments:
    """Means and variances of the outputs, or of what is left of them less the targets, of one part of the rows."""
    plan, (lo, hi) = bound.system.view.plan, (cells.box.lowest, cells.box.highest)
    passes = TablePasses(bound.passes.table, "z", part)
    groups, features, _ = cells.code.meanings(passes.code)
    codes = frozen.encode({name: groups[str(name)] for name in frozen.labels}, features, "unshifted")
    shift = (frozen.membership(codes) @ frozen.shifts).numpy()
    value, most = moved(quote("z"), "shift", lo, hi), passes.magnitude(shift, lo, hi).max(initial=0.0)
    if residual:
        value = f"({value} - {quote('t')})"
        most += np.abs(TablePasses(bound.passes.table, "t", part).extent()).max()
    sums = passes.exact({"y": value}, shift, most)[0], passes.exact({"y": f"{value} * {value}"}, shift, most**2)[0]
    cell, size = bound.cell_of_code[passes.code], len(bound.system.weight)
    n, first, second = (plan.totals(np.bincount(cell, values, size)) for values in (passes.n, *sums))
    safe = np.maximum(n, 1.0)
    mean = first / safe
    variance = np.maximum(second / safe - mean**2, 0.0) * safe / np.maximum(n - 1.0, 1.0)
    return _Moments(int(passes.n.sum()), n, mean, variance)
