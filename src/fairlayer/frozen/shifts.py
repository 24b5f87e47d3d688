"""Shifts: what a calibration sample makes of constraints on means.

At its solution the projection moves every sample by a shift that depends on its groups alone. The shifts of the
calibration sample are kept; or, where groups are not known when serving, those that `blind` finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fairlayer.core.discrepancies import find_discrepancy, interval_of, known_name
from fairlayer.errors import InputError
from fairlayer.frozen.blind import TrueGaps, blind_shifts
from fairlayer.frozen.calibration import Calibration, Fit
from fairlayer.frozen.certificate import Compared
from fairlayer.frozen.frozen import Frozen
from fairlayer.layer import FairLayer
from fairlayer.problem.bounds import Box, read_bounds
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.groups import SoftGroup
from fairlayer.problem.system import bind
from fairlayer.projection import project


def output_range(layer: FairLayer) -> Box:
    """What outputs can be: within the bounds, and where the discrepancy lets them be."""
    if layer.simplex:
        return read_bounds((0.0, 1.0), 1, np.float64)
    return read_bounds(layer.bounds, 1, np.float64).within(*interval_of(find_discrepancy(layer.discrepancy)))


def mean_ranges(
    box: Box, residual: np.ndarray, targets_within: tuple[float, float] | None
) -> tuple[np.ndarray, np.ndarray]:
    """(K,) each: the range of what is averaged, outputs within a box or what is left of them less the targets."""
    low, high = targets_within or (0.0, 0.0)
    return box.lowest - np.where(residual, high, 0.0), box.highest - np.where(residual, low, 0.0)


class ShiftFit(Fit):
    """Shifts of the groups of a calibration sample. proxies, targets_within: as for `freeze`."""

    what = "shifts"

    def __init__(self, frozen: Frozen, layer: FairLayer, given: Calibration, proxies: Any, targets_within: Any):
        self.frozen, self.layer, self.given, self.rows = frozen, layer, given, np.arange(len(given.z))
        hard = {m: known for m, known in given.labels.items() if not isinstance(given.columns[m], SoftGroup)}
        self.levels = hard or None
        codes = frozen.encode(given.columns, given.features)
        self.own = frozen.membership(codes).numpy()  # (n, shifts)
        self.moved = self.own if proxies is None else self._stand_ins(proxies, codes.is_floating_point())
        self.blind = proxies is not None
        data: dict[str, Any] = {"groups": given.columns, "targets": given.targets, "features": given.features}
        view = bind(layer.rules, len(self.rows), **data, levels=self.levels).view
        self.compared = Compared.of(view, layer.rules)
        self.places, self.residual = frozen.places(view.plan), view.plan.residual
        self.member = self.own[:, self.places]
        self.low, self.high = mean_ranges(output_range(layer), self.residual, targets_within)
        if self.residual.any() and targets_within is not None and given.targets is not None:
            outside = (given.targets < targets_within[0]) | (given.targets > targets_within[1])
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
        stated: list[Any] = self.layer.rules.constraints
        rules, some = ConstraintSet([c.allowing(share * c.allowed) for c in stated]), self.given.rows(rows)
        total = (np.ones(len(rows)) if some.weights is None else some.weights) @ self.own[rows]
        self.frozen.seen.copy_(torch.from_numpy(total > 0))
        shifts = self._blind(rows, some, share) if self.blind else self._projected(some, rules, total)
        self.frozen.shifts.copy_(torch.from_numpy(shifts).reshape(self.frozen.shifts.shape))

    def _projected(self, some: Calibration, rules: ConstraintSet, total: np.ndarray) -> np.ndarray:
        """(shifts, d) from the multipliers of the statistics."""
        layer, data = self.layer, (some.targets, some.features, some.weights)
        options: dict[str, Any] = {"infeasible": layer.infeasible, "simplex": layer.simplex, "levels": self.levels}
        found: Any = project(some.z, some.columns, rules, layer.bounds, *data, layer.discrepancy, **options)
        parts = found.parts if layer.simplex else [found]
        shifts = np.zeros((len(total), len(parts)))
        shifts[self.frozen.places(parts[0].view.plan)] = np.stack([part.nu for part in parts], axis=1)
        return np.where(total[:, None] > 0, shifts / np.where(total > 0, total, 1.0)[:, None], 0.0)

    def _blind(self, rows: np.ndarray, some: Calibration, share: float) -> np.ndarray:
        """(shifts,) by which the probabilities of some samples keep the gaps of their true groups."""
        member = self.member[rows]
        offset = np.zeros(member.shape[1])
        if some.targets is not None:
            means = some.targets @ member / np.maximum(member.sum(axis=0), 1.0)
            offset = np.where(self.residual, means, 0.0)
        lo, hi = self.frozen.limits.tolist()
        compared = self.compared._replace(tolerances=share * self.compared.tolerances)
        return blind_shifts(TrueGaps(some.z.double().numpy(), self.moved[rows], member, offset, lo, hi, compared))

    def values(self, rows: np.ndarray) -> list[np.ndarray]:
        """Outputs, or residuals, of each column."""
        z, shift = (
            self.given.z[torch.from_numpy(rows)].double(),
            torch.from_numpy(self.moved[rows]) @ self.frozen.shifts,
        )
        y = self.frozen.respond(z, shift).numpy().reshape(len(rows), -1)
        offset = np.zeros((len(rows), 1))
        if self.residual.any():
            assert self.given.targets is not None
            offset = self.given.targets[rows][:, None] * self.residual
        return [y[:, j : j + 1] - offset for j in range(y.shape[1])]
