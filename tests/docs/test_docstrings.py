"""Docstrings become Markdown: arguments a list, all else as it is."""

from __future__ import annotations

import pytest

docstrings = pytest.importorskip("docstrings", reason="the documentation needs mkdocstrings", exc_type=ImportError)


def test_arguments_become_a_list():
    text = "What it does.\n\nz: raw outputs,\nof any kind. hi: a bound.\nlower, upper: sides; A: one.\n\nMore: no."
    listed = "- `z`: raw outputs,\nof any kind.\n- `hi`: a bound.\n- `lower`, `upper`: sides;\n- `A`: one."
    assert docstrings.as_markdown(text) == f"What it does.\n\n{listed}\n\nMore: no."


def test_a_list_begins_a_paragraph():
    assert docstrings.as_markdown("One.\nTwo.\nx: three.") == "One.\n\nTwo.\n\n- `x`: three."


def test_prose_and_formulas_stay():
    for text in (
        "rho: a response.",
        "One.\n\n    |mean(y | a)| <= 1\n\nThat is: two.",
        "One.\n\nIt is so: two. Then: three.",
    ):
        assert docstrings.as_markdown(text) == text
