"""Pages of results show what the experiments left, and nothing else; what comes from files is escaped."""

from __future__ import annotations

import evidence
import pytest
from pages import cell, table


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "EXPERIMENTS", tmp_path)
    return tmp_path


def test_without_results_there_is_no_page(results):
    assert evidence.experiments() is None


def test_what_was_kept_is_shown(results):
    run = results / "loan" / "paper"
    run.mkdir(parents=True)
    (run / "meta.json").write_text('{"seed": 5, "settings": {"rows": 3}}')
    (run / "summary.csv").write_text("method,auc\nlayer,0.123456\n<script>|,0.25\n")
    (run / "gaps.svg").write_text("<svg/>")
    (run / "units.jsonl").write_text("{}\n")
    (results / "loan" / "quick").mkdir()
    (results / "loan" / "quick" / "summary.csv").write_text("method,auc\nquick,1\n")
    claims = "Rules.\n\n| claim | verdict |\n| --- | --- |\n| A is larger | holds |\n| B is smaller | not run |\n"
    (results / "claims.md").write_text(claims)
    section = evidence.experiments()
    index, page = section.pages
    assert index.uri == "results/index.md"
    assert claims in index.text
    assert page.uri == "results/loan.md"
    assert "| seed | 5 |" in page.text
    assert "| layer | 0.1235 |" in page.text
    assert "&lt;script&gt;\\|" in page.text
    assert "![Gaps](loan/paper/gaps.svg)" in page.text
    assert "quick" not in page.text
    assert set(section.files) == {"results/loan/paper/summary.csv", "results/loan/paper/gaps.svg"}


def test_a_run_that_is_not_finished_is_not_shown(results):
    (results / "loan" / "paper").mkdir(parents=True)
    (results / "loan" / "paper" / "meta.json").write_text("{}")
    assert evidence.experiments() is None


def test_a_page_begins_with_what_is_to_be_known_of_its_results(results):
    run = results / "celeba" / "medium"
    run.mkdir(parents=True)
    (run / "methods.csv").write_text("method,accuracy\nlayer,0.5\n")
    (results / "celeba" / "README.md").write_text("Run elsewhere.\n")
    _, page = evidence.experiments().pages
    assert "`./dev paper celeba`.\n\nRun elsewhere.\n\n## Profile: medium" in page.text


def test_long_tables_are_only_linked(results):
    run = results / "synthetic" / "paper"
    run.mkdir(parents=True)
    (run / "all.csv").write_text("x\n" + "1\n" * (evidence.MOST_ROWS + 1))
    _, page = evidence.experiments().pages
    assert f"{evidence.MOST_ROWS + 1} rows." in page.text
    assert "[all.csv](synthetic/paper/all.csv)" in page.text


@pytest.mark.parametrize(("value", "text"), [(None, ""), ("a|b", "a\\|b"), ("<b>", "&lt;b&gt;"), ("x\n y", "x y")])
def test_cell(value, text):
    assert cell(value) == text


def test_table():
    assert table(("a",), [(1,)]) == "| a |\n| --- |\n| 1 |"
