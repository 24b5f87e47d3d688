"""`Sample`: what `fit` was given, once it is checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlayer.extras import needs

with needs("fairlayer.sklearn", "scikit-learn"):
    from sklearn.utils import _safe_indexing  # type: ignore[import-untyped]


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows to learn from."""

    X: Any
    targets: np.ndarray  # (n,) float64: 0 and 1 for classes
    groups: dict[Any, Any] | None  # protected attributes by name
    features: Any = None  # columns by name, where a constraint looks at them
    weights: np.ndarray | None = None  # (n,)

    def rows(self, positions: np.ndarray) -> Sample:
        """Some of them."""
        groups, features = self.groups, self.features
        return Sample(
            _safe_indexing(self.X, positions),
            self.targets[positions],
            None if groups is None else {name: np.asarray(labels)[positions] for name, labels in groups.items()},
            None if features is None else {n: np.asarray(column)[positions] for n, column in features.items()},
            None if self.weights is None else self.weights[positions],
        )
