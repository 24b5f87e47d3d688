"""A batch of independent problems with their own rows, each a matrix over its outputs: a loop over the one solver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.constraints.affine import Affine
from fairlayer.core import _native
from fairlayer.core.gradient import plain_apply
from fairlayer.core.solver import DTYPES, as_bits, from_bits
from fairlayer.problem.bounds import Box


class AffineBatch:
    """Projected problems, z of shape (B, n)."""

    def __init__(self, z: Tensor, constraints: Sequence[Affine], box: Box, weights: np.ndarray | None):
        self.shape, self.dtype = z.shape, z.dtype
        self.weights = np.empty(0) if weights is None else weights
        A = _together([c.A for c in constraints], 2)
        lower, upper = _together([c.lower for c in constraints], 1), _together([c.upper for c in constraints], 1)
        self.problems = _native.Problems(A, lower, upper, self.weights, box.lo, box.hi)
        host = z.detach().contiguous()
        value, sure, statistics, self.nu, missed, self.side = _native.project_affine(
            DTYPES[z.dtype], as_bits(host), self.problems, torch.get_num_threads()
        )
        rows = (z.shape[0], A.shape[1])
        self.sure = sure.astype(bool)  # (B,) whether rows certainly hold, and aiming inside them cost next to nothing
        self.statistics, self.missed = statistics.reshape(rows), missed.reshape(rows)
        value = from_bits(value, z.dtype).reshape(z.shape)
        self.value = _attach(z, value, self) if z.requires_grad and torch.is_grad_enabled() else value

    @property
    def multipliers(self) -> np.ndarray:
        """(B, m)."""
        return self.nu.reshape(self.statistics.shape)

    def pull_back(self, gradient: Tensor) -> Tensor:
        """The gradient of z, given that of the output."""
        given = as_bits(gradient.detach().contiguous())
        threads = torch.get_num_threads()
        out = _native.pull_back_affine(DTYPES[self.dtype], given, self.problems, self.nu, self.side, threads)
        return from_bits(out, self.dtype).reshape(self.shape)


class _AffineProjection(torch.autograd.Function):
    """The projections as a function of z, each linear where it is differentiable."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, value: Tensor, batch: AffineBatch) -> Tensor:
        ctx.batch = batch
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _PullBack.apply(gradient, ctx.batch), None, None


class _PullBack(torch.autograd.Function):
    """Backward, which is linear in the gradient: with weights W, its transpose is W J' W^-1."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, batch: AffineBatch) -> Tensor:
        ctx.batch = batch
        return batch.pull_back(gradient)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        batch = ctx.batch
        weight = torch.from_numpy(batch.weights).to(batch.dtype) if len(batch.weights) else torch.ones(())
        return _PullBack.apply(gradient * weight, batch) / weight, None


_attach = plain_apply(_AffineProjection)


def _together(parts: list[Any], single: int) -> np.ndarray:
    """Arrays of every problem, one below the other; once where all problems have the same. single: their dimensions."""
    each = [as_numpy(part) for part in parts]
    each = [part[None] if part.ndim == single else part[:1] if part.strides[0] == 0 else part for part in each]
    if len(each) > 1:
        problems = max(map(len, each))
        each = [np.concatenate([np.broadcast_to(part, (problems, *part.shape[1:])) for part in each], axis=1)]
    return np.ascontiguousarray(each[0])
