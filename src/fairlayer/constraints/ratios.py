"""Nearly equal means by their ratio: the four-fifths rule, on scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from fairlayer.constraints.constraint import Comparison, GroupConstraint, Over, read_ratio


@dataclass(frozen=True, eq=False, init=False)
class RatioParity(GroupConstraint):
    """No group's mean output is below a share of any other's (the four-fifths rule, on scores).

        mean(y | a) >= ratio * mean(y | b)    for all groups a, b of each attribute.

    Gaps are relative: the difference of two means over the larger one, at most 1 - ratio in size. Outputs must not be
    negative, or a share of a mean would mean nothing: bounds have a lower end of at least 0.
    """

    tolerance: Any = field(default=0.0, init=False)  # the ratio stands in its place
    ratio: float = 1.0

    title: ClassVar[str] = "ratio parity"
    comparison: ClassVar[Comparison] = "ratio"

    def __init__(self, ratio: float, over: Over = None, name: str | None = None):
        for setting, value in (("tolerance", 0.0), ("ratio", read_ratio(ratio)), ("over", over), ("name", name)):
            object.__setattr__(self, setting, value)

    def settings(self) -> dict[str, Any]:
        """Ratio, groups and name."""
        return {"ratio": self.ratio, "over": self.over, "name": self.name}
