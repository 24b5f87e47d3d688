"""fairlayer: the test rows projected as one batch; nothing to fit, no targets looked at."""

from collections.abc import Callable

import numpy as np

from deciders.splits import People, Split
from fairlayer import RateParity, project


def fit(split: Split, tolerance: float) -> Callable[[People], np.ndarray]:
    def decide(people: People) -> np.ndarray:
        return project(people.scores, people.groups, RateParity(tolerance)).value >= 0.5

    return decide
