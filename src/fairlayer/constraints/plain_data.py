"""Values as JSON has them, and back.

Values whose type nobody knows beforehand (names, labels, settings) go through `to_plain` and `from_plain`: what JSON
lacks (tuples, sets, infinities) is marked. Records, whose types are declared, go through `record_to_plain` and
`record_from_plain`: nothing is marked, so that others can read the file, too.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from fairlayer.errors import InputError

Label = Hashable
Name = Hashable


def to_plain(value: Any, what: str = "value") -> Any:
    """A value as JSON has it; `what` names it in the error for what cannot be kept."""
    if hasattr(value, "tolist"):  # of numpy and torch: numbers and arrays
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, list):
        return [to_plain(part, what) for part in value]
    if isinstance(value, tuple):
        return {"tuple": [to_plain(part, what) for part in value]}
    if isinstance(value, set | frozenset):
        # In an order that is the same in every process.
        return {"set": sorted((to_plain(part, what) for part in value), key=lambda part: (str(type(part)), repr(part)))}
    if isinstance(value, Mapping):
        return {"mapping": [[to_plain(key, what), to_plain(entry, what)] for key, entry in value.items()]}
    raise InputError(f"{what} holds {value!r}, which cannot be written as data: use strings, numbers or booleans.")


def from_plain(data: Any) -> Any:
    """What `to_plain` was given."""
    if isinstance(data, list):
        return [from_plain(part) for part in data]
    if not isinstance(data, dict):
        return data
    ((mark, content),) = data.items()
    if mark == "mapping":
        return {from_plain(key): from_plain(entry) for key, entry in content}
    made = {"tuple": tuple, "set": frozenset}
    return float(content) if mark == "float" else made[mark](from_plain(part) for part in content)


def record_to_plain(value: Any) -> Any:
    """Dataclasses as dictionaries, tuples as lists, NumPy's numbers as Python's, None for those JSON does not have."""
    if dataclasses.is_dataclass(value):
        return {f.name: record_to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): record_to_plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [record_to_plain(entry) for entry in value]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def record_from_plain(kind: Any, value: Any) -> Any:
    """The inverse of `record_to_plain`, guided by the expected type; None where a number is expected becomes nan."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        known = [f.name for f in dataclasses.fields(kind) if f.name in value]
        return kind(**{name: record_from_plain(hints[name], value[name]) for name in known})  # type: ignore[operator]
    if origin in (typing.Union, types.UnionType):
        return None if value is None else record_from_plain(next(a for a in arguments if a is not type(None)), value)
    if origin is tuple:
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(record_from_plain(one, entry) for one, entry in zip(kinds, value, strict=True))
    if origin is dict:
        return {key: record_from_plain(arguments[1], entry) for key, entry in value.items()}
    if kind is float:
        return math.nan if value is None else float(value)
    return kind(value) if isinstance(kind, type) and issubclass(kind, enum.Enum) else value
