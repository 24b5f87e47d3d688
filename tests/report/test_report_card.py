"""The model card: its sections, what it says of what nobody said, and names that stay names."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt
from report_audits import EVERY, HOSTILE, crowded, hostile, ordinary

from fairlayer.errors import InputError
from fairlayer.report.card import FACTS, render_card, write_card
from fairlayer.report.page import escape_markdown

SECTIONS = (
    "Model details",
    "Intended use",
    "Factors",
    "Metrics",
    "Evaluation data",
    "Training data",
    "Quantitative analyses",
    "Ethical considerations",
    "Caveats and recommendations",
)


def as_html(text: str) -> str:
    return MarkdownIt("commonmark", {"html": True, "linkify": False}).enable("table").render(text)


def shown(html: str) -> str:
    """The text that a reader sees."""
    text = re.sub(r"<[^>]*>", "", html)
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        text = text.replace(entity, character)
    return text


@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)
def test_the_usual_sections_in_order(make):
    text = render_card(make())
    assert tuple(re.findall(r"^## (.*)$", text, re.MULTILINE)) == SECTIONS
    assert not re.search(r"\b(nan|None|inf)\b", text)
    assert "\n\n\n" not in text


def test_what_is_not_known_says_who_must_fill_it_in():
    text = render_card(ordinary())
    assert text.count("to be filled in by the") == len(FACTS)
    told = render_card(ordinary(), {"intended use": "To rank applications.", "licence": "MIT"})
    assert "**Intended use**: To rank applications." in told
    assert told.count("to be filled in by the") == len(FACTS) - 2

    every = render_card(ordinary(), {name: f"told about {name}" for name in FACTS})
    assert "to be filled in" not in every
    assert all(f"told about {name}" in every for name in FACTS)
    with pytest.raises(InputError, match=r"'colour'.*intended use"):
        render_card(ordinary(), {"colour": "green"})


def test_figures_are_those_of_the_audit():
    html = as_html(render_card(ordinary()))
    assert html.count("<table>") == 6
    assert f"{ordinary().settings.samples:,}" in html
    for report in ordinary().groups:
        assert f"<td>{report.name}</td>" in html


def test_names_are_shown_as_they_are():
    html = as_html(render_card(hostile(), {"name": HOSTILE[4], "contact": "https://example.org <b> www.example.org"}))
    tags = set(re.findall(r"<(\w+)", html))
    assert tags <= {"h1", "h2", "h3", "p", "strong", "em", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"}
    text = shown(html)
    for name in HOSTILE:
        assert " ".join(name.split()) in text
    for row in re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL):
        assert row.count("<t") in (3, 9, 10, 13, 15)  # a name with a bar makes no new column


def test_long_tables_are_cut_and_say_so():
    text = render_card(crowded())
    assert "The first 30 of 781 comparisons" in text
    assert "30 of 42 groups" in text


def test_escaped_text_comes_back():
    for name in HOSTILE:
        html = as_html(f"- **x**: {escape_markdown(name)}\n")
        assert shown(html).strip() == f"x: {' '.join(name.split())}"


def test_written(tmp_path):
    path = write_card(ordinary(), tmp_path / "card.md", {"name": "Model"})
    assert path.read_text(encoding="utf-8").startswith("# Model card: Model\n")
    assert ordinary().to_card(tmp_path / "other.md").exists()
    with pytest.raises(InputError, match="no folder"):
        write_card(ordinary(), tmp_path / "absent" / "card.md")
