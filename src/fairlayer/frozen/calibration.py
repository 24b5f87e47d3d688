"""A calibration sample: how it is read, parted, and what it says of a fit.

What is fitted, shifts or thresholds, is a `Fit`; part of the sample fits it, the rest makes the statement.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fairlayer.arrays import as_numpy
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.frames import frame_columns
from fairlayer.frozen.certificate import Certificate, Compared, GapBound, moments_of
from fairlayer.frozen.frozen import Frozen
from fairlayer.layer import FairLayer
from fairlayer.problem.groups import Column, SoftGroup, read_groups


class Calibration(NamedTuple):
    """Samples to fit with, and to certify with."""

    z: Tensor  # (n,) raw outputs, or (n, d)
    columns: dict[Name, Any]  # the attributes that constraints compare: labels as the user gave them, or a SoftGroup
    labels: dict[Name, tuple[Label, ...]]  # of each attribute those that occur; those that only might are unknown
    targets: np.ndarray | None  # (n,)
    features: Any
    weights: np.ndarray | None  # (n,)

    def rows(self, rows: np.ndarray) -> Calibration:
        """Some of the samples."""
        features = None if self.features is None else frame_columns(self.features)
        return Calibration(
            self.z[torch.from_numpy(rows)],
            {name: _take(column, rows) for name, column in self.columns.items()},
            self.labels,
            None if self.targets is None else self.targets[rows],
            None if features is None else {name: as_numpy(column)[rows] for name, column in features.items()},
            None if self.weights is None else self.weights[rows],
        )


class Fit:
    """What a sample makes of constraints, and what the constraints compare of it. A subclass does the fitting."""

    what: str  # is fitted
    rates: bool = False  # whether decisions are counted, rather than outputs averaged

    frozen: Frozen
    rows: np.ndarray  # that can be used
    compared: Compared
    member: np.ndarray  # (n, K) how much each sample belongs to each statistic that is compared
    low: np.ndarray  # (K,) the range of what is averaged
    high: np.ndarray  # (K,)

    def fit(self, rows: np.ndarray, share: float) -> None:
        """Fit with some samples, for `share` of every tolerance."""
        raise NotImplementedError

    def values(self, rows: np.ndarray) -> list[np.ndarray]:
        """What the fit makes of some samples: of each output column (n, K) what is averaged, or (n, 1) if all alike."""
        raise NotImplementedError

    def state(self, fit_on: np.ndarray, certify_on: np.ndarray, share: float, confidence: float) -> Certificate:
        """What the other samples say of the population, the fit being for `share` of the tolerances."""
        columns, member = self.values(certify_on), self.member[certify_on]
        bounds: tuple[GapBound, ...] = ()
        level = 1.0 - (1.0 - confidence) / len(columns)  # so that those of all columns hold together
        for j, values in enumerate(columns):
            moments = moments_of(values, member, self.low, self.high)
            bounds += self.compared.bounds(moments, self.rates, level, f", class {j}" if len(columns) > 1 else "")
        return Certificate(confidence, len(fit_on), len(certify_on), bounds, share)


def read_calibration(
    layer: FairLayer, backbone: nn.Module | None, inputs: Any, groups: Any, targets: Any, features: Any, weights: Any
) -> Calibration:
    """The sample that `freeze` was given."""
    z = _raw(backbone, inputs)
    attributes = read_groups(groups, len(z), layer.levels)
    _, used = layer.rules.groupings(tuple(attributes))
    read = {name: _labels_of(attributes[name]) for name in used}
    columns, labels = ({name: pair[part] for name, pair in read.items()} for part in (0, 1))
    known, counted = (None if one is None else as_numpy(one).reshape(-1) for one in (targets, weights))
    return Calibration(z, columns, labels, known, features, counted)


@torch.no_grad()
def _raw(backbone: nn.Module | None, inputs: Any) -> Tensor:
    """Raw outputs, of shape (n,) or (n, d), of a backbone in evaluation mode."""
    if backbone is None:
        z = inputs if isinstance(inputs, Tensor) else torch.from_numpy(np.ascontiguousarray(inputs))
    else:
        z = backbone.eval()(inputs)
    z = z.detach().cpu()
    return z if z.ndim == 2 and z.shape[1] > 1 else z.reshape(-1)


def _labels_of(column: Column | SoftGroup) -> tuple[Any, tuple[Label, ...]]:
    """Labels as the user gave them, or soft groups as they are; and those that occur."""
    if isinstance(column, SoftGroup):
        return column, column.labels
    values = as_numpy(column.values)
    found = np.unique(values).tolist()
    if column.labels is None:
        return values, tuple(found)
    labels = np.empty(len(column.labels), dtype=object)
    labels[:] = column.labels
    return labels[values], tuple(column.labels[code] for code in found)


def _take(column: Any, rows: np.ndarray) -> Any:
    return SoftGroup(column.probabilities[rows], column.labels) if isinstance(column, SoftGroup) else column[rows]
