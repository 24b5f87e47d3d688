"""Distributions of outputs by group, before and after."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fairlayer.audit.numerals import count, number
from fairlayer.audit.result import Audit, GroupReport, Histogram
from fairlayer.report.drawing import Curve, Line, Mark, Row, RowChart, Section, scale, steps, upright
from fairlayer.report.plots.groups import largest

PEAKED = 6.0  # a bin so many times as high as the average makes the others lie flat


def distributions_section(audit: Audit) -> Section | None:
    """Outputs of each group, before and after."""
    reports = {(*report.attributes, *report.labels): report for report in audit.groups}
    shifts = {(change.attribute, change.label): change.mean for change in audit.changes}
    compared = any(histogram.before for histogram in audit.histograms)
    by_attribute = {one: [h for h in audit.histograms if h.attribute == one] for one in audit.settings.attributes}
    charts = [_distributions(name, found, reports, shifts) for name, found in by_attribute.items() if found]
    if not charts:
        return None
    lead = "How the predictions of each group are spread: the share of its samples in each interval."
    if compared:
        lead += " Behind them are the raw outputs, before they were made fair."
    styles = {"after": "predictions and their mean"} | ({"before": "raw outputs and their mean"} if compared else {})
    key = [
        (text, [Curve(((0, 20), (100, 20)), style, filled=True), Line(50, 0, 50, 100, style)])
        for style, text in styles.items()
    ]
    return Section("distributions", "Distributions by group", lead, charts=charts, key=key)


def _distributions(
    attribute: str,
    histograms: Sequence[Histogram],
    reports: Mapping[tuple[str, ...], GroupReport],
    shifts: Mapping[tuple[str, str], float],
) -> RowChart:
    shown, lead = largest(histograms, [sum(h.after) for h in histograms])
    across = scale(histograms[0].edges)
    tallest = max((max(_shares(part)) for h in shown for part in (h.after, h.before) if part), default=1.0)
    rooted = tallest * len(histograms[0].after) > PEAKED
    up = scale([0.0, math.sqrt(tallest) if rooted else tallest], margin=1e-6)
    rows = []
    for h in shown:
        marks: list[Mark] = []
        for part, style in ((h.before, "before"), (h.after, "after")):
            if part and sum(part) > 0:
                heights = [math.sqrt(share) if rooted else share for share in _shares(part)]
                marks.append(Curve(steps(h.edges, heights, across, up), style, filled=True))
        report, shift = reports.get((h.attribute, h.label)), shifts.get((h.attribute, h.label))
        if report is None:
            rows.append(Row(h.label, marks, "distribution"))
            continue
        words = f"mean of predictions {number(report.mean)}"
        if shift is not None:
            marks.append(upright(across, report.mean - shift, "before"))
            words += f", mean of raw outputs {number(report.mean - shift)}"
        marks.append(upright(across, report.mean, "after"))
        rows.append(Row(h.label, marks, words, number(report.mean), f"n = {count(report.count)}"))
    if rooted:
        lead = f"{lead} Heights are square roots of shares, because one interval holds most samples.".strip()
    return RowChart(attribute, rows, across, "prediction", "mean", lead=lead, tall=True)


def _shares(counts: Sequence[float]) -> list[float]:
    total = sum(counts)
    return [entry / total if total else 0.0 for entry in counts]
