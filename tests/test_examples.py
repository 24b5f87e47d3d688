"""The examples run, and what they claim about themselves is true: each asserts its own constraints."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("name", ["portfolio", "resource_allocation", "robot_control"])
def test_example(name, capsys):
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) == 2
