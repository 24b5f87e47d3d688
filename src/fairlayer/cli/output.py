"""What a command shows and writes: progress and notes on the error stream, results on the output, reports in files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fairlayer.cli import ignore_interrupts
from fairlayer.errors import InputError
from fairlayer.tables.table_io import replacing

if TYPE_CHECKING:
    from fairlayer.audit import Audit

MOST_SHOWN = 30  # gaps
COLOURS = {"satisfied": "green", "violated": "red", "undecided": "yellow"}


def note(text: str) -> None:
    """Something worth knowing, beside the result."""
    Console(stderr=True, highlight=False, markup=False).print(text, soft_wrap=True)


def say(text: str = "") -> None:
    """A line of the result."""
    Console(highlight=False, markup=False).print(text, soft_wrap=True)


def show_table(header: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """A table of the result; numbers to the right. Verdicts have a colour and a word, never a colour alone."""
    table = Table(title=None if title is None else escape(title), box=box.SIMPLE_HEAD, title_justify="left")
    for column, name in enumerate(header):
        numeric = all(isinstance(row[column], int | float) for row in rows)
        table.add_column(escape(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(_cell, row))
    Console(highlight=False).print(table)


def show_gaps(names: Sequence[str], gaps: Sequence[float], tolerances: Sequence[float]) -> None:
    """Gaps beside their tolerances, at most `MOST_SHOWN`; those that exceed theirs most, or come nearest, first."""
    rows = sorted(zip(names, gaps, tolerances, strict=True), key=lambda row: row[2] - abs(row[1]))
    if rows:
        show_table(["constraint", "gap", "tolerance"], rows[:MOST_SHOWN])


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = escape("" if value is None else str(value))
    return f"[{COLOURS[text]}]{text}[/]" if text in COLOURS else text


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show which step is under way while the block runs; nothing remains of it, and nothing shows in a pipe."""
    with Console(stderr=True).status("Starting") as status:
        yield status.update


def in_words(audit: Audit, target: str, classes: Mapping[str, int]) -> Audit:
    """An audit of a target whose two classes are known to it as numbers, in the words of the user."""
    positive = next(name for name, code in classes.items() if code == 1)
    reworded = partial(words_for_classes, classes=classes)
    return replace(
        audit,
        findings=tuple(replace(f, name=reworded(f.name), where=reworded(f.where)) for f in audit.findings),
        not_compared=tuple(map(reworded, audit.not_compared)),
        empty=tuple(map(reworded, audit.empty)),
        settings=replace(audit.settings, positive=f"{target} = {positive}"),
    )


def words_for_classes(name: str, classes: Mapping[str, int]) -> str:
    """The name of a comparison, with the words for classes of the target in place of the numbers that it has."""
    words = {str(code): word for word, code in classes.items()}
    numbers = r"(?<= within target )(in {)?([01])(?(1)})(?=[,:]|$)"
    return re.sub(numbers, lambda found: found[0].replace(found[2], words[found[2]]), name)


def write_reports(
    audit: Audit,
    *,
    page: Path | None = None,
    card: Path | None = None,
    title: str = "Fairness audit",
    facts: Mapping[str, str] | None = None,
    provenance: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write an HTML page with JSON of the same name beside it, and a model card; return what was written."""
    from fairlayer.report.card import write_card
    from fairlayer.report.page import write_html

    written = [] if page is None else [page, page.with_suffix(".json")]
    written += [] if card is None else [card]
    with ExitStack() as files:
        temporary = {path: files.enter_context(replacing(path)) for path in written}
        if page is not None:
            write_html(audit, temporary[page], title=title, provenance=provenance)
            audit.to_json(temporary[page.with_suffix(".json")])
        if card is not None:
            write_card(audit, temporary[card], facts)
        ignore_interrupts()
    return written


def read_facts(path: Path | None) -> dict[str, str]:
    """What a JSON file says that a model card has a place for."""
    from fairlayer.report.card import FACTS

    if path is None:
        return {}
    if not path.is_file():
        raise InputError(f"--facts: {path} does not exist.")
    try:
        facts = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise InputError(f"--facts: {path} is not JSON: {error}.") from error
    if not isinstance(facts, dict):
        raise InputError(f'--facts: {path} must hold names and texts, such as {{"name": "Loans"}}.')
    for name in facts:
        if name not in FACTS:
            raise InputError(f"--facts: {path} has {name!r}; a card has room for {', '.join(FACTS)}.")
    return {name: str(value) for name, value in facts.items()}


def digest(path: Path) -> dict[str, str]:
    """The SHA-256 of the data, as a fact for a report."""
    with path.open("rb") as file:
        return {"data, SHA-256": hashlib.file_digest(file, "sha256").hexdigest()}
