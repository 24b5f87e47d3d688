"""Entries of a table as numbers, labels, or missing: how text in a file is read.

Text is kept as it stands in the file until it is read here, so that what a command does not change can be written again
as it was.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from fairlayer.errors import InputError
from fairlayer.tables.duckdb_table import BLANKS, DECIMAL_COMMA, MISSING, MISSING_MARKS


def without_missing(column: Any) -> Any:
    """A column with None for whatever marks a missing entry."""
    if column.dtype.kind in "biufcmM":
        return column
    text = column.astype(object)
    return text.where(text.notna() & ~text.isin(MISSING_MARKS), None)


def _number_text(column: Any) -> Any:
    """The same for a column that may hold numbers, which blanks around them do not change."""
    if column.dtype.kind in "biufcmM":
        return column
    bare = column.astype(object).map(lambda value: value.strip(BLANKS) if isinstance(value, str) else value)
    return without_missing(bare)


def is_number(column: Any) -> bool:
    """Whether every entry that is not missing is a number, and there is one."""
    import pandas as pd

    if column.dtype.kind in "iuf":
        return True
    if column.dtype.kind in "bmM":  # a truth value is a category, as it is in a CSV file
        return False
    present = _number_text(column).dropna()
    if not len(present) or any(isinstance(value, bool) for value in present):
        return False
    return bool(pd.to_numeric(present, errors="coerce").notna().all())


def numbers(column: Any, name: str) -> Any:
    """A column as float64, NaN where an entry is missing."""
    import pandas as pd

    clean = _number_text(column)
    values = pd.to_numeric(clean, errors="coerce").astype("float64")
    wrong = values.isna() & clean.notna()
    if wrong.any():
        row = int(np.flatnonzero(wrong.to_numpy())[0])
        raise InputError(
            f"Column {name!r} holds {clean.iloc[row]!r} in row {row + 1}: it must hold numbers. Correct it, or leave "
            "the entry empty."
        )
    return values.replace([np.inf, -np.inf], np.nan)


def text_labels(column: Any) -> np.ndarray:
    """Labels as text: whole numbers without a point, truth values in lower case, `missing` where there is none."""

    def label(value: Any) -> str:
        if value is None:
            return MISSING
        if str(value) in ("True", "False", "TRUE", "FALSE"):
            return str(value).lower()
        if isinstance(value, float | np.floating) and float(value).is_integer():
            return str(int(value))
        return str(value)

    clean = without_missing(column).astype(object)
    return np.array([label(value) for value in clean.where(clean.notna(), None).tolist()], dtype=object)


def is_decimal_comma(column: Any) -> bool:
    """Whether every entry of a column of text is a number where commas are decimal commas, and one of them has one."""
    if column.dtype.kind in "biufcmM":
        return False
    present = _number_text(column).dropna().tolist()
    if not all(isinstance(entry, str) and re.fullmatch(DECIMAL_COMMA, entry) for entry in present):
        return False
    return any("," in entry for entry in present)
