"""The constraints: what is to be equal, or bounded, between whom. Declarations only, with no data in them.

Every one is affine in the outputs. Notation: y_i is the output and t_i the target of sample i, w_i its weight (1 by
default), and for a set of samples g

    mean(y | g) = sum of w_i y_i over g / sum of w_i over g.

A constraint states *families* of groups: each group has a *statistic*, its mean, and the *rows* bound the difference
of every two of them, or each by itself. `system.py` binds them to a batch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np
import torch

from fairlayer.binding.groups import Column, Name
from fairlayer.errors import InputError

Over = Name | tuple[Name, ...] | list[Any] | None
Key = tuple[Any, ...]  # identifies a column among all that the constraints look at
UNKNOWN = None  # label of a sample whose target is not known yet, in a stream


@dataclass(frozen=True, eq=False)
class Statistic:
    """A weighted mean over the samples of a group: `membership` says which cells belong, and how much."""

    label: str
    membership: np.ndarray  # (G,)
    residual: bool  # of y - t rather than of y


@dataclass(frozen=True, eq=False)
class Family:
    """Groups that are compared with each other, or each with its target, in one part of the batch."""

    prefix: str
    statistics: list[Statistic]
    pairwise: bool


class Batch:
    """What constraints may look at besides the protected attributes."""

    def __init__(self, features: Any, targets: Any):
        self.features = features
        self.targets = targets

    def feature(self, name: Name) -> np.ndarray:
        """One feature as an array."""
        if self.features is None:
            raise InputError(
                f"features is missing: the constraint conditions on {name!r}; pass features={{{name!r}: ...}}."
            )
        if not (hasattr(self.features, "columns") or isinstance(self.features, Mapping)):
            kind = type(self.features).__name__
            raise InputError(f"features must be columns by name, a mapping or a frame; got {kind}.")
        columns = self.features.columns if hasattr(self.features, "columns") else self.features
        if name not in columns:
            raise InputError(f"features has no {name!r}; it has {list(columns)}.")
        values = as_numpy(self.features[name])
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise InputError(f"features[{name!r}] has shape {values.shape}: pass one value per output.")
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise InputError(f"features[{name!r}] has missing values: leave these samples out, or fill them in.")
        return values


class Constraint:
    """A tolerance and what it applies to. The `needs_...` say what a batch must bring."""

    key: Any

    needs_targets: ClassVar[bool] = False
    needs_features: ClassVar[bool] = False
    needs_groups: ClassVar[bool] = True
    tolerance: Any
    name: str | None

    def groupings(self, names: Sequence[Name]) -> list[tuple[Name, ...]]:
        """The groupings compared, each a tuple of attributes to intersect, given the attributes there are."""
        return []

    @property
    def column_keys(self) -> tuple[Key, ...]:
        """The keys of `columns`."""
        return ()

    def columns(self, batch: Batch) -> dict[Key, Column]:
        """Further columns that this constraint's cells depend on, besides the attributes it compares."""
        return {}

    def families(self, grid: Grid, groupings: Sequence[tuple[Name, ...]]) -> list[Family]:
        """Who is compared with whom, over the cells of `grid`."""
        return []


class Grid:
    """The cells of a batch, as constraints see them: for each column, its labels and which cells carry them."""

    def __init__(self, memberships: Mapping[Key, list[tuple[Any, np.ndarray]]], size: int):
        self.memberships = memberships
        self.size = size  # number of cells

    def groups(self, grouping: tuple[Name, ...]) -> Iterator[tuple[str, np.ndarray]]:
        """Every combination of labels of the attributes in `grouping`, with the cells that belong to it."""
        combinations = list(product(*(self.memberships["group", name] for name in grouping)))
        names = [" & ".join(str(label) for label, _ in combination) for combination in combinations]
        occurrences = Counter(names)
        for name, combination in zip(names, combinations, strict=True):
            membership = combination[0][1]
            for _, other in combination[1:]:
                membership = membership * other
            if occurrences[name] > 1:  # such as 1 and "1"
                yield " & ".join(repr(label) for label, _ in combination), membership
            else:
                yield name, membership


