"""fairlearn's ExponentiatedGradient: a mixture of models trained with weights; needs no groups when it predicts.

It trains many models, so that few rounds are all there is time for.
"""

from collections.abc import Callable

import numpy as np
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from sklearn.ensemble import HistGradientBoostingClassifier

from deciders.splits import People, Split


def fit(split: Split, tolerance: float, rounds: int) -> Callable[[People], np.ndarray]:
    trees = HistGradientBoostingClassifier(early_stopping=True, max_iter=300, random_state=split.seed)
    model = ExponentiatedGradient(trees, DemographicParity(difference_bound=tolerance), max_iter=rounds)
    rows = split.training
    model.fit(rows.features, rows.target, sensitive_features=rows.groups)

    def decide(people: People) -> np.ndarray:
        return model._pmf_predict(people.features)[:, 1]

    return decide
