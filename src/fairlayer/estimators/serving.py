"""How raw outputs are made fair when an estimator predicts. SERVINGS lists the ways by name."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import torch

from fairlayer.errors import InputError
from fairlayer.frozen.frozen import Frozen
from fairlayer.layer import FairLayer
from fairlayer.solution import Status


class Rows(NamedTuple):
    """Rows that are predicted together."""

    raw: np.ndarray  # (n,)
    groups: Any  # protected attributes by name
    features: Any  # columns by name, where a constraint looks at them


class Serving(ABC):
    """Makes raw outputs fair, with what was learned in `fit`: the projection, and its shifts per group.

    frozen: the shifts, or the sentence that says why there are none.
    """

    def __init__(self, layer: FairLayer, frozen: Frozen | str):
        self.layer = layer
        self.frozen = frozen

    @abstractmethod
    def serve(self, rows: Rows) -> np.ndarray:
        """(n,) outputs."""


class Shifts(Serving):
    """Each row by itself, moved by the shift of its groups; by probabilities of them where it is served blind."""

    def serve(self, rows: Rows) -> np.ndarray:
        """(n,) outputs, whoever else is in the batch."""
        if isinstance(self.frozen, str):
            raise InputError(self.frozen)
        return self.frozen.predict(rows.raw, rows.groups, rows.features)


class Batch(Serving):
    """All rows together, projected onto the constraints."""

    def serve(self, rows: Rows) -> np.ndarray:
        """(n,) outputs that satisfy the constraints; by shifts where these look at targets, which nobody has yet."""
        if self.layer.rules.needs_targets:
            return Shifts(self.layer, self.frozen).serve(rows)
        value = self.layer.eval()(torch.from_numpy(rows.raw), rows.groups, features=rows.features).numpy()
        solution = self.layer.solution
        if solution is not None and solution.status is Status.VACUOUS:
            warnings.warn(
                f"Some groups are absent from this batch and were not compared: {'; '.join(solution.vacuous[:3])}. "
                "Predict larger batches, or set serving='frozen' for predictions that do not depend on the batch.",
                UserWarning,
                stacklevel=4,
            )
        return value


SERVINGS: dict[str, type[Serving]] = {"batch": Batch, "frozen": Shifts, "blind": Shifts}
