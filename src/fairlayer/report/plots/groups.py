"""Groups side by side: means, decisions, errors, and their intersections."""

from __future__ import annotations

from collections.abc import Sequence

from fairlayer.audit.numerals import aligned, aligned_intervals, confidence, count, interval, number, percent, stated
from fairlayer.audit.result import Audit, GroupReport, Rate
from fairlayer.report.drawing import FigureTable, Line, Mark, Point, Row, RowChart, Section, scale, upright, whisker

MOST_GROUPS = 12  # drawn in one chart, the largest ones; the table has more
MOST_LINES = 500

TITLES = {
    "decision_rate": "decided positive",
    "target_mean": "mean target",
    "bias": "bias",
    "root_mean_squared_error": "RMSE",
    "calibration_error": "calibration error",
    "accuracy": "accuracy",
    "true_positive_rate": "true positive rate",
    "false_positive_rate": "false positive rate",
    "precision": "precision",
}
RATES = {  # how each is drawn
    "decision_rate": ("circle", "one"),
    "true_positive_rate": ("triangle", "three"),
    "false_positive_rate": ("down", "two"),
    "accuracy": ("square", "four"),
}


def rates_section(audit: Audit) -> Section | None:
    """Means, decisions and errors of each group."""
    if not audit.groups:
        return None
    charts = []
    for attribute in audit.settings.attributes:
        reports = [report for report in audit.groups if report.attributes == (attribute,)]
        if reports:
            shown, lead = largest(reports)
            charts.append(_means(f"{attribute}: mean prediction", shown, audit.overall, lead))
            if are_decided(audit):
                charts.append(_rates(f"{attribute}: decisions and errors", shown, lead))
    errors = audit.overall.true_positive_rate is not None
    listed = (audit.overall, *audit.groups[:MOST_LINES])
    lead = f"Bars are {confidence(audit.settings.confidence)} intervals."
    if are_decided(audit):
        lead += f" A decision is positive where the prediction is {stated(audit.settings.threshold)} or more."
        if errors:
            lead += " True and false positive rates are shares of those with target 1 and of those with target 0."
        lead += " Equal means do not guarantee equal rates."
    return Section(
        "groups",
        "Decisions and errors by group" if are_decided(audit) else "Means and errors by group",
        lead,
        charts=charts,
        folded=(groups_table("Every group.", listed),),
    )


def are_decided(audit: Audit) -> bool:
    """Whether there are decisions, and not all of them the same."""
    rate = audit.overall.decision_rate
    return rate is not None and rate.value is not None and 0.0 < rate.value < 1.0


def _means(title: str, reports: Sequence[GroupReport], overall: GroupReport, lead: str) -> RowChart:
    ends = [end for report in reports for end in report.mean_interval or ()]
    targets = [report.target_mean for report in reports if report.target_mean is not None]
    axis = scale([report.mean for report in reports], include=[*ends, *targets, overall.mean])
    rows = []
    for report, mean in zip(reports, aligned([report.mean for report in reports]), strict=True):
        words = f"mean {mean}, interval {interval(report.mean_interval)}"
        marks: list[Mark] = [upright(axis, overall.mean, "dashed"), *whisker(axis, report.mean_interval)]
        if report.target_mean is not None:
            marks.append(Point(axis(report.target_mean), 50, "diamond", "hollow two"))
            words += f", mean target {number(report.target_mean)}"
        marks.append(Point(axis(report.mean), 50, "circle", "mark"))
        rows.append(Row(label_of(report), marks, words, mean, f"n = {count(report.count)}"))
    key: list[tuple[str, list[Mark]]] = [
        ("mean prediction", [Line(0, 50, 100, 50, "whisker"), Point(50, 50, "circle", "mark")]),
        ("everybody", [Line(50, 0, 50, 100, "dashed")]),
    ]
    if targets:
        key.append(("mean target", [Point(50, 50, "diamond", "hollow two")]))
    return RowChart(title, rows, axis, "mean", "mean prediction", key, lead)


