"""Pi-net's projection layer (the distribution is `pinet_hcnn`), 100 iterations.

Its rows are constants of a compiled program. With groups that stay the same it is at its best; with
groups that change, each call must make a new layer and compile it.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array
from pinet import (
    AffineInequalityConstraint,
    BoxConstraint,
    BoxConstraintSpecification,
    Project,
    ProjectionInstance,
)

from peers.adapters.jax_rows import gap_rows
from problems import Case

FRAMEWORK = "jax"
ITERATIONS = 100


def build(case: Case, groups: np.ndarray, groups_change: bool) -> Callable:
    gap_limit = jnp.full((1, case.k, 1), case.n**0.5 * case.tolerance)
    edge = jnp.ones((1, case.n, 1))
    box = BoxConstraint(BoxConstraintSpecification(lb=0 * edge, ub=edge)) if case.box else None

    def layer_for(groups: Array) -> Project:
        rows = gap_rows(groups, gap_limit.dtype)[None]
        inequality = AffineInequalityConstraint(c_mat=rows, lb=-gap_limit, ub=gap_limit)
        return Project(ineq_constraint=inequality, box_constraint=box)

    fixed = None if groups_change else layer_for(jnp.asarray(groups))

    def project(z: Array, groups: Array) -> Array:
        layer = fixed or layer_for(groups)
        instance = ProjectionInstance(x=z[None, :, None])
        return layer.call(y_raw=instance, n_iter=ITERATIONS, n_iter_bwd=ITERATIONS)[0].x[0, :, 0]

    return project
