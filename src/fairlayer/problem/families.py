"""Families: the groups that a constraint compares with each other, over the cells of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, product
from typing import NamedTuple

import numpy as np

from fairlayer.constraints.constraint import GroupConstraint
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.problem.conditions import Key, parts
from fairlayer.problem.rows import DIFFERENCE, EACH, RATIO

NO_LABEL = "\0no label"  # marks an integer that a column ranges over but does not hold
MOST_LISTED = 1024  # combinations of labels up to which those that nobody has are named as absent
KINDS = {"difference": DIFFERENCE, "ratio": RATIO, "each": EACH}


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
    if not constraint.conditions:
        yield "", None
    for condition in constraint.conditions:
        column = grid[condition.key]
        for text, met in parts(condition, column.labels):
            yield text, met[column.digits]


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
