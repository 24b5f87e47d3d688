"""error-parity's RelaxedThresholdOptimizer: randomised thresholds of greatest accuracy on the rows for thresholds.

It draws decisions and does not say with which probability.
"""

from collections.abc import Callable

import numpy as np
from error_parity import RelaxedThresholdOptimizer

from deciders.splits import People, Split


def fit(split: Split, tolerance: float) -> Callable[[People], np.ndarray]:
    model = RelaxedThresholdOptimizer(
        predictor=lambda x: x[:, 0], constraint="demographic_parity", tolerance=tolerance, seed=split.seed
    )
    rows = split.fitting
    model.fit(X=rows.scores[:, None], y=rows.target, group=rows.groups)

    def decide(people: People) -> np.ndarray:
        return model(X=people.scores[:, None], group=people.groups)

    return decide
