"""qpax, with the dense matrices it asks for."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import qpax
from jax import Array

from peers.adapters.jax_rows import gap_rows
from problems import Case

FRAMEWORK = "jax"
# Its defaults, 1e-5 and 1e-3, leave errors of 1e-3 in the output and 0.1 in the gradient.
SOLVER_TOLERANCE, RELAXATION = 1e-9, 1e-10


def build(case: Case, groups: np.ndarray) -> Callable:
    n = case.n
    gap_limit = jnp.full(2 * case.k, n**0.5 * case.tolerance)

    def project(z: Array, groups: Array) -> Array:
        eye, nothing = jnp.eye(n), jnp.zeros((0, n))
        rows = gap_rows(groups, z.dtype)
        matrix, limits = [rows, -rows], [gap_limit]
        if case.box:
            matrix, limits = [*matrix, eye, -eye], [*limits, jnp.ones(n), jnp.zeros(n)]
        G, h = jnp.concatenate(matrix), jnp.concatenate(limits)
        return qpax.solve_qp_primal(
            eye, -z, nothing, jnp.zeros(0), G, h, solver_tol=SOLVER_TOLERANCE, target_kappa=RELAXATION
        )

    return project
