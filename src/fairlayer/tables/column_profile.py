"""What the entries of columns are, and which columns are no features or may not be what they seem.

It is what `fit` says of a table before it learns from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlayer.tables.entries import dates, decimal_commas, number, number_text, spells_number, text
from fairlayer.tables.table import LocalTable

ENOUGH_ROWS = 30  # to tell from a column what it is
NAMES_ROWS = 0.9  # share of different entries from which on a column of text is taken to name the rows, and left out
NEARLY_NAMES_ROWS = 0.5  # share from which on there is a warning
_COMMAS = "decimal commas are read as such only where semicolons or tabs part the columns"


@dataclass(frozen=True)
class ColumnProfile:
    """What the entries of a column are."""

    present: int  # entries that are not missing
    distinct: int
    is_number: bool  # all of them are, and there is one
    is_whole: bool  # numbers without a fraction
    is_date: bool  # dates or times
    has_decimal_commas: bool  # numbers, if commas are decimal commas, and one has one


def profile(table: LocalTable, names: Iterable[str]) -> dict[str, ColumnProfile]:
    """What columns hold, in one query."""
    found = {}
    listed = list(names)
    asked = []
    for name in listed:
        commas = " AND ".join(decimal_commas(name))
        whole = f"bool_and({number(name)} = round({number(name)}))"
        asked.append(
            f"(count({text(name)}), count(DISTINCT {text(name)}), count({number_text(name)}), "
            f"count_if({spells_number(name)}), {whole}, {dates(name)}, {commas})"
        )
    for name, facts in zip(listed, table.run(f"SELECT {', '.join(asked)} FROM data")[0], strict=True):
        present, distinct, entries, numbers, is_whole, is_date, commas = facts
        is_number = entries == numbers > 0
        found[name] = ColumnProfile(present, distinct, is_number, bool(is_whole), bool(is_date), bool(commas))
    return found


def no_feature(column: ColumnProfile) -> str | None:
    """Why a column is left out; None where it is not."""
    present, distinct = column.present, column.distinct
    if not present:
        return "it has no entries"
    if column.is_number or present < ENOUGH_ROWS or distinct < NAMES_ROWS * present:
        return None
    if column.has_decimal_commas:
        return f"it is read as text that hardly repeats, as {_COMMAS}"
    what = "a date or time" if column.is_date else "text"
    return f"{distinct:,} of its {present:,} entries differ, so as {what} it says nothing about new rows"


def danger(column: ColumnProfile, entries: Any, answer: np.ndarray, target: str) -> str | None:
    """Why a feature may not be what it seems, as a question; None where nothing speaks against it.

    entries: of the column, as a model takes them; answer: the targets.
    """
    present, distinct = column.present, column.distinct
    if tells(entries, answer):
        return f"it predicts {target} without a single error. Is it known before {target} is"
    if present < ENOUGH_ROWS:
        return None
    if column.is_number:
        numbers_rows = column.is_whole and distinct == present
        return "its whole numbers all differ. Do they number the rows" if numbers_rows else None
    if column.has_decimal_commas:
        return f"it is read as text, as {_COMMAS}. Does it hold numbers"
    if column.is_date:
        return f"each of its {distinct:,} dates or times is a category of its own. Will new rows have the same ones"
    if distinct >= NEARLY_NAMES_ROWS * present:
        return f"{distinct:,} of its {present:,} entries differ. Does it name the rows"
    return None


def tells(entries: Any, answer: np.ndarray) -> bool:
    """Whether the target follows from a column: one class beyond a number, one for each category, or in a line."""
    values = np.asarray(entries)
    if values.dtype.kind == "f":
        known = np.isfinite(values)
        x, y = values[known], answer[known]
        if len(y) < ENOUGH_ROWS or y.min() == y.max() or x.min() == x.max():
            return False
        if set(np.unique(answer).tolist()) <= {0.0, 1.0}:
            no, yes = x[y == 0.0], x[y == 1.0]
            return bool(no.max() < yes.min() or yes.max() < no.min())
        return abs(float(np.corrcoef(x, y)[0, 1])) > 1.0 - 1e-9
    kinds, code = np.unique(values.astype(str), return_inverse=True)
    if answer.min() == answer.max() or len(values) < ENOUGH_ROWS or len(kinds) < 2 or len(kinds) > 0.1 * len(values):
        return False
    least, most = np.full(len(kinds), np.inf), np.full(len(kinds), -np.inf)
    np.minimum.at(least, code, answer)
    np.maximum.at(most, code, answer)
    return bool((least == most).all())
