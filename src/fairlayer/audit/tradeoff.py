"""What fairness costs: the same outputs projected onto the constraints at several tolerances."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fairlayer.audit.result import TradeoffPoint
from fairlayer.audit.samples import Samples
from fairlayer.audit.tally import Range
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.groups import read_groups
from fairlayer.constraints import as_numpy
from fairlayer.gaps import measure
from fairlayer.projection import project

STEPS = 10


def trade_off(samples: Samples, rules: ConstraintSet, bounds: Range | None, threshold: float) -> list[TradeoffPoint]:
    """One point per tolerance, from equality to where nothing needs to change; the stated tolerances are among them."""
    outputs = samples.y if samples.raw is None else samples.raw
    if bounds is not None and not (bounds.low <= outputs.min() and outputs.max() <= bounds.high):
        bounds = None  # raw outputs that are no probabilities yet
    # As integers once, rather than from their labels at every step.
    groups = {name: as_numpy(column.values) for name, column in read_groups(samples.groups, len(outputs)).items()}  # type: ignore[union-attr]
    data = {"groups": groups, "targets": samples.targets, "features": samples.features, "weights": samples.w}
    largest = measure(outputs, rules, **data).largest
    if not math.isfinite(largest):
        return []
    stated = [float(tolerance) for tolerance in rules.tolerances()]
    grid = sorted({*np.linspace(0.0, largest, STEPS).tolist(), *(eps for eps in stated if eps < largest)})
    points = []
    for tolerance in grid:
        # Equality is out of reach of rounded numbers: aim a little beside it.
        near = max(tolerance, 1e-9 * largest)
        at = ConstraintSet([replace(constraint, tolerance=near) for constraint in rules.constraints])  # type: ignore[type-var]
        solution = project(outputs, constraints=at, bounds=bounds, infeasible="relax", **data)
        gap = float(np.abs(solution.gaps).max())
        points.append(_point(samples, tolerance, gap, solution.value, outputs, threshold))
    return points


def _point(
    samples: Samples, tolerance: float, gap: float, value: np.ndarray, outputs: np.ndarray, threshold: float
) -> TradeoffPoint:
    def average(values: np.ndarray) -> float:
        return float(np.average(values, weights=samples.w))

    t = samples.t
    return TradeoffPoint(
        tolerance=tolerance,
        gap=gap,
        mean_change=average(np.abs(value - outputs)),
        root_mean_squared_change=math.sqrt(average((value - outputs) ** 2)),
        accuracy=average((value >= threshold) == (t == 1)) if samples.kind == "binary" else None,
        root_mean_squared_error=None if t is None else math.sqrt(average((value - t) ** 2)),
    )
