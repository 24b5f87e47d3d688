"""Frozen dataclasses <-> what JSON knows."""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np


def to_plain(value: Any) -> Any:
    """Dataclasses as dictionaries, tuples as lists, NumPy's numbers as Python's, None for those JSON does not have."""
    if dataclasses.is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(entry) for entry in value]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def from_plain(kind: Any, value: Any) -> Any:
    """The inverse of `to_plain`, guided by the type that is expected; a None where a number is expected becomes nan."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        known = [f.name for f in dataclasses.fields(kind) if f.name in value]
        return kind(**{name: from_plain(hints[name], value[name]) for name in known})  # type: ignore[operator]
    if origin in (typing.Union, types.UnionType):
        return None if value is None else from_plain(next(a for a in arguments if a is not type(None)), value)
    if origin is tuple:
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(from_plain(one, entry) for one, entry in zip(kinds, value, strict=True))
    if origin is dict:
        return {key: from_plain(arguments[1], entry) for key, entry in value.items()}
    if kind is float:
        return math.nan if value is None else float(value)
    return kind(value) if isinstance(kind, type) and issubclass(kind, enum.Enum) else value
