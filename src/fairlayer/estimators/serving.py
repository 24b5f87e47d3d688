"""How raw outputs are made fair when an estimator predicts. SERVINGS lists the ways by name.

Each takes what was learned in `fit`, the projection and its shifts per group (or the sentence that says why there are
none), and rows that are predicted together: raw outputs, protected attributes, and the columns that a constraint looks
at. It returns the outputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fairlayer.arrays import as_numpy
from fairlayer.errors import InputError
from fairlayer.frozen.frozen import Frozen
from fairlayer.layer import FairLayer
from fairlayer.solution import Status


def serve_each(layer: FairLayer, frozen: Frozen | str, raw: np.ndarray, groups: Any, features: Any) -> np.ndarray:
    """Each row by itself, moved by the shift of its groups; by probabilities of them where it is served blind."""
    if isinstance(frozen, str):
        raise InputError(frozen)
    return frozen.predict(raw, groups, features)


def serve_batch(layer: FairLayer, frozen: Frozen | str, raw: np.ndarray, groups: Any, features: Any) -> np.ndarray:
    """All rows together, projected; by shifts where the constraints look at targets, which nobody has yet."""
    if layer.rules.needs_targets:
        return serve_each(layer, frozen, raw, groups, features)
    value = layer.eval()(torch.from_numpy(raw), groups, features=features).numpy()
    solution = layer.solution
    if solution is not None and solution.status is Status.VACUOUS:
        warnings.warn(
            f"Some groups are absent from this batch and were not compared: {'; '.join(solution.vacuous[:3])}. "
            "Predict larger batches, or set serving='frozen' for predictions that do not depend on the batch.",
            UserWarning,
            stacklevel=4,
        )
    if isinstance(frozen, Frozen):
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


NEW_LABELS = "The model was not fitted with "
SERVINGS: dict[str, Callable[..., np.ndarray]] = {"batch": serve_batch, "frozen": serve_each, "blind": serve_each}
