"""How the raw outputs of a batch are made fair when an estimator predicts, and warnings about its groups."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from fairlayer.arrays import as_numpy
from fairlayer.frozen.frozen import Frozen
from fairlayer.layer import FairLayer
from fairlayer.solution import Status

NEW_LABELS = "The model was not fitted with "


def serve_batch(layer: FairLayer, frozen: Frozen | None, raw: np.ndarray, groups: Any, features: Any) -> np.ndarray:
    """All rows together, projected. frozen: what `fit` knows of the groups, if anything."""
    value = layer.eval()(torch.from_numpy(raw), groups, features=features).numpy()
    solution = layer.solution
    if solution is not None and solution.status is Status.VACUOUS:
        warnings.warn(
            f"Some groups are absent from this batch and were not compared: {'; '.join(solution.vacuous[:3])}. "
            "Predict larger batches, or set serving='frozen' for predictions that do not depend on the batch.",
            UserWarning,
            stacklevel=4,
        )
    if frozen is not None:
        _warn_of_new_labels(frozen, groups)
    return value


def _warn_of_new_labels(frozen: Frozen, groups: Any) -> None:
    """A label that `fit` never saw may be a misspelt one, whose group would then be compared without it."""
    for name, known in frozen.labels.items():
        new = [label for label in dict.fromkeys(as_numpy(groups[name]).tolist()) if label not in known]
        if new:
            warnings.warn(
                f"{NEW_LABELS}{name} {', '.join(map(repr, new[:5]))}; it knows {', '.join(map(repr, known[:20]))}. New "
                "labels were compared like the other groups: correct the spelling, or fit again with such rows.",
                UserWarning,
                stacklevel=5,
            )
