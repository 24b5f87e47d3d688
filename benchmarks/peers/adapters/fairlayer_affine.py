"""fairlayer on a batch of affine problems; where rows change, the constraint is made in every call."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from affine import BOX, AffineCase
from fairlayer import Affine, FairLayer, project

FRAMEWORK = "torch"


def build(case: AffineCase, rows: np.ndarray, dtype: str, rows_change: bool) -> Callable:
    def constraint(rows: Tensor | np.ndarray) -> Affine:
        return Affine(rows, -case.tolerance, case.tolerance)

    fixed = None if rows_change else FairLayer([constraint(rows)], bounds=BOX)

    def solve(z: Tensor, rows: Tensor) -> Tensor:
        return fixed(z) if fixed else project(z, None, constraint(rows), BOX).value

    # On a fresh install the first call compiles; keep that off the clock.
    z = torch.zeros(case.problems, case.n, dtype=getattr(torch, dtype), requires_grad=True)
    solve(z, torch.tensor(rows)).sum().backward()
    return solve
