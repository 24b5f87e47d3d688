"""The certificate of a stream as a page that an auditor can be handed: one file, no script, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from fairlayer.audit.result import Verdict
from fairlayer.audit.summary import Answer, Summary
from fairlayer.audit.tables import FigureTable
from fairlayer.audit.words import aligned, count, isolated, number, percent, shortened, stated
from fairlayer.plural import plural
from fairlayer.report.drawing import (
    STYLES,
    Line,
    Panel,
    Point,
    Row,
    RowChart,
    Section,
    largest,
    line_panel,
    marker,
    scale,
)
from fairlayer.report.page import render_html
from fairlayer.stream import Certificate, Verification
from fairlayer.stream.certificate import Step

LIMITS = (
    "It is about averages of groups over all decisions: it says nothing about any one person.",
    "It takes the recorded groups, and targets where there are any, as they are: whether they are right is not seen.",
    "It does not say how good the decisions were, nor that this constraint is the right one.",
)


def render_stream(
    certificate: Certificate, steps: Sequence[Step], verification: Verification, facts: Mapping[str, str]
) -> str:
    """The page as text. steps: of the timeline, condensed. facts: for its last section, such as where the stream is."""
    sections = [make(certificate, steps) for make in (_gaps_section, _groups_section, _changes_section)]
    return render_html(
        "stream.html.jinja",
        title=f"Stream {isolated(certificate.stream)}",
        certificate=certificate,
        summary=_summary(certificate, verification),
        sections=[section for section in sections if section is not None],
        provenance=_facts(certificate, steps, verification, facts),
        verification=verification,
        version=version("fairlayer"),
    )


def _summary(certificate: Certificate, verification: Verification) -> Summary:
    """What a person who must sign reads first."""
    decisions = f"{count(certificate.samples)} {plural(certificate.samples, 'decision')}"
    made, together = ("one decision", "") if certificate.samples == 1 else (f"all {decisions}", " together")
    if certificate.broken:
        answer = Answer(
            Verdict.VIOLATED, "The promise is broken", f"Over {made}, some pooled gap exceeds its tolerance."
        )
    elif certificate.kept:
        whole = "" if certificate.satisfied else " and half a decision of each group, as decisions are whole"
        text = f"Over {made}{together}, every pooled gap is within its tolerance{whole}."
        answer = Answer(Verdict.SATISFIED, "The promise is kept", text)
    else:
        answer = Answer(Verdict.UNDECIDED, "Not known yet", f"After {decisions} there is not enough to compare.")
    known = answer.verdict is not Verdict.UNDECIDED
    headline = f"{answer.words} over {made}" if known else "There is not enough to compare yet"
    record = Answer(Verdict.SATISFIED, "Nothing was changed", str(verification))
    if not verification:
        record = Answer(Verdict.VIOLATED, "The record was changed", str(verification))
        headline = "The record of this stream was changed: nothing below can be relied on"
    half = "" if certificate.threshold is None else " and half a decision of each group (of each cell, if several)"
    promises = tuple(
        f"{report.constraint.capitalize()}: over all decisions so far, gaps of at most {stated(report.tolerance)}"
        f"{half}."
        for report in certificate.constraints
    )
    questions = {"Over all decisions so far": answer, "In the record they were kept in": record}
    return Summary(headline, promises, questions, LIMITS)


def _facts(
    certificate: Certificate, steps: Sequence[Step], verification: Verification, further: Mapping[str, str]
) -> dict[str, str]:
    facts = {
        "drawn up": certificate.time,
        "stream": certificate.stream,
        **further,
        "threshold": "" if certificate.threshold is None else f"a score of {certificate.threshold:g} or more is a yes",
        "thresholds overruled": "" if certificate.overruled is None else f"{count(certificate.overruled)} times",
        "decisions": f"{count(certificate.samples)} {plural(certificate.samples, 'decision')} in "
        f"{count(certificate.batches)} {plural(certificate.batches, 'batch', 'batches')}",
        "waiting for their target": count(certificate.waiting) if certificate.waiting else "",
        "from": steps[0].time if steps else "",
        "until": steps[-1].time if steps else "",
        "entries of the log": f"{count(verification.entries)}",
        "head of the log": certificate.hash,
    }
    return {name: text for name, text in facts.items() if text}


def _gaps_section(certificate: Certificate, steps: Sequence[Step]) -> Section | None:
    """One panel for each constraint: its largest pooled gap as decisions were made."""
    reports, panels = certificate.constraints, []
    for position, report in enumerate(reports):
        path = [(step.samples, gap) for step in steps if (gap := step.gaps[position]) is not None]
        if path:
            title, promised = shortened(report.constraint.capitalize(), 60), report.tolerance
            how: dict[str, Any] = {"promised": [promised], "from_zero": True}
            text = f"{_course(path)}; promised {stated(promised)}"
            panels.append(line_panel(title, "decisions so far", {"largest pooled gap": path}, text=text, **how))
    if not panels:
        return None
    known = [Verdict.SATISFIED if report.kept else Verdict.VIOLATED for report in reports]
    table = FigureTable(
        "Every constraint.",
        {
            "constraint": [report.constraint for report in reports],
            "tolerance": [stated(report.tolerance) for report in reports],
            "pooled gap now": aligned([report.gap for report in reports]),
            "promised now": [stated(report.bound) if report.bound is not None else "" for report in reports],
            "largest so far": aligned([report.largest_gap for report in reports]),
        },
        verdicts=tuple("undecided" if r.gap is None else v.value for r, v in zip(reports, known, strict=True)),
    )
    lead = (
        "The largest difference between groups over all decisions up to then, computed again from the log. Where "
        "several entries share a point, the largest gap among them is drawn."
    )
    return Section("gaps", "Pooled gaps over time", lead, panels=panels, tables=(table,))


def _course(points: Sequence[tuple[int, float]]) -> str:
    values = [value for _, value in points]
    return f"from {number(values[0])} to {number(values[-1])}, at most {number(max(values))}"


def _groups_section(certificate: Certificate, steps: Sequence[Step]) -> Section | None:
    """The mean or rate of each group, before and after, and how it went."""
    groups = certificate.groups
    if not groups:
        return None
    measure = groups[0].measure
    of_decisions, of_outputs = f"{measure} of decisions", f"{measure} of raw outputs"
    shown, lead = largest(groups)
    axis = scale([mean for group in shown for mean in (group.mean, group.raw_mean)], margin=0.08)
    rows = []
    means, raw_means = aligned([group.mean for group in shown]), aligned([group.raw_mean for group in shown])
    for group, mean, raw in zip(shown, means, raw_means, strict=True):
        here, before = axis(group.mean), axis(group.raw_mean)
        marks = (
            Line(min(here, before), 50, max(here, before), 50, "thin"),
            Point(before, 50, "diamond", "hollow two"),
            Point(here, 50, "circle", "mark"),
        )
        words = f"{of_decisions} {mean}, of raw outputs {raw}"
        rows.append(Row(isolated(group.group), marks, words, mean, f"n = {count(group.count)}"))
    key = (of_decisions, [marker("circle", "mark")]), (of_outputs, [marker("diamond", "hollow two")])
    chart = RowChart(f"{measure.capitalize()}s of groups", rows, axis, measure, of_decisions, key, lead)
    table = FigureTable(
        "Every group.",
        {
            "group": [group.group for group in groups],
            "decisions": [count(group.count) for group in groups],
            measure: aligned([group.mean for group in groups], 4),
            f"raw {measure}": aligned([group.raw_mean for group in groups], 4),
            "moved by": aligned([group.mean - group.raw_mean for group in groups], sign=True),
        },
    )
    lead = "What each group got on average, against what the model alone would have given it."
    return Section("groups", "Groups", lead, charts=[chart], panels=_paths(groups, steps), tables=(table,))


def _paths(groups: Sequence, steps: Sequence[Step]) -> list[Panel]:
    """The means of groups as decisions were made: of the largest, if there are more than can be told apart."""
    shown, omitted = largest(groups, most=len(STYLES))
    paths: dict[str, list[tuple[int, float]]] = {group.group: [] for group in shown}
    for step in steps:
        for group in step.groups:
            if group.group in paths:
                paths[group.group].append((step.samples, group.mean))
    if len(steps) < 2 or not any(paths.values()):
        return []
    panel = line_panel(f"{groups[0].measure.capitalize()}s over time", "decisions so far", paths, note=omitted)
    return [replace(panel, key=[(shortened(isolated(name), 40), marks) for name, marks in panel.key])]


def _changes_section(certificate: Certificate, steps: Sequence[Step]) -> Section | None:
    """How much decisions were changed, as they were made."""
    path = [(step.samples, step.change / step.decisions) for step in steps if step.decisions]
    if not path:
        return None
    title, note = "Mean absolute change", "of the decisions at that time"
    how: dict[str, Any] = {"from_zero": True, "styles": ["two"], "text": _course(path), "note": note}
    panel = line_panel(title, "decisions so far", {title: path}, **how)
    figures = {
        "decisions changed": percent(certificate.changed),
        "mean change": number(certificate.mean_change),
        "root mean squared change": number(certificate.mean_squared_change**0.5),
        "largest change": number(certificate.largest_change),
    }
    table = FigureTable("Changes in all.", {"": [*figures], "figure": [*figures.values()]})
    lead = f"Decision less raw output: what it cost to keep the promise. {certificate.cost}"
    return Section("changes", "Changes", lead, panels=[replace(panel, key=())], tables=(table,))
