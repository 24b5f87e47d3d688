"""What is fitted to a calibration sample: shifts for constraints on means, thresholds for constraints on decisions.

At its solution the projection moves every sample by a shift that depends on its groups alone; the nearest batch whose
rates are nearly equal has a threshold in every cell. Part of the sample fits these, the rest says what can be known of
the population.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from fairlayer.arrays import as_numpy
from fairlayer.constraints.plain_data import Label
from fairlayer.core.discrepancies import find_discrepancy, interval_of, known_name
from fairlayer.decisions.project import fit_thresholds, read_threshold
from fairlayer.decisions.scores import threshold_in
from fairlayer.errors import InputError
from fairlayer.frozen.blind import TrueGaps, blind_shifts
from fairlayer.frozen.certificate import Certificate, GapBound, gap_bounds, moments_of
from fairlayer.frozen.frozen import Frozen
from fairlayer.layer import FairLayer
from fairlayer.problem.bounds import Box, read_bounds
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.groups import CodedGroups, Column, SoftGroup, read_groups
from fairlayer.problem.row_plan import PresentRows
from fairlayer.problem.system import bind
from fairlayer.projection import project
from fairlayer.training.batches import Batch

_FAR = 1e300  # a threshold that nobody reaches, or everybody


@torch.no_grad()
def read_sample(layer: FairLayer, backbone: nn.Module | None, inputs: Any, groups: Any, **data: Any) -> Batch:
    """A calibration sample: raw outputs, (n,) or (n, d), of a backbone in evaluation mode, and what is known of them.

    Of the groups, only the attributes that constraints compare are kept. data: targets, features and weights.
    """
    z = torch.as_tensor(inputs) if backbone is None else backbone.eval()(inputs)
    z = z.detach().cpu()
    z = z if z.ndim == 2 and z.shape[1] > 1 else z.reshape(-1)
    attributes = read_groups(groups, len(z), layer.levels)
    _, used = layer.rules.groupings(tuple(attributes))
    for name in ("targets", "weights"):
        data[name] = None if data[name] is None else as_numpy(data[name]).reshape(-1)
    return Batch(z, groups=CodedGroups({name: attributes[name] for name in used}), **data)


def labels_of(column: Column | SoftGroup) -> tuple[Label, ...]:
    """The labels of an attribute that occur; those that only might are unknown."""
    if isinstance(column, SoftGroup):
        return column.labels
    found = np.unique(as_numpy(column.values)).tolist()
    return tuple(found if column.labels is None else [column.labels[code] for code in found])


class Fit:
    """What a sample makes of constraints, and what the constraints compare of it. A subclass does the fitting."""

    what: str  # is fitted
    rates = False  # whether decisions are counted, rather than outputs averaged

    frozen: Frozen
    rows: np.ndarray  # that can be used
    view: PresentRows  # the rows of the constraints
    tolerances: np.ndarray  # (m,)
    member: np.ndarray  # (n, K) how much each sample belongs to each statistic that is compared
    low: np.ndarray  # (K,) the range of what is averaged
    high: np.ndarray  # (K,)

    def fit(self, rows: np.ndarray, share: float) -> None:
        """Fit with some samples, for `share` of every tolerance."""
        raise NotImplementedError

    def values(self, rows: np.ndarray) -> list[np.ndarray]:
        """What the fit makes of some samples: of each output column (n, K) what is averaged, or (n, 1) if all alike."""
        raise NotImplementedError

    def state(self, fit_on: np.ndarray, certify_on: np.ndarray, share: float, confidence: float) -> Certificate:
        """What the other samples say of the population, the fit being for `share` of the tolerances."""
        columns, bounds = self.values(certify_on), list[GapBound]()
        level = 1.0 - (1.0 - confidence) / len(columns)  # so that those of all columns hold together
        for j, values in enumerate(columns):
            moments = moments_of(values, self.member[certify_on], self.low, self.high)
            end = f", class {j}" if len(columns) > 1 else ""
            bounds += gap_bounds(self.view, self.tolerances, moments, self.rates, level, end)
        return Certificate(confidence, len(fit_on), len(certify_on), tuple(bounds), share)

    def _compare(self, view: PresentRows, rules: ConstraintSet) -> None:
        self.view, self.tolerances = view, np.array(rules.allowed())[view.owner]


def output_range(layer: FairLayer) -> Box:
    """What outputs can be: within the bounds, and where the discrepancy lets them be."""
    if layer.simplex:
        return read_bounds((0.0, 1.0), 1, np.float64)
    return read_bounds(layer.bounds, 1, np.float64).within(*interval_of(find_discrepancy(layer.discrepancy)))


class ShiftFit(Fit):
    """Shifts of the groups of a sample; or of probabilities of them, `proxies`, for groups unknown when serving."""

    what = "shifts"

    def __init__(self, frozen: Frozen, layer: FairLayer, given: Batch, proxies: Any, targets_within: Any):
        """proxies, targets_within: as for `freeze`."""
        self.frozen, self.layer, self.given, self.rows = frozen, layer, given, np.arange(len(given.x))
        soft = {name for name, column in given.groups.attributes.items() if isinstance(column, SoftGroup)}
        self.levels = {name: known for name, known in frozen.labels.items() if name not in soft} or None
        self.own = frozen.membership(frozen.encode(given.groups, given.features)).numpy()  # (n, shifts)
        self.blind = proxies is not None
        self.moved = self._stand_ins(proxies, bool(soft)) if self.blind else self.own
        data = {"groups": given.groups, "targets": given.targets, "features": given.features}
        view = bind(layer.rules, len(self.rows), **data, levels=self.levels).view
        self._compare(view, layer.rules)
        self.places, self.residual = frozen.places(view.plan), view.plan.residual
        self.member = self.own[:, self.places]
        box, (least, most) = output_range(layer), targets_within or (0.0, 0.0)
        self.low = box.lowest - np.where(self.residual, most, 0.0)
        self.high = box.highest - np.where(self.residual, least, 0.0)
        if self.residual.any() and targets_within is not None and given.targets is not None:
            outside = (given.targets < least) | (given.targets > most)
            if outside.any():
                raise InputError(f"targets[{int(outside.argmax())}] lies outside targets_within={targets_within}.")

    def _stand_ins(self, proxies: Any, soft: bool) -> np.ndarray:
        """(n, shifts) how likely each sample belongs to each group, given what is known when serving."""
        if soft or self.given.weights is not None or known_name(self.layer.discrepancy) != "squared":
            raise InputError(
                "proxies need the true groups as labels, samples that count alike, and discrepancy='squared': pass "
                "groups without SoftGroup, leave weights out, and leave the discrepancy as it is."
            )
        named = proxies if isinstance(proxies, Mapping) else {}
        for name, known in self.frozen.labels.items():
            if not isinstance(named.get(name), SoftGroup) or len(named[name]) != len(self.rows):
                raise InputError(
                    f"proxies needs a SoftGroup with {len(self.rows)} rows for {name!r}: probabilities of "
                    f"{list(known)}."
                )
        return self.frozen.membership(self.frozen.encode(named, self.given.features)).numpy()

    def fit(self, rows: np.ndarray, share: float) -> None:
        """Take the shifts of the projection of some samples onto `share` of every tolerance."""
        some = self.given.rows(rows)
        total = (np.ones(len(rows)) if some.weights is None else some.weights) @ self.own[rows]
        self.frozen.seen.copy_(torch.from_numpy(total > 0))
        shifts = self._blind(rows, some, share) if self.blind else self._projected(some, share, total)
        self.frozen.shifts.copy_(torch.from_numpy(shifts).reshape(self.frozen.shifts.shape))

    def _projected(self, some: Batch, share: float, total: np.ndarray) -> np.ndarray:
        """(shifts, d) from the multipliers of the statistics. total: (shifts,) weights of the groups."""
        layer = self.layer
        rules = ConstraintSet([c.allowing(share * c.allowed) for c in layer.rules.constraints])
        data = (some.targets, some.features, some.weights)
        options: dict[str, Any] = {"infeasible": layer.infeasible, "simplex": layer.simplex, "levels": self.levels}
        found: Any = project(some.x, some.groups, rules, layer.bounds, *data, layer.discrepancy, **options)
        parts = found.parts if layer.simplex else [found]
        shifts = np.zeros((len(total), len(parts)))
        shifts[self.frozen.places(parts[0].view.plan)] = np.stack([part.nu for part in parts], axis=1)
        return np.where(total[:, None] > 0, shifts / np.where(total > 0, total, 1.0)[:, None], 0.0)

    def _blind(self, rows: np.ndarray, some: Batch, share: float) -> np.ndarray:
        """(shifts,) by which the probabilities of some samples keep the gaps of their true groups."""
        member = self.member[rows]
        offset = np.zeros(member.shape[1])
        if some.targets is not None:
            means = some.targets @ member / np.maximum(member.sum(axis=0), 1.0)
            offset = np.where(self.residual, means, 0.0)
        lo, hi = self.frozen.limits.tolist()
        z, allowed = some.x.double().numpy(), share * self.tolerances
        return blind_shifts(TrueGaps(z, self.moved[rows], member, offset, lo, hi, self.view, allowed))

    def values(self, rows: np.ndarray) -> list[np.ndarray]:
        """Outputs, or residuals, of each column."""
        z, shift = self.given.x[torch.from_numpy(rows)].double(), torch.from_numpy(self.moved[rows])
        y = self.frozen.respond(z, shift @ self.frozen.shifts).numpy().reshape(len(rows), -1)
        offset = self.given.targets[rows, None] * self.residual if self.residual.any() else np.zeros((len(rows), 1))
        return [y[:, j : j + 1] - offset for j in range(y.shape[1])]


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
    """Thresholds of the cells of a sample."""

    what = "thresholds"
    rates = True

    def __init__(self, frozen: Frozen, given: Batch):
        self.frozen, self.given, self.rows = frozen, given, np.arange(len(given.x))
        for name, column in given.groups.attributes.items():
            if isinstance(column, SoftGroup):
                raise InputError(
                    f"groups[{name!r}] holds probabilities: decisions are counted by group, so pass labels."
                )
        self.stated, rules = frozen.constraints, ConstraintSet(frozen.constraints)
        self.threshold, target = read_threshold(rules), check_decisions(rules)
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
        system = bind(rules, len(given.x), groups=given.groups, levels=frozen.labels)
        plan, K = system.view.plan, len(system.view.plan.residual)
        self._compare(plan.view(np.ones(K, dtype=bool)), rules)
        self.place = frozen.membership(frozen.encode(given.groups)).argmax(dim=1)  # (n,) the cell of each sample
        self.member = plan.membership[as_numpy(system.cell)]
        self.low, self.high = np.zeros(K), np.ones(K)

    def fit(self, rows: np.ndarray, share: float) -> None:
        """The thresholds of the nearest batch of some samples, with `share` of every tolerance.

        But no less than what whole numbers of yeses can meet: exactly equal rates may be all 0 or all 1.
        """
        some, size = self.given.rows(rows), self.member[rows].sum(axis=0)
        finest = 2.0 / float(size[size > 0].min())
        rate = max(float((some.x.double() >= self.threshold).double().mean()), 0.01)
        least = [finest / rate if c.comparison == "ratio" else finest for c in self.stated]
        aims = [min(max(share * c.allowed, one), c.allowed) for c, one in zip(self.stated, least, strict=True)]
        rules = ConstraintSet([c.allowing(aim) for c, aim in zip(self.stated, aims, strict=True)])
        weights = None if some.weights is None else some.weights.astype(np.float64)
        system = bind(rules, len(rows), groups=some.groups, weights=weights, levels=self.frozen.labels)
        box = read_bounds(self.frozen.bounds, len(rows), np.float64)
        moved = np.clip(fit_thresholds(some.x, system, rules, box) - self.threshold, -_FAR, _FAR)
        place = self.place[torch.from_numpy(rows)]
        self.frozen.shifts.zero_()[place] = torch.from_numpy(moved[as_numpy(system.cell)])
        self.frozen.seen.zero_()[place] = True

    def values(self, rows: np.ndarray) -> list[np.ndarray]:
        """Decisions, 0 or 1; samples of cells that the fit did not have are decided as they are."""
        places = torch.from_numpy(rows)
        z, shift = self.given.x[places], self.frozen.shifts[self.place[places]]
        decided = self.frozen.respond(z, shift) >= threshold_in(self.threshold, z.dtype)[0]
        return [decided.double().numpy()[:, None]]
