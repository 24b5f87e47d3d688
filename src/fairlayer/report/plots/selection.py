"""Who is selected: impact ratios by group, beside the four-fifths rule."""

from __future__ import annotations

from collections.abc import Sequence

from fairlayer.audit.numerals import aligned, aligned_intervals, confidence, count, interval, number, percent, stated
from fairlayer.audit.result import Audit, Selection
from fairlayer.audit.selection import FOUR_FIFTHS, SMALL_SHARE
from fairlayer.report.drawing import FigureTable, Mark, Point, Row, RowChart, Section, scale, upright, whisker
from fairlayer.report.plots.groups import MOST_LINES, are_decided, largest, share_of


def selection_section(audit: Audit) -> Section | None:
    """Impact ratios of every attribute, and of all together."""
    if not are_decided(audit):
        return None
    by_place: dict[str, list[Selection]] = {}
    for one in audit.selections:
        by_place.setdefault(" & ".join(one.attributes), []).append(one)
    shares = f"{percent(SMALL_SHARE, 0)} of the samples"
    decided = (
        "A class is selected where its probability is the largest."
        if audit.classes
        else f"A decision is positive where the prediction is {stated(audit.settings.threshold)} or more."
    )
    return Section(
        "selection",
        "Who is selected",
        f"{decided} The impact ratio "
        "is a group's rate of positive decisions over that of the group selected most. The line marks four fifths, "
        "below which US selection procedures see adverse impact as a rule of thumb. Bars are "
        f"{confidence(audit.settings.confidence)} intervals; groups below {shares} are marked and no ratio is taken to "
        "them.",
        charts=[chart for place, ones in by_place.items() if (chart := _chart(place, ones)) is not None],
        folded=(selection_table("Every group.", audit.selections[:MOST_LINES]),),
        aside="The shortfall counts people who would have been selected had their group and the most selected one been "
        "selected at the rate of both together. A ratio above four fifths is no proof of fairness, and one below it is "
        "no proof of the opposite.",
    )


def _chart(place: str, ones: Sequence[Selection]) -> RowChart | None:
    rated = [one for one in ones if one.impact_ratio is not None]
    if len(rated) < 2:
        return None
    shown, lead = largest(rated)
    ends = [min(end, 2.0) for one in shown for end in one.ratio_interval or ()]
    axis = scale([one.impact_ratio or 0.0 for one in shown], include=[*ends, 0.0, 1.0])
    rows = []
    for one, ratio in zip(shown, aligned([one.impact_ratio for one in shown]), strict=True):
        marks: list[Mark] = [upright(axis, FOUR_FIFTHS, "tolerance-edge"), *whisker(axis, one.ratio_interval)]
        shape = "diamond" if (one.impact_ratio or 0.0) < FOUR_FIFTHS else "circle"
        marks.append(Point(axis(one.impact_ratio or 0.0), 50, shape, "mark"))
        words = f"impact ratio {ratio}, interval {interval(one.ratio_interval)}; selected {share_of(one.rate)}"
        note = f"n = {count(one.count)}{', a small group' if one.small else ''}"
        rows.append(Row(" & ".join(one.labels), marks, words, ratio, note))
    return RowChart(f"{place}: impact ratio", rows, axis, "impact ratio", "impact ratio", lead=lead)


def selection_table(caption: str, ones: Sequence[Selection]) -> FigureTable:
    """What is known of the selection of groups."""
    columns: dict[str, Sequence[str]] = {
        "group": [one.name + (" (small)" if one.small else "") for one in ones],
        "samples": [count(one.count) for one in ones],
        "selected": [count(one.selected) for one in ones],
        "rate": [share_of(one.rate) for one in ones],
        "impact ratio": aligned([one.impact_ratio for one in ones]),
        "interval of the ratio": aligned_intervals([one.ratio_interval for one in ones]),
        "Fisher's p": [number(one.p_value, 2) for one in ones],
        "standard deviations": aligned([one.deviations for one in ones], sign=True),
        "shortfall": aligned([one.shortfall for one in ones], 2),
        "above the median": [percent(one.scoring_rate.value) for one in ones],
    }
    return FigureTable(caption, columns)
