"""Equal means among samples with like targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from fairlayer.constraints.constraint import GroupConstraint
from fairlayer.constraints.regions import Condition, Region, check_regions
from fairlayer.errors import InputError

INTERVALS = "for instance regions=[(None, 0.5), (0.5, None)]"


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
