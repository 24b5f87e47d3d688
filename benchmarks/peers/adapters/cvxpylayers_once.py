"""cvxpylayers with the problem built once: the rows are a parameter, so new groups need no new build."""

from collections.abc import Callable

import cvxpy as cp
import numpy as np
import torch
from cvxpylayers.torch import CvxpyLayer
from torch import Tensor

from peers.adapters.torch_rows import gap_rows
from problems import Case

FRAMEWORK = "torch"


def build(case: Case, groups: np.ndarray, solver: str) -> Callable:
    y, raw, rows = cp.Variable(case.n), cp.Parameter(case.n), cp.Parameter((case.k, case.n))
    constraints = [rows @ y <= case.tolerance, -(rows @ y) <= case.tolerance]
    if case.box:
        # One stacked inequality: with moreau, cvxpylayers 1.2 drops a plain `y >= 0` without a word.
        constraints.append(cp.hstack([y, -y]) <= np.repeat([1.0, 0.0], case.n))
    problem = cp.Problem(cp.Minimize(cp.sum_squares(y - raw)), constraints)
    if solver == "MOREAU":
        layer, options = CvxpyLayer(problem, [raw, rows], [y], solver=solver), {}
    else:
        layer, options = CvxpyLayer(problem, [raw, rows], [y]), {"solve_method": solver}

    def project(z: Tensor, groups: Tensor) -> Tensor:
        with torch.no_grad():
            matrix = gap_rows(groups, z.dtype)
        return layer(z, matrix, solver_args=options)[0]

    return project
