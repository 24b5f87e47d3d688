"""The model card: Markdown in the sections of Mitchell et al. 2019, *Model Cards for Model Reporting*.

What the audit knows is stated. What it cannot know is taken from `facts`, and where those are silent the card says who
must fill it in: nothing is invented.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairlayer.audit.result import Audit
from fairlayer.audit.summary import summarize
from fairlayer.audit.tables import changes_table, findings_table, groups_table, selection_table
from fairlayer.audit.words import confidence, count, stated
from fairlayer.errors import InputError
from fairlayer.report.page import render_markdown, write_text

MOST_LINES = 30  # in each table; the page and the JSON have more

_DETAILS = ("name", "version", "developers", "date", "type", "licence")
_USE = ("contact", "intended use", "intended users", "out of scope", "ethical considerations", "recommendations")
_DATA = ("factors not recorded", "evaluation data", "training data")
FACTS = {  # what only people know, and which of them
    **dict.fromkeys((*_DETAILS, "preprocessing"), "the maker of the model"),
    **dict.fromkeys(_USE, "the operator"),
    **dict.fromkeys(_DATA, "the owner of the data"),
}


def render_card(audit: Audit, facts: Mapping[str, Any] | None = None) -> str:
    """The card as text. facts: what the audit cannot know, by the names in `FACTS`."""
    told = {name: str(value) for name, value in (facts or {}).items()}
    unknown = sorted(set(told) - set(FACTS))
    if unknown:
        raise InputError(f"facts has {', '.join(map(repr, unknown))}; a card has room for {', '.join(FACTS)}.")
    groups, selections = audit.groups[:MOST_LINES], audit.selections[:MOST_LINES]
    intersections = sorted(audit.intersections, key=lambda report: -report.count)[:MOST_LINES]
    return render_markdown(
        "card.md.jinja",
        audit=audit,
        settings=audit.settings,
        summary=summarize(audit),
        facts=told,
        who=FACTS,
        findings=findings_table(audit, MOST_LINES),
        groups=groups_table(_caption("groups", groups, audit.groups), (audit.overall, *groups)),
        intersections=groups_table(_caption("intersections", intersections, audit.intersections), intersections),
        selection=selection_table(_caption("groups", selections, audit.selections), selections),
        changes=changes_table((audit.overall, *groups)),
        epochs=max(map(len, audit.history.values()), default=0),
        confidence=confidence,
        count=count,
        stated=stated,
        decided=audit.decided,
    )


def write_card(audit: Audit, path: str | Path, facts: Mapping[str, Any] | None = None) -> Path:
    """Write the card that `render_card` makes, and return its path."""
    return write_text(path, render_card(audit, facts))


def _caption(what: str, shown: Sequence, known: Sequence) -> str:
    return f"All {what}." if len(shown) == len(known) else f"{count(len(shown))} of {count(len(known))} {what}."
