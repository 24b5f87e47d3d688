"""Frozen thresholds: rate parity solved once on a calibration sample, and served one sample at a time.

The nearest batch whose rates are nearly equal has a threshold in every cell: raw scores from it on say yes. Kept, these
make a decision a function of one sample, and the promise one about the population.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairlayer.arrays import as_numpy
from fairlayer.decisions.project import fit_thresholds, read_threshold
from fairlayer.decisions.scores import threshold_in
from fairlayer.errors import InputError
from fairlayer.frozen.calibration import Calibration, Fit
from fairlayer.frozen.certificate import Compared
from fairlayer.frozen.frozen import Family, Frozen
from fairlayer.layer import FairLayer
from fairlayer.problem.bounds import read_bounds
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.groups import SoftGroup
from fairlayer.problem.system import bind

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
        ends = (self.at, self.below) if z.dtype == torch.float64 else (self.at_single, self.below_single)
        at, below = (end.to(z.dtype) for end in ends)
        yes, no = torch.maximum(inside, at), torch.minimum(inside, below)
        return torch.where(z.double() >= shift + at.double(), yes, no)


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


class ThresholdFit(Fit):
    """Thresholds of the cells of a calibration sample."""

    what = "thresholds"
    rates = True

    def __init__(self, frozen: FrozenDecisions, given: Calibration):
        self.frozen: FrozenDecisions = frozen
        self.given = given
        for name, column in given.columns.items():
            if isinstance(column, SoftGroup):
                raise InputError(
                    f"groups[{name!r}] holds probabilities: decisions are counted by group, so pass labels."
                )
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
        rules = ConstraintSet(self.stated)
        system = bind(rules, len(given.z), groups=given.columns, levels=frozen.labels)
        plan, K = system.view.plan, len(system.view.plan.residual)
        self.compared = Compared.of(plan.view(np.ones(K, dtype=bool)), rules)
        self.place = frozen.membership(frozen.encode(given.columns)).argmax(dim=1)  # (n,) the cell of each sample
        self.member = plan.membership[as_numpy(system.cell)]
        self.low, self.high = np.zeros(K), np.ones(K)

    def fit(self, rows: np.ndarray, share: float) -> None:
        """The thresholds of the nearest batch of some samples, with `share` of every tolerance.

        But no less than what whole numbers of yeses can meet: exactly equal rates may be all 0 or all 1.
        """
        z, size = self.given.z[torch.from_numpy(rows)], self.member[rows].sum(axis=0)
        finest = 2.0 / float(size[size > 0].min())
        rate = max(float((z.double() >= self.frozen.threshold).double().mean()), 0.01)
        least = [finest / rate if c.comparison == "ratio" else finest for c in self.stated]
        aims = [min(max(share * c.allowed, one), c.allowed) for c, one in zip(self.stated, least, strict=True)]
        rules = ConstraintSet([c.allowing(aim) for c, aim in zip(self.stated, aims, strict=True)])
        some = self.given.rows(rows)
        weights = None if some.weights is None else some.weights.astype(np.float64)
        system = bind(rules, len(rows), groups=some.columns, weights=weights, levels=self.frozen.labels)
        box = read_bounds(self.frozen.bounds, len(rows), np.float64)
        moved = np.clip(fit_thresholds(z, system, rules, box) - self.frozen.threshold, -_FAR, _FAR)
        place = self.place[torch.from_numpy(rows)]
        self.frozen.shifts.zero_()[place] = torch.from_numpy(moved[as_numpy(system.cell)])
        self.frozen.seen.zero_()[place] = True

    def values(self, rows: np.ndarray) -> list[np.ndarray]:
        """Decisions, 0 or 1; samples of cells that the fit did not have are decided as they are."""
        places = torch.from_numpy(rows)
        z, shift = self.given.z[places], self.frozen.shifts[self.place[places]]
        decided = self.frozen.respond(z, shift) >= threshold_in(self.frozen.threshold, z.dtype)[0]
        return [decided.double().numpy()[:, None]]
