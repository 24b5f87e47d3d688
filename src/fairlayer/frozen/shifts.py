"""Shifts: what a calibration sample makes of constraints on means, and what it says of the population."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch

from fairlayer.binding.bounds import Box, read_bounds
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.groups import SoftGroup
from fairlayer.binding.system import bind
from fairlayer.errors import InputError
from fairlayer.frozen.blind import TrueGaps, blind_shifts
from fairlayer.frozen.calibration import Calibration, Split
from fairlayer.frozen.confidence import (
    Certificate,
    Compared,
    GapBound,
    Mean,
    growth_needed,
    interval,
    prefers_bernstein,
    ratio_interval,
    too_few,
)
from fairlayer.frozen.frozen import Frozen
from fairlayer.layer import FairLayer
from fairlayer.projection import project
from fairlayer.solve.discrepancy import find_discrepancy, interval_of, known_name


def output_range(layer: FairLayer) -> Box:
    """What outputs can be: within the bounds, and where the discrepancy lets them be."""
    if layer.simplex:
        return read_bounds((0.0, 1.0), 1, np.float64)
    return read_bounds(layer.bounds, 1, np.float64).within(*interval_of(find_discrepancy(layer.discrepancy)))


def mean_range(box: Box, residual: bool, targets_within: tuple[float, float] | None) -> tuple[float, float]:
    """Of what a group's mean is taken of: outputs within a box, or what is left of them less the targets."""
    low, high = (targets_within or (0.0, 0.0)) if residual else (0.0, 0.0)
    return box.lowest - high, box.highest - low


