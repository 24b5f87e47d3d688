"""What constraints compare, over the cells of a batch: families of groups, within the parts that conditions make.

Conditions are read off a batch as columns, as groups are: which region of a feature or of the target a sample lies in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, product
from typing import Any, NamedTuple

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.constraints.constraint import Constraint, GroupConstraint
from fairlayer.constraints.parity import INTERVALS
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.constraints.regions import Condition, class_text, inside, region_text
from fairlayer.errors import InputError
from fairlayer.frames import frame_column, frame_names, is_frame
from fairlayer.problem.groups import Column, find_missing
from fairlayer.problem.rows import DIFFERENCE, EACH, RATIO

Key = tuple[Any, ...]  # identifies a column among all that the constraints look at
UNKNOWN = None  # label of a sample whose target is not known yet, in a stream
MOST_CLASSES = 50
NO_LABEL = "\0no label"  # marks an integer that a column ranges over but does not hold
MOST_LISTED = 1024  # combinations of labels up to which those that nobody has are named as absent
KINDS = {"difference": DIFFERENCE, "ratio": RATIO, "each": EACH}


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
    if find_missing(values).any():
        raise InputError(f"features[{name!r}] has missing values: leave these samples out, or fill them in.")
    return values


class GridColumn(NamedTuple):
    """One of the columns that cells are made of."""

    labels: tuple[Label, ...]
    digits: np.ndarray  # (G,) the position of each cell's label; or (G, labels), with what probability it has each


Grid = Mapping[Key, GridColumn]


class Family(NamedTuple):
    """Groups that are compared with each other, or each by itself, in one part of the batch."""

    prefix: str  # how its rows are named
    groups: tuple[tuple[Label, ...], ...]  # labels of each, one per attribute
    member: np.ndarray  # (G,) the group that each cell belongs to, -1 for none; or (G, groups), how much
    residual: bool  # means of y - t rather than of y
    kind: int
    owner: int  # position of the constraint that states it
    coefficient: float = 1.0  # of the greater mean, where the lesser one must not be below a share of it
    suffix: str = ""  # what its rows' names end with: the output that they are about, where there are several

    def labels(self) -> list[str]:
        """The name of each group."""
        names = [" & ".join(map(str, labels)) for labels in self.groups]
        occurrences = Counter(names)
        return [
            name if occurrences[name] == 1 else " & ".join(map(repr, labels))  # such as 1 and "1"
            for name, labels in zip(names, self.groups, strict=True)
        ]

    def of_column(self, within: np.ndarray, name: str) -> Family:
        """This family for one of several outputs. within: (G,) the cells that are of it."""
        return self._replace(member=np.where(within, self.member, -1), suffix=f", {name}")


def list_families(
    constraint: GroupConstraint,
    owner: int,
    groupings: Sequence[tuple[Name, ...]],
    grid: Grid,
    known: np.ndarray | None = None,  # (G,) cells whose targets are known, where some are not
) -> Iterator[Family]:
    """One family per grouping, and per part of the batch within which groups are compared."""
    if not groupings:  # as of a stream before its first batch: nobody is compared, and the grid has no columns yet
        return
    residual = constraint.quantity == "residual"
    for condition, region in _parts(constraint, grid):
        within = region if known is None or not residual else known if region is None else known & region
        for grouping in groupings:
            groups, member = _members([grid["group", name] for name in grouping])
            if within is not None:
                member = np.where(within, member, -1) if member.ndim == 1 else member * within[:, None]
            prefix = f"{constraint.name or constraint.title}, {' & '.join(map(str, grouping))}{condition}"
            kind, coefficient = KINDS[constraint.comparison], constraint.coefficient
            yield Family(prefix, groups, member, residual, kind, owner, coefficient)


def _parts(constraint: GroupConstraint, grid: Grid) -> Iterator[tuple[str, np.ndarray | None]]:
    """The parts of the batch within which groups are compared: how rows name each, and which cells belong to it."""
    if not constraint.conditions:
        yield "", None
    for condition in constraint.conditions:
        labels, digits = grid[condition.key]
        if condition.regions is None:
            for v, label in enumerate(labels):
                if label is not UNKNOWN:
                    yield f" within target {class_text(label)}", digits == v
            continue
        for r, region in enumerate(condition.regions):
            met = [pattern is not UNKNOWN and bool(pattern[r]) for pattern in labels]  # type: ignore[index]
            yield f" within {condition.name} {region_text(region)}", np.array(met, dtype=bool)[digits]


def _members(columns: Sequence[GridColumn]) -> tuple[tuple[tuple[Label, ...], ...], np.ndarray]:
    """The combinations of labels of some attributes, and the cells that have them."""
    if any(column.digits.ndim == 2 for column in columns):
        return _soft_members(columns)
    labels = [column.labels for column in columns]
    sizes = [len(known) for known in labels]
    code = np.ravel_multi_index([column.digits for column in columns], sizes) if all(sizes) else np.zeros(0, int)
    total = int(np.prod(sizes, dtype=np.float64))
    if len(columns) > 1 and total > MOST_LISTED:  # the combinations that somebody has
        found, member = np.unique(code, return_inverse=True)
        digits = np.stack(np.unravel_index(found, sizes), axis=1).tolist()
        return tuple(tuple(known[d] for known, d in zip(labels, one, strict=True)) for one in digits), member
    combinations = list(product(*labels))
    occurring = np.array([NO_LABEL not in one for one in combinations], dtype=bool)
    place = np.where(occurring, np.cumsum(occurring) - 1, -1)
    return tuple(compress(combinations, occurring)), place[code]


def _soft_members(columns: Sequence[GridColumn]) -> tuple[tuple[tuple[Label, ...], ...], np.ndarray]:
    member = np.ones((len(columns[0].digits), 1))
    for column in columns:
        share = column.digits if column.digits.ndim == 2 else column.digits[:, None] == np.arange(len(column.labels))
        both = member[:, :, None] * share[:, None, :]
        member = both.reshape(len(member), both.shape[1] * both.shape[2])
    return tuple(product(*(column.labels for column in columns))), member
