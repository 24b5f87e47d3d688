"""fairlayer itself, through its public layer."""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from fairlayer import FairLayer, MeanParity
from problems import Case

FRAMEWORK = "torch"


def build(case: Case, groups: np.ndarray) -> Callable:
    layer = FairLayer([MeanParity(case.tolerance)], bounds=(0.0, 1.0) if case.box else None)

    def project(z: Tensor, groups: Tensor) -> Tensor:
        return layer(z, groups=groups)

    return project
