"""Frozen thresholds: rate parity solved once on a calibration sample, and served one sample at a time.

The nearest batch whose rates are nearly equal has a threshold in every cell: raw scores from it on say yes. Kept, these
make a decision a function of one sample, and the promise one about the population: a rate is a share of independent
yeses and noes, so its interval is the exact binomial one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import read_bounds
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.groups import SoftGroup, read_groups
from fairlayer.binding.system import System, bind
from fairlayer.decisions.project import fit_thresholds, read_threshold
from fairlayer.decisions.scores import threshold_in
from fairlayer.errors import InputError
from fairlayer.frozen.confidence import (
    Certificate,
    GapBound,
    Mean,
    binomial_interval,
    largest_gap,
    largest_relative_gap,
    relative_gap,
)
from fairlayer.frozen.frozen import Family, Frozen
from fairlayer.layer import FairLayer

_TIGHTENING_STEPS = 20
_FAR = 1e300  # a threshold that nobody reaches, or everybody


class FrozenDecisions(Frozen):
    """Raw scores and groups of any number of samples -> scores that decide, each a function of its own sample.

    Made by `freeze` of a layer with `RateParity`. A raw score from its cell's threshold on comes out at the stated
    threshold or above, any other below it; scores that need no change keep their value. `shifts` holds, cell by cell,
    how far its threshold is from the stated one.
    """

    at: Tensor
    below: Tensor
    at_single: Tensor
    below_single: Tensor

    def __init__(self, layer: FairLayer, labels: Any, backbone: nn.Module | None = None):
        super().__init__(layer, labels, backbone)
        self.threshold = read_threshold(layer.rules)
        for suffix, dtype in (("", torch.float64), ("_single", torch.float32)):
            for name, number in zip(("at", "below"), threshold_in(self.threshold, dtype), strict=True):
                self.register_buffer(name + suffix, torch.tensor(number, dtype=dtype))

    def _lay_out(self, rules: ConstraintSet) -> int:
        """One threshold for every combination of labels."""
        self.families = [Family(tuple(range(len(self.labels))), -1, 0, False)]
        return math.prod(map(len, self.labels.values()))

    def forward(self, x: Any, groups: Tensor) -> Tensor:
        """Scores for raw scores (or backbone inputs) x and what `encode` makes of the groups."""
        z = x if self.backbone is None else self.backbone(x)
        member = self.membership(groups)
        moved = member @ self.shifts
        if not groups.is_floating_point():
            moved = moved + self._refuse_unknown(groups, member)
        double = z.dtype == torch.float64
        limits = (self.limits if double else self.limits_single).to(z.dtype)
        at, below = (self.at, self.below) if double else (self.at_single, self.below_single)
        if z.ndim == groups.ndim:  # one score in a dimension of its own
            moved = moved.unsqueeze(-1)
        inside = torch.clamp(z, limits[0], limits[1])
        yes = z.double() >= moved + self.threshold
        return torch.where(yes, torch.maximum(inside, at.to(z.dtype)), torch.minimum(inside, below.to(z.dtype)))


def unfitted(layer: FairLayer, labels: Any, backbone: nn.Module | None = None) -> Frozen:
    """What a layer freezes to, without what a fit finds: thresholds for decisions, shifts for all else."""
    kind = FrozenDecisions if layer.rules.about_decisions else Frozen
    return kind(layer, labels, backbone)


def freeze_decisions(
    layer: FairLayer,
    backbone: nn.Module | None,
    z: Tensor,
    groups: Any,
    confidence: float | None,
    tighten: bool,
    targets: Any,
    weights: Any,
    certify: float,
    seed: int,
) -> FrozenDecisions:
    """Solve on a calibration sample and keep the thresholds; arguments as of `freeze`."""
    given = _check(layer, confidence, tighten, targets, weights)
    n = len(z)
    attributes = read_groups(groups, n, layer.levels)
    _, used = layer.rules.groupings(tuple(attributes))
    columns = {}
    for name in used:
        column = attributes[name]
        if isinstance(column, SoftGroup):
            raise InputError(f"groups[{name!r}] holds probabilities: decisions are counted by group, so pass labels.")
        values = as_numpy(column.values)
        columns[name] = values if column.labels is None else np.array(column.labels, dtype=object)[values]
    labels = {name: tuple(np.unique(column).tolist()) for name, column in columns.items()}
    frozen = FrozenDecisions(layer, labels, backbone)
    sample = _Sample(frozen, z, columns, targets, given, weights)
    here = np.flatnonzero(sample.counts)
    if confidence is None:
        sample.fit(here, 1.0)
        return frozen.eval()
    order = np.random.default_rng(seed).permutation(here)
    kept = round(certify * len(here))
    fit_on, certify_on = np.sort(order[kept:]), np.sort(order[:kept])
    if not len(fit_on) or not len(certify_on):
        raise InputError(f"certify={certify} of {len(here)} samples leaves none to fit, or none to certify with.")
    if not tighten:
        sample.fit(fit_on, 1.0)
        frozen.certificate = sample.state(len(fit_on), certify_on, confidence, 1.0)
        return frozen.eval()
    # As for shifts: tests in an order fixed beforehand, from the strictest on, up to the first that fails.
    best: tuple[Tensor, Tensor, Certificate] | None = None
    for step in range(_TIGHTENING_STEPS + 1):
        share = step / _TIGHTENING_STEPS
        sample.fit(fit_on, share)
        certificate = sample.state(len(fit_on), certify_on, confidence, share)
        if not certificate.satisfied:
            if best is None:
                raise InputError(_advice(certificate, len(here)))
            break
        best = frozen.shifts.clone(), frozen.seen.clone(), certificate
    assert best is not None
    frozen.shifts.copy_(best[0])
    frozen.seen.copy_(best[1])
    rows = tuple(replace(row, bound=row.tolerance) for row in best[2].rows)
    frozen.certificate = replace(best[2], rows=rows)
    return frozen.eval()


def _check(layer: FairLayer, confidence: float | None, tighten: bool, targets: Any, weights: Any) -> Any:
    """Refuse what cannot be frozen; the target that rates are compared within, or None."""
    read_threshold(layer.rules)
    asked = [constraint.given for constraint in layer.rules.constraints]  # type: ignore[attr-defined]
    if any(given != asked[0] for given in asked) or asked[0] == "each":
        raise InputError(
            "a frozen threshold serves people whose targets are not known: it can make rates equal within one class of "
            f"the target, or over all of them, not within several; got given={asked}. Freeze RateParity with one given."
        )
    if asked[0] is not None and targets is None:
        raise InputError("targets is missing: the rates are compared within one class of them; pass targets=...")
    if confidence is None:
        if tighten:
            raise InputError("tighten=True needs a confidence.")
    elif not 0.0 < confidence < 1.0:
        raise InputError(f"confidence must lie between 0 and 1; got {confidence}.")
    elif weights is not None:
        raise InputError(
            "No confidence can be stated: weighted samples are not equally likely draws (leave weights out). Pass "
            "confidence=None to freeze without a statement."
        )
    return asked[0]


class _Sample:
    """The calibration sample: raw scores, groups, and who is compared."""

    def __init__(
        self, frozen: FrozenDecisions, z: Tensor, columns: dict[Any, np.ndarray], targets: Any, given: Any, weights: Any
    ):
        self.frozen = frozen
        self.z = z
        self.columns = columns
        self.weights = None if weights is None else as_numpy(weights).reshape(-1).astype(np.float64)
        self.codes = frozen.encode(columns)
        self.counts = np.ones(len(z), dtype=bool)
        self.stated: list[Any] = frozen.constraints
        if given is not None:
            self.counts = as_numpy(targets).reshape(-1) == given
            if not self.counts.any():
                raise InputError(f"targets never are {given!r}, the class within which rates are to be compared.")
            self.stated = [replace(constraint, given=None) for constraint in self.stated]

    def _bind(self, rules: ConstraintSet, rows: np.ndarray) -> System:
        some = {name: column[rows] for name, column in self.columns.items()}
        weights = None if self.weights is None else self.weights[rows]
        return bind(rules, len(rows), groups=some, weights=weights, levels=self.frozen.labels)

    def fit(self, rows: np.ndarray, share: float) -> None:
        """The thresholds of the nearest batch of some samples, with `share` of every tolerance.

        But no less than what whole numbers of yeses can meet: exactly equal rates may be all 0 or all 1.
        """
        z = self.z[torch.from_numpy(rows)]
        plain = self._bind(ConstraintSet(self.stated), rows)
        size = plain.view.plan.totals(plain.samples.astype(np.float64))
        finest = 2.0 / float(size[size > 0].min())
        rate = max(float((z.double() >= self.frozen.threshold).double().mean()), 0.01)
        least = [finest / rate if c.comparison == "ratio" else finest for c in self.stated]
        aims = [min(max(share * c.allowed, one), c.allowed) for c, one in zip(self.stated, least, strict=True)]
        rules = ConstraintSet([c.allowing(aim) for c, aim in zip(self.stated, aims, strict=True)])
        system = self._bind(rules, rows)
        box = read_bounds(self.frozen.bounds, len(rows), np.float64)
        of_cell = fit_thresholds(z, system, rules, box)
        cell = torch.from_numpy(as_numpy(system.cell).astype(np.int64))
        place = self.frozen.membership(self.codes[torch.from_numpy(rows)]).argmax(dim=1)
        shifts = torch.zeros_like(self.frozen.shifts)
        moved = np.clip(of_cell - self.frozen.threshold, -_FAR, _FAR)
        shifts[place] = torch.from_numpy(moved)[cell]
        self.frozen.shifts.copy_(shifts)
        seen = torch.zeros_like(self.frozen.seen)
        seen[place] = True
        self.frozen.seen.copy_(seen)

    def state(self, fitted: int, rows: np.ndarray, confidence: float, aimed_at: float) -> Certificate:
        """What can be said of the population from samples that had no part in the fit."""
        rules = ConstraintSet(self.stated)
        plan = self._bind(rules, rows).view.plan
        view = plan.view(np.ones(len(plan.residual), dtype=bool))  # groups without a sample have an interval, too
        places = torch.from_numpy(rows)
        known = self.frozen.membership(self.codes[places])[:, ~self.frozen.seen].sum(dim=1) == 0
        scores = self.frozen(self.z[places[known]], self.codes[places[known]]).double().numpy()
        yes = scores >= threshold_in(self.frozen.threshold, self.z.dtype)[0]
        system = self._bind(rules, rows[known.numpy()])
        cell, size = as_numpy(system.cell), len(system.weight)
        members = system.view.plan.totals(np.bincount(cell, minlength=size).astype(np.float64))
        said = system.view.plan.totals(np.bincount(cell[yes], minlength=size).astype(np.float64))
        labels, delta = plan.labels, (1.0 - confidence) / max(1, len(plan.labels))
        found = dict(zip(system.view.plan.labels, zip(members, said, strict=True), strict=True))
        means = []
        for label in labels:
            n, k = (int(number) for number in found.get(label, (0, 0)))
            low, high = binomial_interval(k, n, delta) if n else (0.0, 1.0)
            means.append(Mean(label, n, k / n if n else math.nan, low, high))
        return Certificate(confidence, fitted, len(rows), tuple(_bounds(view, means, rules)), tuple(means), aimed_at)


def _bounds(view: Any, means: Sequence[Mean], rules: ConstraintSet) -> list[GapBound]:
    allowed, rows = rules.allowed(), []
    relative = np.zeros(len(view.names), dtype=bool) if view.relative is None else view.relative
    for name, a, b, owner, by_ratio in zip(view.names, view.plus, view.minus, view.owner, relative, strict=True):
        first, second = means[a], means[b]
        if by_ratio:
            measured, most = relative_gap(first.mean, second.mean), largest_relative_gap(first, second)
        else:
            measured, most = abs(first.mean - second.mean), largest_gap(first, second)
        rows.append(GapBound(name, allowed[owner], measured, most))
    return rows


def _advice(certificate: Certificate, total: int) -> str:
    """What to do where even thresholds for equal rates cannot be certified."""
    worst = max(certificate.rows, key=lambda row: row.bound - row.tolerance)
    needed = math.ceil(total * (worst.bound / worst.tolerance) ** 2) if worst.tolerance else None
    more = f"about {needed:,} samples like these {total:,} are needed; or " if needed else ""
    return (
        f"The sample is too small for the tolerances to hold with confidence {certificate.confidence:g}, even with "
        f"thresholds fitted for equal rates: {worst.row} may be up to {worst.bound:.4g}, tolerance "
        f"{worst.tolerance:g}. Remedy: {more}raise the tolerance, or lower the confidence."
    )
