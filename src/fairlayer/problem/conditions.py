"""Conditions of constraints, read off a batch: which region of a feature or of the target each sample lies in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.constraints.constraint import Constraint
from fairlayer.constraints.odds import INTERVALS
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.constraints.regions import Condition, class_text, inside, region_text
from fairlayer.errors import InputError
from fairlayer.frames import frame_column, frame_names, is_frame
from fairlayer.problem.groups import Column

Key = tuple[Any, ...]  # identifies a column among all that the constraints look at
UNKNOWN = None  # label of a sample whose target is not known yet, in a stream
MOST_CLASSES = 50


def condition_columns(constraint: Constraint, features: Any, targets: Any) -> dict[Key, Column]:
    """A column for each condition of a constraint: of regions, its labels are the sets of regions that occur."""
    return {c.key: _column(c, features, targets) for c in constraint.conditions}


def unknown_columns(constraint: Constraint, n: int) -> dict[Key, Column]:
    """A column for each condition on the target, of samples whose targets are not known yet."""
    unknown = Column("target", np.zeros(n, dtype=np.int64), (UNKNOWN,))
    return {c.key: unknown for c in constraint.conditions if c.source == "target"}


def _column(condition: Condition, features: Any, targets: Any) -> Column:
    values = as_numpy(targets, "targets") if condition.source == "target" else read_feature(features, condition.name)
    if condition.regions is None:
        return _classes(values)
    member = np.stack([inside(values, region, condition.argument) for region in condition.regions], axis=1)
    patterns, codes = np.unique(member, axis=0, return_inverse=True)
    return Column(condition.name, codes.reshape(-1).astype(np.int64), tuple(map(tuple, patterns.tolist())))


def _classes(targets: np.ndarray) -> Column:
    try:
        classes, codes = np.unique(targets, return_inverse=True)
    except TypeError as error:
        raise InputError(f"targets must be numbers or words to be classes, none missing: {error}") from error
    fractions = classes[classes != np.round(classes)] if classes.dtype.kind == "f" else classes[:0]
    if len(fractions) or len(classes) > MOST_CLASSES:
        why = f"fractions, such as {fractions[0]:g}, that are no" if len(fractions) else "too many to be"
        raise InputError(
            f"targets take {len(classes)} values, {why} classes: give EqualizedOdds intervals of the target, "
            f"{INTERVALS}."
        )
    return Column("target", codes.astype(np.int64), tuple(classes.tolist()))


def read_feature(features: Any, name: Name) -> np.ndarray:
    """One feature as an array."""
    if features is None:
        raise InputError(
            f"features is missing: the constraint conditions on {name!r}; pass features={{{name!r}: ...}}."
        )
    if not (is_frame(features) or isinstance(features, Mapping)):
        kind = type(features).__name__
        raise InputError(f"features must be columns by name, a mapping or a frame; got {kind}.")
    known = frame_names(features)
    if name not in known:
        raise InputError(f"features has no {name!r}; it has {known}.")
    values = as_numpy(frame_column(features, name), f"features[{name!r}]")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise InputError(f"features[{name!r}] has shape {values.shape}: pass one value per output.")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise InputError(f"features[{name!r}] has missing values: leave these samples out, or fill them in.")
    return values


def parts(condition: Condition, labels: tuple[Label, ...]) -> Iterator[tuple[str, np.ndarray]]:
    """The parts a condition makes: how rows name each, and which labels of its column belong to it."""
    if condition.regions is None:
        for v, label in enumerate(labels):
            if label is not UNKNOWN:
                yield f" within target {class_text(label)}", np.arange(len(labels)) == v
        return
    for r, region in enumerate(condition.regions):
        met = np.array([pattern is not UNKNOWN and bool(pattern[r]) for pattern in labels])  # type: ignore[index]
        yield f" within {condition.name} {region_text(region)}", met
