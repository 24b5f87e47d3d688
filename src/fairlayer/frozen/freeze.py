"""`freeze`: a projection solved once, kept as one shift per group, and served one sample at a time.

At its solution the projection moves every sample by a shift that depends on its groups alone,

    y = rho(z, s),    s = sum of sigma_k over the groups k that the sample belongs to,

for the squared discrepancy y = clip(z - s, lo, hi). Solved on a calibration sample, the sigma_k make y a function of
one sample: no batch effect, and a plain module that exports. What was exact for a batch becomes statistical: a
`Certificate` says which gaps the population can have, and with what confidence.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from fairlayer.errors import InputError
from fairlayer.frozen.blind import OutOfReachError
from fairlayer.frozen.certificate import Certificate
from fairlayer.frozen.fits import Fit, ShiftFit, ThresholdFit, check_decisions, labels_of, output_range, read_sample
from fairlayer.frozen.frozen import Frozen, FrozenClasses, FrozenDecisions
from fairlayer.layer import FairLayer, FairModel

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
    _check_layer(layer)
    _check_confidence(layer, confidence, tighten, weights, targets_within)
    if proxies is not None and (layer.simplex or layer.rules.about_decisions):
        raise InputError(
            "proxies are for one output per sample and constraints on means: classes and thresholds of decisions need "
            "the groups themselves. Leave proxies out, or constrain the means of the scores."
        )
    given = read_sample(layer, backbone, inputs, groups, targets=targets, features=features, weights=weights)
    if layer.simplex != (given.x.ndim == 2):
        raise InputError(
            f"inputs give outputs of shape {tuple(given.x.shape)}: freeze takes one output per sample, or with "
            "simplex=True the probabilities of its classes."
        )
    labels = {name: labels_of(column) for name, column in given.groups.attributes.items()}
    frozen = unfitted(layer, labels, backbone, classes=given.x.shape[-1])
    if isinstance(frozen, FrozenDecisions):
        return _calibrated(ThresholdFit(frozen, given), confidence, tighten, certify, seed)
    return _calibrated(ShiftFit(frozen, layer, given, proxies, targets_within), confidence, tighten, certify, seed)


def unfitted(layer: FairLayer, labels: Any, backbone: nn.Module | None = None, classes: int = 2) -> Frozen:
    """What a layer freezes to, without what a fit finds: thresholds for decisions, shifts for all else."""
    if layer.simplex:
        return FrozenClasses(layer, labels, backbone, classes)
    return (FrozenDecisions if layer.rules.about_decisions else Frozen)(layer, labels, backbone)


def _calibrated(fit: Fit, confidence: float | None, tighten: bool, certify: float, seed: int) -> Frozen:
    """Fit, and certify; arguments as of `freeze`."""
    frozen, n = fit.frozen.eval(), len(fit.rows)
    if confidence is None:
        fit.fit(fit.rows, 1.0)
        return frozen
    order, kept = np.random.default_rng(seed).permutation(fit.rows), round(certify * n)
    fit_on, certify_on = np.sort(order[kept:]), np.sort(order[:kept])
    if not len(fit_on) or not len(certify_on):
        raise InputError(f"certify={certify} of {n} samples leaves none to fit, or none to certify with.")
    if not tighten:
        fit.fit(fit_on, 1.0)
        frozen.certificate = fit.state(fit_on, certify_on, 1.0, confidence)
        return frozen
    # Tests in an order fixed beforehand, from the strictest on, each at the full level, up to the first that fails:
    # the chance that any of them passes wrongly is that of the first that should have failed.
    best: tuple[Tensor, Certificate] | None = None
    for step in range(TIGHTENING_STEPS + 1):
        share = step / TIGHTENING_STEPS
        try:
            fit.fit(fit_on, share)
        except OutOfReachError:  # which the samples to certify with have no part in: the next is the first to test
            if step == TIGHTENING_STEPS:
                raise
            continue
        certificate = fit.state(fit_on, certify_on, share, confidence)
        if not certificate.satisfied:
            if best is None:
                raise InputError(certificate.too_small(fit.what))
            break
        best = frozen.shifts.clone(), certificate
    assert best is not None
    frozen.shifts.copy_(best[0])
    # What a sequence of tests allows to say: that the tolerances hold, not by how much.
    rows = tuple(replace(row, bound=row.tolerance) for row in best[1].rows)
    frozen.certificate = replace(best[1], rows=rows)
    return frozen


def _check_layer(layer: Any) -> None:
    """Refuse what cannot be frozen."""
    if not isinstance(layer, FairLayer):
        raise InputError(f"freeze needs a FairLayer or a FairModel; got {type(layer).__name__}.")
    if not layer.rules.constraints:
        raise InputError("The layer has no constraints: there is nothing to freeze.")
    if layer.rules.about_decisions:
        check_decisions(layer.rules)
        return
    for constraint in layer.rules.constraints:
        if not constraint.needs_groups:
            raise InputError(f"{type(constraint).__name__} is about one batch, not about groups: it cannot be frozen.")
        if any(condition.source == "target" for condition in constraint.conditions):
            raise InputError(
                f"{type(constraint).__name__} shifts samples by their targets, which are unknown when one is served: "
                "it cannot be frozen. Use it in training, and freeze another constraint."
            )


def _check_confidence(layer: FairLayer, confidence: float | None, tighten: bool, weights: Any, within: Any) -> None:
    """Refuse a statement that cannot be made."""
    if confidence is None:
        if tighten:
            raise InputError("tighten=True needs a confidence.")
        return
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence must lie between 0 and 1; got {confidence}.")
    box, decisions, why = output_range(layer), layer.rules.about_decisions, None
    if not decisions and not math.isfinite(box.highest - box.lowest):
        why = "the layer's outputs are unbounded (give it bounds=(lo, hi))"
    elif weights is not None:
        why = "weighted samples are not equally likely draws (leave weights out)"
    elif not decisions and layer.rules.needs_targets and within is None:
        why = "targets may be anything (pass targets_within=(lo, hi))"
    if why:
        raise InputError(f"No confidence can be stated: {why}. Pass confidence=None to freeze without a statement.")
