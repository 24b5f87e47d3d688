"""Nearly equal means: of outputs, of outputs among samples with like features or targets, and of errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from fairlayer.constraints.constraint import Comparison, GroupConstraint, Quantity
from fairlayer.constraints.plain_data import Name
from fairlayer.constraints.regions import Condition, Region, check_regions
from fairlayer.errors import InputError

INTERVALS = "for instance regions=[(None, 0.5), (0.5, None)]"


@dataclass(frozen=True, eq=False)
class MeanParity(GroupConstraint):
    """Groups have nearly the same mean output (demographic parity in expectation; paper, eq. 2 without a region).

        |mean(y | a) - mean(y | b)| <= tolerance    for all groups a, b of each attribute.

    Calders et al. 2013 (mean difference); Wei et al. 2023 (mean parity).
    """

    title: ClassVar[str] = "mean parity"


@dataclass(frozen=True, eq=False)
class ConditionalParity(GroupConstraint):
    """Mean parity within regions of features (paper, eq. 2; Ritov et al. 2017).

        |mean(y | a, x in R) - mean(y | b, x in R)| <= tolerance    for all groups a, b and every region R.

    regions: feature name -> regions of it, each an interval (low, high), read as low <= x < high with None for an open
    end, or a set of values. Regions may overlap. The batch brings `features`.
    """

    regions: Mapping[Name, Sequence[Region]] = field(default_factory=dict, kw_only=True)

    title: ClassVar[str] = "conditional parity"

    def __post_init__(self) -> None:
        super().__post_init__()
        example = "for instance regions={'age': [(None, 30), (30, None)]}"
        if not isinstance(self.regions, Mapping):
            raise InputError(f"regions must be regions by the name of a feature, {example}; got {self.regions!r}.")
        for name, regions in self.regions.items():
            check_regions(regions, f"regions[{name!r}]")
        if not self.regions or not all(len(regions) for regions in self.regions.values()):
            raise InputError(f"regions is empty: give at least one, {example}.")

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The regions of every feature."""
        return tuple(Condition("feature", name, tuple(regions)) for name, regions in self.regions.items())


@dataclass(frozen=True, eq=False)
class EqualizedOdds(GroupConstraint):
    """Mean parity among samples with like targets (paper, eq. 4; Hardt et al. 2016).

        |mean(y | a, t in I) - mean(y | b, t in I)| <= tolerance    for all groups a, b and every region I.

    regions: intervals (low, high) of the target, read as low <= t < high with None for an open end, or sets of values;
    None for one region per class, where targets are whole numbers or words.
    """

    regions: Sequence[Region] | None = field(default=None, kw_only=True)

    title: ClassVar[str] = "equalized odds"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.regions is not None:
            check_regions(self.regions, "regions")
            if not len(self.regions):
                raise InputError(f"regions is empty: give at least one, {INTERVALS}; or None for one per class.")

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The regions or classes of the target."""
        return (Condition("target", "target", None if self.regions is None else tuple(self.regions)),)


@dataclass(frozen=True, eq=False)
class EqualizedResiduals(GroupConstraint):
    """Groups are over- or underestimated alike (paper, eq. 3; Grari et al. 2019).

    |mean(y - t | a) - mean(y - t | b)| <= tolerance    for all groups a, b of each attribute.
    """

    title: ClassVar[str] = "equalized residuals"
    quantity: ClassVar[Quantity] = "residual"


@dataclass(frozen=True, eq=False)
class ResidualMean(GroupConstraint):
    """No group is over- or underestimated on average (the paper's wage experiment).

    |mean(y - t | a)| <= tolerance    for every group a of each attribute.
    """

    title: ClassVar[str] = "residual mean"
    quantity: ClassVar[Quantity] = "residual"
    comparison: ClassVar[Comparison] = "each"
