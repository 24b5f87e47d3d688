"""Frozen thresholds: rate parity solved once on a calibration sample, and served one sample at a time.

The nearest batch whose rates are nearly equal has a threshold in every cell: raw scores from it on say yes. Kept, these
make a decision a function of one sample, and the promise one about the population: a rate is a share of independent
yeses and noes, so its interval is the exact binomial one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import read_bounds
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.groups import SoftGroup
from fairlayer.binding.system import System, bind
from fairlayer.decisions.project import fit_thresholds, read_threshold
from fairlayer.decisions.scores import threshold_in
from fairlayer.errors import InputError
from fairlayer.frozen.calibration import Calibration, Split
from fairlayer.frozen.confidence import Certificate, Compared, Mean, binomial_interval, too_few
from fairlayer.frozen.frozen import Family, Frozen
from fairlayer.layer import FairLayer

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
                self.register_buffer(name + suffix, torch.tensor(number, dtype=dtype))  # ONNX rounds plain numbers

    def _lay_out(self, rules: ConstraintSet) -> int:
        """One threshold for every combination of labels."""
        self.families = [Family(tuple(self.labels), -1, 0, False)]
        return math.prod(map(len, self.labels.values()))

    def respond(self, z: Tensor, shift: Tensor) -> Tensor:
        """Scores from raw ones, whose thresholds are moved by shifts in float64."""
        inside = torch.clamp(z, *self._limits(z.dtype))
        at, below = (self.at, self.below) if z.dtype == torch.float64 else (self.at_single, self.below_single)
        yes, no = torch.maximum(inside, at.to(z.dtype)), torch.minimum(inside, below.to(z.dtype))
        return torch.where(z.double() >= shift + self.threshold, yes, no)


def check_decisions(rules: ConstraintSet) -> Any:
    """Refuse rates that thresholds cannot keep; the target that they are compared within, or None."""
    read_threshold(rules)
    asked = [constraint.given for constraint in rules.constraints]  # type: ignore[attr-defined]
    if any(given != asked[0] for given in asked) or asked[0] == "each":
        raise InputError(
            "a frozen threshold serves people whose targets are not known: it can make rates equal within one class of "
            f"the target, or over all of them, not within several; got given={asked}. Freeze RateParity with one given."
        )
    return asked[0]


class ThresholdSample:
    """A calibration sample, and who of it is compared."""

    def __init__(self, frozen: Frozen, given: Calibration):
        assert isinstance(frozen, FrozenDecisions)
        self.frozen = frozen
        self.given = given
        for name, column in given.columns.items():
            if isinstance(column, SoftGroup):
                raise InputError(
                    f"groups[{name!r}] holds probabilities: decisions are counted by group, so pass labels."
                )
        self.codes = frozen.encode(given.columns)
        self.rows = np.arange(len(given.z))
        self.stated: list[Any] = frozen.constraints
        target = check_decisions(ConstraintSet(self.stated))
        if target is not None:
            if given.targets is None:
                raise InputError(
                    "targets is missing: the rates are compared within one class of them; pass targets=..."
                )
            self.rows = np.flatnonzero(given.targets == target)
            if not len(self.rows):
                raise InputError(f"targets never are {target!r}, the class within which rates are to be compared.")
            self.stated = [replace(constraint, given=None) for constraint in self.stated]

    def _bind(self, rules: ConstraintSet, rows: np.ndarray) -> System:
        some = self.given.rows(rows)
        weights = None if some.weights is None else some.weights.astype(np.float64)
        return bind(rules, len(rows), groups=some.columns, weights=weights, levels=self.frozen.labels)

    def fit(self, rows: np.ndarray, share: float) -> None:
        """The thresholds of the nearest batch of some samples, with `share` of every tolerance.

        But no less than what whole numbers of yeses can meet: exactly equal rates may be all 0 or all 1.
        """
        z = self.given.z[torch.from_numpy(rows)]
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
        moved = np.clip(of_cell - self.frozen.threshold, -_FAR, _FAR)
        self.frozen.shifts.zero_()[place] = torch.from_numpy(moved)[cell]
        self.frozen.seen.zero_()[place] = True

    def state(self, split: Split, share: float) -> Certificate:
        """What can be said of the population from samples that had no part in the fit."""
        rules, rows = ConstraintSet(self.stated), split.certify_on
        plan = self._bind(rules, rows).view.plan
        view = plan.view(np.ones(len(plan.residual), dtype=bool))  # groups without a sample have an interval, too
        places = torch.from_numpy(rows)
        known = self.frozen.membership(self.codes[places])[:, ~self.frozen.seen].sum(dim=1) == 0
        scores = self.frozen(self.given.z[places[known]], self.codes[places[known]]).double().numpy()
        yes = scores >= threshold_in(self.frozen.threshold, self.given.z.dtype)[0]
        system = self._bind(rules, rows[known.numpy()])
        cell, size = as_numpy(system.cell), len(system.weight)
        members = system.view.plan.totals(np.bincount(cell, minlength=size).astype(np.float64))
        said = system.view.plan.totals(np.bincount(cell[yes], minlength=size).astype(np.float64))
        delta = (1.0 - split.confidence) / max(1, len(plan.labels))
        found = dict(zip(system.view.plan.labels, zip(members, said, strict=True), strict=True))
        means = []
        for label in plan.labels:
            n, k = (int(number) for number in found.get(label, (0, 0)))
            low, high = binomial_interval(k, n, delta) if n else (0.0, 1.0)
            means.append(Mean(label, n, k / n if n else math.nan, low, high))
        bounds = Compared.of(view, rules).bounds(dict(enumerate(means)))
        return Certificate(split.confidence, len(split.fit_on), len(rows), bounds, tuple(means), share)

    def advice(self, split: Split, certificate: Certificate) -> str:
        """What to do where even thresholds for equal rates cannot be certified."""
        worst = max(certificate.rows, key=lambda row: row.bound - row.tolerance)
        growth = (worst.bound / worst.tolerance) ** 2 if worst.tolerance else math.inf
        return too_few(certificate, "thresholds fitted for equal rates", growth)
