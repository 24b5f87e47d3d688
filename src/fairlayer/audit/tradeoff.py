"""What fairness costs: outputs without constraints, then the same projected onto them at several tolerances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.audit.result import TradeoffPoint
from fairlayer.audit.samples import Samples, read_numbers
from fairlayer.gaps import measure
from fairlayer.intervals import Range
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.groups import read_groups
from fairlayer.projection import project

STEPS = 9


def start_of(samples: Samples, unconstrained: Any) -> tuple[str, np.ndarray]:
    """What the trade-off starts from, and its outputs."""
    if unconstrained is not None:
        return "unconstrained model", read_numbers(unconstrained, "unconstrained", len(samples.y)).astype(np.float64)
    start, outputs = ("predictions", samples.y) if samples.raw is None else ("raw outputs", samples.raw)
    return start, outputs.astype(np.float64)


def trade_off(
    samples: Samples,
    outputs: np.ndarray,  # (n,) to start from
    rules: ConstraintSet,
    bounds: Range | None,
    threshold: float | None,
) -> list[TradeoffPoint]:
    """The outputs as they are, then one point per tolerance down to equality; the stated tolerances are among them."""
    if bounds is not None and not bounds.holds(Range.of(outputs)):
        bounds = None  # raw outputs that are no probabilities yet
    if rules.needs_positive and bounds is None:
        if outputs.min() < 0.0:
            return []
        bounds = Range(0.0, math.inf)
    # As integers once, rather than from their labels at every step.
    groups = {name: as_numpy(column.values) for name, column in read_groups(samples.groups, len(outputs)).items()}  # type: ignore[union-attr]
    data = {"groups": groups, "targets": samples.targets, "features": samples.features, "weights": samples.weights}
    largest = measure(outputs, rules, **data).largest
    if not math.isfinite(largest):
        return []
    t, decided = samples.t, samples.kind == "binary" and threshold is not None

    def average(values: np.ndarray) -> float:
        return float(np.average(values, weights=samples.weights))

    def point(tolerance: float | None, gap: float, value: np.ndarray) -> TradeoffPoint:
        return TradeoffPoint(
            tolerance=tolerance,
            gap=gap,
            mean_change=average(np.abs(value - outputs)),
            root_mean_squared_change=math.sqrt(average((value - outputs) ** 2)),
            accuracy=average((value >= threshold) == (t == 1)) if decided else None,
            root_mean_squared_error=None if t is None else math.sqrt(average((value - t) ** 2)),
        )

    points = [point(None, largest, outputs)]
    grid = {*np.linspace(0.0, largest, STEPS + 1)[:-1].tolist(), *(eps for eps in rules.allowed() if eps < largest)}
    for tolerance in sorted(grid, reverse=True):
        # Equality is out of reach of rounded numbers: aim a little beside it.
        near = max(tolerance, 1e-9 * largest)
        at = ConstraintSet([constraint.allowing(near) for constraint in rules.constraints])  # type: ignore[attr-defined]
        solution = project(outputs, constraints=at, bounds=bounds, infeasible="relax", **data)
        points.append(point(tolerance, float(np.abs(solution.gaps).max()), solution.value))
    return points
