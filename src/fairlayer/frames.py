"""Frames of any library: their columns by name.

pandas is read as it is. Other frames (polars, Arrow tables, and whatever else narwhals knows) are read through
narwhals, which is imported only where one of them comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairlayer.errors import InputError
from fairlayer.extras import needs


def is_pandas(values: Any) -> bool:
    """Whether it is a pandas frame, or another library's that behaves like one."""
    return hasattr(values, "iloc") and hasattr(values, "columns")


def is_frame(values: Any) -> bool:
    """Whether it is a frame of any library: named columns, each with a type of its own."""
    if is_pandas(values) or hasattr(values, "collect_schema"):  # a lazy frame is told so where it is read
        return True
    return (hasattr(values, "__arrow_c_stream__") or hasattr(values, "__dataframe__")) and hasattr(values, "columns")


def frame_columns(frame: Any) -> dict[Any, Any]:
    """The columns of a frame by name: series of pandas, arrays of other libraries; a mapping as a dict."""
    if isinstance(frame, Mapping):
        return dict(frame)
    names = frame_names(frame)
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"The frame has several columns named {name!r}: give each a name of its own.")
    return {name: frame_column(frame, name) for name in names}


def frame_names(frame: Any) -> list[Any]:
    """The names of the columns of a frame or a mapping."""
    if isinstance(frame, Mapping):
        return list(frame)
    return list(frame.columns) if is_pandas(frame) else list(_opened(frame).columns)


def frame_column(frame: Any, name: Any) -> Any:
    """One column of a frame or a mapping, as `frame_columns` gives it."""
    return frame[name] if isinstance(frame, Mapping) or is_pandas(frame) else _as_array(_opened(frame)[name])


def _opened(frame: Any) -> Any:
    """What narwhals makes of a frame."""
    try:
        return _narwhals().from_native(frame, eager_only=True)
    except TypeError as error:
        raise InputError(
            f"{type(frame).__name__} is not a frame that holds its rows ({error}): collect it first, or pass a mapping "
            "of columns."
        ) from error


def _as_array(series: Any) -> Any:
    """Numbers as an array of numbers, nan where one is missing; truth values; anything else as objects."""
    if series.dtype.is_numeric():
        if series.null_count() or series.dtype.is_decimal():
            return series.cast(_narwhals().Float64).fill_null(float("nan")).to_numpy()
        return series.to_numpy()
    found = np.empty(len(series), dtype=object)
    found[:] = series.to_list()
    whole = len(found) > 0 and all(type(value) is bool for value in found.tolist())
    return found.astype(bool) if whole else found


def _narwhals() -> Any:
    with needs("A frame of another library than pandas", "narwhals"):
        import narwhals
    return narwhals
