"""LinearPost (github.com/rxian/fair-classification): costs of a yes for each group, from a linear programme on scores.

Scores stand for the probability of a yes, groups are known, no targets are looked at. It adds a little noise to break
ties, and recommends Gurobi; HiGHS solves the same programme.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from deciders.splits import People, Split

sys.path.insert(0, str(Path(sys.prefix) / "source"))


def fit(split: Split, tolerance: float) -> Callable[[People], np.ndarray]:
    from postprocess import PostProcessor

    groups = int(split.fitting.groups.max()) + 1
    model = PostProcessor(
        n_classes=2,
        n_groups=groups,
        pred_a_fn=lambda x: x[:, 2:],
        pred_y_fn=lambda x: x[:, :2],
        criterion="sp",
        alpha=tolerance,
        seed=split.seed,
    )
    model.fit(_given(split.fitting, groups), solver="HIGHS")

    def decide(people: People) -> np.ndarray:
        return model.predict(_given(people, groups))

    return decide


def _given(people: People, groups: int) -> np.ndarray:
    """Probabilities of no and yes, then an indicator for each group."""
    return np.column_stack([1.0 - people.scores, people.scores, np.eye(groups)[people.groups]])
