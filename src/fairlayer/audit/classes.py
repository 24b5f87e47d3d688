"""Audits of class probabilities: every class by itself, and the predicted classes, as one result.

Each class is audited as any probability is, against whether it is the true one; its decisions are whether it is the
predicted one. The findings of all of them are the findings of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.audit.result import Audit, Group
from fairlayer.audit.samples import Samples, read_numbers, read_samples
from fairlayer.audit.selection import rates
from fairlayer.errors import InputError
from fairlayer.intervals import effective_count
from fairlayer.problem.constraint_set import ConstraintSet

_OFF = 1e-3  # that probabilities may add up to more or less than 1, as those in a file do


def class_samples(
    predictions: Any,  # (n, d)
    groups: Any,
    rules: ConstraintSet,
    targets: Any,  # (n,) true classes, or None
    classes: Sequence[Any] | None,
    raw: Any,  # (n, d), or None
    features: Any,
    weights: Any,
) -> tuple[dict[str, Samples], np.ndarray | None]:
    """The samples as each class sees them, by its name; and for whom the predicted class is right."""
    outputs = as_numpy(predictions)
    off = np.abs(outputs.astype(np.float64).sum(axis=1) - 1.0)
    if not (off <= _OFF).all():
        i = int(np.argmax(~(off <= _OFF)))
        raise InputError(
            f"predictions has shape {outputs.shape}, and row {i} adds up to {float(outputs[i].sum()):.6g}: "
            "probabilities of classes add up to 1. Audit columns of other kinds one at a time."
        )
    n, d = outputs.shape
    if classes is not None and len(classes) != d:
        raise InputError(f"classes names {len(classes)}, predictions have {d} columns: name every column.")
    names = [str(name) for name in (range(d) if classes is None else classes)]
    true = None if targets is None else _labels(targets, names, classes, n)
    before = None if raw is None else as_numpy(raw)
    if before is not None and before.shape != outputs.shape:
        raise InputError(f"raw has shape {before.shape}, predictions {outputs.shape}: they must be alike.")
    chosen = outputs.argmax(axis=1)
    shared = read_samples(outputs[:, 0], groups, features=features, weights=weights)
    found = {}
    for j, name in enumerate(names):
        own: dict[str, Any] = {"y": read_numbers(outputs[:, j], "predictions"), "decisions": chosen == j}
        if before is not None:
            own |= {"raw": read_numbers(before[:, j], "raw"), "raw_decisions": before.argmax(axis=1) == j}
        if true is not None and rules.needs_targets:  # a constraint on targets means the true class, by its name
            own |= {"targets": np.array(names)[true], "kind": "classes"}
        elif true is not None:
            own |= {"targets": (true == j).astype(np.float64), "kind": "binary"}
        found[name] = replace(shared, **own)
    return found, None if true is None else chosen == true


def join_classes(found: Mapping[str, Audit], right: np.ndarray | None, weights: Any, confidence: float) -> Audit:
    """The audits of all classes as one."""
    first = next(iter(found.values()))
    findings = [
        replace(finding, name=f"{finding.name}, class {name}", where=f"{finding.where}, class {name}")
        for name, audit in found.items()
        for finding in audit.findings
    ]

    def groups(part: str) -> tuple[Group, ...]:
        return tuple(
            replace(
                group, attributes=(*group.attributes, "class"), labels=(*group.labels, name),
                histogram=None, calibration=(), change=None,
            )
            for name, audit in found.items()
            for group in getattr(audit, part)
        )  # fmt: skip

    overall, notes = Group((), (), first.settings.samples, 1.0, math.nan, None, math.nan, None), first.notes
    if right is not None:
        w = np.ones(len(right)) if weights is None else as_numpy(weights).astype(np.float64)
        total, squared, correct, count = (np.array([values.sum()]) for values in (w, w**2, w * right, np.ones(len(w))))
        n = effective_count(total, squared)
        overall = replace(overall, accuracy=rates(correct, total, n, count, confidence)[0])
        notes = (f"The predicted class is right for {float(correct[0] / total[0]):.1%}.", *notes)
    return replace(
        first,
        findings=tuple(sorted(findings, key=lambda finding: -finding.excess)),
        overall=overall,
        groups=groups("groups"),
        intersections=groups("intersections"),
        notes=notes,
        classes=dict(found),
    )


def _labels(targets: Any, names: Sequence[str], classes: Sequence[Any] | None, n: int) -> np.ndarray:
    """The true class of every sample, by its number."""
    values = as_numpy(targets).reshape(-1).tolist()
    if len(values) != n:
        raise InputError(f"targets has {len(values)} entries for {n} predictions: pass one per row.")
    number: dict[Any, int] = {name: j for j, name in enumerate(names)}
    number |= {name: j for j, name in enumerate(range(len(names)) if classes is None else classes)}
    unknown = next((value for value in values if value not in number), None)
    if unknown is not None:
        raise InputError(
            f"targets has {unknown!r}, which is none of the classes {list(names)}: pass classes=, the names of the "
            "columns in their order."
        )
    return np.array([number[value] for value in values])
