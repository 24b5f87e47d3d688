"""Turn project(z, given) into the two calls that are timed, alike for PyTorch and JAX; given: groups, or rows.

The loss is the sum of weights * y. Moving a batch into the framework is not timed; everything from tensors to the
output, or to the gradient, is.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from affine import AffineProblems
from problems import Problem


class Calls(Protocol):
    """A method made ready for timing: load a batch, call it, read what it left."""

    def load(self, problem: Problem | AffineProblems) -> Any:
        """Move a batch into the framework."""

    def forward(self, batch: Any) -> Any:
        """Project."""

    def forward_backward(self, batch: Any) -> Any:
        """Project and differentiate."""

    def read(self, batch: Any, result: Any) -> tuple[np.ndarray, np.ndarray]:
        """Give output and gradient of `forward_backward` as arrays."""


class TorchCalls:
    """Calls of a function differentiated by autograd."""

    def __init__(self, project: Callable, dtype: str):
        import torch

        self._torch, self._project, self._dtype = torch, project, getattr(torch, dtype)

    def load(self, problem: Problem | AffineProblems) -> tuple:
        """Make z a leaf that wants its gradient; what is given beside it stays as it is."""
        z = self._torch.tensor(problem.z, dtype=self._dtype, requires_grad=True)
        weights = self._torch.tensor(problem.weights, dtype=self._dtype)
        return z, self._torch.tensor(problem.given), weights

    def forward(self, batch: tuple) -> Any:
        """Project, recording what a backward pass would need."""
        return self._project(batch[0], batch[1])

    def forward_backward(self, batch: tuple) -> Any:
        """Project, then backward from the loss, which is in y's dtype: some peers answer in another."""
        y = self._project(batch[0], batch[1])
        weights = batch[2].to(y.dtype)
        (weights @ y if y.ndim == 1 else (weights * y).sum()).backward()
        return y

    def read(self, batch: tuple, result: Any) -> tuple[np.ndarray, np.ndarray]:
        """Read the output and the gradient left on z."""
        return result.detach().numpy(), batch[0].grad.numpy()


class JaxCalls:
    """Calls of a function differentiated by JAX, compiled as a whole where that is possible."""

    def __init__(self, project: Callable, dtype: str, compiled: bool):
        import jax

        def loss(z: Any, given: Any, weights: Any) -> Any:
            y = project(z, given)
            return jax.numpy.vdot(weights, y), y

        jit = jax.jit if compiled else lambda function: function
        self._jax, self._dtype = jax, dtype
        self._forward = jit(project)
        self._forward_backward = jit(jax.grad(loss, has_aux=True))

    def load(self, problem: Problem | AffineProblems) -> tuple:
        """Move the batch to JAX's device."""
        asarray = self._jax.numpy.asarray
        z, weights = (asarray(array, dtype=self._dtype) for array in (problem.z, problem.weights))
        return self._jax.block_until_ready((z, asarray(problem.given), weights))

    def forward(self, batch: tuple) -> Any:
        """Project and wait for the answer."""
        return self._jax.block_until_ready(self._forward(batch[0], batch[1]))

    def forward_backward(self, batch: tuple) -> Any:
        """Project, differentiate the loss and wait for both."""
        return self._jax.block_until_ready(self._forward_backward(*batch))

    def read(self, batch: tuple, result: Any) -> tuple[np.ndarray, np.ndarray]:
        """Read output and gradient."""
        gradient, y = result
        return np.asarray(y), np.asarray(gradient)
