"""The page as text: what it says, what it leaves out, and that names from data stay names."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest
from report_audits import EVERY, HOSTILE, IMAGE, SCRIPT, alone, few, ordinary, unfair

from fairlayer import ResidualMean
from fairlayer.audit import Audit, Verdict, audit
from fairlayer.audit.summary import HERE, POPULATION, summarize
from fairlayer.errors import InputError
from fairlayer.report.page import render, write_html

DAY = datetime.date(2026, 1, 2)
SECTIONS = {
    "gaps",
    "distributions",
    "changes",
    "groups",
    "calibration",
    "intersections",
    "tradeoff",
    "history",
    "provenance",
}
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """The elements of a page, its text, and whether tags nest."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style",):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def attributes(self, name: str) -> list[str]:
        return [value or "" for _, attributes in self.elements for key, value in attributes.items() if key == name]


@cache
def rendered(name: str) -> str:
    return render(EVERY[name](), date=DAY)


@pytest.fixture(params=EVERY, scope="module")
def page(request) -> Page:
    return Page(rendered(request.param))


def test_every_page_is_well_formed_and_self_contained(page):
    assert page.open == []
    assert max(Counter(page.attributes("id")).values()) == 1
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "img", "link", "iframe", "object", "embed", "base", "form", "image"}
    assert set(page.attributes("href")) <= {f"#{name}" for name in page.attributes("id")}
    assert not page.attributes("src")
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]


def test_no_number_is_missing_and_plots_are_told_in_words(page):
    places = [v for name in ("x", "y", "x1", "x2", "y1", "y2", "width", "height", "d") for v in page.attributes(name)]
    assert places
    assert not [place for place in places if "nan" in place or "inf" in place]
    assert not re.search(r"\b(nan|None|inf)\b", page.text)
    assert not re.search(r"\brows?\b", re.sub(r"\(\d+ rows\)", "", page.text))  # of constraints
    pictures = [i for i, (tag, attributes) in enumerate(page.elements) if attributes.get("role") == "img"]
    assert all(page.elements[i + 1][0] == "title" for i in pictures)
    assert {attributes.get("scope") for tag, attributes in page.elements if tag == "th"} <= {"col", "row"}


def test_a_full_audit_has_all_sections():
    page = Page(rendered("ordinary"))
    assert set(page.attributes("id")) >= SECTIONS
    assert all(finding.groups[0] in page.text for finding in ordinary().findings)
    assert not any(re.search(r"\brows?\b", make().table()) for make in EVERY.values())  # of constraints
    (promise,) = summarize(ordinary()).promises
    assert all(word in promise for word in ("0.03", "race", "sex"))


def test_sections_without_data_are_left_out():
    overall, *groups = (
        replace(group, change=None, calibration=()) for group in (ordinary().overall, *ordinary().groups)
    )
    bare = replace(ordinary(), overall=overall, groups=tuple(groups), intersections=())
    bare = replace(bare, tradeoff=(), history={})
    left = set(Page(render(bare, date=DAY)).attributes("id")) & SECTIONS
    assert left == {"gaps", "distributions", "groups", "provenance"}
    assert "gaps" not in Page(rendered("alone")).attributes("id")


def test_names_are_shown_as_they_are():
    page = Page(rendered("hostile"))
    for name in (*HOSTILE, SCRIPT, IMAGE):
        assert " ".join(name.split()) in page.text
    assert SCRIPT not in rendered("hostile")
    assert IMAGE not in rendered("hostile")


def test_many_groups_are_drawn_in_part_and_listed_in_full():
    page = Page(rendered("crowded"))
    assert "of 40 groups" in page.text
    assert all(f"district {k}" in page.text for k in range(40))
    tracks = [attributes for tag, attributes in page.elements if "track" in (attributes.get("class") or "")]
    assert len(tracks) < 150


def test_the_same_audit_gives_the_same_page(tmp_path):
    assert render(Audit.from_dict(ordinary().to_dict()), date=DAY) == rendered("ordinary")
    assert ordinary().to_html(tmp_path / "report.html").read_text(encoding="utf-8") == render(ordinary())
    with pytest.raises(InputError, match="no folder"):
        write_html(ordinary(), tmp_path / "absent" / "report.html")


