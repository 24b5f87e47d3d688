"""jaxopt's BoxOSQP with products in place of matrices, so that nothing of size n x n is stored."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxopt import BoxOSQP

from peers.adapters.jax_rows import gap_rows
from problems import Case

FRAMEWORK = "jax"


def build(case: Case, groups: np.ndarray) -> Callable:
    gap_limit = jnp.full(case.k, case.n**0.5 * case.tolerance)
    box_limit = jnp.ones(case.n if case.box else 0)
    limits = jnp.concatenate([-gap_limit, 0 * box_limit]), jnp.concatenate([gap_limit, box_limit])
    solver = BoxOSQP(
        matvec_Q=lambda _, y: y,
        matvec_A=lambda rows, y: jnp.concatenate([rows @ y, y[: len(box_limit)]]),
        tol=1e-7,
    )

    def project(z: Array, groups: Array) -> Array:
        rows = gap_rows(groups, z.dtype)
        params = solver.run(
            init_params=solver.init_params(z, (None, -z), rows, limits),
            params_obj=(None, -z),
            params_eq=rows,
            params_ineq=limits,
        ).params
        return params.primal[0]

    return project
