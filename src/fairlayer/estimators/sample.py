"""`Sample`: what `fit` was given, once it is checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows to learn from."""

    X: Any
    targets: np.ndarray  # (n,) float64: 0 and 1 for classes
    groups: dict[Any, Any] | None  # protected attributes by name
    features: Any = None  # columns by name, where a constraint looks at them
    weights: np.ndarray | None = None  # (n,)
