"""Every code block of the README and of the documentation runs, and prints what the page says it prints."""

from __future__ import annotations

import pytest
from blocks import ROOT, blocks, commands, pages, run_page

WITH_CODE = [path for path in pages() if any(block.language in ("python", "sh") for block in blocks(path.read_text()))]


def test_pages_are_found():
    assert ROOT / "README.md" in WITH_CODE
    assert len(WITH_CODE) > 8


@pytest.mark.parametrize("path", WITH_CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(path)


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_have_a_language(path):
    unmarked = [block.line for block in blocks(path.read_text()) if block.language not in ("python", "sh", "text")]
    assert not unmarked, f"blocks that are neither python, sh nor text, at lines {unmarked}"


@pytest.mark.parametrize(("stated", "right"), [("1", True), ("2", False), ("...", True)])
def test_output_is_compared(tmp_path, stated, right):
    page = tmp_path / "page.md"
    page.write_text(f"```python\nprint(1)\n```\n\n```text\n{stated}\n```\n")
    if right:
        assert run_page(page) == 1
    else:
        with pytest.raises(AssertionError, match=r"page\.md, line 6 says"):
            run_page(page)


def test_a_block_that_fails_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python\nx / 0\n```\n")
    with pytest.raises(ZeroDivisionError):
        run_page(page)


def test_commands_are_read():
    text = "pip install x\nfairlayer audit a.csv \\\n  --parity 0.1  # exit code 1\nfairlayer datasets\n"
    assert commands(text) == [(["audit", "a.csv", "--parity", "0.1"], 1), (["datasets"], 0)]
