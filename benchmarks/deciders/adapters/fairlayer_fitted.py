"""fairlayer: the test rows as one batch, decided at the threshold that is most accurate on the rows for thresholds.

The others that look at targets choose where to decide, too; this is the same for ours.
"""

from collections.abc import Callable

import numpy as np

from deciders.splits import People, Split
from fairlayer import RateParity, project

THRESHOLDS = np.round(np.linspace(0.3, 0.7, 41), 2)


def fit(split: Split, tolerance: float) -> Callable[[People], np.ndarray]:
    def decide(people: People, threshold: float) -> np.ndarray:
        return project(people.scores, people.groups, RateParity(tolerance, threshold=threshold)).value >= threshold

    def accuracy(threshold: float) -> tuple[float, float]:
        right = decide(split.fitting, threshold) == (split.fitting.target == 1)
        return float(right.mean()), -abs(threshold - 0.5)

    best = max(THRESHOLDS.tolist(), key=accuracy)
    return lambda people: decide(people, best)
