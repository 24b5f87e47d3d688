"""Errors alike: means of the residuals y - t."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fairlayer.constraints.constraint import Comparison, GroupConstraint, Quantity


@dataclass(frozen=True, eq=False)
class EqualizedResiduals(GroupConstraint):
    """Groups are over- or underestimated alike (paper, eq. 3; Grari et al. 2019).

    |mean(y - t | a) - mean(y - t | b)| <= tolerance    for all groups a, b of each attribute.
    """

    title: ClassVar[str] = "equalized residuals"
    needs_targets: ClassVar[bool] = True
    quantity: ClassVar[Quantity] = "residual"


@dataclass(frozen=True, eq=False)
class ResidualMean(GroupConstraint):
    """No group is over- or underestimated on average (the paper's wage experiment).

    |mean(y - t | a)| <= tolerance    for every group a of each attribute.
    """

    title: ClassVar[str] = "residual mean"
    needs_targets: ClassVar[bool] = True
    quantity: ClassVar[Quantity] = "residual"
    comparison: ClassVar[Comparison] = "each"
