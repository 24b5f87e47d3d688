"""Equal means: mean parity, over all samples or within regions of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from fairlayer.constraints.constraint import GroupConstraint
from fairlayer.constraints.plain_data import Name
from fairlayer.constraints.regions import Condition, Region, check_regions
from fairlayer.errors import InputError


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
    needs_features: ClassVar[bool] = True

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
