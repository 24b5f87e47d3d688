"""The constraints: what is to be equal, or bounded, between whom. Declarations only, with no data in them."""

from fairlayer.constraints.affine import Affine
from fairlayer.constraints.constraint import Constraint, GroupConstraint, read_constraint
from fairlayer.constraints.parity import (
    ConditionalParity,
    EqualizedOdds,
    EqualizedResiduals,
    MeanParity,
    ResidualMean,
)
from fairlayer.constraints.rates import RateParity
from fairlayer.constraints.ratios import RatioParity
from fairlayer.constraints.regions import Condition, Region

__all__ = [
    "Affine",
    "Condition",
    "ConditionalParity",
    "Constraint",
    "EqualizedOdds",
    "EqualizedResiduals",
    "GroupConstraint",
    "MeanParity",
    "RateParity",
    "RatioParity",
    "Region",
    "ResidualMean",
    "read_constraint",
]
