"""Nearly equal rates of yes-or-no decisions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from fairlayer.constraints.constraint import Comparison, GroupConstraint, Quantity, read_number, read_ratio
from fairlayer.constraints.regions import Condition
from fairlayer.errors import InputError


@dataclass(frozen=True, eq=False)
class RateParity(GroupConstraint):
    """Groups get a yes at nearly the same rate, where y >= threshold is a yes.

        |rate(a) - rate(b)| <= tolerance    or    rate(a) >= ratio * rate(b)    for all groups a, b of each attribute.

    Demographic parity of decisions; with a ratio of 0.8 the four-fifths rule. given: compare only samples with that
    target (given=1 is equal opportunity, Hardt et al. 2016), or "each" for every class of the target (equalized odds).
    """

    tolerance: Any = None
    ratio: float | None = field(default=None, kw_only=True)
    threshold: float = field(default=0.5, kw_only=True)
    given: Any | Literal["each"] | None = field(default=None, kw_only=True)

    title: ClassVar[str] = "rate parity"
    quantity: ClassVar[Quantity] = "decision"

    def __post_init__(self) -> None:
        if (self.tolerance is None) == (self.ratio is None):
            raise InputError(
                "RateParity takes a tolerance or a ratio: RateParity(0.02) or RateParity(ratio=0.8); got "
                f"tolerance={self.tolerance!r} and ratio={self.ratio!r}."
            )
        if self.ratio is None:
            super().__post_init__()
        else:
            object.__setattr__(self, "ratio", read_ratio(self.ratio))
        threshold = read_number(self.threshold, "threshold", "finite number, such as 0.5", math.isfinite)
        object.__setattr__(self, "threshold", threshold)

    @property
    def comparison(self) -> Comparison:  # type: ignore[override]
        """By difference or by ratio, as it was made."""
        return "difference" if self.ratio is None else "ratio"

    @property
    def serves_unknown_targets(self) -> bool:
        """A threshold found within one class of the target serves everyone; one for each class cannot."""
        return self.given != "each"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The target's classes, or the one that is asked for."""
        if self.given is None:
            return ()
        return (Condition("target", "target", None if self.given == "each" else (frozenset([self.given]),)),)
