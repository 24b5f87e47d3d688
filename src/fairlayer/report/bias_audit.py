"""A bias audit in the form of New York City's Local Law 144: selection or scoring rates and impact ratios, as tables.

Categories are compared by each attribute and by all of them together. Where outputs are decisions (0 and 1, or scores
with a stated threshold) the tables hold selection rates; otherwise scoring rates, the share of a category above the
median score of everybody.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from fairlayer.audit.result import Audit, Group
from fairlayer.audit.selection import SMALL_SHARE
from fairlayer.audit.tables import FigureTable
from fairlayer.audit.words import count, stated, typed

NOTES = (
    "This table has the form that the rules on Local Law 144 of New York City describe. It is no legal advice, and it "
    "does not show that the law is complied with: the law asks for an independent auditor, for categories as the rules "
    "name them, and for notices, none of which software can provide.",
    "An impact ratio compares averages of categories. It says nothing about any one person, nor whether the scores "
    "predict what they should, and a ratio near 1 does not mean that nobody is treated unfairly.",
)


def bias_audit(audit: Audit, *, decisions: bool | None = None) -> tuple[list[FigureTable], list[str]]:
    """The tables, and the notes below them. decisions: selection, not scoring rates; by default as outputs are."""
    selects = is_decision(audit) if decisions is None else decisions
    tables = []
    for attributes in dict.fromkeys(group.attributes for group in audit.selections):
        known = [g for g in audit.selections if g.attributes == attributes and g.selection and not g.selection.missing]
        title = attributes[0] if len(attributes) == 1 else f"Intersections: {' & '.join(attributes)}"
        rows = [_row(group, selects) for group in sorted(known, key=lambda group: group.labels)]
        rated = ("selected", "selection rate") if selects else ("above the median", "scoring rate")
        header = ("category", "applicants", *rated, "impact ratio")
        tables.append(FigureTable(title, {name: [row[j] for row in rows] for j, name in enumerate(header)}))
    return tables, _notes(audit, selects)


def is_decision(audit: Audit) -> bool:
    """Whether outputs are 0 and 1 alone: then, and only then, their variance is that of a share."""
    low, high = audit.settings.bounds
    mean = audit.overall.mean
    return low >= 0.0 and high <= 1.0 and abs(audit.overall.deviation**2 - mean * (1.0 - mean)) < 1e-9


def _row(group: Group, selects: bool) -> tuple[str, ...]:
    one = group.selection
    assert one is not None
    rate, ratio = (group.decision_rate, one.impact_ratio) if selects else (one.scoring_rate, one.scoring_ratio)
    value = None if rate is None else rate.value
    positive = one.selected if selects else round((value or 0.0) * group.count)
    shares = ("-" if number is None else f"{number:.3f}" for number in (value, ratio))
    return (group.label + (" *" if one.small else ""), f"{group.count:,}", f"{positive or 0:,}", *shares)


def _notes(audit: Audit, selects: bool) -> list[str]:
    settings = audit.settings
    what = (
        f"Selected: a prediction of {stated(settings.threshold)} or more."
        if selects
        else "Scoring rate: the share of a category with a score above the median score of everybody."
    )
    notes = [f"{count(settings.samples)} people, from {settings.source}. {what}"]
    unknown = [
        f"{count(group.count)} whose {group.attributes[0]} is unknown"
        for group in audit.groups
        if group.selection and group.selection.missing
    ]
    notes.append(f"Not included above: {', '.join(unknown)}." if unknown else "Nobody's category is unknown.")
    if any(group.selection and group.selection.small for group in audit.selections):
        notes.append(
            f"*: below {100 * SMALL_SHARE:g} % of the data. Ratios are never taken to such a category, as its rate "
            "rests on few people; an auditor may leave it out and must then say why."
        )
    return [*notes, *NOTES]


def as_text(tables: Sequence[FigureTable], notes: Sequence[str]) -> str:
    """For a terminal."""
    return "\n\n".join([*(f"{typed(table.caption)}\n{table}" for table in tables), *map(typed, notes)])


def as_csv(tables: Sequence[FigureTable]) -> str:
    """All tables in one file, the first column naming the table."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(("table", *tables[0].columns))
    for table in tables:
        writer.writerows((table.caption, *(cell.replace(",", "") for cell in row)) for row in table.rows)
    return out.getvalue()


def as_html(tables: Sequence[FigureTable], notes: Sequence[str], title: str = "Bias audit") -> str:
    """A page of its own."""
    from fairlayer.report.page import render_html

    return render_html("bias_audit.html.jinja", title=title, tables=tables, notes=notes)
