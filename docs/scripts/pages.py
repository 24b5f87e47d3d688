"""What the generators give to the site: pages, and files that stand beside them."""

import csv
import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Page:
    """A page of the site that no file in docs/ holds."""

    uri: str
    title: str
    text: str


@dataclass
class Section:
    """Pages that stand together in the navigation, with the pictures and tables they refer to."""

    title: str
    pages: list[Page] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)

    def navigation(self) -> dict[str, Any]:
        """The section as mkdocs wants it; one page stands by itself."""
        if len(self.pages) == 1:
            return {self.title: self.pages[0].uri}
        return {self.title: [{page.title: page.uri} for page in self.pages]}


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; what would be read as markup is escaped."""
    lines = [[cell(text) for text in header], ["---"] * len(header), *([cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: Any) -> str:
    """One cell of a table, as it reads."""
    text = "" if value is None else html.escape(str(value), quote=False)
    for mark in "\\|*_`[]":
        text = text.replace(mark, f"\\{mark}")
    return re.sub(r"\s+", " ", text)


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def heading(markdown: str, default: str) -> str:
    """The first heading of a page."""
    lines = (line for line in markdown.splitlines() if line.startswith("# "))
    return next(lines, f"# {default}").removeprefix("# ").strip()
