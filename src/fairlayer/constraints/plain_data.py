"""Names, labels and settings as JSON has them, and back: what it lacks (tuples, sets, infinities) is marked."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

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
