"""qpth on a batch of affine problems."""

from collections.abc import Callable

import numpy as np
import torch
from qpth.qp import QPFunction
from torch import Tensor

from affine import BOX, AffineCase

FRAMEWORK = "torch"


def build(case: AffineCase, rows: np.ndarray) -> Callable:
    eye = torch.eye(case.n, dtype=torch.float64)
    box_rows = torch.cat([eye, -eye]).expand(case.problems, -1, -1)
    limits = [case.tolerance] * (2 * case.k) + [BOX[1]] * case.n + [-BOX[0]] * case.n
    limits = torch.tensor(limits, dtype=torch.float64)
    nothing = torch.empty(0, dtype=torch.float64)
    solve = QPFunction(verbose=-1)

    def project(z: Tensor, rows: Tensor) -> Tensor:
        matrix = rows.to(torch.float64)
        return solve(eye, -z, torch.cat([matrix, -matrix, box_rows], dim=1), limits, nothing, nothing)

    return project
