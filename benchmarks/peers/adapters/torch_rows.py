"""The gap rows as tensors, for the peers that take a matrix: building them is part of their call."""

import torch
from torch import Tensor


def gap_rows(groups: Tensor, dtype: torch.dtype) -> Tensor:
    """A (k, n) with A @ y the gaps."""
    member = groups.T.to(dtype)
    ones = member.sum(dim=1, keepdim=True)
    zeros = groups.shape[0] - ones
    return member * (1 / ones + 1 / zeros) - 1 / zeros
