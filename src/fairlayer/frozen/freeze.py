"""`freeze`: a projection solved once, kept as one shift per group, and served one sample at a time.

At its solution the projection moves every sample by a shift that depends on its groups alone,

    y = rho(z, s),    s = sum of sigma_k over the groups k that the sample belongs to,

for the squared discrepancy y = clip(z - s, lo, hi). Solved on a calibration sample, the sigma_k make y a function of
one sample: no batch effect, and a plain module that exports. What was exact for a batch becomes statistical: a
`Certificate` says which gaps the population can have, and with what confidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box, read_bounds
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.groups import Attributes, SoftGroup, read_groups
from fairlayer.binding.system import bind
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.errors import InputError
from fairlayer.frames import frame_columns
from fairlayer.frozen.blind import OutOfReachError, TrueGaps, blind_shifts
from fairlayer.frozen.classes import FrozenClasses
from fairlayer.frozen.confidence import (
    Certificate,
    GapBound,
    Mean,
    gap_bounds,
    growth_needed,
    interval,
    prefers_bernstein,
    ratio_interval,
)
from fairlayer.frozen.decisions import freeze_decisions
from fairlayer.frozen.frozen import Frozen
from fairlayer.layer import FairLayer
from fairlayer.model import FairModel
from fairlayer.projection import project
from fairlayer.solve.discrepancy import find_discrepancy, interval_of, known_name

TIGHTENING_STEPS = 20


def freeze(
    model: Any,
    inputs: Any,
    groups: Any,
    *,
    proxies: Any = None,
    confidence: float | None = 0.95,
    tighten: bool = False,
    targets: Any = None,
    features: Any = None,
    weights: Any = None,
    certify: float = 0.5,
    targets_within: tuple[float, float] | None = None,
    seed: int = 0,
) -> Frozen:
    """Solve the projection on a calibration sample and keep its shifts.

    model: a `FairLayer`, with raw outputs as inputs; or a `FairModel`, with what its backbone takes. The calibration
    sample must be drawn from the population served, and not have been used in training.
    groups, targets, features, weights: as for `project`. With a SoftGroup, group means are those weighted by the
    probabilities, and the shift of a sample is the expected one: exactly what the projection of soft groups does.

    proxies: what stands in for the groups when serving, where these may not be used or are not known: a `SoftGroup` of
    the same samples for every attribute. The shifts are then those by which such probabilities keep the gaps of the
    true groups, `groups`, within the tolerances on the sample; serve with `SoftGroup`s from the same source.

    confidence: of the certificate. A share `certify` of the sample, drawn at random, is kept for it, so that it is
    independent of the shifts. None: no certificate, and shifts from the whole sample.
    tighten: fit for smaller tolerances, so that the stated ones themselves hold with that confidence; an error names
    the sample size needed where the sample is too small for that.
    targets_within: the range targets can have, which certificates about residuals need.

    Of `RateParity` a threshold per cell is kept instead, and the certificate is about rates: see `FrozenDecisions`.
    Of a layer with simplex=True every group has a shift for each class, and the certificate is about every class.
    """
    layer, backbone = (model, None)
    if isinstance(model, FairModel):
        layer, backbone = model.layer, FairModel(model.backbone, None, model.hide)
    if isinstance(layer, FairLayer) and layer.rules.about_decisions:
        if proxies is not None:
            raise InputError(
                "proxies are for constraints on means: thresholds of decisions need the groups themselves. Leave "
                "proxies out, or constrain the means of the scores."
            )
        return freeze_decisions(
            layer, backbone, _raw(backbone, inputs), groups, confidence, tighten, targets, weights, certify, seed
        )
    check_freeze(layer, confidence, tighten, weights, targets_within)
    z = _raw(backbone, inputs)
    n = len(z)
    if layer.simplex != (z.ndim == 2):
        raise InputError(
            f"inputs give outputs of shape {tuple(z.shape)}: freeze takes one output per sample, or with simplex=True "
            "the probabilities of its classes."
        )
    if layer.simplex and proxies is not None:
        raise InputError("proxies are for one output per sample: leave them out for class probabilities.")
    attributes = read_groups(groups, n, layer.levels)
    _, used = layer.rules.groupings(tuple(attributes))
    attributes = {name: attributes[name] for name in used}
    labels = {name: _known_labels(column) for name, column in attributes.items()}
    frozen = FrozenClasses(layer, labels, backbone, z.shape[1]) if layer.simplex else Frozen(layer, labels, backbone)
    sample = _Sample(frozen, layer, z, attributes, targets, features, weights, proxies)
    if confidence is None:
        frozen.shifts.copy_(sample.fit(np.arange(n), 1.0))
        return frozen.eval()
    order = np.random.default_rng(seed).permutation(n)
    kept = round(certify * n)
    fit_on, certify_on = np.sort(order[kept:]), np.sort(order[:kept])
    if not len(fit_on) or not len(certify_on):
        raise InputError(f"certify={certify} of {n} samples leaves none to fit, or none to certify with.")
    statement = _Statement(sample, fit_on, certify_on, confidence, targets_within)
    if not tighten:
        frozen.shifts.copy_(sample.fit(fit_on, 1.0))
        frozen.certificate = statement.make(1.0)
        return frozen.eval()
    # Tests in an order fixed beforehand, from the strictest on, each at the full level, up to the first that fails:
    # the chance that any of them passes wrongly is that of the first that should have failed.
    best: tuple[Tensor, Certificate] | None = None
    for step in range(TIGHTENING_STEPS + 1):
        try:
            frozen.shifts.copy_(sample.fit(fit_on, step / TIGHTENING_STEPS))
        except OutOfReachError:  # which the samples to certify with have no part in: the next is the first to test
            if step == TIGHTENING_STEPS:
                raise
            continue
        certificate = statement.make(step / TIGHTENING_STEPS)
        if not certificate.satisfied:
            if best is None:
                raise InputError(statement.advice(certificate))
            break
        best = frozen.shifts.clone(), certificate
    assert best is not None
    frozen.shifts.copy_(best[0])
    frozen.certificate = _only_tolerances(best[1])
    return frozen.eval()


def check_freeze(layer: Any, confidence: float | None, tighten: bool, weights: Any, within: Any) -> None:
    """Refuse what cannot be frozen, or cannot be stated."""
    if not isinstance(layer, FairLayer):
        raise InputError(f"freeze needs a FairLayer or a FairModel; got {type(layer).__name__}.")
    constraints: list[Any] = layer.rules.constraints
    for constraint in constraints:
        if not constraint.needs_groups:
            raise InputError(f"{type(constraint).__name__} is about one batch, not about groups: it cannot be frozen.")
        if any(condition.source == "target" for condition in constraint.conditions):
            raise InputError(
                f"{type(constraint).__name__} shifts samples by their targets, which are unknown when one is served: "
                "it cannot be frozen. Use it in training, and freeze another constraint."
            )
    if not layer.rules.constraints:
        raise InputError("The layer has no constraints: there is nothing to freeze.")
    if confidence is None:
        if tighten:
            raise InputError("tighten=True needs a confidence.")
        return
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence must lie between 0 and 1; got {confidence}.")
    box = _output_range(layer)
    why = None
    if not math.isfinite(box.lowest) or not math.isfinite(box.highest):
        why = "the layer's outputs are unbounded (give it bounds=(lo, hi))"
    elif weights is not None:
        why = "weighted samples are not equally likely draws (leave weights out)"
    elif layer.rules.needs_targets and within is None:
        why = "targets may be anything (pass targets_within=(lo, hi))"
    if why:
        raise InputError(f"No confidence can be stated: {why}. Pass confidence=None to freeze without a statement.")


def _output_range(layer: FairLayer) -> Box:
    """What outputs can be: within the bounds, and where the discrepancy lets them be."""
    if layer.simplex:
        return read_bounds((0.0, 1.0), 1, np.float64)
    return read_bounds(layer.bounds, 1, np.float64).within(*interval_of(find_discrepancy(layer.discrepancy)))


@torch.no_grad()
def _raw(backbone: nn.Module | None, inputs: Any) -> Tensor:
    """Raw outputs, of shape (n,) or (n, d), of a backbone in evaluation mode."""
    if backbone is None:
        z = inputs if isinstance(inputs, Tensor) else torch.from_numpy(np.ascontiguousarray(inputs))
    else:
        z = backbone.eval()(inputs)
    z = z.detach().cpu()
    return z if z.ndim == 2 and z.shape[1] > 1 else z.reshape(-1)


def _known_labels(column: Any) -> tuple[Label, ...]:
    """The labels that occur; those that only might are unknown to a frozen layer."""
    if isinstance(column, SoftGroup):
        return tuple(column.labels)
    found = np.unique(as_numpy(column.values)).tolist()
    return tuple(found) if column.labels is None else tuple(column.labels[code] for code in found)


class _Compared(NamedTuple):
    """The rows of the constraints, by where the frozen layer keeps their groups."""

    plus: np.ndarray  # (m,)
    minus: np.ndarray  # (m,) -1 for no second group
    relative: np.ndarray  # (m,) whether the gap is relative to the larger mean
    tolerances: list[float]  # (m,)
    names: tuple[str, ...]  # (m,)


class _Sample:
    """The calibration sample: raw outputs, and which groups each belongs to."""

    def __init__(
        self,
        frozen: Frozen,
        layer: FairLayer,
        z: Tensor,
        attributes: Attributes,
        targets: Any,
        features: Any,
        weights: Any,
        proxies: Any,
    ):
        self.frozen = frozen
        self.layer = layer
        self.z = z
        self.targets = None if targets is None else as_numpy(targets).reshape(-1)
        self.weights = None if weights is None else as_numpy(weights).reshape(-1)
        self.features = features
        self.columns = {name: _labels_of(column) for name, column in attributes.items()}
        self.levels = {name: known for name, known in frozen.labels.items() if not self._is_soft(name)}
        self.codes = frozen.encode(self.columns, features)
        self.member = frozen.membership(self.codes).numpy()
        self.soft = self.codes.is_floating_point()
        self.blind = proxies is not None
        self.moved = self._stand_ins(proxies) if self.blind else self.member

    def _stand_ins(self, proxies: Any) -> np.ndarray:
        """(n, K) how likely each sample belongs to each group, for all that is known when serving."""
        if self.soft or self.weights is not None or known_name(self.layer.discrepancy) != "squared":
            raise InputError(
                "proxies need the true groups as labels, samples that count alike, and discrepancy='squared': pass "
                "groups without SoftGroup, leave weights out, and leave the discrepancy as it is."
            )
        named = proxies if isinstance(proxies, Mapping) else {}
        for name in self.frozen.labels:
            if not isinstance(named.get(name), SoftGroup) or len(named[name]) != len(self.z):
                raise InputError(
                    f"proxies needs a SoftGroup with {len(self.z)} rows for {name!r}: probabilities of "
                    f"{list(self.frozen.labels[name])}."
                )
        return self.frozen.membership(self.frozen.encode(named, self.features)).numpy()

    def _is_soft(self, name: Name) -> bool:
        return isinstance(self.columns[name], SoftGroup)

    def outputs(self) -> np.ndarray:
        """(n, d) what the frozen shifts, as they are now, make of the samples; d is 1 but for classes."""
        shift = torch.from_numpy(self.moved) @ self.frozen.shifts
        if isinstance(self.frozen, FrozenClasses):
            return self.frozen.respond(self.z.double(), shift).numpy()
        lo, hi = self.frozen.limits
        return self.frozen.discrepancy.response(self.z.double(), shift, lo, hi).numpy()[:, None]

    def fit(self, rows: np.ndarray, share: float) -> Tensor:
        """The shifts of the projection of some samples onto `share` of every tolerance."""
        stated: list[Any] = self.layer.rules.constraints
        constraints = [c.allowing(share * c.allowed) for c in stated]
        if self.blind:
            return self._fit_blind(rows, ConstraintSet(constraints))
        solution = project(
            self.z[torch.from_numpy(rows)],
            {name: _take(column, rows) for name, column in self.columns.items()},
            constraints,
            self.layer.bounds,
            None if self.targets is None else self.targets[rows],
            _take_features(self.features, rows),
            None if self.weights is None else self.weights[rows],
            self.layer.discrepancy,
            levels=self.levels or None,
            absent="vacuous",
            infeasible=self.layer.infeasible,
            simplex=self.layer.simplex,
        )
        facts: Any = solution.facts
        weight = np.ones(len(rows)) if self.weights is None else self.weights[rows]
        total = weight @ self.member[rows]
        self.frozen.seen.copy_(torch.from_numpy(total > 0))
        parts = facts.parts if self.layer.simplex else [facts]
        shifts = np.zeros((len(total), len(parts)))
        shifts[self.frozen.places(parts[0].view.plan)] = np.stack([part.nu for part in parts], axis=1)
        shifts[total > 0] /= total[total > 0, None]
        shifts[total <= 0] = 0.0
        return torch.from_numpy(shifts if self.layer.simplex else shifts[:, 0])

    def _fit_blind(self, rows: np.ndarray, rules: ConstraintSet) -> Tensor:
        """The shifts by which the probabilities of some samples keep the gaps of their true groups."""
        compared, member = self.compared(rules), self.member[rows]
        self.frozen.seen.copy_(torch.from_numpy(member.sum(axis=0) > 0))
        offset = np.zeros(member.shape[1])
        for family in self.frozen.families:
            offset[family.start :] = 0.0
            if family.residual and self.targets is not None:
                part = member[:, family.start :]
                offset[family.start :] = self.targets[rows] @ part / np.maximum(part.sum(axis=0), 1.0)
        lo, hi = self.frozen.limits.tolist()
        allowed = np.array(compared.tolerances)
        z = self.z[torch.from_numpy(rows)].double().numpy()
        of_rows = (compared.plus, compared.minus, compared.relative, allowed, compared.names)
        return torch.from_numpy(blind_shifts(TrueGaps(z, self.moved[rows], member, offset, lo, hi, *of_rows)))

    def compared(self, rules: ConstraintSet) -> _Compared:
        """Which groups the constraints compare, of the whole sample."""
        whole = bind(
            rules,
            len(self.z),
            groups=self.columns,
            targets=self.targets,
            features=self.features,
            levels=self.levels or None,
        ).view
        places = np.append(self.frozen.places(whole.plan), -1)
        allowed = rules.allowed()
        return _Compared(
            places[whole.plus],
            places[whole.minus],
            np.zeros(len(whole.names), dtype=bool) if whole.relative is None else whole.relative,
            [allowed[owner] for owner in whole.owner],
            tuple(whole.names),
        )


class _Statement:
    """What can be said of the population from samples that had no part in the fit."""

    def __init__(
        self,
        sample: _Sample,
        fit_on: np.ndarray,
        certify_on: np.ndarray,
        confidence: float,
        targets_within: tuple[float, float] | None,
    ):
        self.sample = sample
        self.fit_on = fit_on
        self.certify_on = certify_on
        self.confidence = confidence
        self.plus, self.minus, self.relative, self.tolerances, self.names = sample.compared(sample.layer.rules)
        self.groups = np.unique(np.concatenate([self.plus, self.minus[self.minus >= 0]]))
        self.y = sample.outputs()
        outputs = self.y.shape[1]
        self.delta = (1.0 - confidence) / max(1, len(self.groups) * outputs)  # both sides of every mean hold together
        self.ends = [f", class {j}" for j in range(outputs)] if sample.layer.simplex else [""]  # of names
        box = _output_range(sample.layer)
        self.plain_range = box.lowest, box.highest
        low, high = targets_within or (0.0, 0.0)
        self.residual_range = box.lowest - high, box.highest - low
        self.residual = np.zeros(sample.member.shape[1], dtype=bool)
        for family in sample.frozen.families:
            self.residual[family.start :] = family.residual
        self.labels = sample.frozen.group_names()
        self._check_targets(targets_within)

    def _check_targets(self, within: tuple[float, float] | None) -> None:
        targets = self.sample.targets
        if self.residual.any() and within is not None and targets is not None:
            outside = (targets < within[0]) | (targets > within[1])
            if outside.any():
                raise InputError(f"targets[{int(outside.argmax())}] lies outside targets_within={within}.")

    def make(self, aimed_at: float) -> Certificate:
        """The certificate of the shifts as they are now."""
        self.y = self.sample.outputs()
        means = {(k, j): self._mean(k, j) for j in range(len(self.ends)) for k in self.groups}
        rows: tuple[GapBound, ...] = ()
        for j, end in enumerate(self.ends):
            own = {k: means[k, j] for k in self.groups}
            stated = (self.plus, self.minus, self.tolerances, self.relative)
            rows += gap_bounds([name + end for name in self.names], *stated, own)
        return Certificate(
            self.confidence, len(self.fit_on), len(self.certify_on), rows, tuple(means.values()), aimed_at
        )

    def _values(self, k: int, rows: np.ndarray, j: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """What is averaged over group k, and how much each sample belongs to it; those that do not are left out.

        j: the output, where there are several.
        """
        here = rows[self.sample.member[rows, k] > 0]
        values = self.y[here, j]
        if self.residual[k]:
            assert self.sample.targets is not None
            values = values - self.sample.targets[here]
        return values, self.sample.member[here, k]

    def _mean(self, k: int, j: int) -> Mean:
        lo, hi = self.residual_range if self.residual[k] else self.plain_range
        other, weight = self._values(k, self.fit_on, j)
        values, member = self._values(k, self.certify_on, j)
        spread = _scaled_variance(other, lo, hi)
        label = self.labels[k] + self.ends[j]
        mean = float(np.average(values, weights=member)) if len(values) else math.nan
        if not self.sample.soft:
            bernstein = prefers_bernstein(len(values), spread, self.delta)
            lower, upper = interval(values, lo, hi, self.delta, bernstein)
            return Mean(label, len(values), mean, lower, upper)
        n = len(self.certify_on)
        bernstein = prefers_bernstein(n, _scaled_variance(weight, 0.0, 1.0), self.delta / 2)
        everyone = np.zeros((2, n))
        everyone[:, : len(values)] = values, member  # those that do not belong count with membership 0
        lower, upper = ratio_interval(everyone[0], everyone[1], lo, hi, self.delta, bernstein)
        return Mean(label, len(values), mean, lower, upper)

    def advice(self, certificate: Certificate) -> str:
        """What to do where even a fit for equal means cannot be certified."""
        worst = max(certificate.rows, key=lambda row: row.bound - row.tolerance)
        pairs = []
        stated = zip(self.plus, self.minus, self.tolerances, self.relative, strict=True)
        for j, (a, b, tolerance, relative) in product(range(len(self.ends)), list(stated)):
            lo, hi = self.residual_range if self.residual[a] else self.plain_range
            sides: list[float] = []
            for k in (a, b):
                values = self._values(k, self.certify_on, j)[0] if k >= 0 else np.zeros(0)
                sides += [len(values) if k >= 0 else math.inf, _scaled_variance(values, lo, hi)]
            if relative:  # of means that the fit made equal
                tolerance *= float(self._values(a, self.certify_on)[0].mean())
            pairs.append((sides[0], sides[1], sides[2], sides[3], tolerance / (hi - lo)))
        growth = growth_needed(pairs, self.delta)
        total = len(self.fit_on) + len(self.certify_on)
        remedy = "raise the tolerance, or lower the confidence"
        if math.isfinite(growth):
            remedy = f"about {math.ceil(growth * total)} samples like these {total} are needed; or {remedy}"
        return (
            f"The sample is too small for the tolerances to hold with confidence {self.confidence:g}, even with shifts "
            f"fitted for equal means: {worst.row} may be up to {worst.bound:.4g}, tolerance {worst.tolerance:g}. "
            f"Remedy: {remedy}."
        )


def _scaled_variance(values: np.ndarray, lo: float, hi: float) -> float:
    """Sample variance of values mapped from [lo, hi] to [0, 1]; the largest possible where there are too few."""
    return float(values.var(ddof=1)) / (hi - lo) ** 2 if len(values) > 1 else 0.25


def _only_tolerances(certificate: Certificate) -> Certificate:
    """What a sequence of tests allows to say: that the tolerances hold, not by how much."""
    rows = tuple(replace(row, bound=row.tolerance) for row in certificate.rows)
    return replace(certificate, rows=rows)


def _labels_of(column: Any) -> Any:
    """Labels as the user gave them, or soft groups as they are."""
    if isinstance(column, SoftGroup):
        return column
    values = as_numpy(column.values)
    if column.labels is None:
        return values
    labels = np.empty(len(column.labels), dtype=object)
    labels[:] = column.labels
    return labels[values]


def _take(column: Any, rows: np.ndarray) -> Any:
    if isinstance(column, SoftGroup):
        return SoftGroup(column.probabilities[rows], column.labels)
    return column[rows]


def _take_features(features: Any, rows: np.ndarray) -> Any:
    if features is None:
        return None
    return {name: as_numpy(column)[rows] for name, column in frame_columns(features).items()}
