"""What fairness costs, and how the model was trained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from fairlayer.audit.result import Audit, TradeoffPoint
from fairlayer.audit.tables import FigureTable
from fairlayer.audit.words import ABSENT, aligned, number, percent
from fairlayer.report.drawing import (
    Curve,
    Line,
    Mark,
    Panel,
    Point,
    Scale,
    Section,
    line_panel,
    scale,
    upright,
)

COSTS = {  # what a point of the trade-off has, its title, and what it is
    "accuracy": ("Accuracy", "share of right decisions"),
    "root_mean_squared_error": ("Error against targets", "root mean squared error"),
    "mean_change": ("Change of predictions", "mean absolute change from the start"),
}
STARTS = {
    "unconstrained model": "a model that was trained without constraints",
    "raw outputs": "this model's raw outputs, before they are made fair",
    "predictions": "these predictions as they are",
}
PARTS = {"train": "training", "validation": "validation", "test": "test"}
UNTOLD = ("seconds", "learning_rate")  # columns of a history that say nothing of the model


def tradeoff_section(audit: Audit) -> Section | None:
    """Accuracy, or error, and change as the tolerance gets stricter."""
    points = audit.tradeoff
    if len(points) < 2:
        return None
    promised = sorted({finding.tolerance for finding in audit.findings})
    across = scale([_tolerance(point) for point in points], include=[0.0, *promised]).reversed
    gap = max((abs(finding.gap) for finding in audit.findings), default=None)
    panels = []
    for name, (title, note) in COSTS.items():
        values = [getattr(point, name) for point in points]
        if all(value is not None for value in values):
            reached = getattr(audit.overall, name, None)
            reached = getattr(reached, "value", reached)  # accuracy has an interval
            here = None if reached is None or gap is None else (gap, reached)
            panels.append(_tradeoff_panel(title, note, points, values, across, promised, here))
    start = STARTS.get(audit.settings.start, audit.settings.start)
    key = (
        ("without constraints", [Point(50, 50, "square", "mark five")]),
        ("projected, at other tolerances", [Point(50, 50, "circle", "mark")]),
        ("the audited predictions", [Point(50, 50, "diamond", "hollow two")]),
        ("promised", [Line(50, 0, 50, 100, "dashed")]),
    )
    return Section(
        "tradeoff",
        "What fairness costs",
        f"It starts, on the left, at {start}. From there the same outputs are projected onto the same constraints, "
        "with stricter tolerances further to the right.",
        panels=panels,
        key=key,
        folded=(_tradeoff_table(points),),
    )


def _tolerance(point: TradeoffPoint) -> float:
    """Where a point stands: the outputs as they are keep any tolerance from their largest gap on."""
    return point.gap if point.tolerance is None else point.tolerance


def _tradeoff_panel(
    title: str,
    note: str,
    points: Sequence[TradeoffPoint],
    values: Sequence[float],
    across: Scale,
    promised: Sequence[float],
    here: tuple[float, float] | None,
) -> Panel:
    """Tolerances run down from left to right. here: largest gap and value of the audited predictions."""
    up = scale([*values, *(here[1:] if here else ())], margin=0.1, ticks=4)
    places = tuple((across(_tolerance(p)), up.down(value)) for p, value in zip(points, values, strict=True))
    marks: list[Mark] = [upright(across, tolerance, "dashed") for tolerance in promised]
    marks.append(Curve(places, "one"))
    words = [f"{_at(p)}: {number(v, 4)}" for p, v in zip(points, values, strict=True)]
    for point, (x, y), text in zip(points, places, words, strict=True):
        shape, style = ("square", "mark five") if point.tolerance is None else ("circle", "mark")
        marks.append(Point(x, y, shape, style, text))
    if here is not None:
        gap, value = here
        text = f"the audited predictions, largest gap {number(gap)}: {number(value, 4)}"
        marks.append(Point(across(gap), up.down(value), "diamond", "hollow two", text))
        words.append(text)
    return Panel(title, "; ".join(words), marks, across, up, "tolerance, stricter to the right", note=note)


def _at(point: TradeoffPoint) -> str:
    return "without constraints" if point.tolerance is None else f"tolerance {number(point.tolerance)}"


def _tradeoff_table(points: Sequence[TradeoffPoint]) -> FigureTable:
    columns = {
        "tolerance": ["none" if p.tolerance is None else number(p.tolerance) for p in points],
        "largest gap": aligned([p.gap for p in points]),
        "mean change": aligned([p.mean_change for p in points]),
        "RMS change": aligned([p.root_mean_squared_change for p in points]),
        "accuracy": [percent(p.accuracy, 2) for p in points],
        "RMSE": aligned([p.root_mean_squared_error for p in points], 4),
    }
    known = {name: cells for name, cells in columns.items() if set(cells) != {ABSENT}}
    return FigureTable("From no constraint to the strictest.", known)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def history_section(audit: Audit) -> Section | None:
    """One panel for each quantity that training recorded: its parts (training, validation) as lines."""
    quantities: dict[str, dict[str, Sequence[float]]] = {}
    for name, column in audit.history.items():
        prefix, _, rest = name.partition("_")
        quantity, part = (rest, PARTS[prefix]) if prefix in PARTS and rest else (name, "")
        if quantity not in UNTOLD and sum(map(_is_number, column)) > 1:
            quantities.setdefault(quantity, {})[part] = column
    if "loss" in quantities and quantities["loss"] == quantities.get("objective"):
        del quantities["objective"]  # the method adds no penalty: one panel is enough
    if not quantities:
        return None
    promised = sorted({finding.tolerance for finding in audit.findings})
    panels = [_panel(name, parts, promised if name == "gap" else ()) for name, parts in quantities.items()]
    lead = "One value per epoch. Gaps on training data say little about new data; those at the top of this page do."
    return Section("history", "How it was trained", lead, panels=panels)


def _panel(quantity: str, parts: Mapping[str, Sequence[float]], promised: Sequence[float]) -> Panel:
    length = max(map(len, parts.values()))
    across = scale([1, length], margin=1e-9)
    numbers = [value for column in parts.values() for value in column if _is_number(value)]
    up = scale(numbers, include=(0.0, *promised), ticks=4) if promised else scale(numbers, margin=0.06, ticks=4)
    paths = {
        part or quantity: [(epoch, v) for epoch, v in enumerate(column, start=1) if _is_number(v)]
        for part, column in parts.items()
    }
    return line_panel(quantity.replace("_", " ").capitalize(), "epoch", paths, across, up, promised=promised)
