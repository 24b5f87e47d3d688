"""Decisions in force or not are numbered without gaps, have one line each in the index; files that are named exist."""

from __future__ import annotations

import re

from built import ROOT

FOLDER = ROOT / "docs" / "decisions"
DECISIONS = sorted(FOLDER.glob("[0-9]*.md"))
TEXTS = {path: path.read_text() for path in DECISIONS}


INDEX = (FOLDER / "index.md").read_text()


def test_numbers_have_no_gaps():
    gone = re.findall(r"^\| (\d{4}) \| .+ \| .+\. \|$", INDEX, re.MULTILINE)
    numbers = sorted([*gone, *(path.name[:4] for path in DECISIONS)])
    assert numbers == [f"{number:04d}" for number in range(1, len(numbers) + 1)]
    for path, text in TEXTS.items():
        assert text.startswith(f"# {path.name[:4]}. "), path.name


def test_the_index_lists_every_decision_once_by_its_title_with_a_sentence():
    rows = re.findall(r"^\| \[(\d{4})\]\((\S+)\) \| (.+?) \| (.+) \|$", INDEX, re.MULTILINE)
    titles = {path: text.splitlines()[0].removeprefix(f"# {path.name[:4]}. ") for path, text in TEXTS.items()}
    assert [row[:3] for row in rows] == [(path.name[:4], path.name, titles[path]) for path in DECISIONS]
    assert all(row[3].endswith(".") for row in rows)


def test_files_that_decisions_and_contributing_name_exist():
    folders = ("src", "docs", "tests", "benchmarks", "experiments", "examples")
    known = [f"/{path.relative_to(ROOT)}" for folder in folders for path in (ROOT / folder).rglob("*.*")]
    contributing = ROOT / "CONTRIBUTING.md"
    for path, text in {**TEXTS, contributing: contributing.read_text()}.items():
        for name in re.findall(r"`([\w/]+\.(?:py|md|css|jinja|cpp|hpp))`", text):
            assert any(entry.endswith(f"/{name}") for entry in known), f"{path.name} names {name}"
