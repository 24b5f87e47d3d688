"""Pi-net's projection layer on a batch of affine problems, 100 iterations.

Its rows are constants of a compiled program; making the layer reads their values, so that it cannot be compiled for
rows that change. With rows that stay the same it is at its best.
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

from affine import BOX, AffineCase
from peers.adapters.pinet_layer import ITERATIONS

FRAMEWORK = "jax"


def build(case: AffineCase, rows: np.ndarray, rows_change: bool) -> Callable:
    limit, edge = jnp.full((1, case.k, 1), case.tolerance), jnp.ones((1, case.n, 1))
    box = BoxConstraint(BoxConstraintSpecification(lb=BOX[0] * edge, ub=BOX[1] * edge))

    def layer_for(rows: Array) -> Project:
        inequality = AffineInequalityConstraint(c_mat=rows, lb=-limit, ub=limit)
        return Project(ineq_constraint=inequality, box_constraint=box)

    fixed = None if rows_change else layer_for(jnp.asarray(rows))

    def project(z: Array, rows: Array) -> Array:
        layer = fixed or layer_for(rows)
        instance = ProjectionInstance(x=z[:, :, None])
        return layer.call(y_raw=instance, n_iter=ITERATIONS, n_iter_bwd=ITERATIONS)[0].x[:, :, 0]

    return project
