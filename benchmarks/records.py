"""Results as files: tables, the settings they were measured with, and the figures that have a limit."""

import csv
import json
import os
import platform
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

TARGET_COLUMNS = ("suite", "what", "measured", "limit", "met", "date")


@dataclass(frozen=True)
class Target:
    """A measured figure and the limit it should keep; `at_least` turns the limit round."""

    what: str
    measured: float
    limit: float
    at_least: bool = False
    busy: bool = False  # measured beside other work: the figure decides nothing

    @property
    def met(self) -> str:
        """Whether the limit is kept: yes, no, or not to be told."""
        if self.busy:
            return "machine busy"
        return "yes" if (self.measured >= self.limit if self.at_least else self.measured <= self.limit) else "no"

    @property
    def limit_text(self) -> str:
        """The limit in words."""
        return f"{'at least' if self.at_least else 'at most'} {self.limit:g}"


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows with the columns of the first."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> list[dict[str, Any]]:
    """Rows as `write_csv` got them: numbers and truths are such again, and an empty cell is None."""
    with path.open(newline="") as file:
        return [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> Any:
    if text in ("", "True", "False"):
        return {"": None, "True": True, "False": False}[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Lay out a table; None is an empty cell."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join("" if cell is None else str(cell) for cell in line) + " |" for line in lines)


def figure(value: float | None, digits: int = 3) -> str | None:
    """Format a number for reading: a few significant digits, no exponent where it can be avoided."""
    if value is None:
        return None
    if value == 0 or 1e-3 <= abs(value) < 1e9:
        return f"{float(f'{value:.{digits}g}'):,.10g}"
    return f"{value:.1e}"


def write_settings(path: Path, args: Namespace, **more: Any) -> None:
    """Write what a reader needs to repeat or doubt the figures, with the load of the machine at the end."""
    settings = {
        "date": _now(),
        "arguments": {"quick": args.quick, "sizes": args.sizes, "peers": args.peers},
        "seed": args.seed,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "fairlayer": version("fairlayer"),
        "torch": version("torch"),
        "load_average": os.getloadavg(),
        **more,
    }
    path.write_text(json.dumps(settings, indent=2) + "\n")


def save_targets(results: Path, suite: str, targets: Sequence[Target]) -> None:
    """Put a suite's figures in targets.csv and targets.md, keeping those of suites not run this time."""
    path = results / "targets.csv"
    kept = []
    if path.exists():
        with path.open(newline="") as file:
            kept = [row for row in csv.DictReader(file) if row["suite"] != suite]
    date = _now()
    new = [
        dict(zip(TARGET_COLUMNS, (suite, t.what, t.measured, t.limit_text, t.met, date), strict=True)) for t in targets
    ]
    if rows := sorted(kept + new, key=lambda row: row["suite"]):
        write_csv(path, rows)
        cells = [
            (row["suite"], row["what"], figure(float(row["measured"])), row["limit"], row["met"], row["date"])
            for row in rows
        ]
        (results / "targets.md").write_text(markdown_table(TARGET_COLUMNS, cells) + "\n")


def targets_table(targets: Sequence[Target]) -> str:
    """Lay out figures for the terminal."""
    width = max((len(target.what) for target in targets), default=0)
    return "\n".join(f"{t.what:<{width}}  {figure(t.measured):>10}  {t.limit_text:<14}  {t.met}" for t in targets)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
