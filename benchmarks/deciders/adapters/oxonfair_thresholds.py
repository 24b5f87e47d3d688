"""OxonFair: a threshold for each group, the most accurate on the rows for thresholds that keep the gap there."""

from collections.abc import Callable

import numpy as np
from oxonfair import FairPredictor
from oxonfair.utils import group_metrics

from deciders.splits import People, Split


def fit(split: Split, tolerance: float) -> Callable[[People], np.ndarray]:
    model = FairPredictor(None, _given(split.fitting))
    model.fit(group_metrics.accuracy, group_metrics.demographic_parity, tolerance)

    def decide(people: People) -> np.ndarray:
        return np.asarray(model.predict(_given(people)))

    return decide


def _given(people: People) -> dict[str, np.ndarray]:
    """Scores of both classes as its data, as it asks for where predictions were made elsewhere."""
    return {
        "data": np.column_stack([1.0 - people.scores, people.scores]),
        "target": people.target,
        "groups": people.groups,
    }
