"""Columns that are no features, or that may not be what they seem: what `fit` says of them before it learns."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from fairlayer.tables.entries import is_decimal_comma, is_number, numbers, text_labels, without_missing

ENOUGH_ROWS = 30  # to tell from a column what it is
NAMES_ROWS = 0.9  # share of different entries from which on a column of text is taken to name the rows, and left out
NEARLY_NAMES_ROWS = 0.5  # the same, for a warning
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}( .*)?")
_COMMAS = "decimal commas are read as such only where semicolons or tabs part the columns"


def no_feature(column: Any) -> str | None:
    """Why a column is left out; None where it is not."""
    present = without_missing(column).dropna()
    if not len(present):
        return "it has no entries"
    distinct = present.nunique()
    if is_number(column) or len(present) < ENOUGH_ROWS or distinct < NAMES_ROWS * len(present):
        return None
    if is_decimal_comma(column):
        return f"it is read as text that hardly repeats, as {_COMMAS}"
    what = "a date or time" if _is_date(present) else "text"
    return f"{distinct:,} of its {len(present):,} entries differ, so as {what} it says nothing about new rows"


def danger(column: Any, answer: np.ndarray, target: str) -> str | None:
    """Why a feature may not be what it seems, as a question; None where nothing speaks against it."""
    present = without_missing(column).dropna()
    distinct = present.nunique()
    if tells(column, answer):
        return f"it predicts {target} without a single error. Is it known before {target} is"
    if len(present) < ENOUGH_ROWS:
        return None
    if is_number(column):
        values = numbers(column, str(column.name)).dropna().to_numpy()
        is_row_number = distinct == len(present) and (values == np.round(values)).all()
        return "its whole numbers all differ. Do they number the rows" if is_row_number else None
    if is_decimal_comma(column):
        return f"it is read as text, as {_COMMAS}. Does it hold numbers"
    if _is_date(present):
        return f"each of its {distinct:,} dates or times is a category of its own. Will new rows have the same ones"
    if distinct >= NEARLY_NAMES_ROWS * len(present):
        return f"{distinct:,} of its {len(present):,} entries differ. Does it name the rows"
    return None


def tells(column: Any, answer: np.ndarray) -> bool:
    """Whether the target follows from a column: one class beyond a number, one for each category, or in a line."""
    is_class = set(np.unique(answer).tolist()) <= {0.0, 1.0}
    if is_number(column):
        values = numbers(column, str(column.name)).to_numpy()
        known = np.isfinite(values)
        x, y = values[known], answer[known]
        if len(y) < ENOUGH_ROWS or y.min() == y.max() or x.min() == x.max():
            return False
        if is_class:
            no, yes = x[y == 0.0], x[y == 1.0]
            return bool(no.max() < yes.min() or yes.max() < no.min())
        return abs(float(np.corrcoef(x, y)[0, 1])) > 1.0 - 1e-9
    labels = text_labels(column)
    kinds, code = np.unique(labels.astype(str), return_inverse=True)
    if answer.min() == answer.max() or len(labels) < ENOUGH_ROWS or len(kinds) < 2 or len(kinds) > 0.1 * len(labels):
        return False
    least, most = np.full(len(kinds), np.inf), np.full(len(kinds), -np.inf)
    np.minimum.at(least, code, answer)
    np.maximum.at(most, code, answer)
    return bool((least == most).all())


def _is_date(present: Any) -> bool:
    """Whether every entry is a date or a time."""
    return present.dtype.kind == "M" or all(isinstance(e, str) and _DATE.fullmatch(e.strip()) for e in present)
