"""fairlayer: a differentiable layer that makes a neural network's outputs provably fair."""

from fairlayer.audit import audit
from fairlayer.binding.groups import SoftGroup
from fairlayer.constraints import (
    Affine,
    ConditionalParity,
    EqualizedOdds,
    EqualizedResiduals,
    MeanParity,
    ResidualMean,
)
from fairlayer.errors import AbsentGroupError, FairlayerError, InfeasibleError, InputError
from fairlayer.frozen.freeze import freeze
from fairlayer.layer import FairLayer
from fairlayer.model import FairModel
from fairlayer.projection import project
from fairlayer.solution import Solution, Status
from fairlayer.stream import Stream

__version__ = "0.1.0"

__all__ = [
    "AbsentGroupError",
    "Affine",
    "ConditionalParity",
    "EqualizedOdds",
    "EqualizedResiduals",
    "FairLayer",
    "FairModel",
    "FairlayerError",
    "InfeasibleError",
    "InputError",
    "MeanParity",
    "ResidualMean",
    "SoftGroup",
    "Solution",
    "Status",
    "Stream",
    "audit",
    "freeze",
    "project",
]
