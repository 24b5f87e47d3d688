"""The function `audit`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.audit.classes import audit_classes
from fairlayer.audit.file_profile import FileProfile, read_roles
from fairlayer.audit.files import code_cells, sample_table, tally_table
from fairlayer.audit.findings import find
from fairlayer.audit.group_reports import calibration_curves, changes, describe, histograms
from fairlayer.audit.numerals import number
from fairlayer.audit.result import Audit, Finding, Settings
from fairlayer.audit.samples import AuditSamples, read_numbers, read_samples, tally_samples
from fairlayer.audit.selection import selections
from fairlayer.audit.tally import CellTally, Range
from fairlayer.audit.tradeoff import trade_off
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.classes import check_class_rules
from fairlayer.constraints import Constraint
from fairlayer.errors import InputError
from fairlayer.tables.table import Table
from fairlayer.tables.table_io import TableFile, open_source

TRADEOFF_ROWS = 200_000  # of a file; of more, a sample is taken


def audit(
    predictions: Any,  # (n,) or (n, d) array, tensor or series; or the path of a CSV or Parquet file
    groups: Any,
    constraints: Sequence[Constraint] | Constraint | ConstraintSet,
    targets: Any = None,  # (n,)
    *,
    features: Any = None,
    weights: Any = None,  # (n,)
    raw: Any = None,  # (n,)
    unconstrained: Any = None,  # (n,)
    prediction: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    bounds: tuple[float, float] | None = None,
    threshold: float | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    tradeoff: bool = True,
    history: Mapping[str, Sequence[float]] | None = None,
    comparison: Sequence[Mapping[str, Any]] = (),
    memory: str = "1GB",
    classes: Sequence[Any] | None = None,
) -> Audit:
    """Judge predictions against constraints, group by group.

    Arrays: groups as for `project` (columns by name, a frame, an array), missing labels being a group of their own;
    targets and features where a constraint needs them, or for error rates and calibration; raw: outputs before the
    fairness layer, for who was changed and by how much; unconstrained: outputs of a model that was trained without
    constraints, for what fairness costs (by default that is counted from the raw outputs).

    A file: predictions is its path, and columns are named: groups=["sex", "race"], prediction="p", and where there are
    any target="y", weight="w", raw="z"; features are columns by their own names. It is read in passes and may be larger
    than memory; `memory` is what the reader may use.

    bounds: range of the outputs, [0, 1] where all lie in it and what is observed otherwise; intervals depend on it.
    threshold: outputs at it or above are decisions 1; 0.5 unless targets, or the range of outputs, say that they are no
    probabilities: then there are no decisions. confidence: of every interval by itself. tradeoff: whether to
    project the outputs at several tolerances to see what that costs. seed: of the rows drawn for it, from a large file.
    history, comparison: kept for the report, see `Audit`.

    Arrays of shape (n, d) are probabilities of d classes: every class is audited, and the shares of the predicted one,
    that with the largest probability. classes: their names, in the order of the columns; targets are such names, or
    numbers of columns where no names are given; raw has shape (n, d) too.
    """
    rules = constraints if isinstance(constraints, ConstraintSet) else ConstraintSet(constraints)
    _check(rules, bounds, threshold, confidence)
    threshold = _threshold(rules, threshold)
    if isinstance(predictions, str | Path | Table):
        _only_arrays(targets=targets, features=features, weights=weights, unconstrained=unconstrained)
        # Whatever is repeated goes by other names, so it cannot be asked for.
        opened: Any = nullcontext(predictions)
        if not isinstance(predictions, Table):
            opened = TableFile(open_source(Path(predictions), may_repeat=lambda _: True), memory)
        with opened as table:
            roles = read_roles(table, groups, prediction, target, weight, raw)
            facts = FileProfile(table, roles, rules)
            code = code_cells(table, roles, facts, rules)
            tally = tally_table(table, facts, code, rules, threshold)
            samples = sample_table(table, facts, code, TRADEOFF_ROWS, seed) if tradeoff else None
    else:
        _only_files(prediction=prediction, target=target, weight=weight)
        if rules.needs_targets is not None and targets is None:
            raise InputError(f"targets is missing: {rules.needs_targets} compares with them; pass targets=...")
        if _is_table(predictions):
            check_class_rules(rules, "predictions of several classes")
            if threshold is not None or unconstrained is not None:
                raise InputError("threshold and unconstrained are of one output per sample: leave them out.")
            told = {"features": features, "weights": weights, "bounds": bounds, "confidence": confidence, "seed": seed}
            told |= {"tradeoff": False, "history": history, "comparison": comparison}
            return audit_classes(as_numpy(predictions), groups, rules, targets, classes, raw, told, audit)
        if classes is not None:
            raise InputError(
                "classes names the columns of predictions of shape (n, d), and these have one: leave it out."
            )
        read = read_samples(predictions, groups, targets, features, weights, raw)
        tally, samples = tally_samples(read, rules, threshold), read if tradeoff else None

    rules.check_bounds(tally.outputs.low, "predictions")
    span = _span(tally, bounds)
    points, start = [], ""
    if samples is not None:
        start, outputs = _start(samples, unconstrained)
        points = trade_off(samples, outputs, rules, span, tally.threshold)
    findings, not_compared, empty = find(tally, rules, span, confidence)
    reports = [report for key in tally.attributes for report in describe(tally, [key], span, confidence)]
    columns_of = [[key] for key in tally.attributes] + ([list(tally.attributes)] if len(tally.attributes) > 1 else [])
    return Audit(
        findings=tuple(findings),
        not_compared=not_compared,
        empty=empty,
        overall=describe(tally, [], span, confidence)[0],
        groups=tuple(reports),
        intersections=tuple(describe(tally, tally.attributes, span, confidence)) if len(tally.attributes) > 1 else (),
        calibration=tuple(calibration_curves(tally, confidence)),
        histograms=tuple(histograms(tally)),
        changes=tuple(changes(tally)),
        tradeoff=tuple(points),
        settings=Settings(
            samples=tally.samples,
            source=_title(predictions),
            attributes=tuple(str(key[1]) for key in tally.attributes),
            constraints=tuple(constraint.words() for constraint in rules.constraints),
            confidence=confidence,
            seed=seed,
            threshold=tally.threshold,
            bounds=(tally.outputs.low, tally.outputs.high) if span is None else (span.low, span.high),
            weighted=weights is not None or weight is not None,
            targets=tally.targets,
            start=start,
            versions={name: metadata.version(name) for name in ("fairlayer", "torch", "numpy")},
        ),
        notes=tuple(_notes(tally, span, findings, samples, confidence)),
        history={str(name): tuple(map(float, values)) for name, values in (history or {}).items()},
        comparison=tuple(dict(row) for row in comparison),
        selections=tuple(one for keys in columns_of for one in selections(tally, keys, confidence)),
    )


def _is_table(predictions: Any) -> bool:
    """Whether there are several outputs per sample."""
    if getattr(predictions, "is_nested", False):  # which has no shape, and is refused by name further on
        return False
    return np.ndim(predictions) == 2 and np.shape(predictions)[1] > 1


def _title(predictions: Any) -> str:
    """What the report calls that which was audited."""
    if isinstance(predictions, Table):
        return predictions.title
    return Path(predictions).name if isinstance(predictions, str | Path) else "arrays"


def _start(samples: AuditSamples, unconstrained: Any) -> tuple[str, np.ndarray]:
    """What the trade-off starts from, and its outputs."""
    if unconstrained is not None:
        return "unconstrained model", read_numbers(unconstrained, "unconstrained", len(samples.y))
    return ("predictions", samples.y) if samples.raw is None else ("raw outputs", samples.raw)


def _check(rules: ConstraintSet, bounds: Any, threshold: float | None, confidence: float) -> None:
    if not rules.constraints:
        raise InputError("constraints is empty: say what to audit, for instance [MeanParity(0.05)].")
    if rules.matrices:
        kind = type(rules.matrices[0]).__name__
        raise InputError(f"{kind} is about single outputs, not about groups: measure it with `project`.")
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence must be between 0 and 1, such as 0.95; got {confidence!r}.")
    if threshold is not None and not math.isfinite(threshold):
        raise InputError(f"threshold must be a finite number; got {threshold!r}.")
    if bounds is not None and not (len(bounds) == 2 and -math.inf < bounds[0] < bounds[1] < math.inf):
        raise InputError(f"bounds must be two finite numbers, the lower one first; got {bounds!r}.")


def _threshold(rules: ConstraintSet, stated: float | None) -> float | None:
    """The threshold of decisions: as stated, or as the constraints on decisions have it."""
    given = sorted({float(c.threshold) for c in rules.constraints if c.quantity == "decision"})  # type: ignore[attr-defined]
    if stated is not None:
        given = sorted({*given, float(stated)})
    if len(given) > 1:
        raise InputError(
            f"threshold: decisions are asked for at {' and at '.join(map(str, given))}: audit one threshold at a time."
        )
    return given[0] if given else None


def _only_arrays(**given: Any) -> None:
    for argument, value in given.items():
        if value is not None:
            remedies = {"features": "columns are found by their names", "unconstrained": "leave it out"}
            remedy = remedies.get(argument, f"pass {argument[:-1]}='column'")
            raise InputError(f"{argument} goes with arrays, but predictions is the path of a file: {remedy}.")


def _only_files(**given: Any) -> None:
    for argument, value in given.items():
        if value is not None:
            remedy = "leave it out" if argument == "prediction" else f"pass {argument}s=..."
            raise InputError(f"{argument} names a column of a file, but predictions is not a path: {remedy}.")


def _span(tally: CellTally, bounds: tuple[float, float] | None) -> Range | None:
    """The range that outputs are taken to have: as stated, [0, 1], or None for what is observed."""
    if bounds is not None:
        span = Range(*map(float, bounds))
        if tally.outputs.low < span.low or tally.outputs.high > span.high:
            raise InputError(
                f"bounds is {tuple(span)}, but predictions range from {tally.outputs.low:g} to {tally.outputs.high:g}: "
                "widen it."
            )
        return span
    return Range(0.0, 1.0) if tally.outputs.low >= 0.0 and tally.outputs.high <= 1.0 else None


def _notes(
    tally: CellTally,
    span: Range | None,
    findings: Sequence[Finding],
    samples: AuditSamples | None,
    confidence: float,
) -> list[str]:
    """What a reader should know that the numbers do not say."""
    notes = []
    if span is None:
        notes.append(
            "Outputs go beyond [0, 1] and no bounds are given: the intervals assume that outputs stay within the range "
            f"observed, from {number(tally.outputs.low, 6)} to {number(tally.outputs.high, 6)}."
        )
    if len(findings) >= 20:
        notes.append(
            f"Of {len(findings):,} intervals, about {(1 - confidence) * len(findings):,.0f} miss the truth by chance: "
            "a single violation among so many proves little."
        )
    if tally.targets is None:
        notes.append("Without targets there are no error rates and no calibration.")
    elif tally.targets == "classes":
        notes.append(
            "Targets are classes, not numbers: there are no error rates and no calibration. Give targets of 0 and 1, "
            "on the command line by --positive."
        )
    if tally.changes is None:
        notes.append("Without raw outputs, the report cannot show whose predictions were changed.")
    if samples is not None and len(samples.y) < tally.samples:
        notes.append(f"The trade-off was computed on {len(samples.y):,} rows drawn at random.")
    return notes
