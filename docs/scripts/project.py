"""Pages about the project itself: decisions, changelog, contributing."""

import re

from pages import ROOT, Page, Section, heading

DECISIONS = ROOT / "docs" / "decisions"


def project() -> Section:
    """Decisions with an index, and the two files that every repository has."""
    lines = [
        "# Decisions",
        "",
        "Choices that a newcomer would question, each with its reason and what else was considered.",
        "",
    ]
    for path in sorted(DECISIONS.glob("*.md")):
        name = re.sub(r"^\d+[.:]?\s*", "", heading(path.read_text(), path.stem))
        lines.append(f"- [{path.name[:4]}]({path.name}) {name}")
    changelog = (ROOT / "CHANGELOG.md").read_text()
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    return Section(
        "Project",
        [
            Page("decisions/index.md", "Decisions", "\n".join(lines) + "\n"),
            Page("changelog.md", "Changelog", changelog),
            Page("contributing.md", "Contributing", contributing),
        ],
    )
