"""Who was changed and by how much, and what other tolerances would cost."""

from __future__ import annotations

from collections.abc import Sequence

from fairlayer.audit.numerals import ABSENT, aligned, count, number, percent, signed
from fairlayer.audit.result import Audit, Change, TradeoffPoint
from fairlayer.report.drawing import (
    Band,
    Curve,
    FigureTable,
    Line,
    Mark,
    Panel,
    Point,
    Row,
    RowChart,
    Scale,
    Section,
    scale,
    upright,
)
from fairlayer.report.plots.groups import MOST_LINES, are_decided, largest, name_of

KEY = (
    ("smallest to largest change", [Line(0, 50, 100, 50, "thin")]),
    ("middle 90 %, lowered or raised", [Band(0, 50, "bar down", 30, 70), Band(50, 100, "bar up", 30, 70)]),
    ("mean", [Point(50, 50, "diamond", "hollow five")]),
)


def changes_section(audit: Audit) -> Section | None:
    """Predictions less raw outputs, by group."""
    everybody = [change for change in audit.changes if not change.attribute]
    charts = []
    for attribute in audit.settings.attributes:
        changes = [change for change in audit.changes if change.attribute == attribute]
        if changes:
            shown, lead = largest(changes)
            charts.append(_chart(attribute, [*everybody, *shown], lead, are_decided(audit)))
    if not charts:
        return None
    return Section(
        "changes",
        "Who was changed, and by how much",
        "Prediction minus raw output: to the right of zero, people got a higher prediction than the model alone would "
        "have given them." + (" Flipped means that their decision is now different." if are_decided(audit) else ""),
        charts=charts,
        key=KEY,
        folded=(changes_table(audit.changes[:MOST_LINES]),),
    )


def _chart(attribute: str, changes: Sequence[Change], lead: str, decided: bool) -> RowChart:
    axis = scale([end for change in changes for end in (change.lowest, change.highest)], include=[0.0])
    means = aligned([change.mean for change in changes], sign=True)
    rows = [_row(change, axis, mean, decided) for change, mean in zip(changes, means, strict=True)]
    return RowChart(attribute, rows, axis, "prediction minus raw output", "mean change", lead=lead)


def _row(change: Change, axis: Scale, mean: str, decided: bool) -> Row:
    marks: list[Mark] = [
        upright(axis, 0.0, "zero"),
        Line(axis(change.lowest), 50, axis(change.highest), 50, "thin"),
    ]
    if "0.05" in change.quantiles and "0.95" in change.quantiles:
        low, high = axis(change.quantiles["0.05"]), axis(change.quantiles["0.95"])
        widened = max(high, low + 0.4)  # a group that is shifted by one amount still shows
        marks.append(Band(low, widened, f"bar {'up' if change.mean >= 0 else 'down'}", 34, 66))
    marks.append(Point(axis(change.mean), 50, "diamond", f"hollow {'one' if change.mean >= 0 else 'two'}"))
    note = f"{percent(change.changed, 0)} changed"
    if decided:
        note += f", {percent(change.flipped)} flipped"
    text = f"mean change {mean}, from {signed(change.lowest)} to {signed(change.highest)}; {note}"
    return Row(change.label if change.attribute else "everybody", marks, text, mean, note)


def changes_table(changes: Sequence[Change]) -> FigureTable:
    """How far the predictions of each group are from the raw outputs."""
    columns: dict[str, Sequence[str]] = {
        "group": [name_of(change.attribute, change.label) for change in changes],
        "samples": [count(change.count) for change in changes],
        "changed": [percent(change.changed) for change in changes],
        "mean change": aligned([change.mean for change in changes], sign=True),
        "mean absolute change": aligned([change.mean_absolute for change in changes]),
        "lowest": aligned([change.lowest for change in changes], sign=True),
    }
    for q in dict.fromkeys(q for change in changes for q in change.quantiles):
        columns[f"quantile {q}"] = aligned([change.quantiles.get(q) for change in changes], sign=True)
    columns["highest"] = aligned([change.highest for change in changes], sign=True)
    if any(change.flipped is not None for change in changes):
        columns["decisions flipped"] = [percent(change.flipped) for change in changes]
    return FigureTable("Change of predictions, by group.", columns)


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