@pytest.mark.parametrize(
    ("make", "here", "population", "words"),
    [
        (few, Verdict.SATISFIED, Verdict.UNDECIDED, "inconclusive about the population"),
        (unfair, Verdict.VIOLATED, Verdict.VIOLATED, "The promise is broken in these data and"),
        (alone, Verdict.UNDECIDED, Verdict.UNDECIDED, "Nothing could be compared"),
    ],
)
def test_the_verdict_answers_both_questions(make, here, population, words):
    summary = summarize(make())
    assert (summary.questions[HERE].verdict, summary.questions[POPULATION].verdict) == (here, population)
    assert words in summary.headline
    page = Page(render(make(), date=DAY))
    for sentence in (summary.headline, summary.questions[HERE].text, summary.questions[POPULATION].text):
        assert " ".join(sentence.split()) in page.text
    if make is few:  # a tiny group never reads as fair
        assert "3 samples" in summary.questions[POPULATION].text
        assert "satisfied" not in summary.questions[POPULATION].text


def test_kept_here_and_there():
    near = {"gap": 0.0, "holds": True, "interval": (-0.01, 0.01), "verdict": Verdict.SATISFIED}
    settled = replace(unfair(), findings=tuple(replace(finding, **near) for finding in unfair().findings))
    summary = summarize(settled)
    assert summary.headline.startswith("The promise is kept in these data and, at 95")
    assert "0.05 is allowed" in summary.questions[POPULATION].text


def test_provenance(tmp_path):
    path = write_html(ordinary(), tmp_path / "report.html", date=DAY, provenance={"data, SHA-256": "abc<1>"})
    page = Page(path.read_text(encoding="utf-8"))
    for fact in ("2026-01-02", "abc<1>", "MeanParity", f"{ordinary().settings.samples:,}", "fairlayer"):
        assert fact in page.text
    json_path = tmp_path / "report.json"
    ordinary().to_json(json_path)
    assert hashlib.sha256(json_path.read_bytes()).hexdigest() in page.text


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_a_regression_has_no_decisions(scale):
    """Even where its outputs could be probabilities: shares of crimes, say, whose targets are not 0 and 1."""
    share, groups = np.linspace(0.0, 1.0, 400), {"region": np.tile(["n", "s"], 200)}
    found = audit(scale * share, groups, [ResidualMean(0.05)], scale * share**1.1, raw=scale * share**0.9)
    assert (found.settings.threshold, found.overall.decision_rate) == (None, None)
    assert found.overall.change.flipped is None
    page = Page(render(found, date=DAY))
    for word in ("decision", "decided positive", "flipped", "threshold"):
        assert word not in page.text.lower().replace("how the decisions affect people", "")
    assert "Means and errors by group" in page.text
    assert "mean prediction minus target" in page.text
    assert "decisions" not in found.table()
    asked_for = audit(share, groups, [ResidualMean(0.05)], share**1.1, threshold=0.7)
    assert asked_for.overall.decision_rate.value == pytest.approx((share >= 0.7).mean())


def test_what_fairness_costs_starts_without_constraints():
    page = Page(rendered("ordinary"))
    assert "It starts, on the left, at this model's raw outputs" in page.text
    told = page.text[page.text.index("without constraints:") :]  # the points, from left to right
    assert told.index("tolerance 0.0397") < told.index("tolerance 0.0300") < told.index("tolerance 0:")
    better = replace(ordinary(), settings=replace(ordinary().settings, start="unconstrained model"))
    assert "a model that was trained without constraints" in Page(render(better, date=DAY)).text


def test_a_gap_of_nothing_but_rounding_reads_as_zero():
    tiny = {"gap": 1.39e-17, "holds": True}
    rounded = replace(unfair(), findings=tuple(replace(finding, **tiny) for finding in unfair().findings))
    for text in (Page(render(rounded, date=DAY)).text, rounded.table(), summarize(rounded).questions[HERE].text):
        assert "0.0000" in text
        assert "e-17" not in text.replace("\N{MINUS SIGN}", "-")
