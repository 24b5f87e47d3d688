"""Figures in the README and the pages are those of benchmarks/results, and the pictures can be drawn again."""

from __future__ import annotations

import re

import figures
import numpy as np
import pytest
import refresh
from built import ROOT


@pytest.mark.parametrize("path", refresh.pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_figures_are_up_to_date(path):
    text = path.read_text()
    assert refresh.refreshed(text) == text, "run `python docs/scripts/refresh.py`"
    marks = re.findall(r"<!-- (?:figures: (\w+)|end) -->", text)
    assert len(marks) == 2 * len(refresh.SECTION.findall(text))
    assert {name for name in marks if name} <= set(figures.FIGURES)


@pytest.mark.parametrize(("page", "figure"), [("README.md", "measured"), ("docs/scale.md", "peers")])
def test_cost_is_quoted(page, figure):
    assert figure in {found[1] for found in refresh.SECTION.findall((ROOT / page).read_text())}


def test_a_typed_figure_is_found():
    text = "<!-- figures: freeze -->\n\n| sex | 0.5 |\n\n<!-- end -->"
    assert refresh.refreshed(text) != text


def test_peers_are_those_of_the_results():
    table = figures.peers().split("\n\n")[0].splitlines()
    rows = [row for row in figures.read_csv(figures.RESULTS / "peers.csv") if (row["k"], row["box"]) == ("2", "True")]
    assert len(table) == 2 + len({row["peer"] for row in rows})
    ours = next(row for row in rows if row["peer"] == "fairlayer")
    shown = next(line for line in table if line.startswith("| fairlayer |"))
    assert figures.number(ours["forward_backward_ms"]) in shown


@pytest.mark.parametrize(
    ("value", "text"), [("", "-"), ("0.0", "0"), ("0.16154", "0.162"), ("1234.5", "1,230"), ("6.2e-07", "6e-07")]
)
def test_number(value, text):
    assert figures.number(value) == text


def test_pictures(tmp_path):
    pictures = pytest.importorskip("pictures", exc_type=ImportError)
    scene = pictures.scene(samples=400)
    assert pictures.gap(scene.fair, scene.groups) <= pictures.TOLERANCE + 1e-12
    assert np.nanmax(scene.gaps["ledger"]) <= pictures.TOLERANCE + 1e-12
    for theme in pictures.THEMES:
        pictures.draw(scene, theme, tmp_path / f"{theme.name}.svg")
        assert (tmp_path / f"{theme.name}.svg").read_text().count("<path") > 20
        assert (pictures.FOLDER / f"fair-{theme.name}.svg").exists()
