"""Groups side by side: distributions, changes, who is selected, means, rates and intersections."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fairlayer.audit.result import Audit, Change, Group
from fairlayer.audit.selection import FOUR_FIFTHS, SMALL_SHARE
from fairlayer.audit.tables import FIGURES, changes_table, groups_table, selection_table, share_of
from fairlayer.audit.words import aligned, confidence, count, interval, number, percent, stated
from fairlayer.report.drawing import (
    Band,
    Curve,
    Line,
    Mark,
    Point,
    Row,
    RowChart,
    Scale,
    Section,
    largest,
    marker,
    scale,
    steps,
    upright,
    whisker,
)

MOST_LINES = 500  # in a table; the JSON has all
PEAKED = 6.0  # a bin so many times as high as the average makes the others lie flat
RATES = {  # how each is drawn
    "decision_rate": ("circle", "one"),
    "true_positive_rate": ("triangle", "three"),
    "false_positive_rate": ("down", "two"),
    "accuracy": ("square", "four"),
}
CHANGE_KEY = (
    ("smallest to largest change", [Line(0, 50, 100, 50, "thin")]),
    ("middle 90 %, lowered or raised", [Band(0, 50, "bar down", 30, 70), Band(50, 100, "bar up", 30, 70)]),
    ("mean", [marker("diamond", "hollow five")]),
)


def _charts(groups: Sequence[Group], make: Callable[[str, list[Group]], RowChart | None]) -> list[RowChart]:
    """A chart for each attribute, or combination of attributes, that groups are of."""
    places: dict[str, list[Group]] = {}
    for group in groups:
        places.setdefault(" & ".join(group.attributes), []).append(group)
    return [chart for place, found in places.items() if (chart := make(place, found)) is not None]


def _row(group: Group, marks: Sequence[Mark], words: str, figure: str, note: str = "") -> Row:
    return Row(group.label, marks, words, figure, note or f"n = {count(group.count)}")


def distributions_section(audit: Audit) -> Section | None:
    """Outputs of each group, before and after."""
    groups = [group for group in audit.groups if group.histogram is not None]
    if not groups:
        return None
    lead = "How the predictions of each group are spread: the share of its samples in each interval."
    styles = {"after": "predictions and their mean"}
    if any(group.histogram and group.histogram.before for group in groups):
        lead += " Behind them are the raw outputs, before they were made fair."
        styles["before"] = "raw outputs and their mean"
    key = [
        (text, [Curve(((0, 20), (100, 20)), style, filled=True), Line(50, 0, 50, 100, style)])
        for style, text in styles.items()
    ]
    charts = _charts(groups, lambda attribute, own: _distributions(attribute, own, audit.edges))
    return Section("distributions", "Distributions by group", lead, charts=charts, key=key)


def _distributions(attribute: str, groups: Sequence[Group], edges: Sequence[float]) -> RowChart:
    shown, lead = largest(groups)
    shares = {
        (g, style): [entry / sum(counts) for entry in counts]
        for g, group in enumerate(shown)
        for style in ("before", "after")
        if group.histogram and (counts := getattr(group.histogram, style)) and sum(counts) > 0
    }
    tallest = max((max(share) for share in shares.values()), default=1.0)
    rooted = tallest * (len(edges) - 1) > PEAKED
    across, up = scale(edges), scale([0.0, math.sqrt(tallest) if rooted else tallest], margin=1e-6)
    rows = []
    for g, group in enumerate(shown):
        marks: list[Mark] = []
        for style in ("before", "after"):
            if (g, style) in shares:
                heights = [math.sqrt(share) if rooted else share for share in shares[g, style]]
                marks.append(Curve(steps(edges, heights, across, up), style, filled=True))
        words = f"mean of predictions {number(group.mean)}"
        if group.change is not None:
            marks.append(upright(across, group.mean - group.change.mean, "before"))
            words += f", mean of raw outputs {number(group.mean - group.change.mean)}"
        marks.append(upright(across, group.mean, "after"))
        rows.append(_row(group, marks, words, number(group.mean)))
    if rooted:
        lead = f"{lead} Heights are square roots of shares, because one interval holds most samples.".strip()
    return RowChart(attribute, rows, across, "prediction", "mean", lead=lead, tall=True)


def changes_section(audit: Audit) -> Section | None:
    """Predictions less raw outputs, by group."""
    if audit.overall.change is None:
        return None
    lead = "Prediction minus raw output: to the right of zero, people got a higher prediction than the model alone "
    lead += "would have given them." + (" Flipped means that their decision is now different." if audit.decided else "")

    def chart(attribute: str, groups: list[Group]) -> RowChart:
        shown, note = largest(groups)
        changes = [(group, group.change) for group in (audit.overall, *shown) if group.change is not None]
        axis = scale([end for _, change in changes for end in (change.lowest, change.highest)], include=[0.0])
        means = aligned([change.mean for _, change in changes], sign=True)
        rows = [_change(*both, axis, mean, audit.decided) for both, mean in zip(changes, means, strict=True)]
        return RowChart(attribute, rows, axis, "prediction minus raw output", "mean change", lead=note)

    table = changes_table((audit.overall, *audit.groups[:MOST_LINES]))
    title = "Who was changed, and by how much"
    return Section("changes", title, lead, charts=_charts(audit.groups, chart), key=CHANGE_KEY, folded=(table,))


def _change(group: Group, change: Change, axis: Scale, mean: str, decided: bool) -> Row:
    bar, style = ("up", "one") if change.mean >= 0 else ("down", "two")
    marks: list[Mark] = [upright(axis, 0.0, "zero"), Line(axis(change.lowest), 50, axis(change.highest), 50, "thin")]
    if "0.05" in change.quantiles and "0.95" in change.quantiles:
        low, high = axis(change.quantiles["0.05"]), axis(change.quantiles["0.95"])
        # A group that is shifted by one amount still shows.
        marks.append(Band(low, max(high, low + 0.4), f"bar {bar}", 34, 66))
    marks.append(Point(axis(change.mean), 50, "diamond", f"hollow {style}"))
    note = f"{percent(change.changed, 0)} changed" + (f", {percent(change.flipped)} flipped" if decided else "")
    ends = " to ".join(number(end, sign=True) for end in (change.lowest, change.highest))
    return _row(group, marks, f"mean change {mean}, from {ends}; {note}", mean, note)


def selection_section(audit: Audit) -> Section | None:
    """Impact ratios of every attribute, and of all together."""
    if not audit.decided:
        return None
    decided = (
        "A class is selected where its probability is the largest."
        if audit.classes
        else f"A decision is positive where the prediction is {stated(audit.settings.threshold)} or more."
    )
    return Section(
        "selection",
        "Who is selected",
        f"{decided} The impact ratio is a group's rate of positive decisions over that of the group selected most. The "
        "line marks four fifths, below which US selection procedures see adverse impact as a rule of thumb. Bars are "
        f"{confidence(audit.settings.confidence)} intervals, which hold for all groups of an attribute together; "
        f"groups below {percent(SMALL_SHARE, 0)} of the samples are marked and no ratio is taken to them.",
        charts=_charts(audit.selections, _ratios),
        folded=(selection_table("Every group.", audit.selections[:MOST_LINES]),),
        aside="The shortfall counts people who would have been selected had their group and the most selected one been "
        "selected at the rate of both together. A ratio above four fifths is no proof of fairness, and one below it is "
        "no proof of the opposite.",
    )


def _ratios(place: str, groups: list[Group]) -> RowChart | None:
    rated = [group for group in groups if group.selection and group.selection.impact_ratio is not None]
    if len(rated) < 2:
        return None
    shown, lead = largest(rated)
    ratios = [group.selection.impact_ratio for group in shown]
    ends = [min(end, 2.0) for group in shown for end in group.selection.ratio_interval or ()]
    axis = scale(ratios, include=[*ends, 0.0, 1.0])
    rows = []
    for group, ratio, text in zip(shown, ratios, aligned(ratios), strict=True):
        own, shape = group.selection, "diamond" if ratio < FOUR_FIFTHS else "circle"
        line, point = upright(axis, FOUR_FIFTHS, "tolerance-edge"), Point(axis(ratio), 50, shape, "mark")
        words = (
            f"impact ratio {text}, interval {interval(own.ratio_interval)}; selected {share_of(group.decision_rate)}"
        )
        note = f"n = {count(group.count)}{', a small group' if own.small else ''}"
        rows.append(_row(group, (line, *whisker(axis, own.ratio_interval), point), words, text, note))
    return RowChart(f"{place}: impact ratio", rows, axis, "impact ratio", "impact ratio", lead=lead)


def rates_section(audit: Audit) -> Section | None:
    """Means, decisions and errors of each group."""
    if not audit.groups:
        return None
    lead = f"Bars are {confidence(audit.settings.confidence)} intervals, each by itself."
    charts = _charts(audit.groups, lambda place, groups: _means(place, groups, audit.overall))
    if audit.decided:
        rated = _charts(audit.groups, _rates)
        charts = [chart for both in zip(charts, rated, strict=True) for chart in both]
        if not audit.classes:
            lead += f" A decision is positive where the prediction is {stated(audit.settings.threshold)} or more."
        if audit.overall.true_positive_rate is not None:
            lead += " True and false positive rates are shares of those with target 1 and of those with target 0."
        lead += " Equal means do not guarantee equal rates."
    title = "Decisions and errors by group" if audit.decided else "Means and errors by group"
    table = groups_table("Every group.", (audit.overall, *audit.groups[:MOST_LINES]))
    return Section("groups", title, lead, charts=charts, folded=(table,))


def _means(place: str, groups: Sequence[Group], overall: Group) -> RowChart:
    shown, lead = largest(groups)
    ends = [end for group in shown for end in group.mean_interval or ()]
    targets = [group.target_mean for group in shown if group.target_mean is not None]
    axis = scale([group.mean for group in shown], include=[*ends, *targets, overall.mean])
    rows = []
    for group, mean in zip(shown, aligned([group.mean for group in shown]), strict=True):
        words = f"mean {mean}, interval {interval(group.mean_interval)}"
        marks: list[Mark] = [upright(axis, overall.mean, "dashed"), *whisker(axis, group.mean_interval)]
        if group.target_mean is not None:
            marks.append(Point(axis(group.target_mean), 50, "diamond", "hollow two"))
            words += f", mean target {number(group.target_mean)}"
        marks.append(Point(axis(group.mean), 50, "circle", "mark"))
        rows.append(_row(group, marks, words, mean))
    key: list[tuple[str, Sequence[Mark]]] = [
        ("mean prediction", [Line(0, 50, 100, 50, "whisker"), marker("circle", "mark")]),
        ("everybody", [Line(50, 0, 50, 100, "dashed")]),
    ]
    if targets:
        key.append(("mean target", [marker("diamond", "hollow two")]))
    return RowChart(f"{place}: mean prediction", rows, axis, "mean", "mean prediction", key, lead)


def _rates(place: str, groups: Sequence[Group]) -> RowChart:
    shown, lead = largest(groups)
    axis = scale([0.0, 1.0])
    drawn = {f: how for f, how in RATES.items() if any(getattr(group, f) is not None for group in shown)}
    rows = []
    for group in shown:
        marks: list[Mark] = []
        words = []
        for k, (field, (shape, style)) in enumerate(drawn.items(), start=1):
            rate, y = getattr(group, field), 100 * k / (len(drawn) + 1)
            if rate is None or rate.value is None:
                words.append(f"{FIGURES[field]}: no samples")
                continue
            marks.append(Line(axis(rate.lower), y, axis(rate.upper), y, f"whisker {style}"))
            words.append(f"{FIGURES[field]} {percent(rate.value)} ({percent(rate.lower)} to {percent(rate.upper)})")
            marks.append(Point(axis(rate.value), y, shape, f"mark {style}", words[-1]))
        rows.append(_row(group, marks, "; ".join(words), share_of(group.decision_rate)))
    key = [
        (FIGURES[field], [Line(0, 50, 100, 50, f"whisker {style}"), marker(shape, f"mark {style}")])
        for field, (shape, style) in drawn.items()
    ]
    title = f"{place}: decisions and errors"
    return RowChart(title, rows, axis, "share", FIGURES["decision_rate"], key, lead, tall=len(drawn) > 1)


def intersections_section(audit: Audit) -> Section | None:
    """Groups of all attributes together."""
    if not audit.intersections:
        return None
    attributes = " & ".join(audit.intersections[0].attributes)
    ordered = sorted(audit.intersections, key=lambda group: -group.count)
    listed = ordered[:MOST_LINES]
    caption = f"Groups of {attributes}, the largest first."
    if len(listed) < len(ordered):
        caption = f"The {count(len(listed))} largest of {count(len(ordered))} groups of {attributes}."
    return Section(
        "intersections",
        "Intersections",
        "Parity for each attribute on its own does not guarantee it for people who belong to several groups at once. "
        "Wide intervals mean small groups: they say little either way.",
        charts=(_means(attributes, ordered, audit.overall),),
        tables=(groups_table(caption, listed),),
    )
