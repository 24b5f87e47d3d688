"""The function `audit`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from fairlayer.audit.classes import class_samples, join_classes
from fairlayer.audit.files import AuditedTable
from fairlayer.audit.findings import judge
from fairlayer.audit.groups import describe, edges
from fairlayer.audit.result import Audit, Group, Settings
from fairlayer.audit.samples import Samples, read_samples
from fairlayer.audit.tally import Tally
from fairlayer.audit.tradeoff import start_of, trade_off
from fairlayer.audit.words import number
from fairlayer.constraints import Constraint
from fairlayer.core.classes import check_class_rules
from fairlayer.errors import InputError
from fairlayer.intervals import Range, observed_range, stated_range
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.families import Key
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
    probabilities: then there are no decisions. confidence: of the intervals of all gaps together, and of every other
    interval by itself. tradeoff: whether to project the outputs at several tolerances to see what that costs. seed: of
    the rows drawn for it, from a large file. history: of training, kept for the report.

    Arrays of shape (n, d) are probabilities of d classes: every class is audited, and so is the predicted one, that
    with the largest probability. classes: their names, in the order of the columns; targets are such names, or
    numbers of columns where no names are given; raw has shape (n, d) too.
    """
    rules = constraints if isinstance(constraints, ConstraintSet) else ConstraintSet(constraints)
    threshold = _check(rules, bounds, threshold, confidence)
    columns = {"prediction": prediction, "target": target, "weight": weight}
    samples, source = None, "arrays"
    if isinstance(predictions, str | Path | Table):
        _only_arrays(targets=targets, features=features, weights=weights, unconstrained=unconstrained)
        source = predictions.title if isinstance(predictions, Table) else Path(predictions).name
        with _open(predictions, memory) as opened:
            table = AuditedTable(opened, rules, groups, {**columns, "raw": raw})
            tally = table.tally(threshold)
            samples = table.sample(TRADEOFF_ROWS, seed) if tradeoff else None
        found = _result(tally, rules, bounds, confidence, samples=samples)
    else:
        _only_files(columns)
        if rules.needs_targets is not None and targets is None:
            raise InputError(f"targets is missing: {rules.needs_targets} compares with them; pass targets=...")
        if _is_matrix(predictions):
            check_class_rules(rules, "predictions of several classes")
            if threshold is not None or unconstrained is not None:
                raise InputError("threshold and unconstrained are of one output per sample: leave them out.")
            several, right = class_samples(predictions, groups, rules, targets, classes, raw, features, weights)
            tallies = {name: own.tally(rules, 0.5) for name, own in several.items()}
            audits = {n: _result(t, rules, bounds, confidence, share=len(tallies)) for n, t in tallies.items()}
            found = join_classes(audits, right, weights, confidence)
        elif classes is not None:
            what = "the columns of predictions of shape (n, d), and these have one"
            raise InputError(f"classes names {what}: leave it out.")
        else:
            read = read_samples(predictions, groups, targets, features, weights, raw)
            samples = read if tradeoff else None
            tally = read.tally(rules, threshold)
            found = _result(tally, rules, bounds, confidence, samples=samples, unconstrained=unconstrained)
    return replace(
        found,
        settings=replace(found.settings, source=source, seed=seed),
        history={str(name): tuple(map(float, values)) for name, values in (history or {}).items()},
    )


def _open(predictions: str | Path | Table, memory: str) -> AbstractContextManager[Table]:
    if isinstance(predictions, Table):
        return nullcontext(predictions)
    # Whatever is repeated goes by other names, so it cannot be asked for.
    return TableFile(open_source(Path(predictions), may_repeat=lambda _: True), memory)


def _result(
    tally: Tally,
    rules: ConstraintSet,
    bounds: tuple[float, float] | None,
    confidence: float,
    share: int = 1,
    samples: Samples | None = None,
    unconstrained: Any = None,
) -> Audit:
    """All that a tally says. share: of how many audits this is one, of which all intervals of gaps hold together."""
    outputs = tally.ranges["y"]
    rules.check_bounds(outputs.low, "predictions")
    stated = None if bounds is None else Range(*map(float, bounds))
    if stated is not None and not stated.holds(outputs):
        raise InputError(
            f"bounds is {tuple(stated)}, but predictions range from {outputs.low:g} to {outputs.high:g}: widen it."
        )
    stated = stated_range(outputs, stated)
    span = stated or observed_range(outputs, tally.samples)
    start, points = "", []
    if samples is not None:
        start, begin = start_of(samples, unconstrained)
        points = trade_off(samples, begin, rules, stated, tally.threshold)
    judged = judge(tally, rules, span, 1.0 - (1.0 - confidence) / share)

    def groups(*keys: Key) -> list[Group]:
        return describe(tally, keys, span, confidence, judged.level)

    return Audit(
        findings=judged.findings,
        not_compared=judged.not_compared,
        empty=judged.empty,
        overall=groups()[0],
        groups=tuple(group for key in tally.attributes for group in groups(key)),
        intersections=tuple(groups(*tally.attributes)) if len(tally.attributes) > 1 else (),
        edges=edges(tally),
        tradeoff=tuple(points),
        settings=Settings(
            samples=tally.samples,
            source="",
            attributes=tuple(str(key[1]) for key in tally.attributes),
            constraints=tuple(constraint.words() for constraint in rules.constraints),
            confidence=confidence,
            seed=0,
            threshold=tally.threshold,
            bounds=span or outputs,
            weighted="w" in tally.ranges,
            targets=tally.targets,
            start=start,
            versions={name: metadata.version(name) for name in ("fairlayer", "torch", "numpy")},
        ),
        notes=tuple(_notes(tally, stated, samples)),
    )


def _notes(tally: Tally, stated: Range | None, samples: Samples | None) -> list[str]:
    """What a reader should know that the numbers do not say."""
    notes, outputs = [], tally.ranges["y"]
    if stated is None:
        notes.append(
            "Outputs go beyond [0, 1] and no bounds are given: the intervals assume that outputs stay within the range "
            f"observed, from {number(outputs.low, 6)} to {number(outputs.high, 6)}."
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


def _is_matrix(predictions: Any) -> bool:
    """Whether there are several outputs per sample."""
    if getattr(predictions, "is_nested", False):  # which has no shape, and is refused by name further on
        return False
    return np.ndim(predictions) == 2 and np.shape(predictions)[1] > 1


def _check(rules: ConstraintSet, bounds: Any, threshold: float | None, confidence: float) -> float | None:
    """The threshold of decisions, as stated or as the constraints on decisions have it; and refusals."""
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
    given = {float(c.threshold) for c in rules.constraints if c.quantity == "decision"}  # type: ignore[attr-defined]
    given |= set() if threshold is None else {float(threshold)}
    if len(given) > 1:
        listed = " and at ".join(map(str, sorted(given)))
        raise InputError(f"threshold: decisions are asked for at {listed}: audit one threshold at a time.")
    return next(iter(given), None)


def _only_arrays(**given: Any) -> None:
    remedies = {"features": "columns are found by their names", "unconstrained": "leave it out"}
    for argument, value in given.items():
        if value is not None:
            remedy = remedies.get(argument, f"pass {argument[:-1]}='column'")
            raise InputError(f"{argument} goes with arrays, but predictions is the path of a file: {remedy}.")


def _only_files(given: Mapping[str, Any]) -> None:
    for argument, value in given.items():
        if value is not None:
            remedy = "leave it out" if argument == "prediction" else f"pass {argument}s=..."
            raise InputError(f"{argument} names a column of a file, but predictions is not a path: {remedy}.")
