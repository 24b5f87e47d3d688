"""Audits of class probabilities: every class by itself, and the predicted classes, as one result.

Each class is audited as any probability is, against whether it is the true one. The findings of all of them are the
findings of the whole; who is selected, for a class, is who is predicted to be of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.audit.result import Audit, ClassReport, GroupReport
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.errors import InputError

_OFF = 1e-3  # that probabilities may add up to more or less than 1, as those in a file do


def audit_classes(
    predictions: np.ndarray,  # (n, d)
    groups: Any,
    rules: ConstraintSet,
    targets: Any,  # (n,) true classes, or None
    classes: Sequence[Any] | None,
    raw: Any,  # (n, d), or None
    options: dict[str, Any],
    run: Any,
) -> Audit:
    """Audit every column, and which of them is the largest. run: `audit` of one output per sample."""
    off = np.abs(predictions.astype(np.float64).sum(axis=1) - 1.0)
    if not (off <= _OFF).all():
        i = int(np.argmax(~(off <= _OFF)))
        raise InputError(
            f"predictions has shape {predictions.shape}, and row {i} adds up to {float(predictions[i].sum()):.6g}: "
            "probabilities of classes add up to 1. Audit columns of other kinds one at a time."
        )
    d = predictions.shape[1]
    if classes is not None and len(classes) != d:
        raise InputError(f"classes names {len(classes)}, predictions have {d} columns: name every column.")
    names = tuple(str(name) for name in (range(d) if classes is None else classes))
    labels = None if targets is None else _labels(targets, names, classes, len(predictions))
    before = None if raw is None else as_numpy(raw)
    if before is not None and before.shape != predictions.shape:
        raise InputError(f"raw has shape {before.shape}, predictions {predictions.shape}: they must be alike.")
    predicted = predictions.argmax(axis=1)
    reports, selections = [], []
    for j, name in enumerate(names):
        # A constraint that looks at targets means the true class, by its name, not whether it is this one.
        known = None
        if labels is not None:
            known = np.array(names)[labels] if rules.needs_targets else (labels == j).astype(np.float64)
        own = None if before is None else before[:, j]
        report = run(predictions[:, j], groups, rules, known, raw=own, **options)
        reports.append(ClassReport(name, _without_errors(report) if rules.needs_targets else report))
        options = {**options, "history": None, "comparison": ()}  # of the model, so told once
        chosen = run((predicted == j).astype(np.float64), groups, rules, known, **{**options, "threshold": 0.5})
        selections += [
            replace(one, attributes=(*one.attributes, "predicted class"), labels=(*one.labels, name))
            for one in chosen.selections
        ]
    first = reports[0].audit
    findings = [
        replace(finding, name=f"{finding.name}, class {report.name}", where=f"{finding.where}, class {report.name}")
        for report in reports
        for finding in report.audit.findings
    ]
    means = [
        replace(group, labels=(*group.labels[:-1], f"{group.labels[-1]}, {report.name}"))
        for report in reports
        for group in report.audit.groups
    ]
    accuracy = () if labels is None else (f"The predicted class is right for {(predicted == labels).mean():.1%}.",)
    return replace(
        first,
        findings=tuple(sorted(findings, key=lambda finding: -finding.excess)),
        groups=tuple(means),
        intersections=(),
        calibration=(),
        histograms=(),
        changes=(),
        tradeoff=(),
        settings=replace(first.settings, threshold=0.5, classes=names),
        notes=(*accuracy, *first.notes),
        selections=tuple(sorted(selections, key=lambda one: 1.0 if one.impact_ratio is None else one.impact_ratio)),
        classes=tuple(reports),
    )


def _without_errors(report: Audit) -> Audit:
    """Without what compares the probabilities of a class with true classes, which names that are numbers let it do."""
    nothing: dict[str, Any] = {one.name: None for one in fields(GroupReport) if one.default is None}
    overall, *groups = (replace(group, **nothing) for group in (report.overall, *report.groups))
    between = tuple(replace(group, **nothing) for group in report.intersections)
    settings = replace(report.settings, targets="classes")
    return replace(
        report, overall=overall, groups=tuple(groups), intersections=between, calibration=(), settings=settings
    )


def _labels(targets: Any, names: tuple[str, ...], classes: Sequence[Any] | None, n: int) -> np.ndarray:
    """The true class of every sample, by its number."""
    values = as_numpy(targets).reshape(-1).tolist()
    if len(values) != n:
        raise InputError(f"targets has {len(values)} entries for {n} predictions: pass one per row.")
    given = range(len(names)) if classes is None else classes
    number: dict[Any, int] = {**{name: j for j, name in enumerate(names)}, **{name: j for j, name in enumerate(given)}}
    unknown = next((value for value in values if value not in number), None)
    if unknown is not None:
        raise InputError(
            f"targets has {unknown!r}, which is none of the classes {list(names)}: pass classes=, the names of the "
            "columns in their order."
        )
    return np.array([number[value] for value in values])
