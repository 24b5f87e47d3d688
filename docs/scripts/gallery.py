"""The gallery: every script in examples/, with what it says of itself."""

import ast
from pathlib import Path

from pages import ROOT, Page, Section

FOLDER = ROOT / "examples"


def gallery() -> Section:
    """One page per script, and an index."""
    scripts = sorted(FOLDER.glob("*.py"))
    lines = [
        "# Gallery",
        "",
        "Whole scripts, short enough to read in a few minutes. Each runs as it stands, on made-up data, and the tests",
        "run every one of them: `python examples/NAME.py`.",
        "",
    ]
    lines += [f"- [{title(script)}]({script.stem}.md): {_summary(script)}" for script in scripts]
    index = Page("gallery/index.md", "Overview", "\n".join(lines) + "\n")
    return Section("Gallery", [index, *(_page(script) for script in scripts)])


def title(script: Path) -> str:
    """The name of a script, to be read."""
    return script.stem.replace("_", " ").capitalize().replace("onnx", "ONNX").replace("sqlite", "SQLite")


def _documentation(script: Path) -> str:
    return ast.get_docstring(ast.parse(script.read_text())) or ""


def _summary(script: Path) -> str:
    return " ".join(_documentation(script).split("\n\n")[0].split())


def _page(script: Path) -> Page:
    text = (
        f"# {title(script)}\n\n{_documentation(script)}\n\nRun it with `python examples/{script.name}`.\n\n"
        f"````python\n{_without_docstring(script)}````\n"
    )
    return Page(f"gallery/{script.stem}.md", title(script), text)


def _without_docstring(script: Path) -> str:
    source = script.read_text()
    first = ast.parse(source).body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    lines = source.splitlines()[first.end_lineno if is_docstring else 0 :]
    return "\n".join(lines).strip("\n") + "\n"
