"""Gaps against their tolerances, with intervals."""

from __future__ import annotations

from collections.abc import Sequence

from fairlayer.audit.numerals import aligned, aligned_intervals, confidence, count, interval, stated
from fairlayer.audit.result import Audit, Finding
from fairlayer.audit.text import gap_text
from fairlayer.report.drawing import (
    Band,
    FigureTable,
    Line,
    Point,
    Row,
    RowChart,
    Scale,
    Section,
    scale,
    upright,
    whisker,
)
from fairlayer.report.names import pair

MOST_ROWS = 12  # drawn in one chart; the table has more
MOST_LINES = 1000  # in the table; the JSON has all
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
        f"is what was promised. The bar is the {confidence(audit.settings.confidence)} interval for the population: "
        "if it lies inside the band, the promise holds there; if it lies outside, it does not; if it crosses the edge, "
        "the data cannot tell.",
        charts=[_chart(where, family) for where, family in families.items()],
        key=KEY,
        folded=(findings_table(audit),),
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
    gap = gap_text(finding)
    band = (
        Band(axis(-finding.tolerance), axis(finding.tolerance), "tolerance"),
        upright(axis, -finding.tolerance, "tolerance-edge"),
        upright(axis, finding.tolerance, "tolerance-edge"),
        upright(axis, 0.0, "zero"),
    )
    point = Point(axis(finding.gap), 50, "circle" if finding.holds else "diamond", "mark")
    return Row(
        label=pair(finding),
        marks=(*band, *whisker(axis, finding.interval), point),
        text=f"gap {gap}, interval {interval(finding.interval)}, tolerance {stated(finding.tolerance)}; "
        f"{finding.statement}.",
        figure=gap,
        note="n = " + " and ".join(map(count, finding.counts)),
        verdict=finding.verdict.value,
    )


def findings_table(audit: Audit, most: int = MOST_LINES) -> FigureTable:
    """Every comparison with its figures, or the first `most` of them."""
    shown = audit.findings[:most]
    caption = "Every comparison, the one that exceeds its tolerance most first."
    if len(shown) < len(audit.findings):
        caption = f"The first {count(len(shown))} of {count(len(audit.findings))} comparisons; the JSON result has all."
    columns = {
        "compared": [pair(f) for f in shown],
        "constraint": [f.where for f in shown],
        "samples": [" and ".join(map(count, f.counts)) for f in shown],
        "means": [" and ".join(aligned(f.means)) for f in shown],
        "gap": [gap_text(f) for f in shown],
        "tolerance": [stated(f.tolerance) for f in shown],
        "interval": aligned_intervals([f.interval for f in shown]),
        "in these data": ["within" if f.holds else "beyond" for f in shown],
    }
    return FigureTable(caption, columns, headers=2, verdicts=tuple(f.verdict.value for f in shown))
