"""A floor, not a peer: PyTorch's own `clamp`, which knows nothing of groups."""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from problems import Case

FRAMEWORK = "torch"


def build(case: Case, groups: np.ndarray) -> Callable:
    def project(z: Tensor, groups: Tensor) -> Tensor:
        return z.clamp(0.0, 1.0)

    return project
