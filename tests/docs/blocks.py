"""The code blocks of a page, and how they are run: as a reader would, from top to bottom, in one folder."""

from __future__ import annotations

import doctest
import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(
    r"^(?P<indent> *)(?P<mark>`{3,})(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)(?P=mark) *$", re.M | re.S
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """One fenced block. `answers`: it follows the one before it at once, as output follows code."""

    language: str
    text: str
    line: int
    answers: bool


def pages() -> list[Path]:
    """The README, and every page written by hand."""
    return [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md"))]


def blocks(markdown: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found, end = [], 0
    for match in FENCE.finditer(markdown):
        text = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.M)
        line = markdown.count("\n", 0, match.start()) + 2
        found.append(Block(match["language"], text, line, not markdown[end : match.start()].strip()))
        end = match.end()
    return found


def commands(text: str) -> list[tuple[list[str], int]]:
    """The `fairlayer` commands of a shell block, each with the exit code that a comment at its end states."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "fairlayer":
            stated = re.search(r"# exit code (\d)", line)
            found.append((words[1:], int(stated[1]) if stated else 0))
    return found


def run_page(path: Path) -> int:
    """Run every block of a page in the current folder; return how many there were."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed, ran = "", 0
    for block in blocks(path.read_text()):
        where = f"{path.name}, line {block.line}"
        if block.language == "python":
            printed = run_python(block, namespace, where)
            ran += 1
        elif block.language == "sh":
            printed = "".join(run_command(words, code, where) for words, code in commands(block.text))
            ran += bool(printed)
        elif block.language == "text" and block.answers and printed:
            assert doctest.OutputChecker().check_output(block.text, printed, FLAGS), (
                f"{where} says\n{block.text}\nbut the code before it prints\n{printed}"
            )
    return ran


def run_python(block: Block, namespace: dict[str, object], where: str) -> str:
    """Run one block, and return what it prints."""
    out = io.StringIO()
    code = compile("\n" * (block.line - 1) + block.text, where.split(",")[0], "exec")
    with redirect_stdout(out):
        exec(code, namespace)
    return out.getvalue()


def run_command(words: list[str], code: int, where: str) -> str:
    """Run one command of the command line, and return what it prints."""
    from typer.testing import CliRunner

    from fairlayer.cli.app import app

    result = CliRunner().invoke(app, words)
    assert result.exit_code == code, (
        f"{where}: fairlayer {shlex.join(words)} ends with {result.exit_code}:\n{result.output}"
    )
    return result.output
