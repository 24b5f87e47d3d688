"""Gaps against their tolerances, calibration, what fairness costs, and how the model was trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

from fairlayer.audit.result import Audit, CalibrationBin, Finding, Group, TradeoffPoint
from fairlayer.audit.summary import statement
from fairlayer.audit.tables import FigureTable, findings_table, gap_text, pair
from fairlayer.audit.words import (
    ABSENT,
    aligned,
    aligned_intervals,
    confidence,
    count,
    interval,
    number,
    percent,
    stated,
)
from fairlayer.report.drawing import (
    Band,
    Curve,
    Line,
    Mark,
    Panel,
    Point,
    Row,
    RowChart,
    Scale,
    Section,
    largest,
    line_panel,
    marker,
    scale,
    upright,
    whisker,
)

MOST_ROWS = 12  # drawn in one chart; the table has more
MOST_LINES = 1000  # in a table; the JSON has all
GAP_KEY = (
    ("promised", [Band(0, 100, "tolerance"), *(Line(x, 0, x, 100, "tolerance-edge") for x in (0, 100))]),
    ("gap within tolerance in these data", [marker("circle", "mark five")]),
    ("gap exceeds its tolerance in these data", [marker("diamond", "mark five")]),
    (
        "interval for the population",
        [Line(0, 50, 100, 50, "whisker five"), *(Line(x, 15, x, 85, "whisker five") for x in (0, 100))],
    ),
)
AXES = {"output": "mean prediction", "residual": "mean prediction minus target", "decision": "rates of decisions"}
COSTS = {  # what a point of the trade-off has, its title, and what it is
    "accuracy": ("Accuracy", "share of right decisions"),
    "root_mean_squared_error": ("Error against targets", "root mean squared error"),
    "mean_change": ("Change of predictions", "mean absolute change from the start"),
}
COST_KEY = (
    ("without constraints", [marker("square", "mark five")]),
    ("projected, at other tolerances", [marker("circle", "mark")]),
    ("the audited predictions", [marker("diamond", "hollow two")]),
    ("promised", [Line(50, 0, 50, 100, "dashed")]),
)
STARTS = {
    "unconstrained model": "a model that was trained without constraints",
    "raw outputs": "this model's raw outputs, before they are made fair",
    "predictions": "these predictions as they are",
}
PARTS = {"train": "training", "validation": "validation", "test": "test"}
UNTOLD = ("seconds", "learning_rate")  # columns of a history that say nothing of the model


def findings_section(audit: Audit) -> Section | None:
    """One chart for each attribute, or part of the data, that a constraint compares groups in."""
    if not audit.findings:
        return None
    families: dict[str, list[Finding]] = {}
    for finding in audit.findings:
        families.setdefault(finding.where, []).append(finding)
    return Section(
        "gaps",
        "Gaps against their tolerance",
        "A gap is the difference between the means of two groups, or between one group and its target. The green band "
        f"is what was promised. The bar is the interval for the population; at {confidence(audit.settings.confidence)} "
        "confidence, all of them hold together. If it lies inside the band, the promise holds there; if it lies "
        "outside, it does not; if it crosses the edge, the data cannot tell.",
        charts=[_gaps(where, family) for where, family in families.items()],
        key=GAP_KEY,
        folded=(findings_table(audit, MOST_LINES),),
    )


def _gaps(where: str, family: Sequence[Finding]) -> RowChart:
    shown = family[:MOST_ROWS]
    ends = [end for f in shown for end in f.interval or ()]
    edges = [1.1 * side * f.tolerance for f in shown for side in (-1, 1)]  # a little beyond the band
    axis = scale([f.gap for f in shown], include=[*ends, *edges, 0.0])
    lead = f"Tolerance {', '.join(stated(t) for t in sorted({f.tolerance for f in family}))}."
    if len(shown) < len(family):
        lead += f" Shown: the {len(shown)} of {count(len(family))} comparisons closest to it or farthest beyond it."
    quantity = AXES[shown[0].quantity]
    what = f"difference of {quantity}" if len(shown[0].groups) > 1 else quantity
    if shown[0].comparison == "ratio":
        what += ", as a share of the larger"
    return RowChart(where, [_gap(finding, axis) for finding in shown], axis, what, "gap", lead=lead)


def _gap(finding: Finding, axis: Scale) -> Row:
    gap, edge = gap_text(finding), finding.tolerance
    band = (
        Band(axis(-edge), axis(edge), "tolerance"),
        *(upright(axis, end, "tolerance-edge") for end in (-edge, edge)),
        upright(axis, 0.0, "zero"),
    )
    point = Point(axis(finding.gap), 50, "circle" if finding.holds else "diamond", "mark")
    return Row(
        label=pair(finding),
        marks=(*band, *whisker(axis, finding.interval), point),
        text=f"gap {gap}, interval {interval(finding.interval)}, tolerance {stated(edge)}; {statement(finding)}.",
        figure=gap,
        note="n = " + " and ".join(map(count, finding.counts)),
        verdict=finding.verdict.value,
    )


def calibration_section(audit: Audit) -> Section | None:
    """One small panel per group, everybody first: of those who get about the same prediction, what are the targets?"""
    groups = [group for group in (audit.overall, *audit.groups) if group.calibration]
    if not groups:
        return None
    shown, omitted = largest(groups)
    means = [mean for group in shown for part in group.calibration for mean in (part.mean_prediction, part.mean_target)]
    axis = scale(means, include=audit.settings.bounds if audit.settings.targets == "binary" else (), ticks=4)
    lead = (
        "Where the dots lie on the dashed line, predictions mean what they say. Above it the group's targets are "
        "higher than predicted, below it lower. Making means equal moves groups whose targets differ off this line."
    )
    key = (
        ("mean target by mean prediction", [marker("circle", "mark")]),
        (f"{confidence(audit.settings.confidence)} interval", [Line(50, 0, 50, 100, "whisker")]),
        ("calibrated", [Line(0, 100, 100, 0, "dashed")]),
    )
    title, panels = "Calibration by group", [_calibration(group, axis) for group in shown]
    table = _calibration_table(groups)
    return Section("calibration", title, lead, panels=panels, small=True, key=key, folded=(table,), aside=omitted)


def _calibration(group: Group, axis: Scale) -> Panel:
    bins = group.calibration
    marks: list[Mark] = [Line(axis(axis.low), 100, axis(axis.high), 0, "dashed")]
    points = tuple((axis(part.mean_prediction), axis.down(part.mean_target)) for part in bins)
    if len(points) > 1:
        marks.append(Curve(points, "one"))
    for part, (x, y) in zip(bins, points, strict=True):
        if part.interval is not None:
            marks.append(Line(x, axis.down(part.interval[0]), x, axis.down(part.interval[1]), "whisker"))
        marks.append(Point(x, y, "circle", "mark", _calibrated(part)))
    note = f"n = {count(group.count)}"
    return Panel(group.name, "; ".join(map(_calibrated, bins)), marks, axis, axis, "prediction", note=note)


def _calibrated(part: CalibrationBin) -> str:
    return f"predicted {number(part.mean_prediction)}, target {number(part.mean_target)}, n = {count(part.count)}"


def _calibration_table(groups: Sequence[Group]) -> FigureTable:
    listed = [(group, part) for group in groups for part in group.calibration][:MOST_LINES]
    bins = [part for _, part in listed]
    columns = {
        "group": [group.name for group, _ in listed],
        "predictions": aligned_intervals([(part.lower, part.upper) for part in bins]),
        "samples": [count(part.count) for part in bins],
        "mean prediction": aligned([part.mean_prediction for part in bins]),
        "mean target": aligned([part.mean_target for part in bins]),
        "interval of the mean target": aligned_intervals([part.interval for part in bins]),
    }
    return FigureTable("Calibration, by group and interval of predictions.", columns, headers=2)


def tradeoff_section(audit: Audit) -> Section | None:
    """Accuracy, or error, and change as the tolerance gets stricter."""
    points = audit.tradeoff
    if len(points) < 2:
        return None
    start = STARTS.get(audit.settings.start, audit.settings.start)
    return Section(
        "tradeoff",
        "What fairness costs",
        f"It starts, on the left, at {start}. From there the same outputs are projected onto the same constraints, "
        "with stricter tolerances further to the right.",
        panels=[_costs(audit, name) for name in COSTS if all(getattr(point, name) is not None for point in points)],
        key=COST_KEY,
        folded=(_tradeoff_table(points),),
    )


def _costs(audit: Audit, name: str) -> Panel:
    """One cost at every tolerance; tolerances run down from left to right."""
    points, (title, note) = audit.tradeoff, COSTS[name]
    values: list[float] = [getattr(point, name) for point in points]
    # Outputs as they are keep any tolerance from their largest gap on.
    tolerances = [point.gap if point.tolerance is None else point.tolerance for point in points]
    promised = sorted({finding.tolerance for finding in audit.findings})
    reached = getattr(audit.overall, name, None)
    reached = getattr(reached, "value", reached)  # accuracy has an interval
    gap = max((abs(finding.gap) for finding in audit.findings), default=None)
    across = scale(tolerances, include=[0.0, *promised]).reversed
    up = scale([*values, *(() if reached is None or gap is None else (reached,))], margin=0.1, ticks=4)
    places = tuple((across(tolerance), up.down(value)) for tolerance, value in zip(tolerances, values, strict=True))
    marks: list[Mark] = [*(upright(across, tolerance, "dashed") for tolerance in promised), Curve(places, "one")]
    words = []
    for point, (x, y), value in zip(points, places, values, strict=True):
        free = point.tolerance is None
        words.append(f"{'without constraints' if free else f'tolerance {number(point.tolerance)}'}: {number(value, 4)}")
        marks.append(Point(x, y, *(("square", "mark five") if free else ("circle", "mark")), words[-1]))
    if reached is not None and gap is not None:
        words.append(f"the audited predictions, largest gap {number(gap)}: {number(reached, 4)}")
        marks.append(Point(across(gap), up.down(reached), "diamond", "hollow two", words[-1]))
    return Panel(title, "; ".join(words), marks, across, up, "tolerance, stricter to the right", note=note)


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


def history_section(audit: Audit) -> Section | None:
    """One panel for each quantity that training recorded: its parts (training, validation) as lines."""
    quantities: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for name, column in audit.history.items():
        prefix, _, rest = name.partition("_")
        quantity, part = (rest, PARTS[prefix]) if prefix in PARTS and rest else (name, name)
        path = [(epoch, value) for epoch, value in enumerate(column, start=1) if _is_number(value)]
        if quantity not in UNTOLD and len(path) > 1:
            quantities.setdefault(quantity, {})[part] = path
    if "loss" in quantities and [*quantities["loss"].values()] == [*quantities.get("objective", {}).values()]:
        del quantities["objective"]  # the method adds no penalty: one panel is enough
    if not quantities:
        return None
    across = scale([1, max(map(len, audit.history.values()))], margin=1e-9)
    tolerances, panels = sorted({finding.tolerance for finding in audit.findings}), []
    for quantity, paths in quantities.items():
        title, promised = quantity.replace("_", " ").capitalize(), tolerances if quantity == "gap" else ()
        panels.append(line_panel(title, "epoch", paths, across=across, promised=promised, from_zero=bool(promised)))
    lead = "One value per epoch. Gaps on training data say little about new data; those at the top of this page do."
    return Section("history", "How it was trained", lead, panels=panels)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
