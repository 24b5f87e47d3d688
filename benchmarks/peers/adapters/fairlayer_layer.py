"""fairlayer itself, through its public layer."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fairlayer import FairLayer, MeanParity
from problems import Case

FRAMEWORK = "torch"


def build(case: Case, groups: np.ndarray, dtype: str) -> Callable:
    layer = FairLayer([MeanParity(case.tolerance)], bounds=(0.0, 1.0) if case.box else None)

    def project(z: Tensor, groups: Tensor) -> Tensor:
        return layer(z, groups=groups)

    # On a fresh install the first call compiles, whatever the size of its batch; keep that off the clock.
    z = torch.linspace(-1.0, 2.0, case.n, dtype=getattr(torch, dtype), requires_grad=True)
    project(z, torch.tensor(groups)).sum().backward()
    return project