def read_tolerance(value: Any) -> Any:
    """A float, or the tensor it is; refuse what is not a single non-negative number."""
    number = value.detach() if isinstance(value, torch.Tensor) else value
    try:
        ok = math.isfinite(number) and float(number) >= 0
    except (TypeError, ValueError, RuntimeError):
        ok = False
    if not ok:
        raise InputError(f"tolerance must be one finite number, at least 0; got {value!r}.")
    return value if isinstance(value, torch.Tensor) else float(value)


def as_numpy(values: Any) -> np.ndarray:
    """Any column as an array on the CPU."""
    if not isinstance(values, torch.Tensor):
        return np.asarray(values)
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()  # numpy has no bfloat16


def _text(value: Any) -> str:
    """`repr`, but the same in every process: sets have an order of the day."""
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(_text, value)))}}}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_text(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(_text, value))})"
    return repr(value)


@dataclass(frozen=True, eq=False)
class GroupConstraint(Constraint):
    """Common to all fairness constraints: a tolerance, the groups compared, and a name for messages.

    over: None for every attribute by itself; a name for that attribute; a tuple of names for their intersection; a
    list of these for several.
    """

    tolerance: Any
    over: Over = None
    name: str | None = None

    title: ClassVar[str]
    residual: ClassVar[bool] = False  # of y - t rather than of y
    pairwise: ClassVar[bool] = True  # compares groups with each other rather than each with its target

    def __post_init__(self) -> None:
        object.__setattr__(self, "tolerance", read_tolerance(self.tolerance))

    @cached_property
    def key(self) -> str:
        """What the rows depend on, apart from the data and the tolerance."""
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "tolerance"}
        return f"{type(self).__name__}{_text(settings)}"

    def groupings(self, names: Sequence[Name]) -> list[tuple[Name, ...]]:
        """What `over` asks for."""
        if self.over is None:
            return [(name,) for name in names]
        wanted = self.over if isinstance(self.over, list) else [self.over]
        groupings = [entry if isinstance(entry, tuple) else (entry,) for entry in wanted]
        if not groupings or not all(groupings):
            raise InputError(f"over is {self.over!r}, which names no attribute: name some, or pass None for all.")
        for name in (name for grouping in groupings for name in grouping):
            if name not in names:
                raise InputError(f"over names attribute {name!r}, which groups does not have; it has {list(names)}.")
        return groupings

    def conditions(self, grid: Grid) -> Iterator[tuple[str, np.ndarray | None]]:
        """The parts of the batch within which groups are compared: all of it, here."""
        yield "", None

    def families(self, grid: Grid, groupings: Sequence[tuple[Name, ...]]) -> list[Family]:
        """One family per grouping, and per part of the batch within which groups are compared."""
        families = []
        for (condition, region), grouping in product(self.conditions(grid), groupings):
            statistics = [
                Statistic(label, membership if region is None else membership * region, self.residual)
                for label, membership in grid.groups(grouping)
            ]
            prefix = f"{self.name or self.title}, {' & '.join(map(str, grouping))}{condition}"
            families.append(Family(prefix, statistics, self.pairwise))
        return families


@dataclass(frozen=True, eq=False)
class MeanParity(GroupConstraint):
    """Groups have nearly the same mean output (demographic parity in expectation; paper, eq. 2 without a region).

        |mean(y | a) - mean(y | b)| <= tolerance    for all groups a, b of each attribute.

    Calders et al. 2013 (mean difference); Wei et al. 2023 (mean parity).
    """

    title: ClassVar[str] = "mean parity"


@dataclass(frozen=True, eq=False)
class EqualizedResiduals(GroupConstraint):
    """Groups are over- or underestimated alike (paper, eq. 3; Grari et al. 2019).

    |mean(y - t | a) - mean(y - t | b)| <= tolerance    for all groups a, b of each attribute.
    """

    title: ClassVar[str] = "equalized residuals"
    needs_targets: ClassVar[bool] = True
    residual: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class ResidualMean(GroupConstraint):
    """No group is over- or underestimated on average (the paper's wage experiment).

    |mean(y - t | a)| <= tolerance    for every group a of each attribute.
    """

    title: ClassVar[str] = "residual mean"
    needs_targets: ClassVar[bool] = True
    residual: ClassVar[bool] = True
    pairwise: ClassVar[bool] = False


Region = tuple[float | None, float | None] | set[Any] | frozenset[Any]