class ShiftSample:
    """A calibration sample, and which groups each of its samples belongs to.

    proxies, targets_within: as for `freeze`.
    """

    def __init__(self, frozen: Frozen, layer: FairLayer, given: Calibration, proxies: Any, targets_within: Any):
        self.frozen = frozen
        self.layer = layer
        self.given = given
        self.rows = np.arange(len(given.z))
        hard = {m: known for m, known in given.labels.items() if not isinstance(given.columns[m], SoftGroup)}
        self.levels = hard or None
        codes = frozen.encode(given.columns, given.features)
        self.member = frozen.membership(codes).numpy()
        self.soft = codes.is_floating_point()
        self.blind = proxies is not None
        self.moved = self._stand_ins(proxies) if self.blind else self.member
        self.residual = np.zeros(self.member.shape[1], dtype=bool)
        for family in frozen.families:
            self.residual[family.start :] = family.residual
        self.within, self.box, self.names = targets_within, output_range(layer), frozen.group_names()
        self.ends = [f", class {j}" for j in range(given.z.shape[1])] if layer.simplex else [""]  # of names

    def _stand_ins(self, proxies: Any) -> np.ndarray:
        """(n, K) how likely each sample belongs to each group, for all that is known when serving."""
        if self.soft or self.given.weights is not None or known_name(self.layer.discrepancy) != "squared":
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

    # Fitting

    def fit(self, rows: np.ndarray, share: float) -> None:
        """Take the shifts of the projection of some samples onto `share` of every tolerance."""
        stated: list[Any] = self.layer.rules.constraints
        rules, some = ConstraintSet([c.allowing(share * c.allowed) for c in stated]), self.given.rows(rows)
        weight = np.ones(len(rows)) if some.weights is None else some.weights
        total = weight @ self.member[rows]
        self.frozen.seen.copy_(torch.from_numpy(total > 0))
        if self.blind:
            self.frozen.shifts.copy_(torch.from_numpy(self._fit_blind(rows, some, rules)))
            return
        layer, data = self.layer, (some.targets, some.features, some.weights)
        options: dict[str, Any] = {"infeasible": layer.infeasible, "simplex": layer.simplex, "levels": self.levels}
        solution = project(some.z, some.columns, rules, layer.bounds, *data, layer.discrepancy, **options)
        facts: Any = solution.facts
        parts = facts.parts if layer.simplex else [facts]
        shifts = np.zeros((len(total), len(parts)))
        shifts[self.frozen.places(parts[0].view.plan)] = np.stack([part.nu for part in parts], axis=1)
        shifts[total > 0] /= total[total > 0, None]
        shifts[total <= 0] = 0.0
        self.frozen.shifts.copy_(torch.from_numpy(shifts).reshape(self.frozen.shifts.shape))

    def _fit_blind(self, rows: np.ndarray, some: Calibration, rules: ConstraintSet) -> np.ndarray:
        """The shifts by which the probabilities of some samples keep the gaps of their true groups."""
        member = self.member[rows]
        offset = np.zeros(member.shape[1])
        if some.targets is not None:
            means = some.targets @ member / np.maximum(member.sum(axis=0), 1.0)
            offset = np.where(self.residual, means, 0.0)
        lo, hi = self.frozen.limits.tolist()
        z = some.z.double().numpy()
        return blind_shifts(TrueGaps(z, self.moved[rows], member, offset, lo, hi, self._compared(rules)))

    def _compared(self, rules: ConstraintSet) -> Compared:
        """Which groups the constraints compare, of the whole sample."""
        given = self.given
        data: dict[str, Any] = {"groups": given.columns, "targets": given.targets, "features": given.features}
        whole = bind(rules, len(self.rows), **data, levels=self.levels).view
        return Compared.of(whole, rules, self.frozen.places(whole.plan))

    # Stating

    @cached_property
    def compared(self) -> Compared:
        """Which groups the stated constraints compare."""
        return self._compared(self.layer.rules)

    def state(self, split: Split, share: float) -> Certificate:
        """What the shifts as they are now, fitted for `share` of the tolerances, do to the population."""
        self._check_targets()
        y = self._outputs()
        means = {(k, j): self._mean(y, split, k, j) for j in range(len(self.ends)) for k in self.compared.groups}
        rows: tuple[GapBound, ...] = ()
        for j, end in enumerate(self.ends):
            rows += self.compared.bounds({k: means[k, j] for k in self.compared.groups}, end)
        sizes = len(split.fit_on), len(split.certify_on)
        return Certificate(split.confidence, *sizes, rows, tuple(means.values()), share)

    def _check_targets(self) -> None:
        targets, within = self.given.targets, self.within
        if self.residual.any() and within is not None and targets is not None:
            outside = (targets < within[0]) | (targets > within[1])
            if outside.any():
                raise InputError(f"targets[{int(outside.argmax())}] lies outside targets_within={within}.")

    def _outputs(self) -> np.ndarray:
        """(n, d) what the frozen shifts, as they are now, make of the samples; d is 1 but for classes."""
        y = self.frozen.respond(self.given.z.double(), torch.from_numpy(self.moved) @ self.frozen.shifts)
        return y.reshape(len(self.rows), len(self.ends)).numpy()

    def _delta(self, split: Split) -> float:
        """Of each mean, so that both sides of every one hold together."""
        return (1.0 - split.confidence) / max(1, len(self.compared.groups) * len(self.ends))

    def _values(self, y: np.ndarray, rows: np.ndarray, k: int, j: int) -> tuple[np.ndarray, np.ndarray]:
        """What is averaged over group k, and how much each sample belongs to it; those that do not are left out.

        j: the output, where there are several.
        """
        here = rows[self.member[rows, k] > 0]
        values = y[here, j]
        if self.residual[k]:
            assert self.given.targets is not None
            values = values - self.given.targets[here]
        return values, self.member[here, k]

    def _mean(self, y: np.ndarray, split: Split, k: int, j: int) -> Mean:
        lo, hi = mean_range(self.box, self.residual[k], self.within)
        delta, n = self._delta(split), len(split.certify_on)
        other, weight = self._values(y, split.fit_on, k, j)
        values, member = self._values(y, split.certify_on, k, j)
        mean = float(np.average(values, weights=member)) if len(values) else math.nan
        if not self.soft:
            bernstein = prefers_bernstein(len(values), _scaled_variance(other, lo, hi), delta)
            sides = interval(values, lo, hi, delta, bernstein)
        else:
            bernstein = prefers_bernstein(n, _scaled_variance(weight, 0.0, 1.0), delta / 2)
            everyone = np.zeros((2, n))
            everyone[:, : len(values)] = values, member  # those that do not belong count with membership 0
            sides = ratio_interval(everyone[0], everyone[1], lo, hi, delta, bernstein)
        return Mean(self.names[k] + self.ends[j], len(values), mean, *sides)

    def advice(self, split: Split, certificate: Certificate) -> str:
        """What to do where even a fit for equal means cannot be certified."""
        y, pairs = self._outputs(), []
        for j, (_, a, b, relative, tolerance) in product(range(len(self.ends)), list(zip(*self.compared, strict=True))):
            lo, hi = mean_range(self.box, self.residual[a], self.within)
            groups = [self._values(y, split.certify_on, k, j)[0] if k >= 0 else None for k in (a, b)]
            sides = [(math.inf, 0.25) if one is None else (len(one), _scaled_variance(one, lo, hi)) for one in groups]
            if relative:  # of means that the fit made equal
                tolerance *= float(self._values(y, split.certify_on, a, 0)[0].mean())
            pairs.append((*sides[0], *sides[1], tolerance / (hi - lo)))
        return too_few(certificate, "shifts fitted for equal means", growth_needed(pairs, self._delta(split)))


def _scaled_variance(values: np.ndarray, lo: float, hi: float) -> float:
    """Sample variance of values mapped from [lo, hi] to [0, 1]; the largest possible where there are too few."""
    return float(values.var(ddof=1)) / (hi - lo) ** 2 if len(values) > 1 else 0.25
