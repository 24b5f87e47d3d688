"""fairness-training, through its model as a user calls it; the network only hands over z.

The package builds and canonicalises its optimisation problem in every forward pass.
"""

from collections.abc import Callable

import numpy as np
from fairness_training import FairModel
from torch import Tensor, nn

from problems import Case

FRAMEWORK = "torch"


class Given(nn.Module):
    """A network whose output is set from outside: x must not need a gradient, or the package fails."""

    output: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, 1)."""
        return self.output[:, None]


def build(case: Case, groups: np.ndarray) -> Callable:
    if not case.box or case.k > 2:
        raise NotImplementedError("always has a box, and at most two attributes")
    network = Given()
    model = FairModel(
        input_dim=case.k,
        protected_attr_idx=list(range(case.k)),
        prediction_bounds=(0.0, 1.0),
        fairness_tolerance=case.tolerance,
        custom_network=network,
    )

    def project(z: Tensor, groups: Tensor) -> Tensor:
        network.output = z
        return model(groups.to(z.dtype))[:, 0]

    return project
