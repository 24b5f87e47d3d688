"""moreau, called directly: built once for the sparsity of the problem, new row values in every call."""

from collections.abc import Callable

import moreau
import numpy as np
import torch
from moreau.torch import Solver
from torch import Tensor

from peers.adapters.torch_rows import gap_rows
from problems import Case

FRAMEWORK = "torch"


def build(case: Case, groups: np.ndarray) -> Callable:
    n, k = case.n, case.k
    box_rows = 2 * n if case.box else 0
    row_lengths = torch.cat([torch.full((2 * k,), n), torch.ones(box_rows, dtype=torch.long)])
    every = torch.arange(n)
    solver = Solver(
        n=n,
        m=2 * k + box_rows,
        P_row_offsets=torch.arange(n + 1),
        P_col_indices=every,
        A_row_offsets=torch.cat([torch.zeros(1, dtype=torch.long), row_lengths.cumsum(0)]),
        A_col_indices=torch.cat([every.repeat(2 * k), every.repeat(2 if case.box else 0)]),
        cones=moreau.Cones(num_nonneg_cones=2 * k + box_rows),
        settings=moreau.Settings(device="cpu", enable_grad=True),
    )
    ones = torch.ones(n, dtype=torch.float64)
    box_values = torch.cat([ones, -ones]) if case.box else ones[:0]
    limits = [torch.full((2 * k,), case.tolerance, dtype=torch.float64)]
    if case.box:
        limits += [ones, 0 * ones]
    limits = torch.cat(limits)

    def project(z: Tensor, groups: Tensor) -> Tensor:
        matrix = gap_rows(groups, torch.float64).flatten()
        solution = solver.solve(ones, torch.cat([matrix, -matrix, box_values]), -z, limits)
        return solution.x

    return project
