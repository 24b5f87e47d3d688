"""Who was changed and by how much, and what other tolerances would cost."""

from __future__ import annotations

from collections.abc import Sequence

from fairlayer.audit.result import Audit, Change, TradeoffPoint
from fairlayer.report.drawing import (
    Band,
    Curve,
    Key,
    Line,
    Mark,
    Panel,
    Point,
    Row,
    RowChart,
    Scale,
    Section,
    Table,
    scale,
    ticks_of,
    upright,
)
from fairlayer.report.numerals import aligned, count, number, percent, signed, stated
from fairlayer.report.plots.groups import MOST_LINES, are_decided, largest, omitted

KEY = (
    Key((Line(0, 50, 100, 50, "thin"),), "smallest to largest change"),
    Key((Band(0, 50, "bar down", 30, 70), Band(50, 100, "bar up", 30, 70)), "middle 90 %, lowered or raised"),
    Key((Point(50, 50, "diamond", "hollow five"),), "mean"),
)


def changes_section(audit: Audit) -> Section | None:
    """Predictions less raw outputs, by group."""
    everybody = [change for change in audit.changes if not change.attribute]
    charts = []
    for attribute in audit.settings.attributes:
        changes = [change for change in audit.changes if change.attribute == attribute]
        if changes:
            shown = largest(changes, [change.count for change in changes])
            lead = omitted(len(shown), len(changes))
            charts.append(_chart(attribute, [*everybody, *shown], lead, are_decided(audit)))
    if not charts:
        return None
    return Section(
        "changes",
        "Who was changed, and by how much",
        "Prediction less raw output: to the right of zero, people got a higher prediction than the model alone would "
        "have given. The price of fairness is paid here, by these groups."
        + (" Flipped are those who are now decided otherwise." if are_decided(audit) else ""),
        charts=tuple(charts),
        key=KEY,
        folded=(changes_table(audit.changes[:MOST_LINES]),),
    )


def _chart(attribute: str, changes: Sequence[Change], lead: str, decided: bool) -> RowChart:
    axis = scale([end for change in changes for end in (change.lowest, change.highest)], include=[0.0])
    means = aligned([change.mean for change in changes], sign=True)
    rows = tuple(_row(change, axis, mean, decided) for change, mean in zip(changes, means, strict=True))
    return RowChart(attribute, rows, ticks_of(axis), "prediction less raw output", "mean change", lead=lead)


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
    return Row(change.label if change.attribute else "everybody", tuple(marks), text, mean, note)


def changes_table(changes: Sequence[Change]) -> Table:
    """How far the predictions of each group are from the raw outputs."""
    columns: dict[str, Sequence[str]] = {
        "group": [f"{change.attribute}: {change.label}" if change.attribute else "everybody" for change in changes],
        "samples": [count(change.count) for change in changes],
        "changed": [percent(change.changed) for change in changes],
        "decisions flipped": [percent(change.flipped) for change in changes],
        "mean": aligned([change.mean for change in changes], sign=True),
        "mean, absolute": aligned([change.mean_absolute for change in changes]),
        "lowest": aligned([change.lowest for change in changes], sign=True),
    }
    for q in dict.fromkeys(q for change in changes for q in change.quantiles):
        columns[f"quantile {q}"] = aligned([change.quantiles.get(q) for change in changes], sign=True)
    columns["highest"] = aligned([change.highest for change in changes], sign=True)
    return Table("Change of predictions, by group.", columns)


def tradeoff_section(audit: Audit) -> Section | None:
    """Accuracy, or error, and change as the tolerance varies."""
    points = sorted(audit.tradeoff, key=lambda point: point.tolerance)
    if len(points) < 2:
        return None
    promised = sorted({finding.tolerance for finding in audit.findings})
    across = scale([point.tolerance for point in points], include=[0.0, *promised])
    panels = []
    for name, title, upright_name in (
        ("accuracy", "Accuracy", "share of right decisions"),
        ("root_mean_squared_error", "Error against targets", "root mean squared error"),
        ("mean_change", "Change of predictions", "mean absolute change"),
    ):
        values = [getattr(point, name) for point in points]
        if all(value is not None for value in values):
            panels.append(_tradeoff_panel(title, upright_name, points, values, across, promised))
    return Section(
        "tradeoff",
        "What fairness costs",
        "The same outputs projected onto the same constraints, were the tolerance another. The dashed line is the "
        "tolerance that was promised.",
        panels=tuple(panels),
        folded=(_tradeoff_table(points),),
    )


def _tradeoff_panel(
    title: str,
    upright_name: str,
    points: Sequence[TradeoffPoint],
    values: Sequence[float],
    across: Scale,
    promised: Sequence[float],
) -> Panel:
    up = scale(values, margin=0.1, ticks=4)
    places = tuple((across(p.tolerance), up.down(value)) for p, value in zip(points, values, strict=True))
    marks: list[Mark] = [upright(across, tolerance, "dashed") for tolerance in promised]
    marks.append(Curve(places, "one"))
    words = [f"tolerance {stated(p.tolerance)}: {number(v, 4)}" for p, v in zip(points, values, strict=True)]
    marks += [Point(x, y, "circle", "mark", text) for (x, y), text in zip(places, words, strict=True)]
    axes = ticks_of(across), ticks_of(up, down=True)
    return Panel(title, "; ".join(words), tuple(marks), *axes, "tolerance", note=upright_name)


def _tradeoff_table(points: Sequence[TradeoffPoint]) -> Table:
    columns = {
        "tolerance": [stated(p.tolerance) for p in points],
        "largest gap": aligned([p.gap for p in points]),
        "mean change": aligned([p.mean_change for p in points]),
        "RMS change": aligned([p.root_mean_squared_change for p in points]),
        "accuracy": [percent(p.accuracy, 2) for p in points],
        "RMSE": aligned([p.root_mean_squared_error for p in points], 4),
    }
    return Table("By tolerance.", columns)
