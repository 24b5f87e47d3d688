"""The gap rows for the peers in JAX; building them is part of their call."""

import jax.numpy as jnp
from jax import Array


def gap_rows(groups: Array, dtype: jnp.dtype) -> Array:
    """A (k, n) with A @ y the gaps, times sqrt(n).

    With that factor the rows are of the size of the box's; with rows of size 1/n these solvers, all of
    them first-order methods or dense interior-point ones, stop far from the solution.
    """
    n = groups.shape[0]
    member = groups.T.astype(dtype)
    ones = member.sum(axis=1, keepdims=True)
    return n**0.5 * jnp.where(groups.T == 1, 1 / ones, -1 / (n - ones))
