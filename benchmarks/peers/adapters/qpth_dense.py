"""qpth, with the dense matrices it asks for."""

from collections.abc import Callable

import numpy as np
import torch
from qpth.qp import QPFunction
from torch import Tensor

from peers.adapters.torch_rows import gap_rows
from problems import Case

FRAMEWORK = "torch"


def build(case: Case, groups: np.ndarray) -> Callable:
    eye = torch.eye(case.n, dtype=torch.float64)
    # Rows of size 1/n make it stop far from the solution; multiplied by sqrt(n) they are of the box's size.
    scale = case.n**0.5
    box_rows = torch.cat([eye, -eye]) if case.box else eye[:0]
    box_limits = [1.0] * case.n + [0.0] * case.n if case.box else []
    limits = torch.tensor([scale * case.tolerance] * (2 * case.k) + box_limits, dtype=torch.float64)
    nothing = torch.empty(0, dtype=torch.float64)
    solve = QPFunction(verbose=-1)

    def project(z: Tensor, groups: Tensor) -> Tensor:
        matrix = scale * gap_rows(groups, torch.float64)
        return solve(eye, -z, torch.cat([matrix, -matrix, box_rows]), limits, nothing, nothing)[0]

    return project
