"""The report: one HTML page with everything in it. It runs no script and asks no network for anything.

The template environments are the one place where values become text, and so where they are escaped.
"""

from __future__ import annotations

import datetime
import hashlib
import html
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairlayer.audit.result import Audit
from fairlayer.audit.summary import summarize
from fairlayer.audit.words import confidence, count, stated
from fairlayer.errors import InputError
from fairlayer.extras import needs
from fairlayer.report import gap_plots, group_plots
from fairlayer.report.drawing import Section

SECTIONS = (
    gap_plots.findings_section,
    group_plots.distributions_section,
    group_plots.changes_section,
    group_plots.selection_section,
    group_plots.rates_section,
    gap_plots.calibration_section,
    group_plots.intersections_section,
    gap_plots.tradeoff_section,
    gap_plots.history_section,
)
OF_A_CLASS = (group_plots.distributions_section, group_plots.changes_section, gap_plots.calibration_section)
_SPECIAL = re.compile(r"([\\`*_\[\]|~$#])")


def render(
    audit: Audit,
    *,
    title: str = "Fairness audit",
    date: datetime.date | None = None,
    provenance: Mapping[str, str] | None = None,
) -> str:
    """The page as text. The same audit, title, date and provenance give the same page, to the byte.

    date: printed on the page; today by default. provenance: further facts for its last section, such as
    {"data, SHA-256": "..."}.
    """
    return render_html(
        "page.html.jinja",
        title=title,
        audit=audit,
        summary=summarize(audit),
        sections=_sections(audit),
        provenance=_provenance(audit, date or datetime.date.today(), provenance or {}),
    )


def write_html(audit: Audit, path: str | Path, **options: Any) -> Path:
    """Write the page that `render` makes, with its options, and return its path."""
    return write_text(path, render(audit, **options))


def _sections(audit: Audit) -> list[Section]:
    """The parts of the page; of several classes, those that are about one output once for each."""
    sections = [make(audit) for make in SECTIONS]
    for j, (name, own) in enumerate(audit.classes.items()):
        for section in (make(own) for make in OF_A_CLASS):
            if section is not None:
                title = f"{section.title}: class {name}"
                sections.append(replace(section, anchor=f"{section.anchor}-{j}", title=title))
    return [section for section in sections if section is not None]


def _provenance(audit: Audit, date: datetime.date, further: Mapping[str, str]) -> dict[str, str]:
    """With what the audit was made, by name."""
    settings = audit.settings
    facts = {
        "written on": date.isoformat(),
        "samples": count(settings.samples) + (", weighted" if settings.weighted else ""),
        "source": settings.source,
        "protected attributes": ", ".join(settings.attributes),
        "constraints": "; ".join(settings.constraints),
        "confidence of intervals": confidence(settings.confidence),
        "seed": str(settings.seed),
        "threshold of decisions": stated(settings.threshold) if audit.decided and not audit.classes else "",
        "range of predictions": " to ".join(map(stated, settings.bounds)),
        "targets": settings.targets or "none",
        "versions": ", ".join(f"{name} {version}" for name, version in settings.versions.items()),
        "result, SHA-256 of its JSON": hashlib.sha256(audit.to_json().encode()).hexdigest(),
    }
    return {name: text for name, text in {**facts, **further}.items() if text}


def render_html(template: str, **values: Any) -> str:
    """A template, its values escaped for HTML."""
    return _environment().get_template(template).render(**values)


def render_markdown(template: str, **values: Any) -> str:
    """A template, its values escaped for Markdown."""
    markup = _jinja().utils.markupsafe.Markup

    def finalize(value: Any) -> Any:
        """What a macro returns is Markdown already; anything else is text."""
        return value if isinstance(value, markup) else markup(escape_markdown(str(value)))

    return _environment(finalize=finalize).get_template(template).render(**values)


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is: in a line, a list or a table, with no markup, link, mathematics or HTML."""
    line = " ".join(text.split())
    # The last two: no links from bare addresses.
    return _SPECIAL.sub(r"\\\1", html.escape(line, quote=False)).replace("://", "\\://").replace("www.", "www\\.")


def write_text(path: str | Path, text: str) -> Path:
    """Write a file whose folder exists."""
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"path is {str(path)!r}, but there is no folder {str(target.parent)!r}: make it first.")
    target.write_text(text, encoding="utf-8")
    return target


def _environment(**options: Any) -> Any:
    jinja = _jinja()
    return jinja.Environment(
        loader=jinja.PackageLoader("fairlayer.report", "templates"),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **options,
    )


def _jinja() -> Any:
    with needs("Writing a report", "jinja2"):
        import jinja2
    return jinja2
