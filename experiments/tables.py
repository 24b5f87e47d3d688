"""Tables as files."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

PUBLISHED = Path(__file__).parent / "published"


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows by column name, all text."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def published(name: str) -> list[dict[str, str]]:
    """A table of published figures, `published/NAME.csv`."""
    return read_csv(PUBLISHED / f"{name}.csv")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], digits: int = 8) -> None:
    """Write rows with the columns of the first; floats with so many significant digits, None as nothing."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows({name: _cell(value, digits) for name, value in row.items()} for row in rows)


def markdown(rows: Sequence[Mapping[str, Any]], digits: int = 4) -> str:
    """Rows as a Markdown table, with the columns of the first."""
    header = list(rows[0])
    lines: Iterable[Sequence[str]] = (
        [_cell(row.get(name), digits).replace("|", "\\|").replace("\n", " ") for name in header] for row in rows
    )
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *lines])


def _cell(value: Any, digits: int) -> str:
    if value is None:
        return ""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
