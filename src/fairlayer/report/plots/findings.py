"""Gaps against their tolerances, with intervals; and what predictions mean, group by group."""

from __future__ import annotations

from collections.abc import Sequence

from fairlayer.audit.result import Audit, CalibrationBin, Finding, Group
from fairlayer.audit.summary import statement
from fairlayer.audit.tables import FigureTable, findings_table, gap_text, pair
from fairlayer.audit.words import aligned, aligned_intervals, confidence, count, interval, number, stated
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
    scale,
    upright,
    whisker,
)

MOST_ROWS = 12  # drawn in one chart; the table has more
MOST_LINES = 1000  # in a table; the JSON has all
KEY = (
    ("promised", [Band(0, 100, "tolerance"), *(Line(x, 0, x, 100, "tolerance-edge") for x in (0, 100))]),
    ("gap within tolerance in these data", [Point(50, 50, "circle", "mark five")]),
    ("gap exceeds its tolerance in these data", [Point(50, 50, "diamond", "mark five")]),
    (
        "interval for the population",
        [Line(0, 50, 100, 50, "whisker five"), *(Line(x, 15, x, 85, "whisker five") for x in (0, 100))],
    ),
)
AXES = {"output": "mean prediction", "residual": "mean prediction minus target", "decision": "rates of decisions"}


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
        charts=[_chart(where, family) for where, family in families.items()],
        key=KEY,
        folded=(findings_table(audit, MOST_LINES),),
    )


def _chart(where: str, family: Sequence[Finding]) -> RowChart:
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
    return RowChart(where, [_row(finding, axis) for finding in shown], axis, what, "gap", lead=lead)


def _row(finding: Finding, axis: Scale) -> Row:
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
    means = [
        value for group in shown for part in group.calibration for value in (part.mean_prediction, part.mean_target)
    ]
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
    panels, table = [_panel(group, axis) for group in shown], _table(groups)
    title = "Calibration by group"
    return Section("calibration", title, lead, multiples=panels, key=key, folded=(table,), aside=omitted)


def _panel(group: Group, axis: Scale) -> Panel:
    bins = group.calibration
    marks: list[Mark] = [Line(axis(axis.low), 100, axis(axis.high), 0, "dashed")]
    points = tuple((axis(part.mean_prediction), axis.down(part.mean_target)) for part in bins)
    if len(points) > 1:
        marks.append(Curve(points, "one"))
    for part, (x, y) in zip(bins, points, strict=True):
        if part.interval is not None:
            marks.append(Line(x, axis.down(part.interval[0]), x, axis.down(part.interval[1]), "whisker"))
        marks.append(Point(x, y, "circle", "mark", _words(part)))
    note = f"n = {count(group.count)}"
    return Panel(group.name, "; ".join(map(_words, bins)), marks, axis, axis, "prediction", note=note)


def _words(part: CalibrationBin) -> str:
    return f"predicted {number(part.mean_prediction)}, target {number(part.mean_target)}, n = {count(part.count)}"


def _table(groups: Sequence[Group]) -> FigureTable:
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
