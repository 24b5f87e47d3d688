"""Reports of an audit as files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fairlayer.cli import interrupts
from fairlayer.errors import InputError
from fairlayer.tables.table_io import replacing

if TYPE_CHECKING:
    from fairlayer.audit import Audit


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
    return re.sub(
        r"(?<= within target )(in {)?([01])(?(1)})(?=[,:]|$)",
        lambda found: found[0].replace(found[2], words[found[2]]),
        name,
    )


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
        interrupts.finish()
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


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
