"""Options that several commands share, as typer takes them, and how lists, columns and bounds are read from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlayer.errors import InputError
from fairlayer.tables.entries import Attribute, read_cuts
from fairlayer.tables.table_io import Source


def option(metavar: str | None, text: str, *names: str, panel: str | None = None, least: int | None = None) -> Any:
    """An option: what it takes, a sentence on what it does, and the heading of help that it stands under."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, min=least)


Data = Annotated[Path, typer.Argument(metavar="DATA", help="A CSV or Parquet file with one row per sample.")]
Protected = Annotated[
    list[str],
    option(
        "COLUMN",
        "A protected attribute, or several: `sex,race`. The option may be given more than once. A name that contains "
        "commas is taken whole. `age=30,50` groups a column of numbers: below 30, 30 to 50, 50 or more.",
    ),
]
Target = Annotated[
    str | None, option("COLUMN", "The actual outcome, for constraints that look at it, such as --odds and --residuals.")
]
Bounds = Annotated[
    tuple[float, float] | None, option("LO HI", "Keep outputs between LO and HI. Use `-inf` or `inf` for no limit.")
]
Facts = Annotated[
    Path | None,
    option("FILE", "A JSON file with more facts for the model card: `name`, `version`, `intended use`, `contact` ..."),
]


def read_attributes(texts: Sequence[str], source: Source) -> list[Attribute]:
    """The attributes that --protected names."""

    def is_one(text: str) -> bool:
        column, _, cuts = text.rpartition("=")
        return text in source.columns or (column in source.columns and all(map(is_number, cuts.split(","))))

    attributes = []
    for part in split_list(texts, is_one):
        column, cuts = split_column(part, source, "--protected")
        attributes.append(Attribute(column, () if cuts is None else read_cuts(cuts, "--protected")))
    names = [attribute.column for attribute in attributes]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--protected names {name!r} twice.")
    return attributes


def read_bounds(bounds: tuple[float, float] | None) -> tuple[float | None, float | None] | None:
    """(lo, hi) with None for an open side."""
    if bounds is None:
        return None
    low, high = bounds
    if math.isnan(low) or math.isnan(high) or low >= high:
        raise InputError(f"--bounds: LO must be below HI; got {low:g} {high:g}.")
    return (low if low > -math.inf else None), (high if high < math.inf else None)


def split_list(texts: Iterable[str], is_one: Callable[[str], bool]) -> list[str]:
    """The entries that an option lists between commas. An entry that contains commas itself is taken whole."""
    found = []
    for text in texts:
        parts = text.split(",")
        while parts:
            joined = ((size, ",".join(parts[:size])) for size in range(len(parts), 0, -1))
            known = ((size, one) for size, text in joined for one in (text, text.strip()) if is_one(one))
            size, one = next(known, (1, parts[0].strip()))
            found.append(one)
            parts = parts[size:]
    return found


def split_column(text: str, source: Source, option: str) -> tuple[str, str | None]:
    """COLUMN[=CUTS]; the name itself may contain an equals sign."""
    if text in source.columns or "=" not in text:
        return source.check(text, option), None
    column, _, cuts = text.rpartition("=")
    return source.check(column, option), cuts


def is_number(text: str) -> bool:
    """Whether a text spells a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
