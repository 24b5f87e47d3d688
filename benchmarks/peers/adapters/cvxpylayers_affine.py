"""cvxpylayers on a batch of affine problems: built once, z and rows are parameters with a batch dimension."""

from collections.abc import Callable

import cvxpy as cp
import numpy as np
from cvxpylayers.torch import CvxpyLayer
from torch import Tensor

from affine import BOX, AffineCase

FRAMEWORK = "torch"


def build(case: AffineCase, rows: np.ndarray, solver: str) -> Callable:
    y, raw, A = cp.Variable(case.n), cp.Parameter(case.n), cp.Parameter((case.k, case.n))
    constraints = [
        A @ y <= case.tolerance,
        -(A @ y) <= case.tolerance,
        # One stacked inequality: with moreau, cvxpylayers 1.2 drops a plain bound without a word.
        cp.hstack([y, -y]) <= np.repeat([BOX[1], -BOX[0]], case.n),
    ]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(y - raw)), constraints)
    if solver == "MOREAU":
        layer, options = CvxpyLayer(problem, [raw, A], [y], solver=solver), {}
    else:
        layer, options = CvxpyLayer(problem, [raw, A], [y]), {"solve_method": solver}

    def project(z: Tensor, rows: Tensor) -> Tensor:
        return layer(z, rows.to(z.dtype), solver_args=options)[0]

    return project