def _inside(values: np.ndarray, region: Region, what: str) -> np.ndarray:
    """Membership of a region: an interval [low, high), None for an open end, or a set of values."""
    if isinstance(region, set | frozenset):
        return np.isin(values, list(region))
    try:
        low, high = region
        inside = np.ones(len(values), dtype=bool)
        if low is not None:
            inside &= values >= low
        if high is not None:
            inside &= values < high
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{what}: region {region!r} is neither an interval (low, high) nor a set of values."
        ) from error
    return inside


def _regions_column(name: Any, values: np.ndarray, regions: Sequence[Region], what: str) -> Column:
    """Which of the regions each sample lies in, as one column: its labels are the sets of regions that occur."""
    member = np.stack([_inside(values, region, what) for region in regions], axis=1)
    patterns, codes = np.unique(member, axis=0, return_inverse=True)
    return Column(name, codes.reshape(-1).astype(np.int64), tuple(map(tuple, patterns.tolist())))


def _region_masks(grid: Grid, key: Key, regions: Sequence[Region], label: str) -> Iterator[tuple[str, np.ndarray]]:
    """Cells of each region, from the column made by `_regions_column`."""
    for r, region in enumerate(regions):
        masks = (cells for pattern, cells in grid.memberships[key] if pattern is not UNKNOWN and pattern[r])
        mask = sum(masks, np.zeros(grid.size))
        yield f" within {label} {_region_text(region)}", mask


def _region_text(region: Region) -> str:
    if isinstance(region, set | frozenset):
        return "in {" + ", ".join(sorted(map(str, region))) + "}"
    low, high = region
    return f"in [{'-inf' if low is None else low}, {'inf' if high is None else high})"


@dataclass(frozen=True, eq=False)
class ConditionalParity(GroupConstraint):
    """Mean parity within regions of features (paper, eq. 2; Ritov et al. 2017).

        |mean(y | a, x in R) - mean(y | b, x in R)| <= tolerance    for all groups a, b and every region R.

    regions: feature name -> regions of it, each an interval (low, high), read as low <= x < high with None for an open
    end, or a set of values. Regions may overlap. The batch brings `features`.
    """

    regions: Mapping[Name, Sequence[Region]] = field(default_factory=dict, kw_only=True)

    title: ClassVar[str] = "conditional parity"
    needs_features: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.regions or not all(len(regions) for regions in self.regions.values()):
            raise InputError(
                "regions is empty: give at least one, for instance regions={'age': [(None, 30), (30, None)]}."
            )

    @property
    def column_keys(self) -> tuple[Key, ...]:
        """One per feature."""
        return tuple(("region", self.key, name) for name in self.regions)

    def columns(self, batch: Batch) -> dict[Key, Column]:
        """The regions of each feature."""
        return {
            ("region", self.key, name): _regions_column(name, batch.feature(name), regions, f"regions[{name!r}]")
            for name, regions in self.regions.items()
        }

    def conditions(self, grid: Grid) -> Iterator[tuple[str, np.ndarray | None]]:
        """One part per region."""
        for name, regions in self.regions.items():
            yield from _region_masks(grid, ("region", self.key, name), regions, str(name))


@dataclass(frozen=True, eq=False)
class EqualizedOdds(GroupConstraint):
    """Mean parity among samples with like targets (paper, eq. 4; Hardt et al. 2016).

        |mean(y | a, t in I) - mean(y | b, t in I)| <= tolerance    for all groups a, b and every region I.

    regions: intervals (low, high) of the target, read as low <= t < high with None for an open end, or sets of values;
    None for one region per class, where targets are whole numbers or words.
    """

    regions: Sequence[Region] | None = field(default=None, kw_only=True)

    title: ClassVar[str] = "equalized odds"
    needs_targets: ClassVar[bool] = True
    most_classes: ClassVar[int] = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.regions is not None and not len(self.regions):
            raise InputError(f"regions is empty: give at least one, {_INTERVALS}; or None for one per class.")

    @property
    def column_keys(self) -> tuple[Key, ...]:
        """The target's."""
        return (("odds", self.key) if self.regions is not None else ("odds",),)

    def columns(self, batch: Batch) -> dict[Key, Column]:
        """The region or class of the target."""
        targets = as_numpy(batch.targets)
        if self.regions is not None:
            return {("odds", self.key): _regions_column("target", targets, self.regions, "regions")}
        try:
            classes, codes = np.unique(targets, return_inverse=True)
        except TypeError as error:
            raise InputError(f"targets must be numbers or words to be classes, none missing: {error}") from error
        fractions = classes[classes != np.round(classes)] if classes.dtype.kind == "f" else classes[:0]
        if len(fractions) or len(classes) > self.most_classes:
            why = f"fractions, such as {fractions[0]:g}, that are no" if len(fractions) else "too many to be"
            raise InputError(
                f"targets take {len(classes)} values, {why} classes: give EqualizedOdds intervals of the target, "
                f"{_INTERVALS}."
            )
        return {("odds",): Column("target", codes.astype(np.int64), tuple(classes.tolist()))}

    def conditions(self, grid: Grid) -> Iterator[tuple[str, np.ndarray | None]]:
        """One part per class or region of the target."""
        if self.regions is not None:
            yield from _region_masks(grid, ("odds", self.key), self.regions, "target")
        else:
            for label, mask in grid.memberships["odds",]:
                if label is not UNKNOWN:
                    yield f" within target {_class_text(label)}", mask