def _rates(title: str, reports: Sequence[GroupReport], lead: str) -> RowChart:
    axis = scale([0.0, 1.0])
    drawn = {f: how for f, how in RATES.items() if any(getattr(report, f) is not None for report in reports)}
    rows = []
    for report in reports:
        marks: list[Mark] = []
        words = []
        for k, (field, (shape, style)) in enumerate(drawn.items(), start=1):
            rate, y = getattr(report, field), 100 * k / (len(drawn) + 1)
            if rate is None or rate.value is None:
                words.append(f"{TITLES[field]}: no samples")
                continue
            marks.append(Line(axis(rate.lower), y, axis(rate.upper), y, f"whisker {style}"))
            text = f"{TITLES[field]} {percent(rate.value)} ({percent(rate.lower)} to {percent(rate.upper)})"
            marks.append(Point(axis(rate.value), y, shape, f"mark {style}", text))
            words.append(text)
        note = f"n = {count(report.count)}"
        rows.append(Row(label_of(report), marks, "; ".join(words), share_of(report.decision_rate), note))
    key = [
        (TITLES[field], [Line(0, 50, 100, 50, f"whisker {style}"), Point(50, 50, shape, f"mark {style}")])
        for field, (shape, style) in drawn.items()
    ]
    return RowChart(title, rows, axis, "share", TITLES["decision_rate"], key, lead, tall=len(drawn) > 1)


def intersections_section(audit: Audit) -> Section | None:
    """Groups of all attributes together."""
    if not audit.intersections:
        return None
    attributes = " & ".join(audit.settings.attributes)
    ordered = sorted(audit.intersections, key=lambda report: -report.count)
    shown, lead = largest(ordered)
    chart = _means(f"{attributes}: mean prediction", shown, audit.overall, lead)
    listed = ordered[:MOST_LINES]
    caption = f"Groups of {attributes}, the largest first."
    if len(listed) < len(ordered):
        caption = f"The {count(len(listed))} largest of {count(len(ordered))} groups of {attributes}."
    return Section(
        "intersections",
        "Intersections",
        "Parity for each attribute on its own does not guarantee it for people who belong to several groups at once. "
        "Wide intervals mean small groups: they say little either way.",
        charts=(chart,),
        tables=(groups_table(caption, listed),),
    )


def groups_table(caption: str, reports: Sequence[GroupReport]) -> FigureTable:
    """What is known of groups; columns that none of them has are left out. Intersections go by their labels alone."""
    columns: dict[str, Sequence[str]] = {
        "group": [label_of(report) if len(report.attributes) > 1 else report.name for report in reports],
        "samples": [count(report.count) for report in reports],
        "share": [percent(report.share) for report in reports],
        "mean": aligned([report.mean for report in reports]),
        "interval of the mean": aligned_intervals([report.mean_interval for report in reports]),
        "deviation": aligned([report.deviation for report in reports]),
    }
    for field, title in TITLES.items():
        values = [getattr(report, field) for report in reports]
        if any(isinstance(value, Rate) for value in values):
            columns[title] = [share_of(rate) for rate in values]
        elif any(value is not None for value in values):
            columns[title] = aligned(values, sign=field == "bias")
    return FigureTable(caption, columns)


def label_of(report: GroupReport) -> str:
    """The group without its attribute, which the chart names."""
    return " & ".join(report.labels) if report.labels else report.name


def name_of(attribute: str, label: str) -> str:
    """A group of one attribute; everybody where there is none."""
    return f"{attribute}: {label}" if attribute else "everybody"


def largest(items: Sequence, sizes: Sequence[float] | None = None, most: int = MOST_GROUPS) -> tuple[list, str]:
    """The `most` items of greatest size (samples by default), in the order they came in; what to say of the others."""
    known = [item.count for item in items] if sizes is None else sizes
    chosen = sorted(range(len(items)), key=lambda i: -known[i])[:most]
    omitted = f"The {len(chosen)} largest of {count(len(items))} groups." if len(chosen) < len(items) else ""
    return [items[i] for i in sorted(chosen)], omitted


def share_of(rate: Rate | None) -> str:
    """A rate as a percentage."""
    return percent(None if rate is None else rate.value)
