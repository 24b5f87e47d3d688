"""proxsuite's QPLayer, with the dense matrices it asks for; its rows have two sides."""

from collections.abc import Callable

import numpy as np
import torch
from proxsuite.torch.qplayer import QPFunction
from torch import Tensor

from peers.adapters.torch_rows import gap_rows
from problems import Case

FRAMEWORK = "torch"


def build(case: Case, groups: np.ndarray) -> Callable:
    eye = torch.eye(case.n, dtype=torch.float64)
    gap_limit = torch.full((case.k,), case.tolerance, dtype=torch.float64)
    box_limit = torch.ones(case.n if case.box else 0, dtype=torch.float64)
    lower, upper = torch.cat([-gap_limit, 0 * box_limit]), torch.cat([gap_limit, box_limit])
    nothing = torch.empty(0, dtype=torch.float64)
    solve = QPFunction()

    def project(z: Tensor, groups: Tensor) -> Tensor:
        matrix = torch.cat([gap_rows(groups, torch.float64), eye[: len(box_limit)]])
        return solve(eye, -z, nothing, nothing, matrix, lower, upper)[0][0]

    return project
