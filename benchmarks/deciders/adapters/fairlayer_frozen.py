"""fairlayer: a threshold for each group from the rows for thresholds, then one person at a time; no targets."""

from collections.abc import Callable

import numpy as np

from deciders.splits import People, Split
from fairlayer import FairLayer, RateParity, freeze


def fit(split: Split, tolerance: float) -> Callable[[People], np.ndarray]:
    layer = FairLayer([RateParity(tolerance)], bounds=(0, 1))
    frozen = freeze(layer, split.fitting.scores, split.fitting.groups, confidence=None)

    def decide(people: People) -> np.ndarray:
        return frozen.predict(people.scores, people.groups) >= 0.5

    return decide
