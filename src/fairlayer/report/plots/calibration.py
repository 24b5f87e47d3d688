"""Calibration: of those who get about the same prediction, what are the targets, group by group?"""

from __future__ import annotations

from collections.abc import Sequence

from fairlayer.audit.numerals import aligned, aligned_intervals, confidence, count, number
from fairlayer.audit.result import Audit, CalibrationBin
from fairlayer.report.drawing import Curve, FigureTable, Line, Mark, Panel, Point, Scale, Section, scale
from fairlayer.report.plots.groups import MOST_LINES, largest, name_of


def calibration_section(audit: Audit) -> Section | None:
    """One small panel per group, everybody first."""
    groups: dict[tuple[str, str], list[CalibrationBin]] = {}
    for part in audit.calibration:
        if part.count > 0:
            groups.setdefault((part.attribute, part.label), []).append(part)
    if not groups:
        return None
    shown, omitted = largest(list(groups), [sum(part.count for part in parts) for parts in groups.values()], most=12)
    means = [value for group in shown for part in groups[group] for value in (part.mean_prediction, part.mean_target)]
    axis = scale(means, include=audit.settings.bounds if audit.settings.targets == "binary" else (), ticks=4)
    lead = (
        "Where the dots lie on the dashed line, predictions mean what they say. Above it the group's targets are "
        "higher than predicted, below it lower. Making means equal moves groups whose targets differ off this line."
    )
    key = (
        ("mean target by mean prediction", [Point(50, 50, "circle", "mark")]),
        (f"{confidence(audit.settings.confidence)} interval", [Line(50, 0, 50, 100, "whisker")]),
        ("calibrated", [Line(0, 100, 100, 0, "dashed")]),
    )
    return Section(
        "calibration",
        "Calibration by group",
        lead,
        multiples=[_panel(group, groups[group], axis) for group in shown],
        key=key,
        folded=(_table(audit),),
        aside=omitted,
    )


def _panel(group: tuple[str, str], bins: Sequence[CalibrationBin], axis: Scale) -> Panel:
    marks: list[Mark] = [Line(axis(axis.low), 100, axis(axis.high), 0, "dashed")]
    points = tuple((axis(part.mean_prediction), axis.down(part.mean_target)) for part in bins)
    if len(points) > 1:
        marks.append(Curve(points, "one"))
    for part, (x, y) in zip(bins, points, strict=True):
        if part.interval is not None:
            marks.append(Line(x, axis.down(part.interval[0]), x, axis.down(part.interval[1]), "whisker"))
        marks.append(Point(x, y, "circle", "mark", _words(part)))
    note = f"n = {count(sum(part.count for part in bins))}"
    return Panel(name_of(*group), "; ".join(map(_words, bins)), marks, axis, axis, "prediction", note=note)


def _words(part: CalibrationBin) -> str:
    return f"predicted {number(part.mean_prediction)}, target {number(part.mean_target)}, n = {count(part.count)}"


def _table(audit: Audit) -> FigureTable:
    bins = [part for part in audit.calibration if part.count > 0][:MOST_LINES]
    columns = {
        "group": [name_of(part.attribute, part.label) for part in bins],
        "predictions": aligned_intervals([(part.lower, part.upper) for part in bins]),
        "samples": [count(part.count) for part in bins],
        "mean prediction": aligned([part.mean_prediction for part in bins]),
        "mean target": aligned([part.mean_target for part in bins]),
        "interval of the mean target": aligned_intervals([part.interval for part in bins]),
    }
    return FigureTable("Calibration, by group and interval of predictions.", columns, headers=2)