_INTERVALS = "for instance regions=[(None, 0.5), (0.5, None)]"


def _class_text(label: Any) -> str:
    """A class, in full: 1 for 1.0 and True as well."""
    is_whole = isinstance(label, bool) or (isinstance(label, float) and label.is_integer())
    return str(int(label) if is_whole else label)


class Affine(Constraint):
    """Any affine rows: lower <= A y <= upper, for one problem or a batch of independent ones.

    A: (m, n), or (B, m, n) for B problems; lower, upper: numbers, (m,) or (B, m), None for an open side. Equal lower
    and upper make an equality. Outputs z have shape (n,) or (n, 1), or (B, n) for a batch.
    """

    needs_groups: ClassVar[bool] = False
    tolerance = 0.0

    def __init__(self, A: Any, lower: Any = None, upper: Any = None, name: str | None = None):
        try:
            self.A = torch.as_tensor(A, dtype=torch.float64).detach().cpu().numpy()
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"A cannot be read as a matrix of floats: {error}") from error
        self.name = name
        if self.A.ndim not in (2, 3):
            raise InputError(f"A must have shape (m, n) or (B, m, n); got {self.A.shape}.")
        if not np.isfinite(self.A).all():
            raise InputError("A has entries that are not finite.")
        self.lower = self._side(lower, "lower", -np.inf)
        self.upper = self._side(upper, "upper", np.inf)
        stacks = {len(each) for each, single in ((self.A, 2), (self.lower, 1), (self.upper, 1)) if each.ndim > single}
        if len(stacks) > 1:
            raise InputError(f"A, lower and upper hold different numbers of problems: {sorted(stacks)}.")
        self.problems: int | None = stacks.pop() if stacks else None
        low, high = as_numpy(self.lower), as_numpy(self.upper)
        if np.isnan(low).any() or np.isnan(high).any() or (low > high).any():
            raise InputError("Affine needs lower <= upper in every row, and no NaN.")
        if np.isposinf(low).any() or np.isneginf(high).any():
            raise InputError("Affine has a lower of inf or an upper of -inf, which no output satisfies.")

    def _side(self, side: Any, what: str, default: float) -> Any:
        """A bound for every row, of every problem; a tensor that requires gradients stays one."""
        value: Any = default if side is None else side
        keeps_graph = isinstance(value, torch.Tensor) and value.requires_grad
        try:
            array: Any = value if keeps_graph else np.asarray(as_numpy(value), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"{what} must be a number, one per row, or None for no bound; got {side!r}.") from error
        rows = self.A.shape[:-1] if self.A.ndim == 3 or array.ndim != 2 else (len(array), len(self.A))
        try:
            return array.expand(rows) if keeps_graph else np.broadcast_to(array, rows)
        except (RuntimeError, ValueError) as error:
            raise InputError(f"{what} has shape {tuple(array.shape)}, which does not fit {rows[-1]} rows.") from error

    @property
    def key(self) -> Any:
        """Each matrix is its own."""
        return self

    def problem(self, b: int) -> Affine:
        """Problem b of a batch."""
        part = Affine.__new__(Affine)
        part.name = self.name
        part.problems = None
        part.A = self.A[b] if self.A.ndim == 3 else self.A
        part.lower, part.upper = (side[b] if side.ndim == 2 else side for side in (self.lower, self.upper))
        return part
